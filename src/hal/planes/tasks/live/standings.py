"""How the dependencies of one job stand: phases of the jobs that it names, entry by entry.

Pure. A dependency is judged by the phase that the other job is in now, until the dependencies of a job are met as a
whole; from then on they are past. So what a job waits for follows from its spec and from the phases alone, and a
restart finds it again. O(1) for each change of phase (beside O(choices) where it has `any_of`).
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
    TaskState,
)
from hal.planes.tasks.live.task_sets import TaskSet

SINGLETON = 0
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
    succeeded: TaskSet = ()
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


Mentions = dict[int, tuple[tuple[int, DependencyKind], ...]]
"""By the job that is named (`SINGLETON` for singleton): in which entry of the dependencies, and how."""
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
    for index, entry in enumerate(dependencies):
        for one in entry.any_of or (entry,):
            job = int(one.job) if one.job else SINGLETON
            mention = _mention(index, one.kind)
            before = found.get(job)
            if before is None:
                found[job] = mention
            elif mention[0] not in before:
                found[job] = before + mention
    return found


@lru_cache(maxsize=4_096)
def _mention(index: int, kind: DependencyKind) -> tuple[tuple[int, DependencyKind], ...]:
    """Shared by all jobs: most have few entries."""
    return ((index, kind),)


def waits_of(
    dependencies: Sequence[Dependency], mentions: Mentions, phase: Callable[[int], Phase], *, alone: bool
) -> Waits:
    """How they stand when the named jobs are in the phases that `phase` says."""
    by_task = _NOTHING
    several: dict[int, tuple[int, int]] = {}
    for index, entry in enumerate(dependencies):
        if entry.any_of:
            several[index] = (0, 0)
        if any(one.kind is DependencyKind.AFTERCORR for one in entry.any_of or (entry,)):
            by_task |= {index}
            several.pop(index, None)
    still, never = 0, 0
    for job, entries in mentions.items():
        now = (Phase.SUCCEEDED if alone else Phase.WAITS) if job == SINGLETON else phase(job)
        for index, kind in entries:
            if index in by_task:
                continue
            how = standing(kind, now)
            if index in several:
                met, waiting = several[index]
                several[index] = (met + (how is Standing.MET), waiting + (how is Standing.WAITING))
            else:
                still += how is Standing.WAITING
                never += how is Standing.NEVER
    for met, waiting in several.values():
        how = _of_tally(met, waiting)
        still += how is Standing.WAITING
        never += how is Standing.NEVER
    return Waits(mentions, still, never, several, by_task, alone)


_NOTHING: frozenset[int] = frozenset()


def with_phase(waits: Waits, job: int, before: Phase, after: Phase) -> Waits:
    """`job` went from one phase to another; the same object when that changes nothing."""
    now = waits
    for index, kind in waits.mentions[job]:
        if index in waits.by_task:
            continue
        was, how = standing(kind, before), standing(kind, after)
        if was is how:
            continue
        if index in now.choices:
            now = _tallied(now, index, was, how)
        else:
            now = replace(
                now,
                open=now.open + (how is Standing.WAITING) - (was is Standing.WAITING),
                never=now.never + (how is Standing.NEVER) - (was is Standing.NEVER),
            )
    return now


def _tallied(waits: Waits, index: int, was: Standing, how: Standing) -> Waits:
    met, waiting = waits.choices[index]
    before = _of_tally(met, waiting)
    met += (how is Standing.MET) - (was is Standing.MET)
    waiting += (how is Standing.WAITING) - (was is Standing.WAITING)
    after = _of_tally(met, waiting)
    return replace(
        waits,
        open=waits.open + (after is Standing.WAITING) - (before is Standing.WAITING),
        never=waits.never + (after is Standing.NEVER) - (before is Standing.NEVER),
        choices={**waits.choices, index: (met, waiting)},
    )


def _of_tally(met: int, waiting: int) -> Standing:
    return Standing.MET if met else Standing.WAITING if waiting else Standing.NEVER
