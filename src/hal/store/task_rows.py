"""Write rows of tasks: ranges and attempts. Inside the caller's transaction."""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict
from sqlalchemy import Connection, and_, bindparam, delete, func, select, update

from hal.store import schema
from hal.store.bulk import Params, change_rows, insert_rows, json_text, overwrite_rows
from hal.store.operations import EndAttempts, InsertAttempts, MarkAttempts, PutTaskRanges

_DROP_RANGE: Final = delete(schema.task_ranges).where(
    schema.task_ranges.c.job_id == bindparam("the_job"), schema.task_ranges.c.first == bindparam("the_first")
)


def put_ranges(connection: Connection, operation: PutTaskRanges) -> None:
    """Delete the ranges to drop, then write ranges, replacing those with the same first task."""
    gone = [{"the_job": job, "the_first": first} for job, first in operation.drop]
    if gone:
        change_rows(
            connection,
            _DROP_RANGE,
            gone,
            lambda row: f"the range of job {row['the_job']} at task {row['the_first']}",
            ("the_job", "the_first"),
        )
    rows: list[Params] = []
    for task_range in operation.put:
        params = asdict(task_range)
        params["job_id"] = params.pop("job")
        params["state"] = task_range.state.value
        rows.append(params)
    overwrite_rows(connection, schema.task_ranges, rows)


def insert_attempts(connection: Connection, operation: InsertAttempts) -> None:
    """Insert new attempts."""
    rows: list[Params] = []
    for row in operation.rows:
        params = asdict(row)
        params["job_id"] = params.pop("job")
        params["state"] = row.state.value
        params["node"] = row.nodes[0] if row.nodes else None
        params["user"] = params["ended_seq"] = params["recorded_ms"] = None
        params["nodes"] = json_text(row.nodes)
        params["usage"] = None if row.usage is None else json_text(row.usage)
        params["steps"] = json_text(row.steps)
        del params["preemption"]
        params["taking"] = None if row.preemption is None else json_text(row.preemption)
        params["gpus"] = json_text(row.gpus) if row.gpus else None
        params["port"] = row.port or None
        rows.append(params)
    insert_rows(connection, schema.attempts, rows)


_A: Final = schema.attempts.c
_ATTEMPT_KEY: Final = ("the_job", "the_task", "the_attempt")
# An end is final: an attempt that has ended is not matched, whatever a late message claims.
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
        credit=bindparam("new_credit", type_=_A.credit.type),
        taking=func.coalesce(bindparam("new_taking", type_=_A.taking.type), _A.taking),
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
        user=select(schema.jobs.c.user).where(schema.jobs.c.id == _A.job_id).scalar_subquery(),
        ended_seq=bindparam("new_ended_seq"),
        recorded_ms=bindparam("new_recorded_ms"),
        **_KEPT_WHEN_NONE,
    )
)


def _attempt_name(row: Params) -> str:
    return f"attempt {row['the_job']}.{row['the_task']}.{row['the_attempt']}"


def mark_attempts(connection: Connection, operation: MarkAttempts) -> None:
    """Change the state of live attempts."""
    rows = [
        {
            "the_job": row.job,
            "the_task": row.task,
            "the_attempt": row.attempt,
            "new_state": row.state.value,
            "new_cause": row.cause,
            "new_started_ms": row.started_ms,
            "new_steps": None if row.steps is None else json_text(row.steps),
            "new_credit": row.credit,
            "new_taking": None if row.preemption is None else json_text(row.preemption),
        }
        for row in operation.rows
    ]
    change_rows(connection, _MARK, rows, _attempt_name, _ATTEMPT_KEY)


def end_attempts(connection: Connection, operation: EndAttempts, now_ms: int, last_end: int) -> int:
    """Record how attempts ended, and number the ends.

    Args:
        now_ms: the instant of the commit.
        last_end: the number given last.
    Returns: the same afterwards.
    """
    rows: list[Params] = [
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
            "new_ended_seq": number,
            "new_recorded_ms": now_ms,
        }
        for number, row in enumerate(operation.rows, last_end + 1)
    ]
    change_rows(connection, _END, rows, _attempt_name, _ATTEMPT_KEY)
    further: list[Params] = [
        {"job_id": row.job, "task": row.task, "attempt": row.attempt, "node": node, "ended_seq": number}
        for number, row in enumerate(operation.rows, last_end + 1)
        for node in row.more_nodes
    ]
    insert_rows(connection, schema.gang_nodes, further)
    return last_end + len(rows)
