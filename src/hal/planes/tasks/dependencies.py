"""Which job waits for which: names of one submission resolved, cycles found, and how the dependencies of a job stand.

Pure. A dependency is judged by the phase that the other job is in now, until the dependencies of a job are met as a
whole; from then on they are past. So what a job waits for follows from its spec and from the phases alone, and a
restart finds it again. Cost: O(jobs + dependencies) for a submission, O(1) for one job that tells one other (beside
O(choices) where it has `any_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import (
    Dependency,
    DependencyKind,
    HALError,
    JobSpec,
    SpecError,
    TaskState,
    each_dependency,
)
from hal.planes.tasks.runs import Runs
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work

MAX_SHOWN = 12
"""Most jobs of a cycle that an error names."""
NAMESAKES = 0
"""Stands for all earlier jobs of the same name and user, where a job's id is expected."""


class Phase(IntEnum):
    """How far a job has come, as far as dependencies ask."""

    WAITS = 0
    STARTED = 1
    SUCCEEDED = 2
    FAILED = 3
    """Ended in any other way: failed, timed out, cancelled."""


def phase_of(state: TaskState, *, started: bool) -> Phase:
    """The phase of a job in that state.

    Args:
        started: whether any of its tasks has ever started.
    """
    if state.ended:
        return Phase.SUCCEEDED if state is TaskState.SUCCEEDED else Phase.FAILED
    return Phase.STARTED if started else Phase.WAITS


class EndedJob(Struct, frozen=True):
    """What must be known of a job that has ended while others name it as a dependency."""

    id: int
    title: str
    state: TaskState
    tasks: int = 1
    succeeded: Runs = ()
    """Of an array some of whose tasks succeeded: which; else empty."""

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return phase_of(self.state, started=True)


class Standing(Enum):
    """How a dependency stands."""

    MET = "met"
    WAITING = "waiting"
    NEVER = "never"


_W, _M, _N = Standing.WAITING, Standing.MET, Standing.NEVER
_STANDINGS = {
    DependencyKind.AFTER: (_W, _M, _M, _M),
    DependencyKind.AFTERANY: (_W, _W, _M, _M),
    DependencyKind.AFTEROK: (_W, _W, _M, _N),
    DependencyKind.AFTERNOTOK: (_W, _W, _N, _M),
    DependencyKind.SINGLETON: (_W, _W, _M, _M),
}


def standing(kind: DependencyKind, phase: Phase) -> Standing:
    """How a dependency of that kind (not `aftercorr`, which goes by task) on a job in that phase stands."""
    return _STANDINGS[kind][phase]


def any_of(standings: Iterable[Standing]) -> Standing:
    """How a choice of these stands: met by one, out of reach only when all are."""
    best = Standing.NEVER
    for one in standings:
        if one is Standing.MET:
            return one
        if one is Standing.WAITING:
            best = one
    return best


# ── what one job waits for ────────────────────────────────────────────────────────────────────────────────────────

Mentions = dict[int, tuple[tuple[int, DependencyKind], ...]]
"""By the job that is named (`NAMESAKES` for singleton): in which entry of the dependencies, and how."""
NOBODY: Mentions = {}
"""Of every job that waits for none."""


class Waits(Struct, frozen=True, gc=False):
    """How the dependencies of one job stand, entry by entry; replaced, never changed."""

    mentions: Mentions
    open: int
    """Entries that are neither met nor out of reach, those by task not counted."""
    never: int
    """Entries that are out of reach."""
    choices: dict[int, tuple[int, int]] = {}
    """Of each entry with alternatives: how many of them are met and how many still may be."""
    by_task: frozenset[int] = frozenset()
    """Entries with `aftercorr` in them: each task has its own answer."""
    alone: bool = True
    """Of a singleton: no earlier job of its name lives."""

    def settled(self) -> Waits:
        """The entries for the whole job are past; those by task stay."""
        return replace(self, open=0, never=0, choices={}, alone=True)


def mentions_of(dependencies: Sequence[Dependency]) -> Mentions:
    """Who is named in which entry; all names must be ids."""
    found: Mentions = {}
    for place, entry in enumerate(dependencies):
        for one in entry.any_of or (entry,):
            job = int(one.job) if one.job else NAMESAKES
            mention = _mention(place, one.kind)
            before = found.get(job)
            if before is None:
                found[job] = mention
            elif mention[0] not in before:
                found[job] = before + mention
    return found


@lru_cache(maxsize=4_096)
def _mention(place: int, kind: DependencyKind) -> tuple[tuple[int, DependencyKind], ...]:
    """Shared by all jobs: most have few entries."""
    return ((place, kind),)


def waits_of(
    dependencies: Sequence[Dependency], mentions: Mentions, phase: Callable[[int], Phase], *, alone: bool
) -> Waits:
    """How they stand when the named jobs are in the phases that `phase` says."""
    by_task = _NOTHING
    several: dict[int, tuple[int, int]] = {}
    for place, entry in enumerate(dependencies):
        if entry.any_of:
            several[place] = (0, 0)
        if any(one.kind is DependencyKind.AFTERCORR for one in entry.any_of or (entry,)):
            by_task |= {place}
            several.pop(place, None)
    still, never = 0, 0
    for job, told in mentions.items():
        now = (Phase.SUCCEEDED if alone else Phase.WAITS) if job == NAMESAKES else phase(job)
        for place, kind in told:
            if place in by_task:
                continue
            how = standing(kind, now)
            if place in several:
                met, waiting = several[place]
                several[place] = (met + (how is Standing.MET), waiting + (how is Standing.WAITING))
            else:
                still += how is Standing.WAITING
                never += how is Standing.NEVER
    for met, waiting in several.values():
        how = _of_tally(met, waiting)
        still += how is Standing.WAITING
        never += how is Standing.NEVER
    return Waits(mentions, still, never, several, by_task, alone)


_NOTHING: frozenset[int] = frozenset()


def told(waits: Waits, job: int, before: Phase, after: Phase) -> Waits:
    """`job` went from one phase to another; the same object when that changes nothing."""
    now = waits
    for place, kind in waits.mentions[job]:
        if place in waits.by_task:
            continue
        was, how = standing(kind, before), standing(kind, after)
        if was is how:
            continue
        if place in now.choices:
            now = _tallied(now, place, was, how)
        else:
            now = replace(
                now,
                open=now.open + (how is Standing.WAITING) - (was is Standing.WAITING),
                never=now.never + (how is Standing.NEVER) - (was is Standing.NEVER),
            )
    return now


def _tallied(waits: Waits, place: int, was: Standing, how: Standing) -> Waits:
    met, waiting = waits.choices[place]
    before = _of_tally(met, waiting)
    met += (how is Standing.MET) - (was is Standing.MET)
    waiting += (how is Standing.WAITING) - (was is Standing.WAITING)
    after = _of_tally(met, waiting)
    return replace(
        waits,
        open=waits.open + (after is Standing.WAITING) - (before is Standing.WAITING),
        never=waits.never + (after is Standing.NEVER) - (before is Standing.NEVER),
        choices={**waits.choices, place: (met, waiting)},
    )


def _of_tally(met: int, waiting: int) -> Standing:
    return Standing.MET if met else Standing.WAITING if waiting else Standing.NEVER


# ── a submission ──────────────────────────────────────────────────────────────────────────────────────────────────


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
            raise placed(error, position, len(specs)) from error
        out.append(named)
        mentions.append(mentions_of(named.dependencies))
    yield from _refuse_cycles(specs, mentions, first_id)
    return out, mentions


def placed(error: HALError, position: int, count: int) -> HALError:
    """The error of one job of a submission, with its place in the list."""
    if count == 1:
        return error
    return type(error)(f"job {position + 1} of {count}: {error.message}", hint=error.hint)


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
            f"dependencies: aftercorr goes task by task, and '{spec.title}' has {spec.tasks} tasks, '{title}' {tasks}",
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
