"""Which jobs of a user name which others as their dependencies: a page of them by id, of a range of ids.

Read-only; O(range), one page at a time.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, select

from hal.core.model.job import title_of
from hal.store import schema
from hal.store.queries import NOT_REMOVED


class JobLinks(Struct, frozen=True, gc=False):
    """One job, and the jobs that it names."""

    id: int
    name: str
    """Of one without a name, its program."""
    state: str
    """Of the job; `held` where it only waits, and because somebody holds it."""
    tasks: int
    before: tuple[int, ...]
    """Ascending."""


class _Before(Struct, gc=False):
    """The part of a dependency that names jobs: 100,000 are decoded in half the time of whole ones."""

    job: str = ""
    any_of: tuple[_Before, ...] = ()


class _Named(Struct, gc=False):
    """The part of a spec that says what it waits for, and what it runs."""

    dependencies: tuple[_Before, ...] = ()
    command: tuple[str, ...] = ()


_NAMED: Final = msgspec.json.Decoder(_Named)
_NEEDS: Final = '"dependencies":['


def read_links(connection: Connection, user: str, after: int, until: int, limit: int) -> list[JobLinks]:
    """Read jobs of a user by id, the first `limit` with `after < id <= until`."""
    c = schema.jobs.c
    columns = (c.id, c.name, c.state, c.pending, c.held, c.active, c.tasks, schema.specs.c.body)
    query = select(*columns).join_from(schema.jobs, schema.specs)
    query = query.where(NOT_REMOVED, c.user == user, c.id > after, c.id <= until).order_by(c.id).limit(limit)
    found: list[JobLinks] = []
    for job, name, state, pending, held, active, tasks, body in connection.execute(query):
        before: tuple[int, ...] = ()
        if not name or _NEEDS in body:
            spec = _NAMED.decode(body)
            before = _named(spec.dependencies)
            name = name or title_of(spec.command)
        waits = state == "pending" and held and not pending and not active
        found.append(JobLinks(job, name, "held" if waits else state, tasks, before))
    return found


def _named(dependencies: tuple[_Before, ...]) -> tuple[int, ...]:
    singles = (one for entry in dependencies for one in (entry.any_of or (entry,)))
    return tuple(sorted({int(one.job) for one in singles if _is_id(one.job)}))


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
