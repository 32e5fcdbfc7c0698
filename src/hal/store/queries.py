"""Queries: jobs, attempts, events, and what a controller loads at its start. Read-only; each sees one consistent
view.

Lists are keyset pages: the cursor is the key of the last row, so every page costs the same, and rows added in the
meantime neither shift nor repeat a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from hal.core.model import (
    AttemptState,
    Dependency,
    Event,
    EventKind,
    JobSpec,
    NodeState,
    TaskState,
    dec_hook,
    each_dependency,
)
from hal.core.model.devices import HeldGpus
from hal.core.model.name_patterns import MATCHED_CHARS, as_glob, as_like, is_pattern
from hal.core.model.units import MAX_AMOUNT, parse_duration
from hal.store import schema
from hal.store.bulk import open_cursor
from hal.store.operations import (
    MAX_EVENT_JOBS,
    AttemptRow,
    CertificateRow,
    JobRow,
    JoinTokenRow,
    NewEvent,
    NodeAbout,
    NodeRow,
    PolicyRow,
    Preemption,
    PutJoining,
    Removed,
    StepEnd,
    TaskRangeRow,
    id_ranges,
)
from hal.store.pending_columns import PendingColumns
from hal.store.views import MAX_PAGE, JobFilter, Loaded, Remembered

AnyRow = Sequence[Any]
"""A row of a result, its values in the order of the selected columns."""

KEYS_PER_QUERY: Final = 500
"""How many ids one `IN (…)` names."""
DEPENDANTS_WITHIN: Final = 20_000
"""So many jobs behind one are searched for those that depend on it."""
ROWS_AT_ONCE: Final = 8_192
"""Rows that a reader of very many holds in memory at once."""


class _Dependencies(Struct):
    """The part of a spec that says what it waits for."""

    dependencies: tuple[Dependency, ...] = ()


class _Shipped(Struct):
    """The part of a spec that names a bundle."""

    ship: str = ""


_SPEC: Final = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPEC_DEPENDENCIES: Final = msgspec.json.Decoder(_Dependencies)
_SPEC_SHIP: Final = msgspec.json.Decoder(_Shipped)
_TEXTS: Final = msgspec.json.Decoder(tuple[str, ...])
_ABOUT: Final = msgspec.json.Decoder(NodeAbout)
_TEXT_BY_NAME: Final = msgspec.json.Decoder(dict[str, str])
_COUNT_BY_NAME: Final = msgspec.json.Decoder(dict[str, int])
_ANY_BY_NAME: Final = msgspec.json.Decoder(dict[str, Any])
_ID_RANGES: Final = msgspec.json.Decoder(list[tuple[int, int]])
_STEPS: Final = msgspec.json.Decoder(tuple[StepEnd, ...])
_PREEMPTION: Final = msgspec.json.Decoder(Preemption)
_GPUS: Final = msgspec.json.Decoder(tuple[HeldGpus, ...])

_TASK_STATES: Final = {state.value: state for state in TaskState}
_ATTEMPT_STATES: Final = {state.value: state for state in AttemptState}

_JOB_COLUMNS: Final = [schema.jobs.c["spec_id" if name == "spec" else name] for name in JobRow.__struct_fields__]
_JOB_SPEC: Final = JobRow.__struct_fields__.index("spec")
_JOB_STATE: Final = JobRow.__struct_fields__.index("state")
_JOB_HOLD: Final = JobRow.__struct_fields__.index("hold")
_COLUMN_OF: Final = {"job": "job_id", "preemption": "taking"}
_ATTEMPT_COLUMNS: Final = [schema.attempts.c[_COLUMN_OF.get(name, name)] for name in AttemptRow.__struct_fields__]
_STATE, _NODES, _USAGE, _STEPS_AT, _PREEMPTION_AT, _GPUS_AT, _PORT_AT = map(
    AttemptRow.__struct_fields__.index, ("state", "nodes", "usage", "steps", "preemption", "gpus", "port")
)
_RANGE_COLUMNS: Final = [schema.task_ranges.c["job_id" if n == "job" else n] for n in TaskRangeRow.__struct_fields__]
_KEYS: Final = tuple(f"key{number}" for number in range(KEYS_PER_QUERY))


def _by_key(query: Select[Any], key: Any) -> dict[int, Select[Any]]:
    """The query for one key and the query for `KEYS_PER_QUERY` keys: two texts, which every driver prepares once."""
    return {size: query.where(key.in_([bindparam(name) for name in _KEYS[:size]])) for size in (1, KEYS_PER_QUERY)}


_SPECS: Final = _by_key(select(schema.specs), schema.specs.c.id)
NOT_REMOVED: Final = schema.jobs.c.removed < literal_column(str(int(Removed.JOB)))
"""Of a job that is removed, nothing is read any more, whatever rows it still has."""
_JOBS: Final = _by_key(select(*_JOB_COLUMNS).where(NOT_REMOVED).order_by(schema.jobs.c.id), schema.jobs.c.id)
_RANGES: Final = _by_key(
    select(*_RANGE_COLUMNS).order_by(schema.task_ranges.c.job_id, schema.task_ranges.c.first),
    schema.task_ranges.c.job_id,
)


class SpecReader:
    """Decodes each stored spec once, so that equal jobs also share one JobSpec in memory.

    Specs that differ only in their walltime are decoded once together and share all other values.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[int, JobSpec] = {}
        self._alike: dict[bytes, JobSpec] = {}

    def _decode(self, body: str) -> JobSpec:
        fields = _FIELDS.decode(body)
        walltime = fields.pop("walltime", None)
        if walltime is None or walltime == b"null":
            return _SPEC.decode(body)
        rest = msgspec.json.encode(fields)
        alike = self._alike.get(rest)
        if alike is None:
            alike = self._alike[rest] = _SPEC.decode(rest)
        return msgspec.structs.replace(alike, walltime=parse_duration(msgspec.json.decode(walltime)))

    def rows(self, rows: Sequence[AnyRow]) -> list[JobRow]:
        """Build the jobs of rows of `_JOB_COLUMNS`."""
        unknown = sorted({int(row[_JOB_SPEC]) for row in rows} - self._known.keys())
        for spec_id, body in _with_keys(self._connection, _SPECS, unknown):
            self._known[spec_id] = self._decode(body)
        jobs: list[JobRow] = []
        for row in rows:
            values = list(row)
            values[_JOB_SPEC] = self._known[values[_JOB_SPEC]]
            values[_JOB_STATE] = _TASK_STATES[values[_JOB_STATE]]
            values[_JOB_HOLD] = bool(values[_JOB_HOLD])
            jobs.append(JobRow(*values))
        return jobs


# ── everything that lives ─────────────────────────────────────────────────────────────────────────────────────────


def load(connection: Connection, *, in_columns: bool) -> Loaded:
    """Load what a controller starts from."""
    pending_columns: list[PendingColumns] = []
    if in_columns:
        ids = _read_pending_columns(connection, pending_columns)
    else:
        live = select(schema.jobs.c.id).where(schema.jobs.c.end_ms.is_(None)).order_by(schema.jobs.c.id)
        ids = list(connection.execute(live).scalars())
    specs = SpecReader(connection)
    jobs = list(_jobs_by_id(connection, specs, ids))
    ranges: dict[int, list[TaskRangeRow]] = defaultdict(list)
    for row in _with_keys(connection, _RANGES, ids):
        ranges[row[0]].append(parse_range(row))
    attempts: dict[int, list[AttemptRow]] = defaultdict(list)
    a = schema.attempts.c
    active = select(*_ATTEMPT_COLUMNS).where(a.ended_ms.is_(None)).order_by(a.job_id, a.task, a.attempt)
    for row in connection.execute(active):
        attempts[row[0]].append(parse_attempt(row))
    epoch, last_seq, now_ms = read_newest(connection)
    ended = _ended_dependencies(connection, specs, jobs)
    mixed = [row.id for row in (*jobs, *ended.values()) if has_mixed_ends(row)]
    return Loaded(
        epoch=epoch,
        last_seq=last_seq,
        last_job_id=connection.execute(select(func.coalesce(func.max(schema.jobs.c.id), 0))).scalar_one(),
        now_ms=now_ms,
        jobs=jobs,
        pending_columns=tuple(pending_columns),
        ranges=dict(ranges),
        attempts=dict(attempts),
        ended_dependencies=ended,
        succeeded={job_id: read_succeeded(connection, job_id) for job_id in mixed},
        nodes=read_nodes(connection),
        policy=read_policy(connection),
        meta={row[0]: row[1] for row in connection.execute(select(schema.meta.c.key, schema.meta.c.value))},
    )


def _read_pending_columns(connection: Connection, pending_columns: list[PendingColumns]) -> list[int]:
    """Append pending jobs as columns; returns the ids of the other live jobs, ascending."""
    others: list[int] = []
    columns = PendingColumns()
    with closing(open_cursor(connection, _LIVE, _LIVE.compile().params, very_many=True)) as cursor:
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            others.extend(row[0] for row in rows if row[-1] is None)
            others.extend(columns.extend(row for row in rows if row[-1] is not None))
            if columns.full:
                pending_columns.append(columns.settle())
                columns = PendingColumns()
    if len(columns):
        pending_columns.append(columns.settle())
    return sorted(others)


def _live_rows() -> Select[Any]:
    """For each live job, the values that `PendingColumns` accepts; the text of its spec only if the job is unchanged
    since submission."""
    j, t = schema.jobs.c, schema.task_ranges.c
    nothing = (j.held, j.active, j.running, j.succeeded, j.failed, j.timed_out, j.cancelled, j.restarts)
    one_task = exists().where(
        t.job_id == j.id, t.first == 0, t.count == 1, t.state == TaskState.PENDING.value, t.attempt == 1,
        t.retries == 0, t.eligible_ms == 0, t.reason == "",
    )  # fmt: skip
    only_waits = and_(
        j.state == TaskState.PENDING.value, j.tasks == 1, j.pending == 1, *(count == 0 for count in nothing),
        j.hold.is_(false()), j.reason == "", j.start_ms.is_(None), j.exit_code.is_(None), j.eligible_ms <= MAX_AMOUNT,
        one_task,
    )  # fmt: skip
    columns = (j.id, j.name, j.queue, j.account, j.user, j.priority, func.coalesce(j.walltime_ms, -1))
    query = select(*columns, j.submit_ms, j.eligible_ms, j.trace_id, case((only_waits, schema.specs.c.body)))
    return query.join_from(schema.jobs, schema.specs).where(j.end_ms.is_(None)).order_by(j.id)


_LIVE: Final = _live_rows()


def read_newest(connection: Connection) -> tuple[int, int, int]:
    """Read (epoch, sequence number of the newest event, instant of the newest commit); zero for what does not exist
    yet."""
    epoch: int = connection.execute(select(func.coalesce(func.max(schema.leader.c.epoch), 0))).scalar_one()
    c = schema.commits.c
    row = connection.execute(select(c.last_seq, c.at_ms).order_by(c.number.desc()).limit(1)).first()
    return (epoch, row[0], row[1]) if row else (epoch, 0, 0)


def _ended_dependencies(connection: Connection, specs: SpecReader, live: list[JobRow]) -> dict[int, JobRow]:
    live_ids = {row.id for row in live}
    wanted = {
        int(dependency.job)
        for spec in {id(row.spec): row.spec for row in live}.values()
        for dependency in each_dependency(spec.dependencies)
        if dependency.job.isascii() and dependency.job.isdigit() and len(dependency.job) < 19
    }
    found = _jobs_by_id(connection, specs, sorted(wanted - live_ids))
    return {row.id: row for row in found if row.end_ms is not None}


def _jobs_by_id(connection: Connection, specs: SpecReader, ids: list[int]) -> Iterator[JobRow]:
    rows = _with_keys(connection, _JOBS, ids)
    while some := list(islice(rows, KEYS_PER_QUERY)):
        yield from specs.rows(some)


def _with_keys(connection: Connection, queries: Mapping[int, Select[Any]], keys: list[int]) -> Iterator[AnyRow]:
    """Read the rows with one of these keys, ascending; values as the driver returns them.

    Args:
        queries: see `_by_key`.
    """
    start = 0
    while start < len(keys):
        size = 1 if len(keys) - start == 1 else KEYS_PER_QUERY
        some = keys[start : start + size]
        some += some[-1:] * (size - len(some))
        with closing(open_cursor(connection, queries[size], dict(zip(_KEYS, some, strict=False)))) as rows:
            yield from rows
        start += size


def has_mixed_ends(row: JobRow) -> bool:
    """Whether only the attempts of an array show which of its tasks succeeded."""
    bad = row.failed + row.timed_out + row.cancelled
    return row.spec.several and row.succeeded > 0 and bad > 0


def read_succeeded(connection: Connection, job_id: int) -> tuple[tuple[int, int], ...]:
    """Read the tasks of a job whose latest attempt succeeded and which do not wait for another, as ranges [first,
    end)."""
    a, later = schema.attempts.c, schema.attempts.alias("later").c
    superseded = exists().where(later.job_id == a.job_id, later.task == a.task, later.attempt > a.attempt)
    run = (a.task - func.row_number().over(order_by=a.task)).label("run")
    query = select(a.task, run).where(a.job_id == job_id, a.state == AttemptState.SUCCEEDED.value, ~superseded)
    found = query.subquery()
    done = select(func.min(found.c.task), func.max(found.c.task)).group_by(found.c.run)
    ended = sorted((first, last + 1) for first, last in connection.execute(done))
    hidden = [(task_range.first, task_range.first + task_range.count) for task_range in read_ranges(connection, job_id)]
    return tuple(without(ended, hidden))


def without(shown: Sequence[tuple[int, int]], hidden: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Subtract `hidden` from `shown`; both are disjoint and ascending."""
    at = 0
    for first, end in shown:
        while at < len(hidden) and hidden[at][1] <= first:
            at += 1
        index = at
        while index < len(hidden) and hidden[index][0] < end:
            if first < hidden[index][0]:
                yield first, hidden[index][0]
            first = hidden[index][1]
            index += 1
        if first < end:
            yield first, end


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_job(connection: Connection, job_id: int) -> JobRow | None:
    """Read one job."""
    return next(_jobs_by_id(connection, SpecReader(connection), [job_id]), None)


def read_jobs(
    connection: Connection, wanted: JobFilter, after: int | None, limit: int, newest_first: bool
) -> list[JobRow]:
    """Read a page of jobs by id."""
    c = schema.jobs.c
    query = select(*_JOB_COLUMNS).where(NOT_REMOVED).limit(page_length(limit))
    if wanted.ended_before_ms is not None:
        query = query.where(c.end_ms < wanted.ended_before_ms)
    if wanted.submitted_from_ms is not None:
        query = query.where(c.submit_ms >= wanted.submitted_from_ms)
    if wanted.submitted_before_ms is not None:
        query = query.where(c.submit_ms < wanted.submitted_before_ms)
    if wanted.node:
        a = schema.attempts.c
        named = a.nodes.contains(msgspec.json.encode(wanted.node).decode(), autoescape=True)
        query = query.where(c.id.in_(select(a.job_id).where(a.ended_ms.is_(None), named)))
    if wanted.states:
        query = query.where(c.state.in_([state.value for state in wanted.states]))
    for column, value in ((c.user, wanted.user), (c.queue, wanted.queue)):
        if value:
            query = query.where(column == value)
    if wanted.name:
        query = query.where(_is_called(connection, wanted.name))
    if wanted.account:
        query = query.where(c.account == wanted.account)
    for label, value in wanted.labels.items():
        has = and_(schema.job_labels.c.job_id == c.id, schema.job_labels.c.label == label)
        query = query.where(exists().where(and_(has, schema.job_labels.c.value == value) if value else has))
    if after is not None:
        query = query.where(c.id < after if newest_first else c.id > after)
    query = query.order_by(c.id.desc() if newest_first else c.id)
    return SpecReader(connection).rows(connection.execute(query).all())


def read_live_bundles(connection: Connection) -> set[str]:
    """Read the names of the bundles that live jobs ship. O(live jobs): it is asked when room is made for others."""
    body = schema.specs.c.body
    named = body.contains('"ship":"sha256:', autoescape=True)
    query = select(body).distinct().join_from(schema.jobs, schema.specs).where(schema.jobs.c.end_ms.is_(None), named)
    # The text may also stand elsewhere in a spec.
    return {name for (text,) in connection.execute(query) if (name := _SPEC_SHIP.decode(text).ship)}


def read_dependants(connection: Connection, job_id: int, user: str, most: int) -> list[int]:
    """Read which jobs of a user name a job as their dependency, ended ones too: the first `most`, among the
    `DEPENDANTS_WITHIN` jobs that were submitted after it."""
    c, body = schema.jobs.c, schema.specs.c.body
    named = body.contains(f'"job":"{job_id}"', autoescape=True)
    query = select(c.id, body).join_from(schema.jobs, schema.specs).where(NOT_REMOVED, c.user == user, named)
    query = query.where(c.id > job_id, c.id <= job_id + DEPENDANTS_WITHIN).order_by(c.id)
    found: list[int] = []
    for number, text in connection.execute(query):
        # The text may also stand elsewhere in a spec: only its dependencies count.
        names = (one.job for one in each_dependency(_SPEC_DEPENDENCIES.decode(text).dependencies))
        if str(job_id) in names:
            found.append(number)
            if len(found) == most:
                break
    return found


def _is_called(connection: Connection, pattern: str) -> ColumnElement[bool]:
    """Whether a job's name is like the pattern, or its program, where it has no name."""
    sqlite = connection.dialect.name == "sqlite"

    def like(text: ColumnElement[Any]) -> ColumnElement[bool]:
        if not is_pattern(pattern):
            return text == pattern
        cut = func.substr(text, 1, MATCHED_CHARS)
        return cut.op("GLOB")(as_glob(pattern)) if sqlite else cut.like(as_like(pattern), escape="|")

    body = schema.specs.c.body
    word: ColumnElement[Any] = (
        func.json_extract(body, "$.command[0]")
        if sqlite
        else func.json_extract_path_text(cast(body, JSON), "command", "0")
    )
    directory = func.rtrim(word, func.replace(word, "/", ""))
    program = func.substr(word, func.length(directory) + 1)
    title = case((word.is_(None), "script"), else_=program)
    c = schema.jobs.c
    nameless = and_(c.name == "", c.spec_id.in_(select(schema.specs.c.id).where(like(title))))
    return or_(and_(c.name != "", like(c.name)), nameless)


def count_jobs(connection: Connection) -> dict[TaskState, int]:
    """Count the jobs in each state, those included whose rows are being deleted; states without a job are missing."""
    state = schema.jobs.c.state
    return {_TASK_STATES[row[0]]: row[1] for row in connection.execute(select(state, func.count()).group_by(state))}


# ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_attempts(
    connection: Connection,
    job_id: int,
    task: int | None,
    states: Iterable[AttemptState],
    after: tuple[int, int] | None,
    limit: int,
) -> list[AttemptRow]:
    """Read a page of attempts of a job by (task, attempt)."""
    a = schema.attempts.c
    query = select(*_ATTEMPT_COLUMNS).where(a.job_id == job_id)
    if task is not None:
        query = query.where(a.task == task)
    names = [state.value for state in states]
    if names:
        query = query.where(a.state.in_(names))
    if after is not None:
        query = query.where(tuple_(a.task, a.attempt) > tuple_(*after))
    query = query.order_by(a.task, a.attempt).limit(page_length(limit))
    return [parse_attempt(row) for row in connection.execute(query)]


def parse_attempt(row: AnyRow) -> AttemptRow:
    """Build the attempt from a row of `attempt_columns`."""
    values = list(row)
    values[_STATE] = _ATTEMPT_STATES[values[_STATE]]
    values[_NODES] = _TEXTS.decode(values[_NODES])
    if values[_USAGE] is not None:
        values[_USAGE] = _COUNT_BY_NAME.decode(values[_USAGE])
    values[_STEPS_AT] = _STEPS.decode(values[_STEPS_AT])
    if values[_PREEMPTION_AT] is not None:
        values[_PREEMPTION_AT] = _PREEMPTION.decode(values[_PREEMPTION_AT])
    values[_GPUS_AT] = _GPUS.decode(values[_GPUS_AT]) if values[_GPUS_AT] is not None else ()
    values[_PORT_AT] = values[_PORT_AT] or 0
    return AttemptRow(*values)


def attempt_columns() -> list[Any]:
    """The columns that `parse_attempt` reads."""
    return list(_ATTEMPT_COLUMNS)


def read_ranges(
    connection: Connection, job_id: int, ending_after: int = 0, most: int | None = None
) -> list[TaskRangeRow]:
    """Read the ranges of a job in order: those that reach beyond task `ending_after` - 1, the first `most` of them."""
    s = schema.task_ranges.c
    query = select(*_RANGE_COLUMNS).where(s.job_id == job_id, s.first + s.count > ending_after)
    query = query.order_by(s.first).limit(most)
    return [parse_range(row) for row in connection.execute(query)]


def parse_range(row: AnyRow) -> TaskRangeRow:
    """Build the task range from a row."""
    return TaskRangeRow(row[0], row[1], row[2], _TASK_STATES[row[3]], *row[4:])


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_events(connection: Connection, after_seq: int, limit: int, job_id: int | None) -> list[Event]:
    """Read the events after a sequence number, oldest first; with a job, only those about it."""
    e = schema.events.c
    query = select(e.seq, e.at_ms, e.kind, e.cause, e.trace_id, e.jobs, e.payload).where(e.seq > after_seq)
    query = query.order_by(e.seq)
    limit = page_length(limit)
    if job_id is None:
        return [_event(row) for row in connection.execute(query.limit(limit))]
    about: list[Event] = []
    with connection.execute(query.where(e.job_min <= job_id, e.job_max >= job_id)) as result:
        for row in result:
            if any(first <= job_id <= last for first, last in _ID_RANGES.decode(row[5])):
                about.append(_event(row))
                if len(about) == limit:
                    break
    return about


def _event(row: AnyRow) -> Event:
    jobs, payload = listed_jobs(_ID_RANGES.decode(row[5]), _ANY_BY_NAME.decode(row[6]))
    return Event(
        sequence=row[0],
        at_ms=row[1],
        kind=EventKind(row[2]),
        cause=row[3],
        trace_id=row[4],
        jobs=jobs,
        payload=payload,
    )


def committed_event(sequence: int, new: NewEvent) -> Event:
    """The event that was committed under that number, as it will be read."""
    jobs, payload = listed_jobs(id_ranges(new.jobs), new.payload)
    return Event(
        sequence=sequence,
        at_ms=new.at_ms,
        kind=new.kind,
        cause=new.cause,
        trace_id=new.trace_id,
        jobs=jobs,
        payload=payload,
    )


def listed_jobs(ranges: Iterable[Sequence[int]], payload: dict[str, Any]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The jobs that an event lists, at most `MAX_EVENT_JOBS`, and its payload, which says so where there are more."""
    listed: list[int] = []
    total = 0
    for first, last in ranges:
        total += last - first + 1
        listed.extend(range(first, min(last + 1, first + MAX_EVENT_JOBS - len(listed))))
    if total > len(listed):
        payload = {**payload, "jobs_total": total, "truncated": True}
    return tuple(listed), payload


def read_first_seq(connection: Connection) -> int:
    """Read the sequence number of the oldest event kept; 0 when there is none."""
    oldest: int = connection.execute(select(func.coalesce(func.min(schema.events.c.seq), 0))).scalar_one()
    return oldest


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_nodes(connection: Connection) -> list[NodeRow]:
    """Read all nodes by name."""
    return [
        NodeRow(
            row["name"],
            _COUNT_BY_NAME.decode(row["capacity"]),
            _TEXT_BY_NAME.decode(row["labels"]),
            NodeState(row["state"]),
            row["boot_id"],
            row["reason"],
            row["last_seen_ms"],
            _TEXTS.decode(row["notes"]),
            _ABOUT.decode(row["about"]),
        )
        for row in connection.execute(select(schema.nodes).order_by(schema.nodes.c.name)).mappings()
    ]


def read_policy(connection: Connection, version: int | None = None) -> PolicyRow | None:
    """Read that version of the policy, or the newest."""
    p = schema.policies.c
    query = select(p.version, p.at_ms, p.user, p.note, p.document).order_by(p.version.desc()).limit(1)
    row = connection.execute(query if version is None else query.where(p.version == version)).first()
    return None if row is None else PolicyRow(version=row[0], at_ms=row[1], user=row[2], note=row[3], document=row[4])


def read_policies(connection: Connection, before: int | None, limit: int) -> list[PolicyRow]:
    """Read a page of versions, newest first, without their documents."""
    p = schema.policies.c
    query = select(p.version, p.at_ms, p.user, p.note).order_by(p.version.desc()).limit(page_length(limit))
    rows = connection.execute(query if before is None else query.where(p.version < before))
    return [PolicyRow(version=row[0], at_ms=row[1], user=row[2], note=row[3]) for row in rows]


def read_join_credentials(connection: Connection) -> PutJoining:
    """Read all join tokens and certificates, in the form in which they are put."""
    t, c = schema.join_tokens.c, schema.certificates.c
    tokens = connection.execute(select(schema.join_tokens).order_by(t.created_ms, t.id))
    certificates = connection.execute(select(schema.certificates).order_by(c.issued_ms, c.serial))
    return PutJoining(
        tuple(JoinTokenRow(**{**row._mapping, "labels": _TEXT_BY_NAME.decode(row.labels)}) for row in tokens),
        tuple(CertificateRow(**{**row._mapping, "labels": _TEXT_BY_NAME.decode(row.labels)}) for row in certificates),
    )


def read_meta(connection: Connection, key: str) -> str | None:
    """Read a small fact by name."""
    value: str | None = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar()
    return value


def read_response(connection: Connection, key: str) -> Remembered | None:
    """Read the response stored for an idempotency key."""
    t = schema.idempotency.c
    row = connection.execute(select(t.fingerprint, t.response, t.at_ms).where(t.key == key)).first()
    return None if row is None else Remembered(*row)


def page_length(limit: int) -> int:
    """Limit a page length to its bounds."""
    return max(1, min(limit, MAX_PAGE))
