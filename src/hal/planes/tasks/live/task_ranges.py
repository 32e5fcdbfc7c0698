"""Ranges of tasks that are alike: how an array of a million tasks costs a few values until its tasks differ.

Pure. A job's ranges are immutable, disjoint and in task order; every function returns new ones, so keeping the old ones
is all that a rollback needs. Few of them are a tuple; more than `MAX_IN_TUPLE` are a `RangeTree`, which finds and
changes in O(log ranges) and shares what stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model.states import TaskState
from hal.planes.tasks.live.range_tree import RangeTree, Sums, differing, sums_of
from hal.planes.tasks.live.task_range import TaskRange
from hal.planes.tasks.slices import Pace, Work

__all__ = [
    "MAX_IN_TUPLE",
    "ONE_TASK",
    "TaskRange",
    "TaskRanges",
    "change",
    "count_in",
    "differences",
    "locate",
    "made_of",
    "parts_within",
    "put",
    "slices",
    "startable",
    "summed",
    "take",
]

_FIRST = attrgetter("first")

MAX_IN_TUPLE: Final = 128
"""Ranges of one tuple; half as many of a tree become a tuple again."""

TaskRanges = tuple[TaskRange, ...] | RangeTree
"""Disjoint, in ascending order of `first`, alike neighbours merged."""
ONE_TASK: TaskRanges = (TaskRange(0, 1),)
"""Of a single task to which nothing has happened."""


def made_of(ordered: Sequence[TaskRange]) -> TaskRanges:
    """Disjoint ranges in ascending order as one value."""
    return RangeTree.of(ordered) if len(ordered) > MAX_IN_TUPLE else tuple(ordered)


def locate(ranges: TaskRanges, task: int) -> TaskRange | None:
    """The range that holds `task`."""
    if isinstance(ranges, RangeTree):
        task_range = ranges.before(task + 1)
        return task_range if task_range is not None and task < task_range.end else None
    at = bisect_right(ranges, task, key=_FIRST) - 1
    if at >= 0 and task < ranges[at].end:
        return ranges[at]
    return None


def parts_within(ranges: TaskRanges, first: int, count: int) -> list[TaskRange]:
    """The part of `ranges` in [first, first + count)."""
    end = first + count
    if isinstance(ranges, RangeTree):
        ranges = tuple(ranges.around(first, end))
    at = max(bisect_right(ranges, first, key=_FIRST) - 1, 0)
    found: list[TaskRange] = []
    while at < len(ranges) and ranges[at].first < end:
        task_range = ranges[at]
        low, high = max(task_range.first, first), min(task_range.end, end)
        if low < high:
            found.append(
                task_range if (low, high) == (task_range.first, task_range.end) else _cut(task_range, low, high)
            )
        at += 1
    return found


def take(ranges: TaskRanges, first: int, count: int) -> TaskRanges:
    """`ranges` without the tasks in [first, first + count)."""
    return change(ranges, first, count, _nothing)


def put(ranges: TaskRanges, new: Sequence[TaskRange]) -> TaskRanges:
    """`ranges` with `new` ones added; none of their tasks may be in `ranges` already."""
    if not isinstance(ranges, RangeTree) or len(new) > len(ranges) // 8:
        return made_of(_merged(sorted((*ranges, *new), key=_FIRST)))
    for one in new:
        near = ranges.around(one.first, one.end)
        local = _merged(sorted((*near, one), key=_FIRST))
        ranges = ranges.spliced(local[0].first, max(near[-1].first, one.first) + 1, local) or ranges
    return ranges


def change(ranges: TaskRanges, first: int, count: int, decide: Callable[[TaskRange], TaskRange | None]) -> TaskRanges:
    """`ranges` with every piece in [first, first + count) replaced by what `decide` makes of it (None removes it).

    `decide` must keep `first` and `count`.
    """
    if isinstance(ranges, RangeTree):
        near = tuple(ranges.around(first, first + count))
        left = ranges.spliced(near[0].first, near[-1].first + 1, _changed(near, first, count, decide))
        if left is None:
            return ()
        return left if len(left) > MAX_IN_TUPLE // 2 else tuple(left)
    return made_of(_changed(ranges, first, count, decide))


def _changed(
    ranges: tuple[TaskRange, ...], first: int, count: int, decide: Callable[[TaskRange], TaskRange | None]
) -> tuple[TaskRange, ...]:
    end = first + count
    low = max(bisect_right(ranges, first, key=_FIRST) - 1, 0)
    high = bisect_right(ranges, end - 1, key=_FIRST)
    middle: list[TaskRange] = []
    for task_range in ranges[low:high]:
        inside_first, inside_end = max(task_range.first, first), min(task_range.end, end)
        if inside_first >= inside_end:
            middle.append(task_range)
            continue
        if task_range.first < inside_first:
            middle.append(_cut(task_range, task_range.first, inside_first))
        decided = decide(_cut(task_range, inside_first, inside_end))
        if decided is not None:
            middle.append(decided)
        if inside_end < task_range.end:
            middle.append(_cut(task_range, inside_end, task_range.end))
    # One neighbour on each side, because what changed may now be like it.
    before, after = max(low - 1, 0), min(high + 1, len(ranges))
    return (*ranges[:before], *_merged([*ranges[before:low], *middle, *ranges[high:after]]), *ranges[after:])


def slices(ranges: TaskRanges, first: int, count: int, most: int) -> Iterator[tuple[int, int]]:
    """[first, first + count) as parts (first, count) in each of which at most `most` ranges of now begin."""
    end = first + count
    if len(ranges) <= most:
        yield first, count
        return
    low, seen = first, 0
    for task_range in ranges.since(first) if isinstance(ranges, RangeTree) else ranges:
        if task_range.first >= end:
            break
        seen += 1
        if seen > most and task_range.first > low:
            yield low, task_range.first - low
            low, seen = task_range.first, 1
    yield low, end - low


def count_in(ranges: TaskRanges, state: TaskState) -> int:
    """How many tasks are in that state."""
    return sum(task_range.count for task_range in ranges if task_range.state is state)


def summed(ranges: TaskRanges) -> Sums:
    """What is known of all of them together. O(1) where they are many."""
    return ranges.sums if isinstance(ranges, RangeTree) else sums_of(ranges)


def startable(ranges: TaskRanges, now_ms: int) -> Iterator[TaskRange]:
    """Pending ones that may start: those that may now, in order, then the others, the soonest first."""
    if isinstance(ranges, RangeTree):
        yield from ranges.startable(now_ms)
        yield from ranges.later(now_ms)
        return
    later: list[TaskRange] = []
    for task_range in ranges:
        if task_range.state is TaskState.PENDING and task_range.eligible_ms < INF:
            if task_range.eligible_ms <= now_ms:
                yield task_range
            else:
                later.append(task_range)
    yield from sorted(later, key=_soonest)


def differences(before: TaskRanges, after: TaskRanges) -> Work[tuple[list[int], list[TaskRange]]]:
    """What leads from one to the other: first tasks of ranges that go, and ranges that come instead or are new."""
    old, new = _leaves(before), _leaves(after)
    if isinstance(before, RangeTree) and isinstance(after, RangeTree):
        old, new = differing(before, after)
    had: dict[int, TaskRange] = {}
    come: list[TaskRange] = []
    pace = Pace()
    for leaf in old:
        had.update((task_range.first, task_range) for task_range in leaf)
        if pace.over(len(leaf)):
            yield
    for leaf in new:
        come.extend(task_range for task_range in leaf if had.pop(task_range.first, None) != task_range)
        if pace.over(len(leaf)):
            yield
    return list(had), come


def _leaves(ranges: TaskRanges) -> list[tuple[TaskRange, ...]]:
    return [ranges] if isinstance(ranges, tuple) else ranges.leaves()


def _soonest(task_range: TaskRange) -> tuple[int, int]:
    return (task_range.eligible_ms, task_range.first)


def _nothing(_: TaskRange) -> None:
    return None


def _cut(task_range: TaskRange, low: int, high: int) -> TaskRange:
    return replace(task_range, first=low, count=high - low)


def _merged(ordered: Sequence[TaskRange]) -> tuple[TaskRange, ...]:
    out: list[TaskRange] = []
    for task_range in ordered:
        if out and out[-1].end == task_range.first and out[-1].alike(task_range):
            out[-1] = replace(out[-1], count=out[-1].count + task_range.count)
        else:
            out.append(task_range)
    return tuple(out)
