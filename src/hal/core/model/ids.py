"""Identities: jobs, tasks, attempts, steps.

Pure. A job is a positive integer given in submission order; people and JSON see it as text (`42`). A task is one
element of its array, by position from 0 (`42.7`), an attempt one try at it, from 1 (`42.7.1`), a step the processes of
an attempt on one of its nodes, by rank from 0 (`42.7.1.0`). Bounds are checked where an id is decoded.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hal.core.model.errors import SpecError, shown

_TASK = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?")
_ATTEMPT = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,9})")

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
        raise SpecError(f"'{shown(text)}' is not a job or task", hint="write 42 for a job, 42.7 for its task 7")
    return int(match.group(1)), None if match.group(2) is None else int(match.group(2))


def parse_attempt_id(text: str) -> AttemptId:
    """Parse the inverse of `str(AttemptId)`.

    Raises:
        SpecError: not three numbers separated by dots.
    """
    match = _ATTEMPT.fullmatch(text)
    if match is None:
        raise SpecError(f"'{shown(text)}' is not an attempt", hint="write 42.7.1 for attempt 1 of task 7 of job 42")
    return AttemptId(*(int(part) for part in match.groups()))
