"""Identities: jobs, tasks, attempts, steps.

Pure. A job is a positive integer given in submission order; people and JSON see it as text (`42`). A task is one
element of its array, by position from 0 (`42.7`), an attempt one try at it, from 1 (`42.7.1`), a step the processes of
an attempt on one of its nodes, by rank from 0 (`42.7.1.0`). Bounds are checked where an id is decoded.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from hal.core.model.errors import SpecError, shown
from hal.core.model.index_ranges import IndexRange, parse_index_ranges, text_of

_TASK = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:@/+*?-]{0,127}")
_ATTEMPT = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,9})")

_TASKS = re.compile(r"([0-9]{1,18})(?:\.(.+)|\[(.+)\])?", re.S)
_OF_SLURM = re.compile(r"([0-9]{1,18})_(.+)", re.S)

MAX_TASK_PARTS: Final = 1_000
"""Ranges of tasks that one id may name: `8.1,3,5-9` has three."""
MAX_JOB: Final = 1 << 53
MAX_NUMBER: Final = (1 << 31) - 1
"""Of a task, an attempt, a rank."""

JobNumber = Annotated[int, Meta(ge=1, le=MAX_JOB)]
TaskIndex = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
AttemptNumber = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Rank = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]


class AttemptId(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One attempt at running one task."""

    job: JobNumber
    task: TaskIndex
    attempt: AttemptNumber

    def __str__(self) -> str:
        return f"{self.job}.{self.task}.{self.attempt}"


class StepId(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The processes of one attempt on one node; `rank` counts the attempt's nodes from 0."""

    job: JobNumber
    task: TaskIndex
    attempt: AttemptNumber
    rank: Rank

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.job, self.task, self.attempt)

    def __str__(self) -> str:
        return f"{self.job}.{self.task}.{self.attempt}.{self.rank}"


def parse_task_ref(text: str) -> tuple[int, int | None]:
    """Parse a job or task: `'42'` is (42, None), a whole job; `'42.7'` is (42, 7), one task.

    Raises:
        SpecError: the text is neither.
    """
    match = _TASK.fullmatch(text.strip())
    if match is None or int(match.group(1)) == 0:
        hint = f"write 42 for a job, 42.7 for its task 7{_by_name(text)}"
        raise SpecError(f"'{shown(text)}' is not a job or task", hint=hint)
    return int(match.group(1)), None if match.group(2) is None else int(match.group(2))


class TasksRef(NamedTuple):
    """A job, or some of its tasks, as people name them."""

    job: int
    ranges: tuple[IndexRange, ...] = ()
    """Ascending and disjoint; none: the whole job."""
    by_index: bool = False
    """These are values of HAL_ARRAY_INDEX; otherwise tasks by number, from 0."""

    @property
    def task(self) -> int | None:
        """The number of the one task that it names."""
        one = self.ranges[0] if len(self.ranges) == 1 else None
        return one.first if one is not None and one.length == 1 and not self.by_index else None

    def __str__(self) -> str:
        inside = text_of(self.ranges)
        return f"{self.job}[{inside}]" if self.by_index else f"{self.job}.{inside}" if inside else str(self.job)


def parse_tasks_ref(text: str) -> TasksRef:
    """Parse a job or some of its tasks: `42`; by number `42.7`, `42.7-9`, `42.1,3,5-9:2`; by HAL_ARRAY_INDEX
    `42[1,3-5]`.

    Raises:
        SpecError: the text is none of these.
    """
    match = _TASKS.fullmatch(text.strip())
    if match is None or int(match.group(1)) == 0:
        hint = f"write 42 for a job, 42.7 for its task 7, 42.7-9 for three of its tasks{_by_name(text)}"
        if of_slurm := _OF_SLURM.fullmatch(text.strip()):
            job, inside = of_slurm[1], of_slurm[2].strip("[]")
            hint = shown(f"write {job}[{inside}] for tasks by HAL_ARRAY_INDEX, {job}.{inside} for tasks by number")
        raise SpecError(f"'{shown(text)}' is not a job or task", hint=hint)
    job, numbers, indices = int(match.group(1)), match.group(2), match.group(3)
    if numbers is None and indices is None:
        return TasksRef(job)
    ranges = parse_index_ranges(numbers or indices, f"'{shown(text)}'", MAX_TASK_PARTS)
    if numbers is not None and ranges[-1].last > MAX_NUMBER:
        raise SpecError(f"'{shown(text)}' is not a job or task", hint=f"a task's number is at most {MAX_NUMBER}")
    return TasksRef(job, tuple(ranges), by_index=indices is not None)


def _by_name(text: str) -> str:
    """What else to type for a word that could be the name of jobs."""
    return f"; `hal jobs --name {text}` lists the jobs of that name" if _NAME.fullmatch(text) else ""


def parse_attempt_id(text: str) -> AttemptId:
    """Parse the inverse of `str(AttemptId)`.

    Raises:
        SpecError: not three numbers separated by dots.
    """
    match = _ATTEMPT.fullmatch(text)
    if match is None:
        raise SpecError(f"'{shown(text)}' is not an attempt", hint="write 42.7.1 for attempt 1 of task 7 of job 42")
    return AttemptId(*(int(part) for part in match.groups()))
