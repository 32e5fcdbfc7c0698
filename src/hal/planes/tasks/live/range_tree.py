"""Many ranges of one job, in order, as an immutable tree: a change costs O(log ranges), whatever it leaves is shared.

Pure. A B+ tree whose nodes are never changed: `spliced` copies the path to what it replaces, so the tree before stays
what it was, and two trees differ only where their nodes do (`differing`). Nodes sum up what is asked of whole jobs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import Final, TypeVar

from msgspec import Struct

from hal.core.engine.events import INF
from hal.core.model.states import TaskState
from hal.planes.tasks.live.task_range import TaskRange

T = TypeVar("T")

_FIRST = attrgetter("first")
MOST: Final = 32
"""Entries of one node."""
LEAST: Final = 8
"""Fewer are put together with those of a neighbour."""


class Sums(Struct, frozen=True, gc=False):
    """What is known of a set of ranges without looking at each."""

    ranges: int = 0
    ended: int = 0
    """Tasks in them that have ended."""
    endless: int = 0
    """Ranges that wait for tasks of other arrays, or waited for them when they ended."""
    undecided: int = 0
    """Of these, those that have not ended."""
    soonest_ms: int = INF
    """When the first of those that are pending, and wait for no other task, may start."""


class _Node(Struct, frozen=True):
    first: int
    sums: Sums
    entries: tuple[TaskRange, ...] | tuple[_Node, ...]
    firsts: tuple[int, ...]
    """Of the entries; empty at a leaf."""

    @property
    def leaf(self) -> bool:
        return not self.firsts


def sums_of(ranges: Iterable[TaskRange]) -> Sums:
    """Of ranges, one by one."""
    count = ended = endless = undecided = 0
    soonest_ms = INF
    for task_range in ranges:
        count += 1
        over = task_range.state.ended
        if over:
            ended += task_range.count
        if task_range.eligible_ms >= INF:
            endless += 1
            undecided += not over
        elif task_range.eligible_ms < soonest_ms and task_range.state is TaskState.PENDING:
            soonest_ms = task_range.eligible_ms
    return Sums(count, ended, endless, undecided, soonest_ms)


class RangeTree:
    """See the module. Never empty."""

    __slots__ = ("_root",)

    def __init__(self, root: _Node) -> None:
        self._root = root

    @classmethod
    def of(cls, ranges: Sequence[TaskRange]) -> RangeTree:
        """Disjoint ranges in ascending order, at least one."""
        return cls(_rooted(_leaves(tuple(ranges))))

    @property
    def sums(self) -> Sums:
        """Of all of it."""
        return self._root.sums

    @property
    def first(self) -> int:
        """The first task."""
        return self._root.first

    def __len__(self) -> int:
        return self._root.sums.ranges

    def __iter__(self) -> Iterator[TaskRange]:
        return self.since(self._root.first)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RangeTree) and other._root is self._root:
            return True
        if not isinstance(other, RangeTree | tuple) or len(self) != len(other):
            return False
        return all(one == two for one, two in zip(self, other, strict=True))

    def leaves(self) -> list[tuple[TaskRange, ...]]:
        """All of it, in parts of at most `MOST`."""
        nodes = [self._root]
        while nodes[0].firsts:
            nodes = [part for node in nodes for part in _nodes(node)]
        return [_ranges(leaf) for leaf in nodes]

    def __hash__(self) -> int:
        return hash((len(self), self.first))

    def since(self, task: int) -> Iterator[TaskRange]:
        """Those that begin at `task` or later, in order."""
        path: list[Iterator[_Node]] = []
        node = self._root
        while node.firsts:
            at = max(bisect_right(node.firsts, task) - 1, 0)
            path.append(iter(_nodes(node)[at + 1 :]))
            node = _nodes(node)[at]
        yield from _ranges(node)[bisect_left(_ranges(node), task, key=_FIRST) :]
        while path:
            following = next(path[-1], None)
            if following is None:
                path.pop()
            elif following.firsts:
                path.append(iter(_nodes(following)))
            else:
                yield from _ranges(following)

    def before(self, task: int) -> TaskRange | None:
        """The last that begins before `task`."""
        node = self._root
        if node.first >= task:
            return None
        while node.firsts:
            node = _nodes(node)[bisect_left(node.firsts, task) - 1]
        return _ranges(node)[bisect_left(_ranges(node), task, key=_FIRST) - 1]

    def around(self, first: int, end: int) -> list[TaskRange]:
        """Those that touch the tasks in [first, end), and one more on each side, where there is one."""
        start = self.before(first + 1)
        if start is not None:
            start = self.before(start.first) or start
        found: list[TaskRange] = []
        for task_range in self.since(self._root.first if start is None else start.first):
            found.append(task_range)
            if task_range.first >= end:
                break
        return found

    def spliced(self, low: int, high: int, new: Sequence[TaskRange]) -> RangeTree | None:
        """With `new` ones for all that begin in [low, high), where they must begin too; None when nothing is left."""
        nodes = _spliced(self._root, low, high, tuple(new))
        return RangeTree(_rooted(nodes)) if nodes else None

    def startable(self, now_ms: int) -> Iterator[TaskRange]:
        """Pending ones that may start now, in order; O(log ranges) for each that is taken."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.sums.soonest_ms > now_ms:
                continue
            if node.firsts:
                nodes.extend(reversed(_nodes(node)))
            else:
                yield from (s for s in _ranges(node) if s.state is TaskState.PENDING and s.eligible_ms <= now_ms)

    def later(self, now_ms: int) -> Iterator[TaskRange]:
        """Pending ones that may start later, the soonest first; those that may start now have to be passed by."""
        heap: list[tuple[int, int, _Node | TaskRange]] = [(self._root.sums.soonest_ms, self._root.first, self._root)]
        while heap:
            soonest_ms, _, entry = heappop(heap)
            if soonest_ms >= INF:
                return
            if isinstance(entry, TaskRange):
                yield entry
                continue
            for part in entry.entries:
                if isinstance(part, TaskRange):
                    if part.state is TaskState.PENDING and now_ms < part.eligible_ms < INF:
                        heappush(heap, (part.eligible_ms, part.first, part))
                else:
                    heappush(heap, (part.sums.soonest_ms, part.first, part))


def differing(before: RangeTree, after: RangeTree) -> tuple[list[tuple[TaskRange, ...]], list[tuple[TaskRange, ...]]]:
    """The leaves of each that the other has not; O(log ranges) for each of them."""
    ours, theirs = [before._root], [after._root]
    while True:
        # Nodes that both have lie equally far above the leaves: compare level by level, the higher side first.
        shared = {id(node) for node in ours} & {id(node) for node in theirs}
        ours = [node for node in ours if id(node) not in shared]
        theirs = [node for node in theirs if id(node) not in shared]
        high = max((_height(side[0]) for side in (ours, theirs) if side), default=0)
        if high == 0:
            break
        if ours and _height(ours[0]) == high:
            ours = [part for node in ours for part in _nodes(node)]
        if theirs and _height(theirs[0]) == high:
            theirs = [part for node in theirs for part in _nodes(node)]
    return [_ranges(leaf) for leaf in ours], [_ranges(leaf) for leaf in theirs]


def _height(node: _Node) -> int:
    height = 0
    while node.firsts:
        height += 1
        node = _nodes(node)[0]
    return height


def _nodes(node: _Node) -> tuple[_Node, ...]:
    return node.entries  # type: ignore[return-value]


def _ranges(node: _Node) -> tuple[TaskRange, ...]:
    return node.entries  # type: ignore[return-value]


def _spliced(node: _Node, low: int, high: int, new: tuple[TaskRange, ...]) -> list[_Node]:
    """What becomes of a node: nodes of its height."""
    if not node.firsts:
        ranges = _ranges(node)
        left, right = bisect_left(ranges, low, key=_FIRST), bisect_left(ranges, high, key=_FIRST)
        return _leaves((*ranges[:left], *new, *ranges[right:]))
    parts = _nodes(node)
    left = max(bisect_right(node.firsts, low) - 1, 0)
    right = max(bisect_left(node.firsts, high) - 1, left)
    middle = _spliced(parts[left], low, high, new)
    if right > left:
        middle += _spliced(parts[right], low, high, ())
    right += 1
    while middle and any(len(part.entries) < LEAST for part in middle):
        if left:
            left -= 1
            middle = _regrouped([parts[left], *middle])
        elif right < len(parts):
            middle = _regrouped([*middle, parts[right]])
            right += 1
        else:
            middle = _regrouped(middle)
            break
    return _inner((*parts[:left], *middle, *parts[right:]))


def _regrouped(nodes: list[_Node]) -> list[_Node]:
    if nodes[0].firsts:
        return _inner(tuple(part for node in nodes for part in _nodes(node)))
    return _leaves(tuple(task_range for node in nodes for task_range in _ranges(node)))


def _rooted(nodes: list[_Node]) -> _Node:
    while len(nodes) > 1:
        nodes = _inner(tuple(nodes))
    root = nodes[0]
    while len(root.firsts) == 1:
        root = _nodes(root)[0]
    return root


def _leaves(ranges: tuple[TaskRange, ...]) -> list[_Node]:
    return [_Node(part[0].first, sums_of(part), part, ()) for part in _cut(ranges)]


def _inner(nodes: tuple[_Node, ...]) -> list[_Node]:
    return [_Node(part[0].first, _total(part), part, tuple([node.first for node in part])) for part in _cut(nodes)]


def _total(nodes: tuple[_Node, ...]) -> Sums:
    ranges = ended = endless = undecided = 0
    soonest_ms = INF
    for node in nodes:
        sums = node.sums
        ranges += sums.ranges
        ended += sums.ended
        endless += sums.endless
        undecided += sums.undecided
        if sums.soonest_ms < soonest_ms:
            soonest_ms = sums.soonest_ms
    return Sums(ranges, ended, endless, undecided, soonest_ms)


def _cut(entries: tuple[T, ...]) -> list[tuple[T, ...]]:
    """Into parts of about equal size, none larger than a node."""
    count = -(-len(entries) // MOST)
    if count <= 1:
        return [entries] if entries else []
    edges = [len(entries) * at // count for at in range(count + 1)]
    return [entries[a:b] for a, b in pairwise(edges)]
