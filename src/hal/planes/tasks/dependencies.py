"""Which job waits for which: names of one submission resolved, cycles found, and when a dependency is met.

Pure. O(jobs + edges) for a submission. A dependency on `after` is met when the other job has started (or ended without
starting), the others when it has ended: `afterany` whatever its end, `afterok` when all tasks succeeded, `afternotok`
when they did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from hal.core.model import DependencyKind, JobSpec, SpecError, TaskState

MAX_SHOWN = 12
"""Most jobs of a cycle that an error names."""

Waits = dict[int, tuple[DependencyKind, ...]]
"""Dependencies of one job, by the job that it waits for."""


class Standing(Enum):
    """How a dependency stands."""

    MET = "met"
    WAITING = "waiting"
    NEVER = "never"


def standing(kind: DependencyKind, state: TaskState, *, started: bool) -> Standing:
    """How a dependency of that kind on a job in `state` stands.

    Args:
        started: whether any of its tasks has ever started.
    """
    if kind is DependencyKind.AFTER and started:
        return Standing.MET
    if not state.ended:
        return Standing.WAITING
    if kind in (DependencyKind.AFTER, DependencyKind.AFTERANY):
        return Standing.MET
    succeeded = state is TaskState.SUCCEEDED
    return Standing.MET if succeeded == (kind is DependencyKind.AFTEROK) else Standing.NEVER


def resolve(specs: Sequence[JobSpec], first_id: int) -> list[Waits]:
    """What each job of a submission waits for, by job id.

    Args:
        specs: the submission; job i gets the id `first_id + i`.
    Raises:
        SpecError: a name that is none or several of the submission's, an id that is not given yet, or a cycle.
    """
    if not any(spec.dependencies for spec in specs):
        return [{} for _ in specs]
    by_name: dict[str, list[int]] = {}
    for position, spec in enumerate(specs):
        if spec.name:
            by_name.setdefault(spec.name, []).append(first_id + position)
    waits = [_resolved(spec, by_name, first_id, first_id + i) for i, spec in enumerate(specs)]
    _refuse_cycles(specs, waits, first_id)
    return waits


def _resolved(spec: JobSpec, by_name: dict[str, list[int]], first_id: int, own: int) -> Waits:
    waits: Waits = {}
    for dependency in spec.dependencies:
        text = dependency.job.strip()
        if text in by_name:
            ids = by_name[text]
            if len(ids) > 1:
                raise SpecError(
                    f"dependencies: '{text}' names {len(ids)} jobs of this submission",
                    hint="give the jobs different names",
                )
            job = ids[0]
        elif text.isascii() and text.isdigit() and 0 < len(text) < 19:
            job = int(text)
            if job == 0 or job >= first_id:
                raise SpecError(f"dependencies: there is no job {text}", hint="`hal jobs` lists the jobs there are")
        else:
            raise SpecError(
                f"dependencies: '{text}' is neither a job id nor the name of a job in this submission",
                hint="write a job id like 42, or submit the two jobs together",
            )
        if job == own:
            raise SpecError(f"dependencies: job '{spec.title}' waits for itself")
        kinds = waits.get(job, ())
        if dependency.kind not in kinds:
            waits[job] = (*kinds, dependency.kind)
    return waits


def _refuse_cycles(specs: Sequence[JobSpec], waits: Sequence[Waits], first_id: int) -> None:
    """Kahn's algorithm on the edges inside the submission; older jobs cannot wait for newer ones."""
    missing = [sum(job >= first_id for job in wait) for wait in waits]
    dependants: dict[int, list[int]] = {}
    for position, wait in enumerate(waits):
        for job in wait:
            if job >= first_id:
                dependants.setdefault(job - first_id, []).append(position)
    free = [position for position, count in enumerate(missing) if count == 0]
    seen = 0
    while free:
        position = free.pop()
        seen += 1
        for other in dependants.get(position, ()):
            missing[other] -= 1
            if missing[other] == 0:
                free.append(other)
    if seen == len(specs):
        return
    # Every job left waits for another job left: walking back from any of them must come to a job seen before.
    at = next(position for position, count in enumerate(missing) if count)
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = next(job - first_id for job in waits[at] if job >= first_id and missing[job - first_id])
    cycle = [*path[path.index(at) :], at]
    names = [specs[position].title for position in cycle]
    shown = names if len(names) <= MAX_SHOWN else [*names[: MAX_SHOWN - 1], "…", names[-1]]
    raise SpecError(
        f"dependencies: these jobs wait for each other: {' → '.join(shown)}",
        hint="take one of these dependencies out; nothing was submitted",
    )
