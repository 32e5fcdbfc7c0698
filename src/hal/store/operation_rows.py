"""Write operations to their tables, inside the caller's transaction.

Changing a row that does not exist raises `GroupRefused`, and the caller's transaction is rolled back.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict, replace
from sqlalchemy import (
    Connection,
    Table,
    bindparam,
    delete,
    exists,
    insert,
    literal,
    literal_column,
    select,
    update,
)

from hal.core.model import InternalError, to_json
from hal.store import schema
from hal.store.bulk import Params, insert_rows, json_text, overwrite_rows, try_rows
from hal.store.job_rows import edit_jobs, insert_jobs, progress_jobs
from hal.store.notice_rows import put_notices
from hal.store.operations import (
    AppendEvents,
    AppendPolicy,
    CertificateRow,
    DropForgets,
    DropNodes,
    EditJobs,
    EndAttempts,
    ForgetRow,
    InsertAttempts,
    InsertJobs,
    JoinTokenRow,
    MarkAttempts,
    MarkRemoved,
    Newest,
    Operation,
    ProgressJobs,
    PutForgets,
    PutJoining,
    PutMeta,
    PutNodes,
    PutNotices,
    PutPeriodic,
    PutReaders,
    PutTaskRanges,
    RememberIdempotent,
    Removed,
    RemoveTasks,
    id_ranges,
)
from hal.store.periodic_rows import put_periodic
from hal.store.removed_tasks import remove_tasks
from hal.store.task_rows import end_attempts, insert_attempts, mark_attempts, put_ranges


def write(connection: Connection, operation: Operation, now_ms: int, newest: Newest) -> Newest:
    """Execute one operation.

    Args:
        now_ms: the instant of the commit.
    Returns: the sequence numbers given last, afterwards.
    """
    match operation:
        case InsertJobs():
            insert_jobs(connection, operation)
        case ProgressJobs():
            progress_jobs(connection, operation)
        case EditJobs():
            edit_jobs(connection, operation)
        case PutTaskRanges():
            put_ranges(connection, operation)
        case InsertAttempts():
            insert_attempts(connection, operation)
        case MarkAttempts():
            mark_attempts(connection, operation)
        case EndAttempts():
            return replace(newest, end=end_attempts(connection, operation, now_ms, newest.end))
        case PutNodes():
            _put_nodes(connection, operation)
        case DropNodes():
            _drop_nodes(connection, operation)
        case MarkRemoved():
            removed = int(operation.removed)
            try_rows(connection, _MARK_REMOVED, [{"the_id": job, "what": removed} for job in operation.jobs])
            if operation.removed is not Removed.JOB:
                rows = [{"job_id": job, "at_ms": now_ms, "rule": operation.rule} for job in operation.jobs]
                overwrite_rows(connection, schema.removals, rows)
        case RemoveTasks():
            remove_tasks(connection, operation)
        case PutForgets():
            # Of those with the same key the longest is the last, and stays.
            rows = [_forget_params(row) for row in sorted(operation.rows, key=lambda row: row.count)]
            overwrite_rows(connection, schema.forgets, rows)
        case DropForgets():
            params = [_forget_params(row) for row in operation.rows]
            try_rows(connection, _DROP_FORGET, [{f"the_{name}": row[name] for name in row} for row in params])
        case AppendPolicy():
            insert_rows(connection, schema.policies, [asdict(operation.row)])
        case PutJoining():
            _put_joining(connection, operation)
        case PutReaders():
            _put_readers(connection, operation)
        case PutNotices():
            put_notices(connection, operation)
        case PutPeriodic():
            put_periodic(connection, operation)
        case PutMeta():
            _put_meta(connection, operation)
        case AppendEvents():
            return replace(newest, event=_append_events(connection, operation, newest.event))
        case RememberIdempotent():
            _remember(connection, operation, now_ms)
        case _:
            raise InternalError(f"{type(operation).__name__} is not an operation of the store")
    return newest


_J: Final = schema.jobs.c
_MARK_REMOVED: Final = (
    update(schema.jobs)
    .where(_J.id == bindparam("the_id"), _J.end_ms.is_not(None), _J.removed < bindparam("what", type_=_J.removed.type))
    .values(removed=bindparam("what", type_=_J.removed.type), version=_J.version + literal_column("1"))
)
_F: Final = schema.forgets.c
_DROP_FORGET: Final = delete(schema.forgets).where(
    _F.node == bindparam("the_node"),
    _F.job_id == bindparam("the_job_id"),
    _F.attempt == bindparam("the_attempt"),
    _F.first == bindparam("the_first"),
    _F.count == bindparam("the_count"),
)


def _forget_params(row: ForgetRow) -> Params:
    params = asdict(row)
    params["job_id"] = params.pop("job")
    return params


def _put_meta(connection: Connection, operation: PutMeta) -> None:
    rows: list[Params] = [{"key": key, "value": value} for key, value in operation.values.items() if value is not None]
    _replace(connection, schema.meta, "key", rows)
    gone = [{"the_key": key} for key, value in operation.values.items() if value is None]
    if gone:
        connection.execute(delete(schema.meta).where(schema.meta.c.key == bindparam("the_key")), gone)


def _put_joining(connection: Connection, operation: PutJoining) -> None:
    _replace(connection, schema.join_tokens, "id", [_with_labels(row) for row in operation.tokens])
    _replace(connection, schema.certificates, "serial", [_with_labels(row) for row in operation.certificates])
    for column, gone in (
        (schema.join_tokens.c.id, operation.forget_tokens),
        (schema.certificates.c.serial, operation.forget_certificates),
    ):
        if gone:
            forget = delete(column.table).where(column == bindparam("the_key"))
            connection.execute(forget, [{"the_key": key} for key in gone])


def _put_readers(connection: Connection, operation: PutReaders) -> None:
    _replace(connection, schema.readers, "name", [asdict(row) for row in operation.rows])
    if operation.forget:
        forget = delete(schema.readers).where(schema.readers.c.name == bindparam("the_key"))
        connection.execute(forget, [{"the_key": name} for name in operation.forget])


def _with_labels(row: JoinTokenRow | CertificateRow) -> Params:
    return {**asdict(row), "labels": json_text(row.labels)}


def _put_nodes(connection: Connection, operation: PutNodes) -> None:
    rows: list[Params] = []
    for row in operation.rows:
        params = asdict(row)
        params["state"] = row.state.value
        for name in ("capacity", "labels", "notes", "about"):
            params[name] = json_text(params[name])
        rows.append(params)
    _replace(connection, schema.nodes, "name", rows)


def _drop_nodes(connection: Connection, operation: DropNodes) -> None:
    """Delete them, and what they must still delete: nobody waits for that any more."""
    names = [{"the_name": name} for name in operation.names]
    for column in (schema.nodes.c.name, schema.forgets.c.node):
        connection.execute(delete(column.table).where(column == bindparam("the_name")), names)


def _append_events(connection: Connection, operation: AppendEvents, last_seq: int) -> int:
    rows: list[Params] = []
    for seq, entry in enumerate(operation.events, last_seq + 1):
        about = id_ranges(entry.jobs)
        rows.append(
            {
                "seq": seq,
                "at_ms": entry.at_ms,
                "kind": entry.kind.value,
                "cause": entry.cause,
                "trace_id": entry.trace_id,
                "jobs": json_text(about),
                "job_min": about[0][0] if about else 0,
                "job_max": about[-1][1] if about else 0,
                "payload": to_json(entry.payload).decode(),
            }
        )
    insert_rows(connection, schema.events, rows)
    return last_seq + len(rows)


def _remember(connection: Connection, operation: RememberIdempotent, now_ms: int) -> None:
    table = schema.idempotency
    absent = ~exists().where(table.c.key == operation.key)
    values = select(
        literal(operation.key), literal(now_ms), literal(operation.fingerprint), literal(operation.response)
    ).where(absent)
    connection.execute(insert(table).from_select(["key", "at_ms", "fingerprint", "response"], values))


def _replace(connection: Connection, table: Table, key: str, rows: list[Params]) -> None:
    if not rows:
        return
    connection.execute(delete(table).where(table.c[key] == bindparam("the_key")), [{"the_key": r[key]} for r in rows])
    insert_rows(connection, table, list({row[key]: row for row in rows}.values()))
