"""The tables of history.sqlite: attempts, and sums of them; one declaration of what is summed.

A measure is declared once, with how it is computed from a row of `attempts`: the columns of the sums, what one batch
adds to them, and every query follow from `SUMS` and `PEAKS`. Times are milliseconds (since 1970 for instants), amounts
base units.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hal.planes.observability.history.levels import LENGTH_MS, Level

SUCCEEDED: Final = "succeeded"
STATES: Final = (
    SUCCEEDED, "failed", "timed-out", "cancelled", "preempted", "lost", "out-of-memory", "refused",
)  # fmt: skip
"""How an attempt ended; its number in this order is what a row has."""
COUNTED_STATES: Final = {state: state.replace("-", "_") for state in STATES}
"""The names of their counts."""

WAITS: Final = {"1m": 60_000, "10m": 600_000, "1h": 3_600_000, "6h": 21_600_000, "1d": 86_400_000}
"""By name: attempts that waited at most so long are counted."""

SUMS: Final[dict[str, str]] = {
    "attempts": "1",
    "tasks": "attempt = 1",
    "jobs": "attempt = 1 AND task = 0",
    "ran": "start_ms IS NOT NULL",
    **{name: f"state = {number}" for number, name in enumerate(COUNTED_STATES.values())},
    "waited": "wait_ms IS NOT NULL",
    **{f"waited_{name}": f"wait_ms <= {most_ms}" for name, most_ms in WAITS.items()},
    "wait_ms": "wait_ms",
    "ran_ms": "ran_ms",
    "core_ms": "core_ms",
    "cpu_ms": "cpu_ms",
    "counted_core_ms": "counted_core_ms",
    "partly_counted": "partly_counted",
    "unsuccessful_core_ms": "CASE WHEN state THEN core_ms END",
    "memory_mib_s": "memory_mib_s",
    "memory_used_mib_s": "memory_used_mib_s",
    "memory_counted_mib_s": "memory_counted_mib_s",
    "gpu_ms": "gpu_ms",
    "gpu_used_ms": "gpu_used_ms",
    "gpu_counted_ms": "gpu_counted_ms",
    "walltime_ms": "walltime_ms",
    "limited_ms": "limited_ms",
    "read_kib": "read_kib",
    "written_kib": "written_kib",
    "energy_mj": "energy_mj",
    "measured_energy_mj": "measured_energy_mj",
    "priced": "price_micro IS NOT NULL",
    "price_micro": "price_micro",
}
"""What is added up."""
PEAKS: Final[dict[str, str]] = {"longest_wait_ms": "wait_ms", "peak_bytes": "peak_bytes"}
"""Of what the largest is kept."""
MEASURES: Final = (*SUMS, *PEAKS)


class SumsTable(NamedTuple):
    """A table of sums of attempts that ended within a bucket of time and have an owner, and perhaps more, in common."""

    name: str
    level: Level
    keys: tuple[str, ...]
    """Columns of `attempts` that they have in common."""


OWNER: Final = ("owner",)
NAMED: Final = ("owner", "name")
PLACE: Final = ("place",)
PLACED: Final = ("owner", "place")
SUM_TABLES: Final = (
    SumsTable("minutes", Level.MINUTES, OWNER),
    SumsTable("hours", Level.HOURS, OWNER),
    SumsTable("days", Level.DAYS, OWNER),
    SumsTable("named_hours", Level.HOURS, NAMED),
    SumsTable("named_days", Level.DAYS, NAMED),
    SumsTable("place_days", Level.DAYS, PLACE),
    SumsTable("placed_days", Level.DAYS, PLACED),
    SumsTable("place_hours", Level.HOURS, PLACE),
    SumsTable("placed_hours", Level.HOURS, PLACED),
)
"""An owner is an account, a user and a queue; a place is the nodes of an attempt."""

FIRST_TABLES: Final = SUM_TABLES[:7]
"""Those of the first version of the file."""

_SUM_COLUMNS: Final = ", ".join(f"{name} INTEGER NOT NULL" for name in MEASURES)


def _created(table: SumsTable) -> str:
    keys = ", ".join(f"{key} INTEGER" for key in table.keys)
    primary = ", ".join(("at_ms", *table.keys))
    return (
        f"CREATE TABLE {table.name} (at_ms INTEGER, {keys}, {_SUM_COLUMNS}, PRIMARY KEY ({primary})) WITHOUT ROWID;\n"
    )


ATTEMPT_COLUMNS: Final = (
    "end_ms", "owner", "name", "place", "state", "job", "task", "attempt", "start_ms", "wait_ms", "ran_ms", "core_ms",
    "cpu_ms", "counted_core_ms", "partly_counted", "memory_mib_s", "memory_used_mib_s", "memory_counted_mib_s",
    "gpu_ms", "gpu_used_ms", "gpu_counted_ms", "walltime_ms", "limited_ms", "read_kib", "written_kib", "energy_mj",
    "measured_energy_mj", "price_micro", "peak_bytes",
)  # fmt: skip
"""Of `attempts`: those that are summed are apart from what is only shown (`details`), so that a scan reads little."""
DETAIL_COLUMNS: Final = (
    "sequence", "allocated_ms", "recorded_ms", "submit_ms", "eligible_ms", "retries", "exit_code", "signal", "asked",
    "usage", "cause", "trace_id", "message",
)  # fmt: skip


def summed_attempts() -> str:
    """The list of measures of a query that groups rows of `attempts`."""
    sums = [f"COALESCE(SUM({text}), 0)" for text in SUMS.values()]
    return ", ".join(sums + [f"COALESCE(MAX({text}), 0)" for text in PEAKS.values()])


def summed_sums() -> str:
    """The same of a query that groups sums."""
    return ", ".join([f"SUM({name})" for name in SUMS] + [f"MAX({name})" for name in PEAKS])


def added_sums() -> str:
    """How a sum that is there takes up a further one."""
    sums = [f"{name} = {name} + excluded.{name}" for name in SUMS]
    return ", ".join(sums + [f"{name} = MAX({name}, excluded.{name})" for name in PEAKS])


def _filled(table: SumsTable) -> str:
    """Its rows, of the attempts that are there."""
    length, keys = LENGTH_MS[table.level], ", ".join(table.keys)
    return (
        f"INSERT INTO {table.name} (at_ms, {keys}, {', '.join(MEASURES)}) "
        f"SELECT end_ms / {length} * {length} AS at, {keys}, {summed_attempts()} FROM attempts "
        f"WHERE end_ms >= (SELECT from_ms FROM kept WHERE level = '{table.level}') GROUP BY at, {keys};\n"
    )


MIGRATIONS: Final = (
    f"""
CREATE TABLE progress (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    cursor INTEGER NOT NULL,     -- sequence number of the last ended attempt that is in here
    recorded_ms INTEGER NOT NULL -- when that was committed
);
INSERT INTO progress VALUES (1, 0, 0);
CREATE TABLE lost (              -- ended attempts that the controller no longer had
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,   -- they ended after this,
    until_ms INTEGER NOT NULL    -- and before this
);
CREATE TABLE kept (level TEXT PRIMARY KEY, from_ms INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO kept VALUES ('attempts', 0), ('minutes', 0), ('hours', 0), ('days', 0);
CREATE TABLE owners (
    id INTEGER PRIMARY KEY, account TEXT NOT NULL, user TEXT NOT NULL, queue TEXT NOT NULL,
    UNIQUE (account, user, queue)
);
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE places (id INTEGER PRIMARY KEY, nodes TEXT NOT NULL UNIQUE); -- JSON, in rank order
CREATE TABLE nodes (name TEXT PRIMARY KEY, labels TEXT NOT NULL, capacity TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    {", ".join(f"{name} INTEGER" for name in ATTEMPT_COLUMNS)}
);
CREATE INDEX attempts_ended ON attempts (end_ms);
CREATE INDEX attempts_of_job ON attempts (job, task, attempt);
CREATE TABLE details (id INTEGER PRIMARY KEY, {", ".join(DETAIL_COLUMNS)});
{"".join(_created(table) for table in FIRST_TABLES)}""",
    # Sums by hour of nodes: a day of any zone with whole hours is a sum of them. Where attempts are no longer kept,
    # hours cannot be made of them, and days answer.
    "".join(_created(table) + _filled(table) for table in SUM_TABLES[7:])
    + "UPDATE kept SET from_ms = MAX(from_ms, (SELECT from_ms FROM kept WHERE level = 'attempts')) "
    "WHERE level = 'hours';",
)
