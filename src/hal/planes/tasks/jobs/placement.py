"""Where the tasks of a job run now, and by when they will have ended: for lists of many jobs.

Pure. O(MAX_ATTEMPTS) a job.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec import Struct

from hal.planes.tasks.live.job import LiveJob

MAX_NODES: Final = 64
"""Nodes that are named."""
MAX_ATTEMPTS: Final = 256
"""Active attempts that are looked at."""


class Placement(Struct, frozen=True):
    """Where a job runs now."""

    nodes: tuple[str, ...]
    """By name, the first `MAX_NODES`."""
    more: bool
    """There are, or may be, more nodes than are named."""
    ends_by_ms: int | None
    """When all that has started will have come to its walltime; None without one, or before anything has started."""


def placement_of(job: LiveJob) -> Placement:
    """Look at the active attempts of a job."""
    names: set[str] = set()
    started_ms = -1
    for attempt in islice(job.active.values(), MAX_ATTEMPTS):
        names.update(attempt.nodes)
        started_ms = max(started_ms, -1 if attempt.started_ms is None else attempt.started_ms)
    more = len(names) > MAX_NODES or len(job.active) > MAX_ATTEMPTS
    ends = None if started_ms < 0 or job.walltime_ms is None else started_ms + job.walltime_ms
    return Placement(tuple(sorted(names)[:MAX_NODES]), more, ends)
