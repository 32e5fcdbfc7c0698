"""Runs of tasks that are alike: how an array of a million tasks costs a few values until its tasks differ.

Pure. A job's spans are immutable, disjoint and in task order; every function returns new ones, so keeping the old ones
is all that a rollback needs. Few of them are a tuple; more than `MAX_IN_TUPLE` are a `SpanTree`, which finds and
changes in O(log spans) and shares what stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model.states import TaskState
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.span import Span
from hal.planes.tasks.span_tree import SpanTree, Sums, differing, sums_of

__all__ = [
    "MAX_IN_TUPLE",
    "ONE_TASK",
    "Span",
    "Spans",
    "change",
    "count_in",
    "differences",
    "locate",
    "made_of",
    "pieces",
    "put",
    "slices",
    "startable",
    "summed",
    "take",
]

_FIRST = attrgetter("first")

MAX_IN_TUPLE: Final = 128
"""Spans of one tuple; half as many of a tree become a tuple again."""

Spans = tuple[Span, ...] | SpanTree
"""Disjoint, in ascending order of `first`, alike neighbours merged."""


ONE_TASK: Spans = (Span(0, 1),)
"""Of a single task to which nothing has happened."""


def made_of(ordered: Sequence[Span]) -> Spans:
    """Disjoint spans in ascending order as one value."""
    return SpanTree.of(ordered) if len(ordered) > MAX_IN_TUPLE else tuple(ordered)


def locate(spans: Spans, task: int) -> Span | None:
    """The span that holds `task`."""
    if isinstance(spans, SpanTree):
        span = spans.before(task + 1)
        return span if span is not None and task < span.end else None
    at = bisect_right(spans, task, key=_FIRST) - 1
    if at >= 0 and task < spans[at].end:
        return spans[at]
    return None


def pieces(spans: Spans, first: int, count: int) -> list[Span]:
    """What of `spans` lies in [first, first + count), cut to it."""
    end = first + count
    if isinstance(spans, SpanTree):
        spans = tuple(spans.around(first, end))
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


def put(spans: Spans, new: Sequence[Span]) -> Spans:
    """`spans` with `new` ones added; none of their tasks may be in `spans` already."""
    if not isinstance(spans, SpanTree) or len(new) > len(spans) // 8:
        return made_of(_merged(sorted((*spans, *new), key=_FIRST)))
    for one in new:
        near = spans.around(one.first, one.end)
        local = _merged(sorted((*near, one), key=_FIRST))
        spans = spans.spliced(local[0].first, max(near[-1].first, one.first) + 1, local) or spans
    return spans


def change(spans: Spans, first: int, count: int, decide: Callable[[Span], Span | None]) -> Spans:
    """`spans` with every piece in [first, first + count) replaced by what `decide` makes of it (None removes it).

    `decide` must keep `first` and `count`.
    """
    if isinstance(spans, SpanTree):
        near = tuple(spans.around(first, first + count))
        left = spans.spliced(near[0].first, near[-1].first + 1, _changed(near, first, count, decide))
        if left is None:
            return ()
        return left if len(left) > MAX_IN_TUPLE // 2 else tuple(left)
    return made_of(_changed(spans, first, count, decide))


def _changed(
    spans: tuple[Span, ...], first: int, count: int, decide: Callable[[Span], Span | None]
) -> tuple[Span, ...]:
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


def slices(spans: Spans, first: int, count: int, most: int) -> Iterator[tuple[int, int]]:
    """[first, first + count) as parts (first, count) in each of which at most `most` spans of now begin."""
    end = first + count
    if len(spans) <= most:
        yield first, count
        return
    low, seen = first, 0
    for span in spans.since(first) if isinstance(spans, SpanTree) else spans:
        if span.first >= end:
            break
        seen += 1
        if seen > most and span.first > low:
            yield low, span.first - low
            low, seen = span.first, 1
    yield low, end - low


def count_in(spans: Spans, state: TaskState) -> int:
    """How many tasks are in that state."""
    return sum(span.count for span in spans if span.state is state)


def summed(spans: Spans) -> Sums:
    """What is known of all of them together. O(1) where they are many."""
    return spans.sums if isinstance(spans, SpanTree) else sums_of(spans)


def startable(spans: Spans, now_ms: int) -> Iterator[Span]:
    """Pending ones that may start: those that may now, in order, then the others, the soonest first."""
    if isinstance(spans, SpanTree):
        yield from spans.startable(now_ms)
        yield from spans.later(now_ms)
        return
    later: list[Span] = []
    for span in spans:
        if span.state is TaskState.PENDING and span.eligible_ms < INF:
            if span.eligible_ms <= now_ms:
                yield span
            else:
                later.append(span)
    yield from sorted(later, key=_soonest)


def differences(before: Spans, after: Spans) -> Work[tuple[list[int], list[Span]]]:
    """What leads from one to the other: first tasks of spans that go, and spans that come instead or are new."""
    old, new = _leaves(before), _leaves(after)
    if isinstance(before, SpanTree) and isinstance(after, SpanTree):
        old, new = differing(before, after)
    had: dict[int, Span] = {}
    come: list[Span] = []
    pace = Pace()
    for leaf in old:
        had.update((span.first, span) for span in leaf)
        if pace.over(len(leaf)):
            yield
    for leaf in new:
        come.extend(span for span in leaf if had.pop(span.first, None) != span)
        if pace.over(len(leaf)):
            yield
    return list(had), come


def _leaves(spans: Spans) -> list[tuple[Span, ...]]:
    return [spans] if isinstance(spans, tuple) else spans.leaves()


def _soonest(span: Span) -> tuple[int, int]:
    return (span.eligible_ms, span.first)


def _nothing(_: Span) -> None:
    return None


def _cut(span: Span, low: int, high: int) -> Span:
    return replace(span, first=low, count=high - low)


def _merged(ordered: Sequence[Span]) -> tuple[Span, ...]:
    out: list[Span] = []
    for span in ordered:
        if out and out[-1].end == span.first and out[-1].alike(span):
            out[-1] = replace(out[-1], count=out[-1].count + span.count)
        else:
            out.append(span)
    return tuple(out)
