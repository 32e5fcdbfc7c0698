"""Rows of periodic jobs and of their histories: written inside the caller's transaction, and read.

A history is as long as its periodic job says: what is older goes in the transaction that adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, select

from hal.core.model import dec_hook, to_json
from hal.core.model.periodic import PeriodicSpec, RunOutcome
from hal.store import schema
from hal.store.bulk import Params, insert_rows, json_text
from hal.store.operations import PeriodicRow, PeriodicRun, PutPeriodic

MAX_IDS: Final = 1_000
"""Periodic jobs that one query names."""

_JOBS: Final = msgspec.json.Decoder(tuple[int, ...])
_SPEC: Final = msgspec.json.Decoder(PeriodicSpec, dec_hook=dec_hook)


def put_periodic(connection: Connection, operation: PutPeriodic) -> None:
    """Execute the operation.

    Raises:
        IntegrityError of SQLAlchemy: a due time is in a history already; the group is refused.
    """
    p, r = schema.periodic_jobs.c, schema.periodic_runs.c
    if operation.forget:
        gone = [{"the_id": one} for one in operation.forget]
        connection.execute(delete(schema.periodic_runs).where(r.periodic == bindparam("the_id")), gone)
        connection.execute(delete(schema.periodic_jobs).where(p.id == bindparam("the_id")), gone)
    rows = {row.id: row for row in operation.rows}
    if rows:
        known = set(connection.scalars(select(p.id).where(p.id.in_(list(rows)))))
        insert_rows(connection, schema.periodic_jobs, [_params(row) for row in rows.values() if row.id not in known])
        changed = [_params(row) for row in rows.values() if row.id in known]
        if changed:
            values: Params = {name: bindparam(name) for name in changed[0] if name != "id"}
            connection.execute(
                schema.periodic_jobs.update().where(p.id == bindparam("the_id")).values(values),
                [{**params, "the_id": params["id"]} for params in changed],
            )
    if operation.runs:
        insert_rows(connection, schema.periodic_runs, [_run_params(run) for run in operation.runs])
        old = [
            {"the_id": row.id, "kept_from": row.runs - row.spec.keep + 1}
            for row in rows.values()
            if row.runs > row.spec.keep
        ]
        if old:
            beyond = (r.periodic == bindparam("the_id")) & (r.number < bindparam("kept_from"))
            connection.execute(delete(schema.periodic_runs).where(beyond), old)


def _params(row: PeriodicRow) -> Params:
    params = {field: getattr(row, field) for field in row.__struct_fields__ if field != "spec"}
    return {**params, "live": json_text(row.live), "body": to_json(row.spec).decode()}


def _run_params(run: PeriodicRun) -> Params:
    params = {field: getattr(run, field) for field in run.__struct_fields__}
    return {**params, "outcome": run.outcome.value}


def read_periodic(connection: Connection) -> list[PeriodicRow]:
    """Read all of them, by id."""
    found = []
    for row in connection.execute(select(schema.periodic_jobs).order_by(schema.periodic_jobs.c.id)):
        values: Params = dict(row._mapping)
        values["spec"] = _SPEC.decode(values.pop("body"))
        values["live"] = _JOBS.decode(values["live"])
        found.append(PeriodicRow(**values))
    return found


def read_runs(connection: Connection, periodic: int, before: int | None, limit: int) -> list[PeriodicRun]:
    """Read a page of a history, newest first."""
    r = schema.periodic_runs.c
    query = select(schema.periodic_runs).where(r.periodic == periodic).order_by(r.number.desc()).limit(limit)
    if before is not None:
        query = query.where(r.number < before)
    return [_run(dict(row._mapping)) for row in connection.execute(query)]


def read_last_runs(connection: Connection, periodic: Sequence[int]) -> dict[int, PeriodicRun]:
    """Read the newest entry of each."""
    r = schema.periodic_runs.c
    found: dict[int, PeriodicRun] = {}
    for at in range(0, len(periodic), MAX_IDS):
        some = list(periodic[at : at + MAX_IDS])
        newest = (
            select(r.periodic, func.max(r.number).label("newest"))
            .where(r.periodic.in_(some))
            .group_by(r.periodic)
            .subquery()
        )
        query = select(schema.periodic_runs).join(
            newest, (newest.c.periodic == r.periodic) & (newest.c.newest == r.number)
        )
        for row in connection.execute(query):
            found[row.periodic] = _run(dict(row._mapping))
    return found


def _run(values: Params) -> PeriodicRun:
    return PeriodicRun(**{**values, "outcome": RunOutcome(values["outcome"])})
