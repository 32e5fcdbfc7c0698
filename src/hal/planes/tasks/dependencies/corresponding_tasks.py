"""`aftercorr`: how each task of an array stands towards the same task of another one, as ranges of alike tasks.

Pure. O(ranges) of the arrays involved in the range that is asked for; a task that ends asks for one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hal.core.model import Dependency, DependencyKind, TaskState
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import EndedJob, Phase, Standing, Waits, any_of, standing
from hal.planes.tasks.live.task_ranges import parts_within
from hal.planes.tasks.live.task_sets import complement, merged, within

Other = LiveJob | EndedJob
StandingRange = tuple[int, int, Standing]
"""First task, one past the last, how all of them stand."""


def standing_ranges(
    waits: Waits,
    dependencies: tuple[Dependency, ...],
    first: int,
    end: int,
    other: Callable[[int], Other],
    phase: Callable[[int], Phase],
) -> list[StandingRange]:
    """How the tasks in [first, end) stand towards all entries that go by task.

    Args:
        other: the job of an id, live or ended.
        phase: the phase of the job of an id (`SINGLETON` too).
    """
    entries = [dependencies[index].alternatives for index in sorted(waits.by_task)]
    by_job: dict[int, list[StandingRange]] = {}
    fixed: list[list[Standing]] = []
    for entry in entries:
        fixed.append([_fixed(one, phase) for one in entry if one.kind is not DependencyKind.AFTERCORR])
        for one in entry:
            if one.kind is DependencyKind.AFTERCORR and int(one.job) not in by_job:
                by_job[int(one.job)] = outcomes(other(int(one.job)), first, end)
    edges = sorted({first, *(low for found in by_job.values() for low, _, _ in found)})
    at = dict.fromkeys(by_job, 0)
    out: list[StandingRange] = []
    for low, high in zip(edges, [*edges[1:], end], strict=True):
        for job, found in by_job.items():
            while found[at[job]][1] <= low:
                at[job] += 1
        how = _all(
            any_of(
                (*known, *(by_job[int(o.job)][at[int(o.job)]][2] for o in entry if o.kind is DependencyKind.AFTERCORR))
            )
            for entry, known in zip(entries, fixed, strict=True)
        )
        if out and out[-1][2] is how:
            out[-1] = (out[-1][0], high, how)
        else:
            out.append((low, high, how))
    return out


def outcomes(job: Other, first: int, end: int) -> list[StandingRange]:
    """How the tasks in [first, end) of the other array have ended: met where they succeeded."""
    if isinstance(job, EndedJob):
        if job.state is TaskState.SUCCEEDED:
            return [(first, end, Standing.MET)]
        succeeded = within(job.succeeded, first, end)
        waiting: list[tuple[int, int]] = []
    else:
        succeeded = within(job.succeeded, first, end)
        waiting = [(s.first, s.end) for s in parts_within(job.ranges, first, end - first) if not s.state.ended]
        if end - first == 1:
            waiting += [(first, end)] if first in job.active else []
        else:
            waiting += [(task, task + 1) for task in job.active if first <= task < end]
            waiting = list(merged(waiting))
    known = merged((*succeeded, *waiting))
    bad = [(low + first, high + first) for low, high in complement(_shifted(known, first), end - first)]
    return sorted(
        [
            *((low, high, Standing.MET) for low, high in succeeded),
            *((low, high, Standing.WAITING) for low, high in waiting),
            *((low, high, Standing.NEVER) for low, high in bad),
        ],
        key=_low,
    )


def _shifted(task_set: tuple[tuple[int, int], ...], by: int) -> tuple[tuple[int, int], ...]:
    return tuple((low - by, high - by) for low, high in task_set)


def _fixed(one: Dependency, phase: Callable[[int], Phase]) -> Standing:
    return standing(one.kind, phase(int(one.job or 0)))


def _all(standings: Iterable[Standing]) -> Standing:
    worst = Standing.MET
    for one in standings:
        if one is Standing.NEVER:
            return Standing.NEVER
        if one is Standing.WAITING:
            worst = Standing.WAITING
    return worst


def _low(part: StandingRange) -> int:
    return part[0]
