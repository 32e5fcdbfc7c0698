"""The scheduling loop without I/O: events in, plans out to a Sink, and when to be called again.

Pure: the shell passes the clock in. Two lanes, one rule: after an event, a slice from the top of the order (at most
`fast_starts` starts and `fast_work` work) looks at what comes first; an unfinished pass goes on by its cursor in
between. Every plan is assumed here before the sink sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from hal.core.engine.applying import apply
from hal.core.engine.cycling import cycle, learn
from hal.core.engine.errors import PolicyFault
from hal.core.engine.events import (
    AdviceUpdated,
    AdviceWithdrawn,
    BookingsChanged,
    ClockAdvanced,
    ConfigChanged,
    EstimatesCorrected,
    Event,
    KeysRenewed,
    PlanAssumed,
    WholePassDue,
)
from hal.core.engine.plan import Cursor, Plan
from hal.core.engine.plugins.faults import without
from hal.core.engine.rules.predictions import next_look_ms, overdue
from hal.core.engine.state import State
from hal.core.kernels.structures.layout import A_OP, OP_SEARCHED

MOST_LEARNT = 100
"""So many slices in a row may only learn; then a pass decides with what it has, however much happens in between."""
KEYS_A_SLICE = 500
"""Jobs that an order is asked for again in one slice, because advice about them has changed."""
MOST_IDLE = 1_000
"""So many passes may follow each other closely and decide nothing while nothing happens; then each waits for a rest."""
REST_MS = 1_000


class Sink(Protocol):
    """Where plans go: a store and agents, a twin's virtual cluster, a Kubernetes API."""

    def accept(self, plan: Plan) -> None:
        """Take a plan that was assumed already and has starts or moves; must not block or call the scheduler."""
        ...


class Step(msgspec.Struct, frozen=True):
    """What one step did. more: call again soon, there is work left; else call at wake_ms unless an event comes."""

    more: bool
    wake_ms: int
    starts: int
    rests: bool = False
    """It would have gone on, or been woken again at once, for nothing: MOST_IDLE passes have decided nothing."""


class Scheduler:
    """Feeds one state and slices its cycles; the only caller of `apply` and `cycle` in a daemon."""

    def __init__(
        self,
        state: State,
        sink: Sink,
        on_fault: Callable[[PolicyFault], None] | None = None,
        *,
        learns: bool = True,
    ) -> None:
        """A loop around a state.

        Args:
            on_fault: told of a policy that answers wrongly, for which HAL's own then decides; None: it is an error.
            learns: slices may come that only learn; not for who counts slices and needs what they decide.
        """
        self.state = state
        self.sink = sink
        self._on_fault = on_fault
        self._cursor: Cursor | None = None
        self._news = True
        self._owes = False
        """Something changed during the unfinished pass that only the fast lane has looked at, and only in part."""
        self._learnt = 0
        self._learns = learns
        self._idle = 0
        self._began_ms = 0

    def feed(self, event: Event) -> None:
        """Apply an event. Raises EngineError, the state unchanged, when the event contradicts the state."""
        breaks = self.state.nodes.breaks
        while True:
            try:
                apply(self.state, event)
                break
            except PolicyFault as fault:
                event = self._decide_without(fault, event)
        if isinstance(event, AdviceUpdated | AdviceWithdrawn) and not self.state.advice.awaits_pass:
            return  # no policy in use reads it, or only where to start what can start: that waits for no pass
        self._news = True
        self._idle = 0
        if isinstance(event, ConfigChanged | BookingsChanged) or self.state.nodes.breaks != breaks:
            self._cursor = None  # another order, or nodes that it may have counted on are gone: the pass begins anew

    def step(self, now_ms: int) -> Step:
        """At most one slice at `now_ms` (which must not go back): plan, assume, hand over."""
        while True:
            try:
                return self._step(now_ms)
            except PolicyFault as fault:
                self._decide_without(fault, None)

    def _decide_without(self, fault: PolicyFault, event: Event | None) -> Event:
        """Let HAL's own policy decide instead of one that failed; the event to apply then.

        Each call takes one more policy out of use, so whoever tries again comes to an end.
        """
        if self._on_fault is None:
            raise fault
        self._on_fault(fault)
        if isinstance(event, ConfigChanged):
            return ConfigChanged(without(event.config, fault))
        change = ConfigChanged(without(self.state.config, fault))
        self.feed(change)
        return change if event is None else event

    def _step(self, now_ms: int) -> Step:
        self._catch_up(now_ms)
        resumes = self._cursor is not None
        if not resumes and self._owes:
            self._owes = False
            apply(self.state, WholePassDue())
        fast = resumes and self._news
        if not resumes and (self._renews_keys() or self._learns_first(now_ms)):
            return Step(more=True, wake_ms=now_ms, starts=0)
        plan = self._plan_fast(now_ms) if fast else self._plan_onward(now_ms)
        if not resumes:
            self._idle = 0 if now_ms - self._began_ms > 2 * REST_MS else self._idle + 1
            self._began_ms = now_ms
        if len(plan.starts) > 0 or _moves_something(plan):
            self._idle = 0
        if plan.changes:
            apply(self.state, PlanAssumed(plan))
            if len(plan.starts) or len(plan.moves):
                self.sink.accept(plan)
        more = self._cursor is not None or self._news or (fast and plan.cursor is not None)
        more = more or self.state.advice.due_jobs > 0
        wake_ms = now_ms if more else min(plan.wake_ms, next_look_ms(self.state, now_ms), self.state.advice_expiry_ms())
        if self._idle > MOST_IDLE and self._cursor is None and wake_ms < now_ms + REST_MS:
            self._news = False
            return Step(more=False, wake_ms=now_ms + REST_MS, starts=0, rests=True)
        return Step(more=more, wake_ms=wake_ms, starts=len(plan.starts))

    def _catch_up(self, now_ms: int) -> None:
        """Apply what time alone has brought: timers, shares and turns as they now are, estimates that were outlived."""
        state = self.state
        if state.next_timer_ms() <= now_ms or (self._cursor is None and state.offsets_moved):
            apply(state, ClockAdvanced(now_ms))
            self._news = True
        late = overdue(state, now_ms)
        if late is not None:
            apply(state, EstimatesCorrected(late))
            self._news = True

    def _renews_keys(self) -> bool:
        """Whether, before a new pass, the order was asked for keys of jobs again of which advice has changed."""
        advice = self.state.advice
        if not advice.due_jobs or self._learnt >= MOST_LEARNT:
            return False
        apply(self.state, KeysRenewed(advice.due_some(KEYS_A_SLICE)))
        self._news = True
        self._learnt += 1
        return True

    def _learns_first(self, now_ms: int) -> bool:
        """Whether, before a new pass, a slice was taken that only learns."""
        if self._learns and self._learnt < MOST_LEARNT and learn(self.state, now_ms):
            self._learnt += 1
            return True
        return False

    def _plan_fast(self, now_ms: int) -> Plan:
        """The fast lane: a few starts from the top of the order, while an unfinished pass waits with its cursor."""
        config = self.state.config
        plan = cycle(self.state, now_ms, budget=min(config.fast_work, config.slice_work), max_starts=config.fast_starts)
        self._news = False
        # A plan with timelines makes the state forget that reservations are to be looked at again.
        self._owes = self._owes or (self.state.keeps_timelines and plan.full and plan.cursor is not None)
        return plan

    def _plan_onward(self, now_ms: int) -> Plan:
        """A slice of a new pass, or of the one that is unfinished; the cursor moves on."""
        self._learnt = 0
        plan = cycle(self.state, now_ms, cursor=self._cursor)
        if self._cursor is None:
            self._news = False
        self._cursor = plan.cursor
        if plan.cursor is not None and plan.cursor.begins_anew:
            self._cursor, self._news = None, True
        elif plan.cursor is None and (plan.wake_ms <= now_ms or self._owes):
            self._news = True  # something is to be looked for between this pass and the next, or by the next
        return plan

    def run(self, now_ms: int, most_slices: int = 1_000) -> Step:
        """Steps until nothing is left to do at `now_ms`, at most `most_slices` of them."""
        starts = 0
        step = self.step(now_ms)
        for _ in range(most_slices - 1):
            starts += step.starts
            if not step.more:
                break
            step = self.step(now_ms)
        else:
            starts += step.starts
        return Step(more=step.more, wake_ms=step.wake_ms, starts=starts, rests=step.rests)


def _moves_something(plan: Plan) -> bool:
    """Whether work is taken back, claimed, given up or resumed; that nothing was found is no decision."""
    return len(plan.moves) > 0 and bool((plan.moves[:, A_OP] != OP_SEARCHED).any())
