"""Dependencies of one submission: names resolved to ids, cycles found and refused.

Pure. O(jobs + dependencies).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hal.core.model import (
    Dependency,
    DependencyKind,
    HALError,
    JobSpec,
    SpecError,
    each_dependency,
)
from hal.planes.tasks.live.standings import NOBODY, Mentions, mentions_of
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work

MAX_SHOWN = 12
"""Most jobs of a cycle that an error names."""


class UnknownJobs(Exception):
    """Dependencies on jobs that are not live: nobody's error; the caller looks them up and asks again."""

    def __init__(self, jobs: tuple[int, ...]) -> None:
        super().__init__(f"jobs {jobs} are not live")
        self.jobs = jobs


def resolving(specs: Sequence[JobSpec], first_id: int) -> Work[tuple[list[JobSpec], list[Mentions]]]:
    """The specs with every name replaced by the job's id, and whom each job names.

    Args:
        specs: the submission; job i gets the id `first_id + i`.
    Raises:
        SpecError: a name that is none or several of the submission's, an id that is not given yet, arrays of different
            length that go task by task, or a cycle (through alternatives, too).
    """
    if not any(spec.dependencies for spec in specs):
        return list(specs), [NOBODY] * len(specs)
    by_name: dict[str, list[int]] = {}
    pace = Pace(CHEAP_A_SLICE)
    for position, spec in enumerate(specs):
        if spec.name:
            by_name.setdefault(spec.name, []).append(first_id + position)
        if pace.over():
            yield
    out: list[JobSpec] = []
    mentions: list[Mentions] = []
    pace = Pace()
    for position, spec in enumerate(specs):
        if pace.over(1 + len(spec.dependencies)):
            yield
        if not spec.dependencies:
            out.append(spec)
            mentions.append(NOBODY)
            continue
        try:
            named = _with_ids(spec, by_name, first_id, first_id + position)
            _refuse_other_lengths(named, specs, first_id)
        except HALError as error:
            raise numbered(error, position, len(specs)) from error
        out.append(named)
        mentions.append(mentions_of(named.dependencies))
    yield from _refuse_cycles(specs, mentions, first_id)
    return out, mentions


def numbered(error: HALError, position: int, count: int) -> HALError:
    """The error of one job of a submission, with its place in the list."""
    if count == 1:
        return error
    return type(error)(f"job {position + 1} of {count}: {error.message}", hint=error.hint)


def resolved(spec: JobSpec, first_id: int, own: int) -> JobSpec:
    """The spec with the ids of the jobs that it names, which are older than `first_id`.

    Raises:
        SpecError: a name, an id that is not given yet, or its own.
    """
    return _with_ids(spec, {}, first_id, own)


def _with_ids(spec: JobSpec, by_name: dict[str, list[int]], first_id: int, own: int) -> JobSpec:
    entries = tuple(
        Dependency(any_of=tuple(_with_id(one, by_name, first_id, own, spec) for one in entry.any_of))
        if entry.any_of
        else _with_id(entry, by_name, first_id, own, spec)
        for entry in spec.dependencies
    )
    return replace(spec, dependencies=entries)


def _with_id(one: Dependency, by_name: dict[str, list[int]], first_id: int, own: int, spec: JobSpec) -> Dependency:
    if one.kind is DependencyKind.SINGLETON:
        return one
    ids = by_name.get(one.job)
    if ids is not None:
        if len(ids) > 1:
            raise SpecError(
                f"dependencies: '{one.job}' names {len(ids)} jobs of this submission",
                hint="give the jobs different names",
            )
        job = ids[0]
    elif one.job.isascii() and one.job.isdigit() and len(one.job) < 19:
        job = int(one.job)
        if job == 0 or job >= first_id:
            raise SpecError(f"dependencies: there is no job {one.job}", hint="`hal jobs` lists the jobs there are")
    else:
        raise SpecError(
            f"dependencies: '{one.job}' is neither a job id nor the name of a job in this submission",
            hint="write a job id like 42, or submit the two jobs together",
        )
    if job == own:
        raise SpecError(f"dependencies: job '{spec.title}' waits for itself")
    return Dependency(str(job), one.kind)


def _refuse_other_lengths(spec: JobSpec, specs: Sequence[JobSpec], first_id: int) -> None:
    for one in each_dependency(spec.dependencies):
        if one.kind is DependencyKind.AFTERCORR and int(one.job) >= first_id:
            other = specs[int(one.job) - first_id]
            refuse_other_length(spec, other.title, other.tasks)


def refuse_other_length(spec: JobSpec, title: str, tasks: int) -> None:
    """Whether the array may follow one of so many tasks, task by task.

    Raises:
        SpecError: it is longer or shorter.
    """
    if spec.tasks != tasks:
        raise SpecError(
            f"dependencies: aftercorr pairs tasks, and '{spec.title}' has {spec.tasks} tasks, '{title}' {tasks}",
            hint="make both arrays equally long, or wait for the whole one with afterok",
        )


def _refuse_cycles(specs: Sequence[JobSpec], mentions: Sequence[Mentions], first_id: int) -> Work[None]:
    """Kahn's algorithm on the edges inside the submission; older jobs cannot wait for newer ones."""
    missing: list[int] = []
    dependants: dict[int, list[int]] = {}
    pace = Pace(CHEAP_A_SLICE)
    for position, named in enumerate(mentions):
        missing.append(0)
        for job in named:
            if job >= first_id:
                missing[-1] += 1
                dependants.setdefault(job - first_id, []).append(position)
        if pace.over(1 + len(named)):
            yield
    free = [position for position, count in enumerate(missing) if count == 0]
    seen = 0
    while free:
        position = free.pop()
        seen += 1
        told_of = dependants.pop(position, ())  # freed one by one
        for other in told_of:
            missing[other] -= 1
            if missing[other] == 0:
                free.append(other)
        if pace.over(1 + len(told_of)):
            yield
    if seen == len(specs):
        return
    # Every job left waits for another job left: walking back from any of them must come to a job seen before.
    at = next(position for position, count in enumerate(missing) if count)
    path: dict[int, None] = {}
    while at not in path:
        path[at] = None
        at = next(job - first_id for job in mentions[at] if job >= first_id and missing[job - first_id])
    steps = list(path)
    cycle = [*steps[steps.index(at) :], at]
    names = [specs[position].title for position in cycle]
    shown = names if len(names) <= MAX_SHOWN else [*names[: MAX_SHOWN - 1], "…", names[-1]]
    raise SpecError(
        f"dependencies: these {len(cycle) - 1} jobs wait for each other: {' → '.join(shown)}",
        hint="take one of these dependencies out; nothing was submitted",
    )
