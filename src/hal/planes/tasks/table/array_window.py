"""`max_running`: which waiting tasks of an array the engine knows, so that no more than so many can ever run.

Pure. The engine knows at most N minus the active ones: whatever it starts, the limit holds, also when this or the next
controller starts again, because what is fed follows from the ranges. Tasks are fed in order; one that waits for its
back-off does not keep another from starting. O(ranges that are fed), of which there are at most `MAX_FED`.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, parts_within, startable

MAX_FED: Final = 256
"""Most ranges of one array that the engine knows: as they start, it gets the next."""


def fed(job: LiveJob, now_ms: int) -> tuple[TaskRange, ...]:
    """The tasks of the array that the engine should know now."""
    room = job.window - len(job.active)
    if room <= 0 or job.eligible_ms >= INF:
        return ()
    chosen: list[TaskRange] = []
    for task_range in islice(startable(job.ranges, now_ms), MAX_FED):
        chosen.append(_cut(task_range, room))
        room -= chosen[-1].count
        if room == 0:
            break
    return tuple(sorted(chosen, key=_first))


def missing(whole: tuple[TaskRange, ...], part: tuple[TaskRange, ...]) -> list[TaskRange]:
    """What of `whole` is not in `part`."""
    out = []
    for task_range in whole:
        at = task_range.first
        for known in parts_within(part, task_range.first, task_range.count):
            if at < known.first:
                out.append(replace(task_range, first=at, count=known.first - at))
            at = known.end
        if at < task_range.end:
            out.append(replace(task_range, first=at, count=task_range.end - at))
    return out


def _cut(task_range: TaskRange, room: int) -> TaskRange:
    return task_range if task_range.count <= room else replace(task_range, count=room)


def _first(task_range: TaskRange) -> int:
    return task_range.first
