"""What a pass over a state without promises decides, by the definitions: one task after the other, everything anew.

Strict order, EASY, EASY-SJBF, top-K and conservative over nodes with several resources, gangs and constraints; beside
them limits, licences, strict queues, and bookings of others. It reads the reference state and changes nothing. Source:
Lifka, JSSPP 1995; Mu'alem and Feitelson, TPDS 2001; which rows are promised and which are used first is said in
docs/architecture.md and docs/backfill.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from hal.core.engine.config import Backfill
from hal.core.engine.events import INF
from hal.core.kernels.structures.layout import (
    KIND_BLOCK,
    KIND_NEVER,
    KIND_RESERVED,
    REASON_BOOKED,
    REASON_LICENCE,
    REASON_RESERVED,
    REASON_RESOURCES,
)
from hal.core.model.policy import EACH, Limit, Policy
from tests.core.kernels.reference_state import Amounts, Node, Promise, ReferenceState, Task, Work, holds, less
from tests.core.kernels.reference_tastes import TASTES
from tests.core.kernels.reference_topology import Choice

SHORT, BOOKED, FREE, EXTRA = range(4)
"""Which rows are used first: promised from a later instant on, booked for later (best-fit under EASY), not promised,
promised with enough left beside it."""
ONE: Final = 1_000_000


@dataclass
class Promised:
    """A promise with what each of its rows has left beside it; `who` competes with others of its shape."""

    who: Work
    promise: Promise
    left: dict[int, Amounts] = field(default_factory=dict)


@dataclass(frozen=True)
class Happened:
    """What came between two passes; work that came behind all others, or the clock, is nothing of that kind."""

    freed: frozenset[int] = frozenset()
    """Rows on which something came free, now or for later."""
    came: tuple[Task, ...] = ()
    """Work that may rank before what is promised."""


@dataclass
class Decision:
    """Starts in the order decided, with their rows in rank order; what who waits is promised."""

    starts: list[tuple[Task, list[int]]]
    promises: dict[Task, Promise]
    reasons: dict[Task, tuple[int, int]]
    """Of who is promised something now: why it does not start, and how many nodes lack."""
    full: list[Work]
    """All for whom a limit has no room in the end."""


def decide(
    state: ReferenceState,
    now: int,
    lines: list[list[Task]],
    kept: dict[Task, Promise] | None = None,
    happened: Happened | None = None,
) -> Decision:
    """All that starts at `now`. `lines` are the runs of alike tasks: one of them holds at most one promise. `kept`:
    promises from before. They stay as they are, but for those that something `happened` to (timelines only)."""
    if state.config.backfill in (Backfill.CONSERVATIVE, Backfill.TOP_K):
        return _Conservative(state, now, kept or {}, happened or Happened()).decide(lines)
    return _Easy(state, now).decide(kept or {})


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
        self.line = sorted(waiting, key=state.rank)
        self.policy = state.config.policy or Policy()
        self.running = list(state.running.values())
        self.reasons: dict[Task, tuple[int, int]] = {}
        self.choice = Choice(state.config.levels, self.nodes, TASTES.get(state.config.domains))
        self.shut: set[str] = set()
        """Strict queues one of whose jobs waits."""

    # ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def strict(self, work: Work) -> bool:
        queue = self.policy.queues.get(work.owner.queue)
        return queue is not None and queue.strict

    def waits(self, work: Work) -> None:
        """Nothing of its queue passes it, where the queue is strict."""
        if self.strict(work):
            self.shut.add(work.owner.queue)

    def full(self, work: Work) -> bool:
        """Whether a limit has no room for one more task like this."""
        return any(self.exceeds(limit, work) for limit in self.policy.limits.values() if in_scope(limit, work))

    def all_full(self) -> list[Work]:
        return [work for work in self.line if self.full(work)]

    def exceeds(self, limit: Limit, work: Work) -> bool:
        peers = [
            other
            for other in self.running
            if in_scope(limit, other) and (limit.user != EACH or other.owner.user == work.owner.user)
        ]
        if limit.running is not None and len(peers) >= limit.running:
            return True
        for name, most in (limit.resources or {}).items():
            used = sum(other.kind.request.get(name, 0) * other.kind.nodes for other in peers)
            asked = work.kind.request.get(name, 0) * work.kind.nodes
            if asked and used + asked > most:
                return True
        return False

    def licences_left(self, name: str, at: int) -> int:
        """What nobody holds of a licence at an instant, if all goes as planned."""
        held = [work for work in self.running if self.end_of(work) > at]
        return self.policy.licences.get(name, 0) - sum(work.kind.licences.get(name, 0) for work in held)

    def end_of(self, work: Work) -> int:
        return max(work.end_ms, self.now + 1)

    def unbooked(self, row: int, at: int, work: Work) -> bool:
        """Whether its walltime meets no booking of a node from an instant on."""
        (name,) = [node.name for node in self.nodes if node.row == row]
        booked = [booking for booking in self.state.bookings if name in booking.nodes]
        return all(one.start_ms >= min(at + work.walltime_ms, INF) or one.end_ms <= at for one in booked)

    def possible(self, work: Work) -> bool:
        return self.state.fits(work.kind)[1] >= work.kind.nodes

    def fitting(self, work: Work) -> list[Node]:
        """Nodes where it fits now."""
        return [node for node in self.nodes if node.admits(work.kind) and holds(self.free[node.row], work.kind.request)]

    def lacking(self, work: Work) -> int:
        """How many nodes lack now, beside those that are booked now."""
        booked = {name for one in self.state.bookings if one.start_ms <= self.now < one.end_ms for name in one.nodes}
        there = [node.row for node in self.fitting(work) if node.name not in booked]
        return max(work.kind.nodes - self.choice.most(work.kind, there), 0)

    def by_domain(self, work: Work) -> bool:
        """Whether the nodes of its starts are chosen by domain."""
        compact = self.state.config.compact and any(any(node.domains) for node in self.nodes)
        return work.kind.nodes > 1 and bool(work.kind.within or compact)

    def start(self, work: Work, rows: list[int]) -> None:
        for row in rows:
            self.free[row] = less(self.free[row], work.kind.request)
            if work.planned_ms < INF:
                self.ends.append((max(self.now + work.planned_ms, self.now + 1), row, work.kind.request))
        self.starts.append((work.name, rows))
        self.running.append(replace(work, start_ms=self.now))

    def compete(self, one: Work, other: Work) -> bool:
        alike = one.kind.shape_key() == other.kind.shape_key()
        return (
            alike
            or bool(one.kind.licences.keys() & other.kind.licences.keys())
            or any(
                node.admits(one.kind)
                and node.admits(other.kind)
                and holds(node.capacity, one.kind.request)
                and holds(node.capacity, other.kind.request)
                for node in self.nodes
            )
        )

    def tightness(self, node: Node, work: Work) -> int:
        """How little would be left of the tightest wanted resource, in millionths."""
        shares = [
            (self.free[node.row][name] - amount) / node.capacity[name]
            for name, amount in work.kind.request.items()
            if amount
        ]
        return math.floor((1.0 - min([1.0, *shares])) * ONE + 0.5)


def in_scope(limit: Limit, work: Work) -> bool:
    """Whether a limit counts for a task."""
    names = ((limit.account, work.owner.account), (limit.user, work.owner.user), (limit.queue, work.owner.queue))
    return all(name in ("", EACH, own) for name, own in names)


class _Easy(_Pass):
    """The first waiting task of each set of competing rows is promised them; nothing behind it may delay it."""

    def __init__(self, state: ReferenceState, now: int) -> None:
        super().__init__(state, now)
        self.promised: list[Promised] = []

    def decide(self, kept: dict[Task, Promise]) -> Decision:
        for task, promise in kept.items():
            work = self.state.waiting[task]
            self.promised.append(Promised(work, promise, self.beside(work, promise)))
            self.waits(work)
        later = []
        for work in self.line:
            if work.name in kept or work.owner.queue in self.shut:
                continue
            if not self.possible(work):
                self.waits(work)
            elif not self.closed(work):
                if self.full(work):
                    self.waits(work)
                elif not self.try_to_start(work):
                    self.reasons[work.name] = self.why(work)
                    self.promised.append(self.promise(work))
                    self.waits(work)
            elif self.state.config.backfill is Backfill.EASY_SJBF and not self.strict(work):
                later.append(work)
            elif self.state.config.backfill is Backfill.NONE or not self.try_to_start(work):
                self.waits(work)
        for work in sorted(later, key=lambda work: (work.planned_ms, *work.name)):
            if not any(work.name == one.who.name for one in self.promised):
                self.try_to_start(work)
        promises = {one.who.name: one.promise for one in self.promised}
        return Decision(self.starts, promises, self.reasons, self.all_full())

    def why(self, work: Work) -> tuple[int, int]:
        """Nodes where they lack, whatever else does."""
        short = self.lacking(work)
        if short:
            return REASON_RESOURCES, short
        lacks = not all(self.licence_is_left(work, name) for name in work.kind.licences)
        return REASON_LICENCE if lacks else REASON_BOOKED, 0

    def closed(self, work: Work) -> bool:
        """Whether a promise was made to somebody who might use the same row."""
        return any(self.compete(work, one.who) for one in self.promised)

    def try_to_start(self, work: Work) -> bool:
        if self.full(work) or not all(self.licence_is_left(work, name) for name in work.kind.licences):
            return False
        rows = self.choose(work)
        if len(rows) < work.kind.nodes:
            return False
        for row in rows:
            one = self.promise_on(row)
            if one is not None and not self.ends_before(work, one):
                one.left[row] = less(one.left[row], work.kind.request)
        self.start(work, rows)
        return True

    def licence_is_left(self, work: Work, name: str) -> bool:
        """There now, and not promised before its planned end, or enough of it beside what is promised."""
        asked = work.kind.licences[name]
        if asked > self.licences_left(name, self.now):
            return False
        for one in self.promised:
            if name in one.who.kind.licences and one.promise.kind == KIND_RESERVED and not self.ends_before(work, one):
                beside = self.licences_left(name, one.promise.start_ms) - one.who.kind.licences[name]
                if asked > beside:
                    return False
        return True

    def promise_on(self, row: int) -> Promised | None:
        return next((one for one in self.promised if row in one.left), None)

    def ends_before(self, work: Work, one: Promised) -> bool:
        return one.promise.kind == KIND_RESERVED and self.now + work.planned_ms <= one.promise.start_ms

    def choose(self, work: Work) -> list[int]:
        """The rows that it would get, fewer than it needs when it may not start."""
        places = [row for one in self.promised for row in one.promise.rows]
        usable: list[tuple[int, int, int]] = []
        for node in self.fitting(work):
            if not self.unbooked(node.row, self.now, work):
                continue
            one = self.promise_on(node.row)
            tier = FREE
            if one is not None and self.ends_before(work, one):
                tier = SHORT
            elif one is not None and holds(one.left[node.row], work.kind.request):
                tier = EXTRA
            elif one is not None:
                continue
            if self.state.config.placement == "best-fit":
                booked = any(node.name in one.nodes for one in self.state.bookings)
                tier = BOOKED if tier == FREE and booked else tier
                usable.append((tier, -self.tightness(node, work), node.row))
            else:
                usable.append((tier, 0 if tier == FREE else places.index(node.row), node.row))
        if self.by_domain(work):
            scored = self.state.config.placement == "best-fit"
            ranks = {row: (tier if scored or tier != BOOKED else FREE, score * scored) for tier, score, row in usable}
            return self.choice.compact(work.kind, ranks)
        return [row for _tier, _score, row in sorted(usable)][: work.kind.nodes]

    def promise(self, work: Work) -> Promised:
        """The earliest release at which enough rows fit it, and on it the rows that come free latest."""
        if self.state.config.backfill is Backfill.NONE:
            return Promised(work, Promise(INF, KIND_BLOCK, []))
        ready = {node.row: self.now for node in self.fitting(work)}
        there = dict(self.free)
        for at in sorted({end for end, _row, _amounts in self.ends}):
            for end, row, amounts in self.ends:
                if end == at:
                    there[row] = less(there[row], {name: -amount for name, amount in amounts.items()})
            for node in self.nodes:
                if node.row not in ready and node.admits(work.kind) and holds(there[node.row], work.kind.request):
                    ready[node.row] = at
        turns = {self.now, *(end for end, _row, _amounts in self.ends), *(one.end_ms for one in self.state.bookings)}
        for at in sorted(turn for turn in turns if turn >= self.now):
            if any(self.licences_left(name, at) < asked for name, asked in work.kind.licences.items()):
                continue
            rows = [row for row, since in ready.items() if since <= at and self.unbooked(row, at, work)]
            if self.choice.most(work.kind, rows) >= work.kind.nodes:
                if self.choice.level(work.kind) >= 0:
                    rows = self.choice.ranked(work.kind, {row: -ready[row] for row in rows})
                else:
                    rows = sorted(rows, key=lambda row: (ready[row], row), reverse=True)[: work.kind.nodes]
                promise = Promise(at, KIND_RESERVED, rows)
                return Promised(work, promise, self.beside(work, promise))
        return Promised(work, Promise(INF, KIND_NEVER, []))

    def beside(self, work: Work, promise: Promise) -> dict[int, Amounts]:
        """What each promised row has left at that instant beside the promise."""
        left = {row: less(self.free[row], work.kind.request) for row in promise.rows}
        for end, row, amounts in self.ends:
            if end <= promise.start_ms and row in left:
                left[row] = less(left[row], {name: -amount for name, amount in amounts.items()})
        return left


class _Conservative(_Pass):
    """Each in turn gets the earliest place that is left, and keeps it; with K promises ahead that compete with it, a
    task gets none and starts only beside all of them.

    A promise moves to an earlier instant when something came free on a row that the work could use, or when it is due;
    if there is none it stays as it is, on its rows. Promises are made again in turn, wherever that is, on rows that
    cannot keep them all, behind those and behind better work that came or an array that started a task, as far as they
    compete with it.
    """

    def __init__(self, state: ReferenceState, now: int, kept: dict[Task, Promise], happened: Happened) -> None:
        super().__init__(state, now)
        self.happened = happened
        self.promises = {task: promise for task, promise in kept.items() if self.possible(state.waiting[task])}
        """Those that count."""
        self.places: list[tuple[int, int, int, Amounts]] = []
        came = [state.waiting[task] for task in happened.came if task in state.waiting]
        for work in came:
            self.forget_behind(work)
        self.forget_hurt()

    def decide(self, lines: list[list[Task]]) -> Decision:
        config = self.state.config
        most = config.reservations if config.backfill is Backfill.TOP_K else config.max_reservations
        before = {work.name: self.lacking(work) for work in self.line}  # verdicts do not count what this slice starts
        left = True
        while left:  # who ranks before was placed around rows that somebody left after its turn
            left = False
            served: set[Task] = set()
            for work in [work for work in self.line if work.name not in dict(self.starts)]:
                (run,) = [tasks for tasks in lines if work.name in tasks]
                mine = self.promises.get(work.name)
                if work.owner.queue in self.shut or served & set(run):
                    continue
                if not self.possible(work) or (mine is None and self.full(work)):
                    self.waits(work)
                    continue
                ahead = [self.state.waiting[task] for task in self.promises]
                ahead = [other for other in ahead if self.state.rank(other) < self.state.rank(work)]
                closed = sum(self.compete(work, other) for other in ahead) >= most
                if mine is not None and closed:
                    self.promises.pop(work.name)
                    left, mine = True, None
                if mine is not None and not self.may_move(work, mine):
                    served.add(work.name)
                    self.waits(work)
                    continue
                self.promises.pop(work.name, None)
                if self.full(work):
                    self.waits(work)
                    continue
                at, rows = self.earliest(work)
                if at == self.now:
                    self.start(work, rows)
                    self.let_go_behind(work, run)
                    continue
                served.add(work.name)
                self.waits(work)
                if mine is not None and self.now < mine.start_ms <= at:
                    self.promises[work.name] = mine
                elif not closed:
                    self.promises[work.name] = Promise(at, KIND_RESERVED if at < INF else KIND_NEVER, rows)
                    short = before[work.name]
                    self.reasons[work.name] = REASON_RESOURCES if short else REASON_RESERVED, short
        return Decision(self.starts, dict(self.promises), self.reasons, self.all_full())

    def list_places(self) -> None:
        """What is promised now: from, until, row, amounts."""
        self.places = []
        for task, promise in self.promises.items():
            work = self.state.waiting[task]
            end = min(promise.start_ms + work.planned_ms, INF)
            self.places += [(promise.start_ms, end, row, work.kind.request) for row in promise.rows if row >= 0]

    # ── which promises stay ───────────────────────────────────────────────────────────────────────────────────────

    def may_move(self, work: Work, promise: Promise) -> bool:
        """Whether it is due, or something came free where the work could run; if it has no instant, whether anything
        came free or came before others: without that, a limit that is full by now does not end its turn."""
        return (
            promise.start_ms <= self.now
            or (promise.start_ms >= INF and bool(self.happened.freed or self.happened.came))
            or any(
                node.row in self.happened.freed and node.admits(work.kind) and holds(node.capacity, work.kind.request)
                for node in self.nodes
            )
        )

    def forget_behind(self, work: Work) -> None:
        """Promises behind a task that compete with it."""
        for task in list(self.promises):
            other = self.state.waiting[task]
            if self.state.rank(work) < self.state.rank(other) and self.compete(work, other):
                del self.promises[task]

    def let_go_behind(self, work: Work, run: list[Task]) -> None:
        """The next task of a run ranks before all that is promised behind it, and has no place yet."""
        following = run[run.index(work.name) + 1 :]
        if following:
            self.forget_behind(self.state.waiting[following[0]])

    def forget_hurt(self) -> None:
        """Promises on rows that cannot keep all of theirs, and those behind that compete with one."""
        self.list_places()
        hurt = {row for _begin, _end, row, _amounts in self.places if not self.keeps(row)}
        broken = [task for task, promise in self.promises.items() if hurt & set(promise.rows)]
        for task in broken:
            self.forget_behind(self.state.waiting[task])
        for task in broken:
            self.promises.pop(task, None)

    def keeps(self, row: int) -> bool:
        """Whether a row has what all its promises take, at each instant from now on at which one of them does."""
        here = [self.state.waiting[task] for task, promise in self.promises.items() if row in promise.rows]
        if not any(node.row == row for node in self.nodes):
            return False
        (node,) = [node for node in self.nodes if node.row == row]
        if not all(node.admits(work.kind) and holds(node.capacity, work.kind.request) for work in here):
            return False
        spans = [(begin, end) for begin, end, place, _amounts in self.places if place == row]
        edges = {self.now, *(edge for span in spans for edge in span), *(end for end, _row, _amounts in self.ends)}
        return all(
            holds(self.there(row, at), {})
            for at in edges
            if at >= self.now and any(begin <= at < end for begin, end in spans)
        )

    # ── what is left ──────────────────────────────────────────────────────────────────────────────────────────────

    def licences_hold(self, work: Work, at: int) -> bool:
        """Whether its licences are there at an instant, beside those that are promised."""
        for name, asked in work.kind.licences.items():
            taken = 0
            for task, promise in self.promises.items():
                other = self.state.waiting[task]
                if promise.start_ms <= at < min(promise.start_ms + other.planned_ms, INF):
                    taken += other.kind.licences.get(name, 0)
            if self.licences_left(name, at) - taken < asked:
                return False
        return True

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
        self.list_places()
        turns = {self.now, *(end for end, _row, _amounts in self.ends)}
        turns |= {edge for begin, end, _row, _amounts in self.places for edge in (begin, end) if edge < INF}
        turns |= {one.end_ms for one in self.state.bookings if one.end_ms > self.now}
        for at in sorted(turns):
            edges = [at, *(edge for edge in turns if at < edge < at + work.planned_ms)]
            rows = [
                node.row
                for node in self.nodes
                if node.admits(work.kind)
                and holds(node.capacity, work.kind.request)
                and all(holds(self.there(node.row, edge), work.kind.request) for edge in edges)
                and self.unbooked(node.row, at, work)
            ]
            enough = self.choice.most(work.kind, rows) >= work.kind.nodes
            if enough and all(self.licences_hold(work, edge) for edge in edges):
                if at == self.now and self.by_domain(work):
                    ranks = {row: (self.tier(row, work), -self.score(row, work)) for row in rows}
                    return at, self.choice.compact(work.kind, ranks)
                if self.choice.level(work.kind) >= 0:
                    return at, self.choice.ranked(work.kind, {row: -self.since(row, work, at, turns) for row in rows})
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
