"""Rows of `hal history`: ended attempts, summed by job or by whatever else they have in common. Pure.

One pass over attempts in commit order; memory follows the number of groups, at most `MAX_GROUPS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import click
from msgspec import Struct

from hal.cli.kit.formats import NOTHING, instant, span
from hal.client.rest.feed_calls import EndedAttemptInfo
from hal.core.model import AttemptState, SpecError, readable_amount
from hal.core.model.topology.node_lists import fold_names

MAX_GROUPS: Final = 1_000_000
"""Jobs, or other groups, that are summed at once."""
MAX_NODES: Final = 64
"""Nodes of a group that are named."""
GROUPS: Final[dict[str, Callable[[EndedAttemptInfo], str]]] = {
    "job": lambda row: row.job,
    "attempt": lambda row: row.id,
    "name": lambda row: row.name,
    "user": lambda row: row.user,
    "account": lambda row: row.account,
    "queue": lambda row: row.queue,
    "node": lambda row: row.nodes[0] if row.nodes else "",
    "state": lambda row: row.state.value,
    "day": lambda row: datetime.fromtimestamp(row.end_ms / 1000).astimezone().strftime("%Y-%m-%d"),
}
"""What attempts can be summed by: the text that those of one group share."""


class HistoryRow(Struct, kw_only=True):
    """Attempts that were summed. Times in milliseconds, sizes in bytes."""

    group: str
    """What they have in common: a job's id, a user, ..."""
    jobs: int = 0
    tasks: int = 0
    """Tasks whose first attempt is among them; a task counts once."""
    attempts: int = 0
    name: str = ""
    user: str = ""
    account: str = ""
    queue: str = ""
    state: str = ""
    """Of the attempts, the worst: a job that failed once and then succeeded has succeeded."""
    states: dict[str, int] = {}
    """Attempts by how they ended."""
    exit_code: int | None = None
    """The largest."""
    nodes: tuple[str, ...] = ()
    """The first `MAX_NODES`."""
    start_ms: int | None = None
    """The first start."""
    end_ms: int = 0
    """The last end."""
    ran_ms: int = 0
    """The sum of the times that attempts ran."""
    cpu_ms: int = 0
    """CPU time used."""
    max_memory_bytes: int = 0
    """The most that one attempt used."""


class _Sum:
    """A row in the making."""

    def __init__(self, group: str) -> None:
        self.row = HistoryRow(group=group, states={})
        self.jobs: set[str] = set()
        self.nodes: dict[str, None] = {}
        self.ended: dict[tuple[str, int], tuple[AttemptState, int | None]] = {}
        """How the latest attempt of each task ended, and its exit code."""

    def add(self, one: EndedAttemptInfo) -> None:
        """Count an attempt."""
        row = self.row
        row.attempts += 1
        self.jobs.add(one.job)
        self.ended[one.job, one.task] = one.state, one.exit_code
        row.states[one.state.value] = row.states.get(one.state.value, 0) + 1
        for field in ("name", "user", "account", "queue"):
            value = getattr(one, field)
            was = getattr(row, field)
            setattr(row, field, value if row.attempts == 1 or was == value else "")
        for node in one.nodes:
            if len(self.nodes) < MAX_NODES:
                self.nodes.setdefault(node)
        if one.start_ms is not None:
            row.start_ms = one.start_ms if row.start_ms is None else min(row.start_ms, one.start_ms)
            row.ran_ms += max(one.end_ms - one.start_ms, 0)
        row.end_ms = max(row.end_ms, one.end_ms)
        row.cpu_ms += cpu_ms_of(one)
        row.max_memory_bytes = max(row.max_memory_bytes, one.usage.get("max_rss_bytes", 0))

    def done(self) -> HistoryRow:
        """The row."""
        row = self.row
        row.jobs, row.tasks = len(self.jobs), len(self.ended)
        row.nodes = tuple(sorted(self.nodes))
        row.state = max((state for state, _code in self.ended.values()), key=_SEVERITY.index).value
        row.exit_code = max((code for _state, code in self.ended.values() if code is not None), default=None)
        return row


_SEVERITY: Final = (
    AttemptState.SUCCEEDED,
    *(
        state
        for state in AttemptState
        if state not in (AttemptState.SUCCEEDED, AttemptState.TIMED_OUT, AttemptState.FAILED)
    ),
    AttemptState.TIMED_OUT,
    AttemptState.FAILED,
)
"""From the best end to the worst."""


def cpu_ms_of(row: EndedAttemptInfo) -> int:
    """CPU time that an attempt used, in the program and in the kernel."""
    return row.usage.get("user_ms", 0) + row.usage.get("system_ms", 0)


def summed(found: Iterable[EndedAttemptInfo], by: str) -> list[HistoryRow]:
    """Sum attempts by a key of `GROUPS`; groups in the order of their last ends.

    Raises:
        SpecError: there are more than `MAX_GROUPS`.
    """
    groups: dict[str, _Sum] = {}
    key = GROUPS[by]
    for one in found:
        name = key(one)
        group = groups.get(name)
        if group is None:
            if len(groups) == MAX_GROUPS:
                raise SpecError(
                    f"more than {MAX_GROUPS:,} rows of history match",
                    hint="ask for less: --since, --until, --user, --by day",
                )
            group = groups[name] = _Sum(name)
        group.add(one)
    return sorted((group.done() for group in groups.values()), key=lambda row: row.end_ms)


class Column(NamedTuple):
    """One column of a table of history."""

    help: str
    cell: Callable[[HistoryRow], str]


def _count(help_text: str, of: Callable[[HistoryRow], int]) -> Column:
    return Column(help_text, lambda row: str(of(row)))


COLUMNS: Final[dict[str, Column]] = {
    "group": Column("what the row is about", lambda row: row.group),
    "name": Column("the name of its jobs", lambda row: row.name),
    "user": Column("whose", lambda row: row.user),
    "account": Column("on whose behalf", lambda row: row.account),
    "queue": Column("the queue", lambda row: row.queue),
    "state": Column("how it ended; of several tasks, the worst", lambda row: row.state),
    "jobs": _count("jobs", lambda row: row.jobs),
    "tasks": _count("tasks", lambda row: row.tasks),
    "attempts": _count("attempts", lambda row: row.attempts),
    "failed": _count(
        "attempts that did not succeed", lambda row: row.attempts - row.states.get(AttemptState.SUCCEEDED.value, 0)
    ),
    "exit": Column(
        "the largest exit code of the latest attempts of its tasks",
        lambda row: NOTHING if row.exit_code is None else str(row.exit_code),
    ),
    "nodes": Column("where it ran", lambda row: fold_names(row.nodes) or NOTHING),
    "started": Column("the first start", lambda row: instant(row.start_ms) or NOTHING),
    "ended": Column("the last end", lambda row: instant(row.end_ms)),
    "ran": Column("the time that it ran, over all tasks", lambda row: span(row.ran_ms)),
    "cputime": Column("CPU time used", lambda row: span(row.cpu_ms)),
    "memory": Column(
        "the most memory of one attempt",
        lambda row: readable_amount("memory", row.max_memory_bytes) if row.max_memory_bytes else NOTHING,
    ),
}
OF_A_JOB: Final = (
    "group",
    "name",
    "user",
    "queue",
    "state",
    "tasks",
    "exit",
    "nodes",
    "ran",
    "cputime",
    "memory",
    "ended",
)
OF_A_GROUP: Final = ("group", "jobs", "tasks", "attempts", "failed", "ran", "cputime", "memory", "ended")


def chosen(text: str | None, by: str) -> tuple[str, ...]:
    """The columns of a comma list, or the usual ones.

    Raises:
        click.UsageError: one does not exist.
    """
    if text is None:
        return OF_A_JOB if by in ("job", "attempt") else OF_A_GROUP
    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    names = ["group" if name == by or name == "id" else name for name in names]
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"'{name}' is not a column{hint} (columns: {', '.join(COLUMNS)})")
    if not names:
        raise click.UsageError(f"--columns: no column is named (columns: {', '.join(COLUMNS)})")
    return tuple(names)


def titles(columns: Sequence[str], by: str) -> list[str]:
    """Their headings: the first is what rows are about."""
    return [("ID" if by in ("job", "attempt") else by.upper()) if name == "group" else name.upper() for name in columns]


def matching(found: Iterable[EndedAttemptInfo], *, account: str, queue: str, name: str) -> Iterable[EndedAttemptInfo]:
    """Those of an account, queue and name, which the controller does not filter by."""
    from fnmatch import fnmatchcase

    for row in found:
        if (
            (not account or row.account == account)
            and (not queue or row.queue == queue)
            and (not name or fnmatchcase(row.name, name))
        ):
            yield row


def as_csv(rows: Sequence[HistoryRow], by: str) -> str:
    """All fields as CSV, with a heading: times in milliseconds since 1970, sizes in bytes."""
    import csv
    import io

    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    fields = [field for field in HistoryRow.__struct_fields__ if field != "states"]
    table.writerow([by if field == "group" else field for field in fields])
    for row in rows:
        table.writerow([_csv_cell(getattr(row, field)) for field in fields])
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    return " ".join(value) if isinstance(value, tuple) else "" if value is None else value
