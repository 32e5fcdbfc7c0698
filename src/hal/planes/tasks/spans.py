"""Runs of tasks that are alike: how an array of a million tasks costs a few values until its tasks differ.

Pure. A job's spans are an immutable tuple of disjoint `Span`s in task order; every function returns a new tuple, so
keeping the old one is all that a rollback needs. Cost: O(log spans) to find, O(spans) to change (a copy of pointers).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model.states import TaskState

_FIRST = attrgetter("first")


class Span(Struct, frozen=True, gc=False):
    """`count` tasks from `first` on that have no active attempt and did not end through one.

    `state` is pending, held, cancelled or failed (by a dependency).
    """

    first: int
    count: int
    state: TaskState = TaskState.PENDING
    attempt: int = 1
    """Number of the next attempt."""
    eligible_ms: int = 0
    retries: int = 0
    """Retries used so far."""
    reason: str = ""

    @property
    def end(self) -> int:
        """One past the last task."""
        return self.first + self.count

    def alike(self, other: Span) -> bool:
        """Whether the two may be one span where they touch."""
        return (
            self.state is other.state
            and self.attempt == other.attempt
            and self.eligible_ms == other.eligible_ms
            and self.retries == other.retries
            and self.reason == other.reason
        )


Spans = tuple[Span, ...]
"""Disjoint, in ascending order of `first`, alike neighbours merged."""


ONE_TASK: Spans = (Span(0, 1),)
"""Of a single task to which nothing has happened."""


def locate(spans: Spans, task: int) -> Span | None:
    """The span that holds `task`."""
    at = bisect_right(spans, task, key=_FIRST) - 1
    if at >= 0 and task < spans[at].end:
        return spans[at]
    return None


def pieces(spans: Spans, first: int, count: int) -> list[Span]:
    """What of `spans` lies in [first, first + count), cut to it."""
    end = first + count
    at = max(bisect_right(spans, first, key=_FIRST) - 1, 0)
    found: list[Span] = []
    while at < len(spans) and spans[at].first < end:
        span = spans[at]
        low, high = max(span.first, first), min(span.end, end)
        if low < high:
            found.append(span if (low, high) == (span.first, span.end) else _cut(span, low, high))
        at += 1
    return found


def take(spans: Spans, first: int, count: int) -> Spans:
    """`spans` without the tasks in [first, first + count)."""
    return change(spans, first, count, _nothing)


def put(spans: Spans, new: Iterable[Span]) -> Spans:
    """`spans` with `new` ones added; none of their tasks may be in `spans` already."""
    return _merged(sorted((*spans, *new), key=_FIRST))


def change(spans: Spans, first: int, count: int, decide: Callable[[Span], Span | None]) -> Spans:
    """`spans` with every piece in [first, first + count) replaced by what `decide` makes of it (None removes it).

    `decide` must keep `first` and `count`.
    """
    end = first + count
    low = max(bisect_right(spans, first, key=_FIRST) - 1, 0)
    high = bisect_right(spans, end - 1, key=_FIRST)
    middle: list[Span] = []
    for span in spans[low:high]:
        inside_first, inside_end = max(span.first, first), min(span.end, end)
        if inside_first >= inside_end:
            middle.append(span)
            continue
        if span.first < inside_first:
            middle.append(_cut(span, span.first, inside_first))
        decided = decide(_cut(span, inside_first, inside_end))
        if decided is not None:
            middle.append(decided)
        if inside_end < span.end:
            middle.append(_cut(span, inside_end, span.end))
    # One neighbour on each side, because what changed may now be like it.
    before, after = max(low - 1, 0), min(high + 1, len(spans))
    return (*spans[:before], *_merged([*spans[before:low], *middle, *spans[high:after]]), *spans[after:])


def count_in(spans: Spans, state: TaskState) -> int:
    """How many tasks are in that state."""
    return sum(span.count for span in spans if span.state is state)


def _nothing(_: Span) -> None:
    return None


def _cut(span: Span, low: int, high: int) -> Span:
    return replace(span, first=low, count=high - low)


def _merged(ordered: list[Span]) -> Spans:
    out: list[Span] = []
    for span in ordered:
        if out and out[-1].end == span.first and out[-1].alike(span):
            out[-1] = replace(out[-1], count=out[-1].count + span.count)
        else:
            out.append(span)
    return tuple(out)
