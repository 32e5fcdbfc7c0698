"""Row operations as SQL: one or two statements for each, with as many rows as it has (executemany).

Statements are compiled once and given to the driver with the rows as they are (`_many`): SQLAlchemy would copy every
row, which costs more than SQLite's own work. This is right because no column here needs a conversion.

Every function writes inside the caller's transaction and raises `GroupRefused` where a row to change is not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict
from sqlalchemy import (
    Connection,
    Delete,
    Table,
    Update,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import and_, exists

from hal.core.model import InternalError, JobSpec, to_json
from hal.store import schema
from hal.store.errors import GroupRefused
from hal.store.operations import (
    AppendEvents,
    EditJobs,
    EndAttempts,
    InsertAttempts,
    InsertJobs,
    MarkAttempts,
    Operation,
    ProgressJobs,
    PutAccounts,
    PutMeta,
    PutNodes,
    PutQueues,
    PutSpans,
    PutUsers,
    RememberIdempotent,
)

Params = dict[str, Any]

_JSON: Final = msgspec.json.Encoder()


def json_text(value: Any) -> str:
    """Compact JSON of plain data."""
    return _JSON.encode(value).decode()


def write(connection: Connection, operation: Operation, now_ms: int, last_seq: int) -> int:
    """Carry out one operation.

    Returns: the sequence number of the newest event afterwards.
    """
    match operation:
        case InsertJobs():
            _insert_jobs(connection, operation)
        case ProgressJobs():
            _progress_jobs(connection, operation)
        case EditJobs():
            _edit_jobs(connection, operation)
        case PutSpans():
            _put_spans(connection, operation)
        case InsertAttempts():
            _insert_attempts(connection, operation)
        case MarkAttempts():
            _mark_attempts(connection, operation)
        case EndAttempts():
            _end_attempts(connection, operation)
        case PutNodes():
            _put_nodes(connection, operation)
        case PutQueues():
            rows = [{"name": row.name, "config": json_text(row.config)} for row in operation.rows]
            _replace(connection, schema.queues, "name", rows)
        case PutAccounts():
            _add_names(connection, schema.accounts, operation.names)
        case PutUsers():
            _add_names(connection, schema.users, operation.names)
        case PutMeta():
            rows = [{"key": key, "value": value} for key, value in operation.values.items()]
            _replace(connection, schema.meta, "key", rows)
        case AppendEvents():
            return _append_events(connection, operation, last_seq)
        case RememberIdempotent():
            _remember(connection, operation, now_ms)
        case _:
            raise InternalError(f"{type(operation).__name__} is not an operation of the store")
    return last_seq


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _insert_specs(connection: Connection, specs: Iterable[JobSpec]) -> list[int]:
    """Store each different spec once; the ids in the order of `specs`."""
    newest: int = connection.execute(select(func.coalesce(func.max(schema.specs.c.id), 0))).scalar_one()
    by_body: dict[bytes, int] = {}
    by_identity: dict[int, int] = {}
    ids: list[int] = []
    for spec in specs:
        spec_id = by_identity.get(id(spec))
        if spec_id is None:
            spec_id = by_body.setdefault(to_json(spec), newest + len(by_body) + 1)
            by_identity[id(spec)] = spec_id
        ids.append(spec_id)
    rows = [{"id": spec_id, "body": body.decode()} for body, spec_id in by_body.items()]
    _insert(connection, schema.specs, rows)
    return ids


def _insert_jobs(connection: Connection, operation: InsertJobs) -> None:
    spec_ids = _insert_specs(connection, [row.spec for row in operation.rows])
    rows: list[Params] = []
    for row, spec_id in zip(operation.rows, spec_ids, strict=True):
        params = asdict(row)
        del params["spec"]
        params["spec_id"] = spec_id
        params["state"] = row.state.value
        params["version"] = 1
        rows.append(params)
    _insert(connection, schema.jobs, rows)
    _insert_labels(connection, [(row.id, row.spec) for row in operation.rows])


def _insert_labels(connection: Connection, specs: Iterable[tuple[int, JobSpec]]) -> None:
    rows = [
        {"job_id": job, "label": label, "value": value} for job, spec in specs for label, value in spec.labels.items()
    ]
    _insert(connection, schema.job_labels, rows)


_PROGRESS_COLUMNS: Final = (
    "state",
    "eligible_ms",
    "start_ms",
    "end_ms",
    "reason",
    "pending",
    "held",
    "active",
    "running",
    "succeeded",
    "failed",
    "timed_out",
    "cancelled",
    "exit_code",
    "restarts",
)
_PROGRESS: Final = (
    update(schema.jobs)
    .where(schema.jobs.c.id == bindparam("the_id"))
    .values({name: bindparam(name) for name in _PROGRESS_COLUMNS})
    .values(version=schema.jobs.c.version + literal_column("1"))
)


def _progress_jobs(connection: Connection, operation: ProgressJobs) -> None:
    rows: list[Params] = []
    for row in operation.rows:
        params = asdict(row)
        params["the_id"] = params.pop("id")
        params["state"] = row.state.value
        rows.append(params)
    _change(connection, _PROGRESS, rows, lambda row: f"job {row['the_id']}", ("the_id",))


def _edit_jobs(connection: Connection, operation: EditJobs) -> None:
    respecced = [(row.id, row.spec) for row in operation.rows if isinstance(row.spec, JobSpec)]
    spec_ids = dict(
        zip((job for job, _ in respecced), _insert_specs(connection, (spec for _, spec in respecced)), strict=True)
        if respecced
        else ()
    )
    by_columns: dict[tuple[str, ...], list[Params]] = defaultdict(list)
    for row in operation.rows:
        params = {name: value for name, value in asdict(row).items() if value is not msgspec.UNSET}
        params["the_id"] = params.pop("id")
        if "spec" in params:
            del params["spec"]
            params["spec_id"] = spec_ids[row.id]
        by_columns[tuple(sorted(params.keys() - {"the_id"}))].append(params)
    for columns, rows in by_columns.items():
        statement = (
            update(schema.jobs)
            .where(schema.jobs.c.id == bindparam("the_id"))
            .values({name: bindparam(name) for name in columns})
            .values(version=schema.jobs.c.version + literal_column("1"))
        )
        _change(connection, statement, rows, lambda row: f"job {row['the_id']}", ("the_id",), lasting=False)
    if respecced:
        drop = delete(schema.job_labels).where(schema.job_labels.c.job_id == bindparam("the_id"))
        connection.execute(drop, [{"the_id": job} for job, _ in respecced])
        _insert_labels(connection, respecced)


# ── tasks and attempts ────────────────────────────────────────────────────────────────────────────────────────────

_DROP_SPAN: Final = delete(schema.task_spans).where(
    schema.task_spans.c.job_id == bindparam("the_job"), schema.task_spans.c.first == bindparam("the_first")
)


def _overwriting(statement: sqlite.Insert | postgresql.Insert) -> sqlite.Insert | postgresql.Insert:
    key = [column.name for column in schema.task_spans.primary_key]
    rest = {column.name: statement.excluded[column.name] for column in schema.task_spans.c if column.name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=rest)


_PUT_SPAN: Final = {
    "sqlite": _overwriting(sqlite.insert(schema.task_spans)),
    "postgresql": _overwriting(postgresql.insert(schema.task_spans)),
}
"""INSERT … ON CONFLICT: the same words in both, but not in SQLAlchemy's common part."""


def _put_spans(connection: Connection, operation: PutSpans) -> None:
    gone = [{"the_job": job, "the_first": first} for job, first in operation.drop]
    if gone:
        _change(
            connection,
            _DROP_SPAN,
            gone,
            lambda row: f"the span of job {row['the_job']} at task {row['the_first']}",
            ("the_job", "the_first"),
        )
    rows: list[Params] = []
    for span in operation.put:
        params = asdict(span)
        params["job_id"] = params.pop("job")
        params["state"] = span.state.value
        rows.append(params)
    if rows:
        _many(connection, _PUT_SPAN[connection.dialect.name], rows)


def _insert_attempts(connection: Connection, operation: InsertAttempts) -> None:
    rows: list[Params] = []
    for row in operation.rows:
        params = asdict(row)
        params["job_id"] = params.pop("job")
        params["state"] = row.state.value
        params["nodes"] = json_text(row.nodes)
        params["usage"] = None if row.usage is None else json_text(row.usage)
        params["steps"] = json_text(row.steps)
        rows.append(params)
    _insert(connection, schema.attempts, rows)


_A: Final = schema.attempts.c
_ATTEMPT_KEY: Final = ("the_job", "the_task", "the_attempt")
# An end is final: an attempt that has ended is not found, whatever a late message says.
_THIS_ATTEMPT: Final = and_(
    _A.job_id == bindparam("the_job"),
    _A.task == bindparam("the_task"),
    _A.attempt == bindparam("the_attempt"),
    _A.ended_ms.is_(None),
)
_KEPT_WHEN_NONE: Final = {
    "started_ms": func.coalesce(bindparam("new_started_ms", type_=_A.started_ms.type), _A.started_ms),
    "steps": func.coalesce(bindparam("new_steps", type_=_A.steps.type), _A.steps),
}
_MARK: Final = (
    update(schema.attempts)
    .where(_THIS_ATTEMPT)
    .values(
        state=bindparam("new_state"),
        cause=func.coalesce(bindparam("new_cause", type_=_A.cause.type), _A.cause),
        **_KEPT_WHEN_NONE,
    )
)
_END: Final = (
    update(schema.attempts)
    .where(_THIS_ATTEMPT)
    .values(
        state=bindparam("new_state"),
        ended_ms=bindparam("new_ended_ms"),
        cause=bindparam("new_cause"),
        exit_code=bindparam("new_exit_code"),
        signal=bindparam("new_signal"),
        usage=bindparam("new_usage"),
        message=bindparam("new_message"),
        **_KEPT_WHEN_NONE,
    )
)


def _attempt_name(row: Params) -> str:
    return f"attempt {row['the_job']}.{row['the_task']}.{row['the_attempt']}"


def _mark_attempts(connection: Connection, operation: MarkAttempts) -> None:
    rows = [
        {
            "the_job": row.job,
            "the_task": row.task,
            "the_attempt": row.attempt,
            "new_state": row.state.value,
            "new_cause": row.cause,
            "new_started_ms": row.started_ms,
            "new_steps": None if row.steps is None else json_text(row.steps),
        }
        for row in operation.rows
    ]
    _change(connection, _MARK, rows, _attempt_name, _ATTEMPT_KEY)


def _end_attempts(connection: Connection, operation: EndAttempts) -> None:
    rows = [
        {
            "the_job": row.job,
            "the_task": row.task,
            "the_attempt": row.attempt,
            "new_state": row.state.value,
            "new_ended_ms": row.ended_ms,
            "new_cause": row.cause,
            "new_exit_code": row.exit_code,
            "new_signal": row.signal,
            "new_usage": None if row.usage is None else json_text(row.usage),
            "new_message": row.message,
            "new_started_ms": row.started_ms,
            "new_steps": None if row.steps is None else json_text(row.steps),
        }
        for row in operation.rows
    ]
    _change(connection, _END, rows, _attempt_name, _ATTEMPT_KEY)


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _put_nodes(connection: Connection, operation: PutNodes) -> None:
    rows: list[Params] = []
    for row in operation.rows:
        params = asdict(row)
        params["state"] = row.state.value
        for name in ("capacity", "labels", "notes"):
            params[name] = json_text(params[name])
        rows.append(params)
    _replace(connection, schema.nodes, "name", rows)


def job_runs(jobs: Iterable[int]) -> list[list[int]]:
    """Runs [first, last] of consecutive numbers, ascending."""
    if isinstance(jobs, range) and jobs.step == 1:
        return [[jobs.start, jobs.stop - 1]] if jobs else []
    runs: list[list[int]] = []
    for job in sorted(set(jobs)):
        if runs and runs[-1][1] == job - 1:
            runs[-1][1] = job
        else:
            runs.append([job, job])
    return runs


def _append_events(connection: Connection, operation: AppendEvents, last_seq: int) -> int:
    rows: list[Params] = []
    for seq, entry in enumerate(operation.events, last_seq + 1):
        runs = job_runs(entry.jobs)
        rows.append(
            {
                "seq": seq,
                "at_ms": entry.at_ms,
                "kind": entry.kind.value,
                "cause": entry.cause,
                "trace_id": entry.trace_id,
                "jobs": json_text(runs),
                "job_min": runs[0][0] if runs else 0,
                "job_max": runs[-1][1] if runs else 0,
                "payload": to_json(entry.payload).decode(),
            }
        )
    _insert(connection, schema.events, rows)
    return last_seq + len(rows)


def _remember(connection: Connection, operation: RememberIdempotent, now_ms: int) -> None:
    table = schema.idempotency
    absent = ~exists().where(table.c.key == operation.key)
    values = select(
        literal(operation.key), literal(now_ms), literal(operation.fingerprint), literal(operation.response)
    ).where(absent)
    connection.execute(insert(table).from_select(["key", "at_ms", "fingerprint", "response"], values))


def _add_names(connection: Connection, table: Table, names: Sequence[str]) -> None:
    known = set(connection.execute(select(table.c.name)).scalars())
    _insert(connection, table, [{"name": name} for name in dict.fromkeys(names) if name not in known])


def _replace(connection: Connection, table: Table, key: str, rows: list[Params]) -> None:
    if not rows:
        return
    connection.execute(delete(table).where(table.c[key] == bindparam("the_key")), [{"the_key": r[key]} for r in rows])
    _insert(connection, table, list({row[key]: row for row in rows}.values()))


def _insert(connection: Connection, table: Table, rows: list[Params]) -> None:
    if rows:
        _many(connection, _INSERTS[table.name], rows)


_INSERTS: Final = {table.name: insert(table) for table in schema.metadata.sorted_tables}

_SQL: Final[dict[tuple[str, Any], str]] = {}
"""Compiled statements, by dialect; as many as there are statements in this file."""


def _many(connection: Connection, statement: Any, rows: list[Params]) -> int:
    """Carry out a statement of this file for each row; returns how many rows it found."""
    key = (connection.dialect.name, statement)
    sql = _SQL.get(key)
    if sql is None:
        sql = _SQL[key] = str(statement.compile(dialect=connection.dialect))
    return connection.exec_driver_sql(sql, rows).rowcount


def _change(
    connection: Connection,
    statement: Update | Delete,
    rows: list[Params],
    name: Callable[[Params], str],
    key: tuple[str, ...],
    *,
    lasting: bool = True,
) -> None:
    """Carry out an update or delete for each row, each of which must find exactly one.

    Args:
        name: what to call a row in an error.
        key: the parameters that say which row is meant.
        lasting: the statement is one of this file's constants.
    """
    if not rows:
        return
    found = _many(connection, statement, rows) if lasting else connection.execute(statement, rows).rowcount
    if found == len(rows):
        return
    if isinstance(statement, Update):
        rows = [row for row in rows if not _is_there(connection, statement, {k: row[k] for k in key})]
    names = ", ".join(name(row) for row in rows[:5])
    raise GroupRefused(f"{len(rows)} rows to change are not there, have ended, or are named twice: {names}")


def _is_there(connection: Connection, statement: Update, key: Params) -> bool:
    where = statement.whereclause
    assert where is not None
    query = select(literal(1)).select_from(statement.table).where(where)
    return connection.execute(query, key).first() is not None
