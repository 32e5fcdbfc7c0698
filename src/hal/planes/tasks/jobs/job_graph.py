"""The graph of a job: the jobs that come before and after it, and theirs, in columns. Pure.

O(jobs + dependencies) of what is looked through. The nearest ones are kept where there are more than `MAX_JOBS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.store.job_links import JobLinks

MAX_JOBS: Final = 100_000
MAX_LINKS: Final = 500_000


class JobGraph(Struct, frozen=True, kw_only=True):
    """Jobs of one user that depend on each other, in columns; position 0 is the job that was asked about."""

    job: str
    ids: list[int]
    names: Annotated[list[str], Meta(description="what the numbers of `name` mean")]
    name: list[int]
    states: Annotated[list[str], Meta(description="what the numbers of `state` mean")]
    state: list[int]
    tasks: list[int]
    before: Annotated[list[int], Meta(description="of each dependency: the position of the job that comes first")]
    after: Annotated[list[int], Meta(description="and of the one that waits for it")]
    truncated: Annotated[bool, Meta(description="there are more: these are the nearest")]


def graph_of(job: int, pages: Iterable[list[JobLinks]]) -> JobGraph:
    """The jobs that are connected with one.

    Args:
        pages: of jobs, it among them; what they name and is not among them is left out.
    """
    known = {one.id: one for page in pages for one in page}
    after: dict[int, list[int]] = {}
    for row in known.values():
        for other in row.before:
            if other in known:
                after.setdefault(other, []).append(row.id)
    position = {job: 0}
    order = [job]
    truncated = False
    at = 0
    while at < len(order) and not truncated:
        one = order[at]
        at += 1
        for other in (*known[one].before, *after.get(one, ())):
            if other in position or other not in known:
                continue
            if len(order) == MAX_JOBS:
                truncated = True
                break
            position[other] = len(order)
            order.append(other)
    names: dict[str, int] = {}
    states: dict[str, int] = {}
    first: list[int] = []
    second: list[int] = []
    for one in order:
        for other in known[one].before:
            if other in position and len(first) < MAX_LINKS:
                first.append(position[other])
                second.append(position[one])
    kept = [known[one] for one in order]
    return JobGraph(
        job=str(job),
        ids=order,
        name=[names.setdefault(row.name, len(names)) for row in kept],
        names=list(names),
        state=[states.setdefault(row.state, len(states)) for row in kept],
        states=list(states),
        tasks=[row.tasks for row in kept],
        before=first,
        after=second,
        truncated=truncated or len(first) == MAX_LINKS,
    )
