"""What one group of changes amounts to in numbers, as a value.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.model import TaskState
from hal.planes.tasks.live.oldest_waits import QueueTime

QueueState = tuple[str, TaskState]


class GroupFigures(Struct):
    """Of one group."""

    submitted: dict[str, int]
    """New jobs, by queue."""
    waited: dict[tuple[str, int], int]
    """First attempts that were given nodes, by queue and how long their task could have begun, ms."""
    started: dict[tuple[str, int], int]
    """First attempts whose processes have begun, by queue and time since the job was submitted, ms."""
    ended_attempts: dict[tuple[str, str], int]
    """By queue and how they ended."""
    ended_jobs: dict[QueueState, int]
    jobs: dict[QueueState, int]
    """By how many the live jobs of a queue in a state have changed."""
    tasks: dict[QueueState, int]
    """The same of their tasks."""
    waiting: dict[QueueTime, int]
    """By how many the jobs have changed of which nothing runs, and that could have started since some time."""


def no_figures() -> GroupFigures:
    """Of a group in which nothing has changed."""
    return GroupFigures({}, {}, {}, {}, {}, {}, {}, {})
