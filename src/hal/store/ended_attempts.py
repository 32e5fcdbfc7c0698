"""The ends of attempts in commit order: a page of them behind a sequence number, by state, job, user, node and time.

Read-only; one consistent view. A page looks at no more than `MAX_SCANNED` rows of one index, whatever is asked for, and
says up to where it has looked: who continues from there misses nothing. What an index does not narrow down is compared
row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import cache
from typing import Any, Final

from msgspec import Raw, Struct
from sqlalchemy import Connection, Select, and_, bindparam, func, select, true, union_all

from hal.core.model import AttemptState
from hal.core.model.job import title_of
from hal.store import schema
from hal.store.asked_amounts import SPEC_PART, Asked, SpecPart
from hal.store.bulk import open_cursor
from hal.store.operations import MAX_MESSAGE
from hal.store.queries import page_length
from hal.store.readers import first_since

MAX_SCANNED: Final = 20_000
"""Rows of an index that one page looks at where it compares rows."""
STATES: Final = tuple(state for state in AttemptState if state.ended)


class EndFilter(Struct, frozen=True, kw_only=True):
    """Which ends to read; an empty field does not restrict."""

    states: tuple[AttemptState, ...] = ()
    job: int | None = None
    user: str = ""
    node: str = ""
    """Any of the attempt's nodes."""
    since_ms: int | None = None
    """Recorded at that instant or later."""
    until_ms: int | None = None
    """Recorded before that instant."""


class EndedAttempt(Struct, frozen=True, gc=False, omit_defaults=True):
    """How an attempt ended. Times are milliseconds since 1970."""

    sequence: int
    """Position in commit order, from 1, never reused."""
    job: str
    task: int
    attempt: int
    state: str
    name: str
    """Of its job; of one without a name, its program."""
    queue: str
    """In which the job is, or was when it ended."""
    account: str
    user: str
    trace_id: str
    """Of its job, as in events."""
    nodes: Raw
    """JSON: names, in rank order."""
    retries: int
    """That the task had used when this attempt began."""
    allocated_ms: int
    start_ms: int | None
    end_ms: int
    """By its node, kept between the allocation and `recorded_ms`."""
    recorded_ms: int
    """When the end was committed; never descends with `sequence`."""
    cause: str
    exit_code: int | None
    signal: int | None
    message: str
    usage: Raw
    """JSON: amounts by name, in base units."""
    truncated: bool = False
    """The message was cut for its length."""
    asked: Asked | None = None
    """What its job asked for; only where that is wanted, too."""


class EndedPage(Struct, frozen=True):
    """Some ends, in commit order."""

    rows: list[EndedAttempt]
    end: int
    """All ends up to this sequence number have been looked at."""
    lost: list[tuple[int, int]]
    """Ranges [first, last] of these that are no longer kept; with a filter only what is before the oldest kept."""


_A: Final = schema.attempts.c
_G: Final = schema.gang_nodes.c
_J: Final = schema.jobs.c
_KEY: Final = ("job_id", "task", "attempt", "ended_seq")
_COLUMNS: Final = (
    _A.ended_seq, _A.job_id, _A.task, _A.attempt, _A.state, _J.name, _J.queue, _J.account, _A.user, _J.trace_id,
    _A.nodes, _A.retries, _A.allocated_ms, _A.started_ms, _A.ended_ms, _A.recorded_ms, _A.cause, _A.exit_code,
    _A.signal, _A.message, _A.usage,
)  # fmt: skip
_JOB_COLUMNS: Final = (_J.submit_ms, _J.eligible_ms, _J.walltime_ms, _J.spec_id)
"""Of its job: read behind the others, for what is not a column of an end."""
_TASK_AT, _NAME_AT, _NODES_AT, _MESSAGE_AT, _USAGE_AT = map(
    EndedAttempt.__struct_fields__.index, ("task", "name", "nodes", "message", "usage")
)
_SPECS: Final = select(schema.specs.c.id, schema.specs.c.body).where(
    schema.specs.c.id.in_(bindparam("specs", expanding=True))
)
SPECS_AT_ONCE: Final = 500
"""Specs that one query reads."""
_NO_USAGE: Final = Raw(b"{}")


def read_ended(
    connection: Connection,
    wanted: EndFilter,
    after: int,
    last: int,
    limit: int,
    *,
    newest: bool = False,
    asked: bool = False,
) -> EndedPage:
    """Read the first ends behind sequence number `after`, or the last ones.

    Args:
        last: as if none were behind this number.
        limit: how many at most.
        newest: the last ones.
        asked: also what their jobs asked for.
    """
    limit = page_length(limit)
    low, high = after, last
    if wanted.since_ms is not None:
        low = first_since(connection, _A.ended_seq, _A.recorded_ms, wanted.since_ms, low, high) - 1
    if wanted.until_ms is not None:
        high = first_since(connection, _A.ended_seq, _A.recorded_ms, wanted.until_ms, low, high) - 1
    if low >= high:
        return EndedPage([], max(after, last), [])
    by, compared = _plan(wanted)
    states = len(wanted.states)
    params: dict[str, Any] = {
        "after": low,
        "last": high,
        "job": wanted.job,
        "user": wanted.user,
        "node": wanted.node,
        "limit": limit,
        "skipped": 0,
        "scanned": MAX_SCANNED if compared else limit,
        **{f"state{number}": state.value for number, state in enumerate(wanted.states)},
    }
    looked_at = last
    if compared:
        with closing(open_cursor(connection, scanned_query(by, states, newest), params)) as cursor:
            count, least, most = cursor.fetchone()
        if count == MAX_SCANNED and newest:
            params["after"] = least - 1
        elif count == MAX_SCANNED:
            looked_at = params["last"] = most
    with closing(open_cursor(connection, page_query(by, compared, states, newest), params)) as cursor:
        found = cursor.fetchall()
    unnamed = {values[-1] for values in found if not values[_NAME_AT]}
    known = _programs(connection, {values[-1] for values in found} if asked else unnamed)
    rows = [_row(values, known, asked=asked) for values in found]
    if newest:
        return EndedPage(rows[::-1], last, [])
    end = rows[-1].sequence if len(rows) == limit else looked_at
    return EndedPage(rows, end, _lost(connection, rows, after, end, whole=wanted == EndFilter()))


def _plan(wanted: EndFilter) -> tuple[str, frozenset[str]]:
    """By which index ends are found, and what is compared of the rows that it gives."""
    asked = [name for name in ("node", "job", "user") if getattr(wanted, name)]
    if wanted.states and len(wanted.states) < len(STATES):
        asked.append("state")
    return (asked[0], frozenset(asked[1:])) if asked else ("", frozenset())


def _behind(columns: Any, selected: Any, *conditions: Any) -> Any:
    """What is selected of the ends in (after, last]."""
    numbers = (columns.ended_seq > bindparam("after"), columns.ended_seq <= bindparam("last"))
    return select(*selected).where(*conditions, *numbers)


def _conditions(by: str, states: int) -> list[Any]:
    """A condition for each range of the index for `by` that holds ends."""
    if by == "state":
        return [_A.state == bindparam(f"state{number}") for number in range(states)]
    return [_A["job_id" if by == "job" else by] == bindparam(by)] if by else [true()]


def _limited(query: Any, name: str) -> Any:
    """At most as many rows as that parameter says. (For SQLite the compiler adds an offset, which is named here.)"""
    return query.limit(bindparam(name)).offset(bindparam("skipped"))


def _order(number: Any, newest: bool) -> Any:
    return number.desc() if newest else number


def _keys(by: str, states: int, newest: bool) -> Any:
    """Keys of ends in order, merged from all ranges."""
    parts = [_behind(_A, [_A[name] for name in _KEY], condition) for condition in _conditions(by, states)]
    if by == "node":
        parts.append(_behind(_G, [_G[name] for name in _KEY], _G.node == bindparam("node")))
    whole: Any = parts[0] if len(parts) == 1 else union_all(*parts)
    found: Any = whole.subquery()
    keys: Any = select(*found.c)
    return _limited(keys.order_by(_order(found.c.ended_seq, newest)), "scanned")


@cache
def page_query(by: str, compared: frozenset[str], states: int, newest: bool = False) -> Select[Any]:
    """The query for a page. Cached for ever: there are as many as ways to ask."""
    conditions = _conditions(by, states)
    if by == "node" or len(conditions) > 1:
        keys = _keys(by, states, newest).subquery()
        same = and_(*(_A[name] == keys.c[name] for name in _KEY[:3]))
        query: Any = select(*_COLUMNS, *_JOB_COLUMNS).select_from(keys.join(schema.attempts, same))
        query = query.order_by(_order(keys.c.ended_seq, newest))
    else:
        query = _behind(_A, (*_COLUMNS, *_JOB_COLUMNS), *conditions).order_by(_order(_A.ended_seq, newest))
    query = _limited(query.join(schema.jobs, _J.id == _A.job_id), "limit")
    if "job" in compared:
        query = query.where(_A.job_id == bindparam("job"))
    if "user" in compared:
        query = query.where(_A.user == bindparam("user"))
    if "state" in compared:
        query = query.where(_A.state.in_([bindparam(f"state{number}") for number in range(states)]))
    made: Select[Any] = query
    return made


@cache
def scanned_query(by: str, states: int, newest: bool = False) -> Select[Any]:
    """How many keys a page looks at, from which number up to which."""
    keys = _keys(by, states, newest).subquery()
    made: Any = select(func.count(), func.min(keys.c.ended_seq), func.max(keys.c.ended_seq)).select_from(keys)
    counted: Select[Any] = made
    return counted


def _programs(connection: Connection, specs: set[int]) -> dict[int, SpecPart]:
    """Parts of specs by id; equal jobs share theirs."""
    wanted, known = sorted(specs), {}
    for at in range(0, len(wanted), SPECS_AT_ONCE):
        for number, body in connection.execute(_SPECS, {"specs": wanted[at : at + SPECS_AT_ONCE]}):
            known[number] = SPEC_PART.decode(body)
    return known


def _row(values: Any, known: Mapping[int, SpecPart], *, asked: bool) -> EndedAttempt:
    *row, submit_ms, eligible_ms, walltime_ms, spec_id = values
    spec = known.get(spec_id)
    row[1] = str(row[1])
    row[_NAME_AT] = row[_NAME_AT] or ("" if spec is None else title_of(spec.command))
    row[_NODES_AT] = Raw(row[_NODES_AT])
    row[_USAGE_AT] = _NO_USAGE if row[_USAGE_AT] is None else Raw(row[_USAGE_AT])
    message = row[_MESSAGE_AT]
    row.append(len(message) >= MAX_MESSAGE and message.endswith("…"))
    if asked and spec is not None:
        amounts = spec.amounts(row[_TASK_AT])
        row.append(Asked(submit_ms, eligible_ms, walltime_ms, amounts, spec.span, spec.jobs(), bool(spec.gates)))
    return EndedAttempt(*row)


def _lost(
    connection: Connection, rows: list[EndedAttempt], after: int, end: int, *, whole: bool
) -> list[tuple[int, int]]:
    """Which numbers in (after, end] belong to ends that are no longer kept.

    Args:
        whole: `rows` are all that there are.
    """
    lost: list[tuple[int, int]] = []
    if whole:
        following = after + 1
        for row in rows:
            if row.sequence > following:
                lost.append((following, row.sequence - 1))
            following = row.sequence + 1
        if following <= end:
            lost.append((following, end))
        return lost
    oldest = connection.execute(select(func.min(_A.ended_seq)).where(_A.ended_seq.is_not(None))).scalar()
    first_kept = end + 1 if oldest is None else min(oldest, end + 1)
    if first_kept > after + 1:
        lost.append((after + 1, first_kept - 1))
    return lost
