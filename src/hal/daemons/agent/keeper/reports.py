"""The keeper's reports to its agent: batched for a moment, sent as few frames; exits are kept until acknowledged.

While no agent is connected, only exits are kept. Exits are reported in the order in which steps ended: one may name a
step whose own exit follows (`next`). What nobody waits for, starts and exits whose slot was passed on to another step,
waits up to `COMPANY_MS` to be batched; everything else is sent at once, with what waits.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final, TypeVar

from hal.core.model import StepId
from hal.daemons.agent.keeper.ledger import MAX_BATCH
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.step import HeldStep
from hal.wire.frames.agent_keeper import AgentKeeperFrame, Done, Exits, Refusal, Refused, Started, StepExit, StepStarted

REPEAT_MS: Final = 5_000
"""An exit that is not acknowledged is sent again after this."""
COMPANY_MS: Final = 40
"""How long a report that nobody waits for may be delayed."""


class Reports:
    """Frames for the agent, ordered: answers, refusals, starts, exits."""

    def __init__(self) -> None:
        self.attached = False
        self._frames: list[AgentKeeperFrame] = []
        self._refusals: list[Refusal] = []
        self._started: dict[StepId, StepStarted] = {}
        self._exits: OrderedDict[StepId, HeldStep] = OrderedDict()
        """Unacknowledged exits, in the order in which the steps ended."""
        self._unsent: dict[StepId, HeldStep] = {}
        """Those of them to be reported in the next frames, in that order."""
        self._urgent = False
        self._due_ms = 0
        """When delayed reports are sent, by the boot clock; 0: none are waiting."""
        self._repeat_ms = 0
        """When the unacknowledged exits are repeated, by the boot clock; 0: none was sent."""

    def attach(self) -> None:
        """Report every exit again, to a new agent."""
        self.detach()
        self.attached = True
        self._tell_all_again()

    def detach(self) -> None:
        self.attached = False
        self._frames.clear()
        self._refusals.clear()
        self._started.clear()

    @property
    def unacknowledged(self) -> int:
        """How many exits are unacknowledged."""
        return len(self._exits)

    def frame(self, frame: AgentKeeperFrame) -> None:
        if self.attached:
            self._frames.append(frame)

    def refuse(self, step: StepId, code: str, message: str) -> None:
        if self.attached:
            self._refusals.append(Refusal(step, code, message))

    def started(self, held: HeldStep, *, asked: bool = False) -> None:
        """Report that a step runs; at once if `asked`."""
        self._urgent = self._urgent or asked
        if self.attached:
            self._started[held.step] = StepStarted(held.step, held.pid, held.started_ms, held.serves)

    def exited(self, held: HeldStep) -> None:
        """Report an exit, even if it was reported before."""
        assert held.exit is not None
        self._exits[held.step] = held
        self._unsent[held.step] = held
        # Whoever waits for a free slot, or for a repeated answer, waits for this exit.
        self._urgent = self._urgent or held.exit.next is None

    def acknowledged(self, step: StepId) -> None:
        self._exits.pop(step, None)
        self._unsent.pop(step, None)
        if not self._exits:
            self._repeat_ms = 0

    def done(self, command: str, steps: list[StepId], failed: list[tuple[StepId, str]]) -> None:
        self.frame(Done(command=command, steps=tuple(steps), failed=tuple(failed)))

    def next_ms(self, now: Instant) -> int | None:
        """When the next report is due, by the boot clock."""
        if not self.attached:
            return None
        if self._unsent or self._started:
            return now.boot_ms if self._urgent or not self._due_ms else self._due_ms
        return self._repeat_ms if self._exits and self._repeat_ms else None

    def take(self, now: Instant) -> list[AgentKeeperFrame]:
        """Return the frames to send now; at most `MAX_BATCH` exits per turn."""
        if not self.attached:
            return []
        if self._repeat_ms and now.boot_ms >= self._repeat_ms:
            self._tell_all_again()
        frames, self._frames = self._frames, []
        if self._refusals:
            frames += (Refused(steps=tuple(part)) for part in _batches(self._refusals))
            self._refusals = []
            self._urgent = True
        if not self._unsent and not self._started:
            self._urgent = False
            return frames
        if not self._urgent and (not self._due_ms or now.boot_ms < self._due_ms):
            self._due_ms = self._due_ms or now.boot_ms + COMPANY_MS
            return frames
        # An exit contains when its step began: no second report is needed.
        started = [report for step, report in self._started.items() if step not in self._unsent]
        self._started = {}
        frames += (Started(steps=tuple(part)) for part in _batches(started))
        exits = self._next_exits()
        if exits:
            frames.append(Exits(exits=exits))
            self._repeat_ms = self._repeat_ms or now.boot_ms + REPEAT_MS
        self._urgent = bool(self._unsent)
        self._due_ms = 0
        return frames

    def _next_exits(self) -> tuple[StepExit, ...]:
        told: list[StepExit] = []
        for step in list(islice(self._unsent, MAX_BATCH)):
            exit_ = self._unsent.pop(step).exit
            assert exit_ is not None
            told.append(exit_)
        return tuple(told)

    def _tell_all_again(self) -> None:
        self._unsent = dict(self._exits)
        self._urgent = bool(self._unsent)
        self._repeat_ms = 0


T = TypeVar("T")


def _batches(items: list[T]) -> list[list[T]]:
    return [items[at : at + MAX_BATCH] for at in range(0, len(items), MAX_BATCH)]
