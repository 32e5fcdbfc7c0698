"""The smallest change that would let a waiting job start now, and when it starts as it is: asked of a copy.

Pure: the state is as it was. A change counts only if the engine, told of it and of nothing else, starts the job. At
most MAX_PROBES changes are tried: fewer nodes, a shorter walltime, another queue; of each kind the smallest that does.
Where more than MAX_WAITING entries wait nothing is tried: a copy would take too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from hal.core.engine.applying import apply
from hal.core.engine.classes import ClassSpec, Elsewhere, OwnerSpec
from hal.core.engine.errors import PolicyFault
from hal.core.engine.events import INF, Event, JobsCancelled, JobsSubmitted, StartsRefused, submit_rows
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.state import State
from hal.core.engine.why.foresight import entries_of
from hal.core.engine.why.playing import Played, can_play
from hal.core.engine.why.shadow import Shadow
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Entry
from hal.core.model.units import Duration
from hal.core.model.verdict import Outlook, Sooner

MAX_PROBES: Final = 8
"""Changes tried for one question."""
PROBES_OF_A_KIND: Final = 3
MAX_WAITING: Final = 250_000
"""Entries (a job, or an array's alike tasks) beyond which nothing is tried."""
MAX_SLICES: Final = 64
"""Slices of scheduling that one change may take to show its effect."""
SECOND_MS: Final = 1_000


class Prober:
    """Answers questions about one engine, one at a time; keeps the memory of its copy."""

    def __init__(self) -> None:
        self._shadow = Shadow()

    def look(self, state: State, job: int, now_ms: int, elsewhere: Sequence[Elsewhere] = ()) -> Outlook | None:
        """What would let the job's first waiting task start at `now_ms`, and when it starts as it is.

        None where nothing was tried: too much waits, or nothing of the job; or a plugin gave no answer.
        """
        try:
            return self._looked(state, job, now_ms, elsewhere)
        except PolicyFault:
            return None

    def _looked(self, state: State, job: int, now_ms: int, elsewhere: Sequence[Elsewhere]) -> Outlook | None:
        slot = _first_waiting(state, job)
        if slot is None or int(state.meta[L.M_ENTRIES]) > MAX_WAITING:
            return None
        questions = _Questions(self._copy(state), slot, now_ms)
        if questions.starts():
            return Outlook(starts_at_ms=now_ms, started=True)  # the next pass starts it as it is
        sooner = questions.ask(elsewhere)
        starts_at_ms, started = now_ms, False
        if can_play(state):
            starts_at_ms, started = Played(self._copy(state), (job,)).until_start(now_ms)
        return Outlook(sooner=sooner, starts_at_ms=starts_at_ms, started=started)

    def foresee(
        self, state: State, submitted: Sequence[Event], jobs: Sequence[int], now_ms: int
    ) -> tuple[dict[int, int], int] | None:
        """When jobs that are not submitted would start if these events submitted them now, as far as they would.

        With it the last instant that was played, INF where nothing would happen afterwards. None where nothing was
        tried: too much waits, or a plugin gave no answer.
        """
        if int(state.meta[L.M_ENTRIES]) > MAX_WAITING or not can_play(state):
            return None
        try:
            played = Played(self._copy(state), jobs, submitted)
            last_ms, _all = played.until_start(now_ms)
        except PolicyFault:
            return None
        return played.starts, INF if played.is_over else last_ms

    def _copy(self, state: State) -> State:
        """A copy that takes nothing back from others: that could not be undone between two questions."""
        shadow = self._shadow.of(state)
        shadow.meta[L.M_PREEMPTING] = shadow.meta[L.M_RECLAIM] = shadow.meta[L.M_MOVING] = 0
        return shadow


class _Questions:
    """One job on a copy: changed, looked at, put back."""

    def __init__(self, shadow: State, slot: int, now_ms: int) -> None:
        self.state = shadow
        self.now_ms = now_ms
        self.entry: Entry = shadow.work.entries[slot].copy()
        self.job = int(self.entry[L.E_JOB])
        bucket = shadow.work.buckets[int(self.entry[L.E_BUCKET])]
        spec = shadow.catalogue.class_specs[int(bucket[L.B_CLASS])]
        assert spec is not None
        self.spec = spec
        self.shape = int(shadow.catalogue.classes[int(bucket[L.B_CLASS]), L.C_SHAPE])
        self.owner = shadow.shares.owner_specs[int(bucket[L.B_OWNER])]
        self.walltime_ms = int(self.entry[L.E_WALL])
        self.fit = int(shadow.catalogue.shapes[self.shape, L.S_FIT])
        self.gaps = _gaps(shadow, slot, now_ms)
        self.plans: list[Plan] = []
        self.scheduler = Scheduler(shadow, self, learns=False)
        self.left = MAX_PROBES

    def accept(self, plan: Plan) -> None:
        """See `hal.core.engine.scheduler.Sink`."""
        self.plans.append(plan)

    def ask(self, elsewhere: Sequence[Elsewhere]) -> tuple[Sooner, ...]:
        """Each kind of change in turn; nothing where the job, put back as it was, starts as well.

        To be put back moves reservations: it must not be that which starts the job.
        """
        if self.spec.groups:
            return ()  # what is put back here is one task, and its groups are several
        found = [self._fewer_nodes(), self._shorter(), self._elsewhere(elsewhere)]
        sooner = tuple(change for change in found if change is not None)
        return () if sooner and self._would(self.spec, self.owner, self.walltime_ms) else sooner

    def _fewer_nodes(self) -> Sooner | None:
        most = min(self.fit, self.spec.nodes - 1)

        def starts(nodes: int) -> bool:
            return self._would(msgspec.structs.replace(self.spec, nodes=nodes), self.owner, self.walltime_ms)

        nodes = self._largest(range(1, most + 1), starts)
        return None if nodes is None else Sooner(field="nodes", value=str(nodes))

    def _shorter(self) -> Sooner | None:
        planned = int(self.entry[L.E_PLANNED])
        walltimes = [wall for wall in self.gaps if SECOND_MS <= wall < planned]
        room = self._hours_left()
        if room is not None:
            walltimes = sorted({*walltimes, *([room] if SECOND_MS <= room < planned else [])})
        walltime = self._largest(walltimes, lambda wall: self._would(self.spec, self.owner, wall))
        return None if walltime is None else Sooner(field="walltime", value=str(Duration(walltime)))

    def _elsewhere(self, others: Sequence[Elsewhere]) -> Sooner | None:
        for other in others[:PROBES_OF_A_KIND]:
            if self.left and self._would(other.request, other.owner, other.walltime_ms):
                return Sooner(field="queue", value=other.queue)
        return None

    def _largest(self, values: Sequence[int], starts: Callable[[int], bool]) -> int | None:
        """The largest of the ascending values found to do, by halving: what does for one does for all below it."""
        low, high, best = 0, len(values) - 1, None
        middle = high
        for _ in range(PROBES_OF_A_KIND):
            if low > high or not self.left:
                break
            if starts(values[middle]):
                best, low = values[middle], middle + 1
            else:
                high = middle - 1
            middle = (low + high) // 2
        return best

    def _would(self, request: ClassSpec, owner: OwnerSpec, walltime_ms: int) -> bool:
        """Whether the job's first waiting task starts when it asks for this, instead of all that waits of it."""
        self.left -= 1
        rows = submit_rows(1)
        for name, column in (
            ("job", L.E_JOB), ("first_task", L.E_FIRST), ("attempt", L.E_ATTEMPT), ("priority", L.E_PRIORITY),
            ("submit_ms", L.E_SUBMIT), ("eligible_ms", L.E_ELIGIBLE), ("deadline_ms", L.E_DEADLINE),
        ):  # fmt: skip
            rows[name] = self.entry[column]
        planned = min(int(self.entry[L.E_PLANNED]), walltime_ms)
        rows["walltime_ms"], rows["planned_ms"] = walltime_ms, planned
        self.scheduler.feed(JobsCancelled(np.array([self.job], np.int64)))
        self.scheduler.feed(JobsSubmitted(rows, (request,), (owner,)))
        return self.starts()

    def starts(self) -> bool:
        """Whether the job starts now. What starts is put back."""
        self.plans.clear()
        self.scheduler.run(self.now_ms, MAX_SLICES)
        started = False
        for plan in self.plans:
            started = started or bool((plan.starts["job"] == self.job).any())
        for plan in reversed(self.plans):
            apply(self.state, StartsRefused(plan.starts))
        return started

    def _hours_left(self) -> int | None:
        """The longest walltime for which every ledger of hours has room; None where none of them bounds it."""
        first = int(self.state.shares.owners[self._owner_row(), L.O_LEDGER])
        count = int(self.state.shares.owners[self._owner_row(), L.O_LEDGERS])
        least: int | None = None
        for ledger in self.state.shares.owner_ledgers[first : first + count].tolist():
            entry = self.state.shares.ledgers[ledger]
            amount = int(self.state.catalogue.request[entry[L.G_RESOURCE], self.shape]) * self.spec.nodes
            if entry[L.G_KIND] != L.LEDGER_HOURS or not amount:
                continue
            room = max(int(entry[L.G_LIMIT] - entry[L.G_USED]), 0)
            seconds = room // max(amount >> int(entry[L.G_SHIFT]), 1)
            least = seconds * SECOND_MS if least is None else min(least, seconds * SECOND_MS)
        return least

    def _owner_row(self) -> int:
        return self.state.shares.owner_ids[self.owner]


def _gaps(state: State, slot: int, now_ms: int) -> list[int]:
    """Times from now until a booking begins or ends, or a reservation of somebody else begins; ascending."""
    reservations = state.work.reservations[: int(state.meta[L.M_RESERVATIONS])]
    others = (reservations[:, L.V_KIND] == L.KIND_RESERVED) & (reservations[:, L.V_ENTRY] != slot)
    booked = [edge for known in state.bookings.all for edge in (known.spec.start_ms, known.spec.end_ms)]
    starts = np.concatenate([reservations[others, L.V_START], np.array(booked, np.int64)])
    gaps = (starts[(starts > now_ms) & (starts < L.INF)] - now_ms) // SECOND_MS * SECOND_MS
    return [int(gap) for gap in np.unique(gaps)]


def _first_waiting(state: State, job: int) -> int | None:
    """The slot of the job's first waiting task that only the engine keeps from starting."""
    slots = entries_of(state, job)
    slots = slots[state.work.entries[slots, L.E_WHERE] == L.WHERE_BUCKET]
    return int(slots[np.argmin(state.work.entries[slots, L.E_FIRST])]) if slots.size else None
