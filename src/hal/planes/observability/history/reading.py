"""Attempts one by one: of a job, or of a range of time, in pages that continue behind a number. Only reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from hal.planes.observability.history.feed_rows import NodesAsked
from hal.planes.observability.history.levels import Level
from hal.planes.observability.history.recording import read_kept
from hal.planes.observability.history.tables import STATES
from hal.planes.observability.history.usage import Wanted, conditions_of

MAX_ROWS: Final = 5_000
"""Attempts of one page."""


class KeptAttempt(Struct, frozen=True, kw_only=True, gc=False):
    """One ended attempt. Times are milliseconds, since 1970 for instants; amounts are of all its nodes together."""

    id: int
    """Position in the history."""
    job: str
    task: int
    attempt: int
    state: str
    name: str
    queue: str
    account: str
    user: str
    trace_id: str
    nodes: tuple[str, ...]
    submit_ms: int | None
    eligible_ms: int | None
    allocated_ms: int
    start_ms: int | None
    end_ms: int
    retries: int
    cause: str
    exit_code: int | None
    signal: int | None
    message: str
    cpu: int
    """Millicores that it was given."""
    memory_bytes: int
    gpu: int
    """Thousandths."""
    walltime_ms: int | None
    wait_ms: int | None
    """None: it never began, or nobody knows since when it could have."""
    ran_ms: int
    core_ms: int
    cpu_ms: int
    partly_counted: bool
    """CPU time is that of the first process, and of those that it waited for, alone."""
    peak_bytes: int
    gpu_ms: int
    gpu_used_ms: int | None
    """None: not measured."""
    gpu_counted_ms: int
    """Of `gpu_ms`, what was measured."""
    read_bytes: int
    written_bytes: int
    energy_j: float
    energy_measured: bool
    """A part of it was."""
    measured_energy_j: float
    price: float | None
    parent_span: str = ""
    """The span below which its job was submitted; empty: it began the trace."""
    after_jobs: tuple[str, ...] = ()
    """Jobs for which its job waited."""
    gated: bool = False
    """Its attempts wait at gates."""


AttemptKey = tuple[int, int, int]
"""Job, task, attempt."""


class AskedText(Struct, frozen=True, array_like=True):
    """What a job asked for, as `details.asked` has it."""

    walltime_ms: int | None
    nodes: tuple[NodesAsked, ...]
    span: str = ""
    jobs: tuple[str, ...] = ()
    gated: bool = False


NOTHING_KNOWN: Final = AskedText(None, ())
_ASKED: Final = msgspec.json.Decoder(AskedText)


_COLUMNS: Final = (
    "a.id, a.end_ms, a.state, a.job, a.task, a.attempt, a.start_ms, a.wait_ms, a.ran_ms, a.core_ms, a.cpu_ms, "
    "a.partly_counted, a.gpu_ms, a.gpu_used_ms, a.gpu_counted_ms, a.energy_mj, a.measured_energy_mj, a.price_micro, "
    "a.peak_bytes, o.account, o.user, o.queue, n.name, p.nodes, d.allocated_ms, d.submit_ms, d.eligible_ms, d.retries, "
    "d.exit_code, d.signal, d.asked, d.usage, d.cause, d.trace_id, d.message"
)
_JOINED: Final = (
    "attempts a JOIN owners o ON o.id = a.owner JOIN names n ON n.id = a.name JOIN places p ON p.id = a.place "
    "JOIN details d ON d.id = a.id"
)


def read_placed(
    connection: sqlite3.Connection, keys: Sequence[AttemptKey]
) -> dict[AttemptKey, tuple[str, tuple[str, ...]]]:
    """Whose attempts were, and on which nodes they ran, in rank order; of those that are kept."""
    query = (
        "SELECT o.user, p.nodes FROM attempts a JOIN owners o ON o.id = a.owner JOIN places p ON p.id = a.place "
        "WHERE a.job = ? AND a.task = ? AND a.attempt = ? ORDER BY a.id DESC LIMIT 1"
    )
    found: dict[AttemptKey, tuple[str, tuple[str, ...]]] = {}
    for key in keys:
        if (row := connection.execute(query, key).fetchone()) is not None:
            found[key] = (row[0], tuple(msgspec.json.decode(row[1], type=list[str])))
    return found


def read_job(
    connection: sqlite3.Connection, job: int, wanted: Wanted, after: int = 0, limit: int = MAX_ROWS
) -> list[KeptAttempt]:
    """Attempts of one job behind a number, as they came."""
    conditions, values = conditions_of(connection, wanted)
    ids = f"SELECT id FROM attempts WHERE job = ? AND id > ?{conditions} ORDER BY id LIMIT ?"
    return list(_rows(connection, ids, (job, after, *values, limit)))


def read_range(
    connection: sqlite3.Connection, wanted: Wanted, since_ms: int, until_ms: int, after: int = 0, limit: int = MAX_ROWS
) -> list[KeptAttempt]:
    """Attempts that ended within [since, until), behind a number, as they came."""
    since_ms = max(since_ms, read_kept(connection)[Level.ATTEMPTS])
    first, last = connection.execute(
        "SELECT MIN(id), MAX(id) FROM attempts WHERE end_ms >= ? AND end_ms < ?", (since_ms, until_ms)
    ).fetchone()
    if first is None:
        return []
    conditions, values = conditions_of(connection, wanted)
    conditions = f"id > ? AND id <= ? AND +end_ms >= ? AND +end_ms < ?{conditions}"
    ids = f"SELECT id FROM attempts WHERE {conditions} ORDER BY id LIMIT ?"
    return list(_rows(connection, ids, (max(after, first - 1), last, since_ms, until_ms, *values, limit)))


def _rows(connection: sqlite3.Connection, ids: str, values: Sequence[Any]) -> Iterator[KeptAttempt]:
    query = f"SELECT {_COLUMNS} FROM {_JOINED} WHERE a.id IN ({ids}) ORDER BY a.id"
    for row in connection.execute(query, values):
        yield _attempt(row)


def _attempt(row: Sequence[Any]) -> KeptAttempt:
    (
        number, end_ms, state, job, task, attempt, start_ms, wait_ms, ran_ms, core_ms, cpu_ms, partly_counted, gpu_ms,
        gpu_used_ms, gpu_counted_ms, energy_mj, measured_energy_mj, price_micro, peak_bytes, account, user, queue, name,
        places, allocated_ms, submit_ms, eligible_ms, retries, exit_code, signal, asked_text, usage_text, cause,
        trace_id, message,
    ) = row  # fmt: skip
    nodes = tuple(msgspec.json.decode(places))
    asked = NOTHING_KNOWN if asked_text is None else _ASKED.decode(asked_text)
    amounts = _amounts(asked, len(nodes))
    usage = msgspec.json.decode(usage_text) if usage_text else {}
    return KeptAttempt(
        id=number, job=str(job), task=task, attempt=attempt, state=STATES[state], name=name, queue=queue,
        account=account, user=user, trace_id=trace_id, nodes=nodes, submit_ms=submit_ms, eligible_ms=eligible_ms,
        allocated_ms=allocated_ms, start_ms=start_ms, end_ms=end_ms, retries=retries, cause=cause, exit_code=exit_code,
        signal=signal, message=message, cpu=amounts.get("cpu", 0), memory_bytes=amounts.get("memory", 0),
        gpu=amounts.get("gpu", 0), walltime_ms=asked.walltime_ms, wait_ms=wait_ms, ran_ms=ran_ms, core_ms=core_ms,
        cpu_ms=cpu_ms, partly_counted=bool(partly_counted), peak_bytes=peak_bytes, gpu_ms=gpu_ms,
        gpu_used_ms=gpu_used_ms if gpu_counted_ms else None, gpu_counted_ms=gpu_counted_ms,
        read_bytes=usage.get("read_bytes", 0),
        written_bytes=usage.get("written_bytes", 0), energy_j=energy_mj / 1_000, energy_measured=measured_energy_mj > 0,
        measured_energy_j=measured_energy_mj / 1_000,
        price=None if price_micro is None else price_micro / 1_000_000, parent_span=asked.span, after_jobs=asked.jobs,
        gated=asked.gated,
    )  # fmt: skip


def _amounts(asked: AskedText, nodes: int) -> dict[str, int]:
    """Of all nodes together."""
    total: dict[str, int] = {}
    for kind in asked.nodes:
        count = nodes if len(asked.nodes) == 1 else kind.nodes
        for name, amount in kind.amounts.items():
            total[name] = total.get(name, 0) + amount * count
    return total
