"""Which tasks and attempts a command names, and their state.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hal.core.model import ConflictError, JobSpec, NotFoundError, SpecError, TaskState, plural, shown
from hal.core.model.index_ranges import IndexRange, pieces_of, text_of
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import parts_within, slices
from hal.planes.tasks.live.task_sets import TaskSet, merged
from hal.planes.tasks.slices import A_SLICE, Pace, Work

MAX_PIECES: Final = 4_096
"""Runs of neighbouring tasks that one command may name in one job: `0-8191:2` are as many."""


class Selection(NamedTuple):
    """Tasks of a job that a command names."""

    ranges: tuple[IndexRange, ...] = ()
    """None: all of its tasks."""
    by_index: bool = False
    """These are values of HAL_ARRAY_INDEX; otherwise tasks by number."""
    states: tuple[TaskState, ...] = ()
    """Only tasks that are in one of these; none: in any."""


WHOLE: Final = Selection()
"""The job, with all of its tasks."""
LOOKUPS_A_SLICE: Final = 64
"""Indices that are looked up in one slice: each takes some microseconds, in an array with many gaps thirty."""
Named = Selection | int | None
"""A task by number, several, or (None) the whole job."""


class Done(NamedTuple):
    """What a command did."""

    state: TaskState
    """Of the job, or of the one task that was named, now."""
    tasks: int = 0
    """How many tasks it changed."""
    detail: str = ""
    """What became of how many tasks, in words; empty where the state says it all."""


class Chosen(NamedTuple):
    """The tasks that a selection means in a job."""

    name: str
    """For people: `8`, `8.7`, `8.7-9`."""
    pieces: TaskSet
    states: frozenset[TaskState]
    """None of them: any."""
    whole: bool
    """All tasks, in whatever state."""
    single: int | None
    """The one task that was named by its number."""

    @property
    def noun(self) -> str:
        return "job" if self.whole else "task"

    def __contains__(self, task: object) -> bool:
        if not isinstance(task, int):
            return False
        at = bisect_right(self.pieces, task, key=_first) - 1
        return at >= 0 and task < self.pieces[at][1]

    def takes(self, task: int, state: TaskState) -> bool:
        """Whether a task in that state is meant."""
        return (not self.states or state in self.states) and (self.whole or task in self)


def choose(job: LiveJob, named: Named) -> Work[Chosen]:
    """The tasks of the job that are named, in slices.

    Raises:
        NotFoundError: it has no such task.
        SpecError: too many to be looked at one by one.
    """
    if isinstance(named, int):
        named = Selection((IndexRange(named),))
    elif named is None:
        named = WHOLE
    states = frozenset(named.states)
    if not named.ranges:
        return Chosen(str(job.id), ((0, job.spec.tasks),), states, whole=not states, single=None)
    name, pieces = yield from named_pieces(job.id, job.spec, named)
    only = named.ranges[0].first if len(named.ranges) == 1 and named.ranges[0].length == 1 else None
    return Chosen(name, pieces, states, whole=False, single=None if named.by_index else only)


def named_pieces(job: int, spec: JobSpec, named: Selection) -> Work[tuple[str, TaskSet]]:
    """What some tasks of a job are called, and their numbers; in slices.

    Raises:
        NotFoundError, SpecError: as `choose`.
    """
    if not named.ranges:
        return str(job), ((0, spec.tasks),)
    name = f"{job}[{text_of(named.ranges)}]" if named.by_index else f"{job}.{text_of(named.ranges)}"
    if sum(1 if one.step == 1 else one.length for one in named.ranges) > MAX_PIECES:
        raise _too_many(name)
    if not named.by_index:
        count = spec.tasks
        if outside := next((one for one in named.ranges if one.last >= count), None):
            raise no_task_of(job, outside.last, count)
        return name, merged(pieces_of(named.ranges))
    found, pace = [], Pace(LOOKUPS_A_SLICE)
    for wanted in _without_steps(named.ranges):
        for one in spec.array.tasks_of((wanted,)) if spec.array is not None else ():
            found.append((one.first, one.last + 1))
            if len(found) > MAX_PIECES:
                raise _too_many(name)
            if pace.over():
                yield
        if pace.over():
            yield
    if not found:
        array = spec.array is not None
        hint = f"`hal show {job}` shows its array" if array else "it is no array; name it without brackets"
        raise NotFoundError(f"{name}: no task of job {job} has such a HAL_ARRAY_INDEX", hint=hint)
    return name, merged(found)


def no_task_of(job: int, task: int, count: int) -> NotFoundError:
    """The error for a number that none of a job's tasks has.

    Args:
        count: how many tasks it has.
    """
    hint = f"its tasks are 0 to {count - 1}" if count > 1 else f"its only task is {job}.0"
    return NotFoundError(f"job {job} has no task {task}", hint=hint)


def _without_steps(ranges: Sequence[IndexRange]) -> Iterator[IndexRange]:
    """Ranges without a step as they are, the numbers of the others one by one."""
    for one in ranges:
        if one.step == 1:
            yield one
        else:
            yield from map(IndexRange, range(one.first, one.last + 1, one.step))


def _too_many(name: str) -> SpecError:
    return SpecError(f"{shown(name)} names more than {MAX_PIECES:,} separate tasks", hint="name fewer at once")


def waiting_pieces(job: LiveJob, chosen: Chosen) -> Work[list[tuple[int, int]]]:
    """What is chosen as parts (first, count), in ascending order; of tasks without an attempt no others are in them."""
    if not chosen.states:
        return [(first, end - first) for first, end in chosen.pieces]
    found: list[tuple[int, int]] = []
    for first, end in chosen.pieces:
        for low, tasks in slices(job.ranges, first, end - first, A_SLICE):
            parts = parts_within(job.ranges, low, tasks)
            found += [(part.first, part.count) for part in parts if part.state in chosen.states]
            yield
    return found


def active_attempts(job: LiveJob, chosen: Chosen) -> list[Attempt]:
    """The active attempts of what is chosen."""
    if chosen.whole:
        return list(job.active.values())
    if chosen.single is not None and not chosen.states:
        return [job.active[chosen.single]] if chosen.single in job.active else []
    return [one for one in job.active.values() if chosen.takes(one.task, TaskState(one.state))]


def refuse_ended(job: LiveJob, chosen: Chosen, what: str) -> None:
    """Refuse to do that to one task that has ended.

    Raises:
        ConflictError: it has.
    """
    if chosen.single is None:
        return
    state = job.task_state(chosen.single)
    if state is None or state.ended:
        ended = "has ended" if state is None else f"is {state}"
        raise ConflictError(f"task {chosen.name} {ended} and cannot be {what}", hint=f"see `hal show {chosen.name}`")


def nothing_to_do(chosen: Chosen, what: str) -> ConflictError:
    """The error of a command that applies to none of the tasks that were named."""
    if chosen.states:
        states = " or ".join(sorted(chosen.states))
        return ConflictError(
            f"no task of {chosen.name} is {states}", hint="`hal show` shows how many are in which state"
        )
    return ConflictError(f"no task of {chosen.name} can be {what}", hint="`hal show` shows how many are in which state")


def state_now(job: LiveJob, chosen: Chosen) -> TaskState:
    """The state of the job, or of the one task that was named."""
    return job.state if chosen.single is None else job.task_state(chosen.single) or job.state


def done(job: LiveJob, chosen: Chosen, tasks: int, *details: str) -> Done:
    """What was done, in words where a job of several tasks is concerned."""
    detail = ", ".join(filter(None, details)) if job.spec.tasks > 1 and chosen.single is None else ""
    return Done(state_now(job, chosen), tasks, detail)


def counted(count: int, what: str) -> str:
    """`3 tasks cancelled`; empty for none."""
    return f"{plural(count, 'task')} {what}" if count else ""


def _first(piece: tuple[int, int]) -> int:
    return piece[0]
