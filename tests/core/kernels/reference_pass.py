"""What a pass over a state without promises decides, by the definitions: one task after the other, everything anew.

Strict order, EASY, EASY-SJBF, top-K and conservative over nodes with several resources, gangs and constraints. It reads
the reference state and changes nothing. Source: Lifka, JSSPP 1995; Mu'alem and Feitelson, TPDS 2001; which rows are
promised and which are used first is said in docs/architecture.md and docs/backfill.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from hal.core.engine.config import Backfill
from hal.core.engine.events import INF
from hal.core.kernels.structures.layout import KIND_BLOCK, KIND_NEVER, KIND_RESERVED
from tests.core.kernels.reference_state import Amounts, Node, Promise, ReferenceState, Task, Work, holds, less

SHORT, FREE, EXTRA = 0, 1, 2
"""Which rows are used first: promised from a later instant on, not promised, promised with enough left beside it."""
ONE: Final = 1_000_000


@dataclass
class Promised:
    """A promise with what each of its rows has left beside it; `who` competes with others of its shape."""

    who: Work
    promise: Promise
    left: dict[int, Amounts] = field(default_factory=dict)


@dataclass
class Decision:
    """Starts in the order decided, with their rows in rank order; what who waits is promised."""

    starts: list[tuple[Task, list[int]]]
    promises: dict[Task, Promise]


def decide(state: ReferenceState, now: int, lines: list[list[Task]]) -> Decision:
    """All that starts at `now`. `lines` are the runs of alike tasks: one of them holds at most one promise."""
    if state.config.backfill in (Backfill.CONSERVATIVE, Backfill.TOP_K):
        return _Conservative(state, now).decide(lines)
    return _Easy(state, now).decide()


class _Pass:
    def __init__(self, state: ReferenceState, now: int) -> None:
        self.state = state
        self.now = now
        self.nodes = sorted(state.nodes, key=lambda node: node.row)
        self.free = {node.row: state.free(node) for node in self.nodes}
        self.ends = [
            (max(work.end_ms, now + 1), node.row, work.kind.request)
            for work in state.running.values()
            for node in work.nodes
            if work.end_ms < INF
        ]
        """Planned releases: instant, row, amounts; who outlives its plan ends at the next instant."""
        self.starts: list[tuple[Task, list[int]]] = []
        waiting = [state.waiting[task] for tasks in state.lines().values() for task in tasks]
        self.line = sorted((work for work in waiting if self.possible(work)), key=state.rank)

    def possible(self, work: Work) -> bool:
        return self.state.fits(work.kind)[1] >= work.kind.nodes

    def fitting(self, work: Work) -> list[Node]:
        """Nodes where it fits now."""
        return [node for node in self.nodes if node.admits(work.kind) and holds(self.free[node.row], work.kind.request)]

    def start(self, work: Work, rows: list[int]) -> None:
        for row in rows:
            self.free[row] = less(self.free[row], work.kind.request)
            if work.planned_ms < INF:
                self.ends.append((max(self.now + work.planned_ms, self.now + 1), row, work.kind.request))
        self.starts.append((work.name, rows))

    def compete(self, one: Work, other: Work) -> bool:
        alike = one.kind.shape_key() == other.kind.shape_key()
        return alike or any(
            node.admits(one.kind)
            and node.admits(other.kind)
            and holds(node.capacity, one.kind.request)
            and holds(node.capacity, other.kind.request)
            for node in self.nodes
        )

    def tightness(self, node: Node, work: Work) -> int:
        """How little would be left of the tightest wanted resource, in millionths."""
        shares = [
            (self.free[node.row][name] - amount) / node.capacity[name]
            for name, amount in work.kind.request.items()
            if amount
        ]
        return math.floor((1.0 - min([1.0, *shares])) * ONE + 0.5)


class _Easy(_Pass):
    """The first waiting task of each set of competing rows is promised them; nothing behind it may delay it."""

    def __init__(self, state: ReferenceState, now: int) -> None:
        super().__init__(state, now)
        self.promised: list[Promised] = []

    def decide(self) -> Decision:
        later = []
        for work in self.line:
            if not self.closed(work):
                if not self.try_to_start(work):
                    self.promised.append(self.promise(work))
            elif self.state.config.backfill is Backfill.EASY_SJBF:
                later.append(work)
            elif self.state.config.backfill is Backfill.EASY:
                self.try_to_start(work)
        for work in sorted(later, key=lambda work: (work.planned_ms, *work.name)):
            if not any(work.name == one.who.name for one in self.promised):
                self.try_to_start(work)
        return Decision(self.starts, {one.who.name: one.promise for one in self.promised})

    def closed(self, work: Work) -> bool:
        """Whether a promise was made to somebody who might use the same row."""
        return any(self.compete(work, one.who) for one in self.promised)

    def try_to_start(self, work: Work) -> bool:
        rows = self.choose(work)
        if len(rows) < work.kind.nodes:
            return False
        for row in rows:
            one = self.promise_on(row)
            if one is not None and not self.ends_before(work, one):
                one.left[row] = less(one.left[row], work.kind.request)
        self.start(work, rows)
        return True

    def promise_on(self, row: int) -> Promised | None:
        return next((one for one in self.promised if row in one.left), None)

    def ends_before(self, work: Work, one: Promised) -> bool:
        return one.promise.kind == KIND_RESERVED and self.now + work.planned_ms <= one.promise.start_ms

    def choose(self, work: Work) -> list[int]:
        """The rows that it would get, fewer than it needs when it may not start."""
        places = [row for one in self.promised for row in one.promise.rows]
        usable = []
        for node in self.fitting(work):
            one = self.promise_on(node.row)
            tier = FREE
            if one is not None and self.ends_before(work, one):
                tier = SHORT
            elif one is not None and holds(one.left[node.row], work.kind.request):
                tier = EXTRA
            elif one is not None:
                continue
            if self.state.config.placement == "best-fit":
                usable.append((tier, -self.tightness(node, work), node.row))
            else:
                usable.append((tier, 0 if tier == FREE else places.index(node.row), node.row))
        return [row for _tier, _score, row in sorted(usable)][: work.kind.nodes]

    def promise(self, work: Work) -> Promised:
        """The earliest release at which enough rows fit it, and on it the rows that come free latest."""
        if self.state.config.backfill is Backfill.NONE:
            return Promised(work, Promise(INF, KIND_BLOCK, []))
        fits_now = [node.row for node in self.fitting(work)]
        there = dict(self.free)
        freed: list[tuple[int, int]] = []
        for at in sorted({end for end, _row, _amounts in self.ends}):
            for end, row, amounts in self.ends:
                if end == at:
                    there[row] = less(there[row], {name: -amount for name, amount in amounts.items()})
            for node in self.nodes:
                known = node.row in fits_now or node.row in [row for _at, row in freed]
                if not known and node.admits(work.kind) and holds(there[node.row], work.kind.request):
                    freed.append((at, node.row))
            if len(fits_now) + len(freed) >= work.kind.nodes:
                rows = [row for _at, row in sorted(freed, reverse=True)] + sorted(fits_now, reverse=True)
                rows = rows[: work.kind.nodes]
                left = {row: less(there[row], work.kind.request) for row in rows}
                return Promised(work, Promise(at, KIND_RESERVED, rows), left)
        return Promised(work, Promise(INF, KIND_NEVER, []))


class _Conservative(_Pass):
    """Each in turn gets the earliest place that is left, and keeps it; with K promises ahead that compete with it, a
    task gets none and starts only beside all of them."""

    def __init__(self, state: ReferenceState, now: int) -> None:
        super().__init__(state, now)
        self.places: list[tuple[int, int, int, Amounts]] = []
        """Promised: from, until, row, amounts."""

    def decide(self, lines: list[list[Task]]) -> Decision:
        config = self.state.config
        most = config.reservations if config.backfill is Backfill.TOP_K else config.max_reservations
        promises: dict[Task, Promise] = {}
        served: set[Task] = set()
        ahead: list[Work] = []
        for work in self.line:
            (run,) = [tasks for tasks in lines if work.name in tasks]
            if served & set(run):
                continue
            at, rows = self.earliest(work)
            if at == self.now:
                self.start(work, rows)
                continue
            served.add(work.name)
            if sum(self.compete(work, other) for other in ahead) < most:
                ahead.append(work)
                promises[work.name] = Promise(at, KIND_RESERVED if at < INF else KIND_NEVER, rows)
                end = min(at + work.planned_ms, INF)
                self.places += [(at, end, row, work.kind.request) for row in rows if row >= 0]
        return Decision(self.starts, promises)

    def there(self, row: int, at: int) -> Amounts:
        """What the row has free at an instant, if all goes as planned."""
        left = self.free[row]
        for end, place, amounts in self.ends:
            if place == row and end <= at:
                left = less(left, {name: -amount for name, amount in amounts.items()})
        for begin, end, place, amounts in self.places:
            if place == row and begin <= at < end:
                left = less(left, amounts)
        return left

    def earliest(self, work: Work) -> tuple[int, list[int]]:
        """The first instant from which enough rows hold it for its whole planned time, and the rows for it, ascending.

        For a start: those that others were promised from its end on, then unpromised ones; the best, then the lowest
        of them. For later: those that come free latest, the highest of them.
        """
        turns = {self.now, *(end for end, _row, _amounts in self.ends)}
        turns |= {edge for begin, end, _row, _amounts in self.places for edge in (begin, end) if edge < INF}
        for at in sorted(turns):
            edges = [at, *(edge for edge in turns if at < edge < at + work.planned_ms)]
            rows = [
                node.row
                for node in self.nodes
                if node.admits(work.kind)
                and holds(node.capacity, work.kind.request)
                and all(holds(self.there(node.row, edge), work.kind.request) for edge in edges)
            ]
            if len(rows) >= work.kind.nodes:
                if at == self.now:
                    rows.sort(key=lambda row: (self.tier(row, work), -self.score(row, work), row))
                else:
                    rows.sort(key=lambda row: (-self.since(row, work, at, turns), -row))
                return at, sorted(rows[: work.kind.nodes])
        return INF, [-1] * work.kind.nodes

    def tier(self, row: int, work: Work) -> int:
        begins = [begin for begin, _end, place, _amounts in self.places if place == row]
        if not begins:
            return FREE
        return SHORT if self.now + work.planned_ms <= min(begins) else EXTRA

    def score(self, row: int, work: Work) -> int:
        if self.state.config.placement != "best-fit":
            return 0
        (node,) = [node for node in self.nodes if node.row == row]
        return self.tightness(node, work)

    def since(self, row: int, work: Work, at: int, turns: set[int]) -> int:
        """Since when a row that holds the work at an instant does so; -1 when it does now."""
        busy = [turn for turn in turns if turn < at and not holds(self.there(row, turn), work.kind.request)]
        return min(turn for turn in turns if turn > max(busy)) if busy else -1
