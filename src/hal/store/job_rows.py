"""Write rows of jobs: submitted, progressed, edited. Inside the caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, delete, func, literal_column, select, update

from hal.core.model import JobSpec, to_json
from hal.store import schema
from hal.store.bulk import Params, batches, change_rows, first_row, insert_rows
from hal.store.operations import EditJobs, InsertJobs, ProgressJobs

_NEWEST_SPEC: Final = select(func.max(schema.specs.c.id))


def _insert_specs(connection: Connection, specs: Iterable[JobSpec]) -> list[int]:
    """Store each distinct spec once; returns ids in the order of `specs`."""
    row = first_row(connection, _NEWEST_SPEC)
    newest = row[0] if row and row[0] else 0
    by_body: dict[bytes, int] = {}
    by_identity: dict[int, int] = {}
    ids: list[int] = []
    for spec in specs:
        spec_id = by_identity.get(id(spec))
        if spec_id is None:
            spec_id = by_body.setdefault(to_json(spec), newest + len(by_body) + 1)
            by_identity[id(spec)] = spec_id
        ids.append(spec_id)
    for some in batches(list(by_body.items())):
        insert_rows(connection, schema.specs, [{"id": spec_id, "body": body.decode()} for body, spec_id in some])
    return ids


def insert_jobs(connection: Connection, operation: InsertJobs) -> None:
    """Insert new jobs with their specs and labels."""
    spec_ids = _insert_specs(connection, [row.spec for row in operation.rows])
    for some in batches(list(zip(operation.rows, spec_ids, strict=True))):
        rows: list[Params] = []
        for row, spec_id in some:
            params = asdict(row)
            del params["spec"]
            params["spec_id"] = spec_id
            params["state"] = row.state.value
            params["version"] = 1
            rows.append(params)
        insert_rows(connection, schema.jobs, rows)
    _insert_labels(connection, [(row.id, row.spec) for row in operation.rows])


def _insert_labels(connection: Connection, specs: Iterable[tuple[int, JobSpec]]) -> None:
    rows = [
        {"job_id": job, "label": label, "value": value} for job, spec in specs for label, value in spec.labels.items()
    ]
    insert_rows(connection, schema.job_labels, rows)


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
    .values(version=schema.jobs.c.version + literal_column("1"), removed=literal_column("0"))
)


def progress_jobs(connection: Connection, operation: ProgressJobs) -> None:
    """Update states and counts of existing jobs."""
    for some in batches(operation.rows):
        rows: list[Params] = []
        for row in some:
            params = asdict(row)
            params["the_id"] = params.pop("id")
            params["state"] = row.state.value
            rows.append(params)
        change_rows(connection, _PROGRESS, rows, lambda row: f"job {row['the_id']}", ("the_id",))


def edit_jobs(connection: Connection, operation: EditJobs) -> None:
    """Apply what people changed; a new spec is stored beside the former one, which other jobs may share."""
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
        change_rows(connection, statement, rows, lambda row: f"job {row['the_id']}", ("the_id",), lasting=False)
    if respecced:
        drop = delete(schema.job_labels).where(schema.job_labels.c.job_id == bindparam("the_id"))
        connection.execute(drop, [{"the_id": job} for job, _ in respecced])
        _insert_labels(connection, respecced)
