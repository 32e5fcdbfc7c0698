"""The graph of a job, read in pages on the readers' thread, between which others have the store."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import graph_of
from hal.runtime.interface import Lane
from hal.store import Store
from hal.store.job_links import JobLinks

WITHIN: Final = 100_000
"""So many jobs before and behind one are searched for those that depend on each other."""
PAGE: Final = 4_096


async def read_graph(parts: Parts, job: int, user: str) -> bytes:
    """A `JobGraph` as JSON. What has the job's user is looked through."""
    pages: list[list[JobLinks]] = []
    at, until = job - WITHIN - 1, job + WITHIN
    while True:
        found = await parts.committer.read(partial(_links, user=user, after=at, until=until))
        pages.append(found)
        if len(found) < PAGE:
            break
        at = found[-1].id
    return await parts.runtime.run_blocking(partial(_encoded, job, pages), Lane.READER)


def _links(store: Store, user: str, after: int, until: int) -> list[JobLinks]:
    return store.job_links(user, after=after, until=until, limit=PAGE)


def _encoded(job: int, pages: list[list[JobLinks]]) -> bytes:
    return msgspec.json.encode(graph_of(job, pages))
