"""Gates: what must be satisfied on a node before an attempt's processes begin there (stage in, install, mount), or
after they have ended (stage out), with deadline and policy.

Pure. The rules:

1. Gates belong to preparing (before the processes start) or finalising (after they have ended). All gates of a phase
open at the same time when the attempt enters it, and the attempt proceeds when none is waiting.
2. A gate is answered with passed or failed. Without an answer by its deadline it has expired, which counts as failed.
An answer after that, or after the attempt was cancelled, is late and changes nothing; nor does a repeated answer.
Passed after failed, or failed after passed, is a bug of whoever answers.
3. A gate that cannot be asked (absent, slow or dead) has failed, unless its policy is `wait`: then it still waits, and
expires at its deadline.
4. A failed gate does what its policy says: `fail` and `wait` end the attempt as failed (a retry may follow),
`elsewhere` returns the task to pending without counting a retry, for another node, `ignore` proceeds as if it had
passed. Fail is stronger than elsewhere, and either takes effect at once, without waiting for the other gates.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.lifecycle.automaton import Automaton, transition
from hal.core.model import InternalError
from hal.core.model.gate import GatePhase, GatePolicy
from hal.core.model.units import Duration

MAX_GATES: Final = 64
"""Gates of one register."""


class GateState(StrEnum):
    """The state of one gate of one attempt."""

    WAITING = "waiting"
    """It has not been answered."""
    PASSED = "passed"
    FAILED = "failed"
    EXPIRED = "expired"
    """It was not answered by its deadline, which counts as failed."""
    ABANDONED = "abandoned"
    """The attempt no longer waits for it."""


class GateEvent(StrEnum):
    """What happens to a gate."""

    PASS = "pass"
    FAIL = "fail"
    EXPIRE = "expire"
    ABANDON = "abandon"


_S = GateState
_E = GateEvent

GATE: Automaton[GateState, GateEvent] = Automaton(
    "gate",
    initial=frozenset({_S.WAITING}),
    table={
        _S.WAITING: {
            _E.PASS: _S.PASSED,
            _E.FAIL: _S.FAILED,
            _E.EXPIRE: _S.EXPIRED,
            _E.ABANDON: _S.ABANDONED,
        },
        _S.PASSED: {_E.PASS: _S.PASSED},
        _S.FAILED: {_E.FAIL: _S.FAILED},
        _S.EXPIRED: {_E.PASS: _S.EXPIRED, _E.FAIL: _S.EXPIRED},
        _S.ABANDONED: {_E.PASS: _S.ABANDONED, _E.FAIL: _S.ABANDONED},
    },
)


class Gate(Struct, frozen=True, kw_only=True):
    """One gate of a node: a program of the site, or a service that a job names."""

    name: str
    phase: GatePhase
    deadline_ms: int
    """Longest wait, counted from entering the phase."""
    policy: GatePolicy = GatePolicy.FAIL


class GateRegister(Struct, frozen=True):
    """All gates, in the order of registration."""

    gates: tuple[Gate, ...] = ()

    def add(self, gate: Gate) -> GateRegister:
        """Return a register with one more gate.

        Raises:
            InternalError: its name is empty or taken in its phase, its deadline is not positive, or the register is
                full.
        """
        if not gate.name or any((other.name, other.phase) == (gate.name, gate.phase) for other in self.gates):
            raise InternalError(f"gate '{gate.name}': the name is {'taken' if gate.name else 'empty'}")
        if gate.deadline_ms <= 0:
            raise InternalError(f"gate '{gate.name}': a deadline of {gate.deadline_ms} ms; it must be positive")
        if len(self.gates) >= MAX_GATES:
            raise InternalError(f"gate '{gate.name}': there are already {MAX_GATES} gates, the maximum")
        return GateRegister((*self.gates, gate))

    def enter(self, phase: GatePhase, now_ms: int) -> GateWatch:
        """Open the gates of a phase that an attempt enters now."""
        gates = tuple(gate for gate in self.gates if gate.phase is phase)
        return GateWatch(gates, now_ms, (GateState.WAITING,) * len(gates), ("",) * len(gates))


class GateDecision(StrEnum):
    """What the gates decide about proceeding."""

    WAIT = "wait"
    GO = "go"
    FAIL = "fail"
    ELSEWHERE = "elsewhere"


class GateVerdict(Struct, frozen=True):
    """The decision, with the gate that caused it and why (empty for wait and go)."""

    decision: GateDecision
    gate: str = ""
    reason: str = ""


_STRONGEST_FIRST: Final = (
    ((GatePolicy.FAIL, GatePolicy.WAIT), GateDecision.FAIL),
    ((GatePolicy.ELSEWHERE,), GateDecision.ELSEWHERE),
)


class GateWatch(Struct, frozen=True):
    """The gates of one phase of one attempt; every change returns a new watch."""

    gates: tuple[Gate, ...]
    since_ms: int
    states: tuple[GateState, ...]
    reasons: tuple[str, ...]

    def passed(self, name: str) -> GateWatch:
        """Record that a gate was answered with passed."""
        return self._after(self._position(name), GateEvent.PASS)

    def failed(self, name: str, reason: str) -> GateWatch:
        """Record that a gate was answered with failed, and why."""
        return self._after(self._position(name), GateEvent.FAIL, reason)

    def unavailable(self, name: str, reason: str) -> GateWatch:
        """Record that a gate could not be asked, and why: it still waits, if that is its policy, or has failed."""
        position = self._position(name)
        if self.gates[position].policy is not GatePolicy.WAIT:
            return self._after(position, GateEvent.FAIL, reason)
        return self.noted(name, reason)

    def noted(self, name: str, reason: str) -> GateWatch:
        """Record for what a gate waits, in words."""
        position = self._position(name)
        if self.states[position] is not GateState.WAITING:
            return self
        reasons = (*self.reasons[:position], reason, *self.reasons[position + 1 :])
        return msgspec.structs.replace(self, reasons=reasons)

    def expired(self, now_ms: int) -> GateWatch:
        """Return the watch at `now_ms`: gates whose deadline has passed have expired."""
        watch = self
        for position, gate in enumerate(self.gates):
            if self.states[position] is GateState.WAITING and now_ms - self.since_ms >= gate.deadline_ms:
                last = f": {self.reasons[position]}" if self.reasons[position] else ""
                reason = f"not satisfied within {Duration(gate.deadline_ms)}{last}"
                watch = watch._after(position, GateEvent.EXPIRE, reason)
        return watch

    def abandoned(self) -> GateWatch:
        """Stop waiting for these gates, because the task was cancelled."""
        watch = self
        for position, state in enumerate(self.states):
            if state is GateState.WAITING:
                watch = watch._after(position, GateEvent.ABANDON)
        return watch

    @property
    def deadline_ms(self) -> int | None:
        """The next instant at which a gate expires; None if none is waiting."""
        waiting = (g.deadline_ms for g, s in zip(self.gates, self.states, strict=True) if s is GateState.WAITING)
        soonest = min(waiting, default=None)
        return None if soonest is None else self.since_ms + soonest

    def verdict(self) -> GateVerdict:
        """Decide whether the task may proceed; with gates that were abandoned while waiting, it never does."""
        bad = [
            (gate, reason)
            for gate, state, reason in zip(self.gates, self.states, self.reasons, strict=True)
            if state in (GateState.FAILED, GateState.EXPIRED)
        ]
        for policies, decision in _STRONGEST_FIRST:
            for gate, reason in bad:
                if gate.policy in policies:
                    return GateVerdict(decision, gate.name, reason)
        if GateState.WAITING in self.states or GateState.ABANDONED in self.states:
            return GateVerdict(GateDecision.WAIT)
        return GateVerdict(GateDecision.GO)

    def _position(self, name: str) -> int:
        for position, gate in enumerate(self.gates):
            if gate.name == name:
                return position
        known = ", ".join(gate.name for gate in self.gates) or "none"
        raise InternalError(f"gate '{name}' does not belong to this phase", hint=f"gates of this phase: {known}")

    def _after(self, position: int, event: GateEvent, reason: str = "") -> GateWatch:
        before = self.states[position]
        after = transition(GATE, before, event, [(self.gates[position].name, before)])
        if after is before:
            return self
        states = (*self.states[:position], after, *self.states[position + 1 :])
        reasons = (*self.reasons[:position], reason, *self.reasons[position + 1 :])
        return msgspec.structs.replace(self, states=states, reasons=reasons)
