"""What the keeper has to tell its agent: gathered for a moment, taken as few frames; exits until acknowledged.

Nothing is gathered while no agent is attached, except exits, which wait. Exits are told in the order in which steps
ended: one may name a step whose own exit follows (`next`). What nobody waits for, starts and exits whose place has gone
on to another step, waits `COMPANY_MS` for company; everything else takes along what waits.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final, TypeVar

from hal.core.model import StepId
from hal.daemons.agent.keeper.ledger import MAX_BATCH
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.step import HeldStep
from hal.wire.frames import AnyFrame, Done, Exits, Refusal, Refused, Started, StepExit, StepStarted

REPEAT_MS: Final = 5_000
"""An exit that is not acknowledged is sent again after this."""
COMPANY_MS: Final = 40
"""How long what nobody waits for may wait."""


class Reports:
    """Frames for the agent, in an order that makes sense to it: answers, refusals, starts, exits."""

    def __init__(self) -> None:
        self.attached = False
        self._frames: list[AnyFrame] = []
        self._refusals: list[Refusal] = []
        self._started: dict[StepId, StepStarted] = {}
        self._exits: OrderedDict[StepId, HeldStep] = OrderedDict()
        """Unacknowledged, in the order in which the steps ended."""
        self._unsent: dict[StepId, HeldStep] = {}
        """Those of them that are to be told in the next frames, in that order."""
        self._urgent = False
        self._due_ms = 0
        """When what waits is told, by the boot clock; 0: nothing waits."""
        self._repeat_ms = 0
        """When the unacknowledged exits are told again, by the boot clock; 0: none was told."""

    def attach(self) -> None:
        """A new agent listens: it is told every exit again."""
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
        """How many exits wait."""
        return len(self._exits)

    def frame(self, frame: AnyFrame) -> None:
        if self.attached:
            self._frames.append(frame)

    def refuse(self, step: StepId, code: str, message: str) -> None:
        if self.attached:
            self._refusals.append(Refusal(step, code, message))

    def started(self, held: HeldStep, *, asked: bool = False) -> None:
        """Tell that it runs; at once when that was asked."""
        self._urgent = self._urgent or asked
        if self.attached:
            self._started[held.step] = StepStarted(held.step, held.pid, held.started_ms)

    def exited(self, held: HeldStep) -> None:
        """Tell this exit, again if it was told before."""
        assert held.exit is not None
        self._exits[held.step] = held
        self._unsent[held.step] = held
        # Whoever waits for a free place, or for a repeated answer, waits for this one.
        self._urgent = self._urgent or held.exit.next is None

    def acknowledged(self, step: StepId) -> None:
        self._exits.pop(step, None)
        self._unsent.pop(step, None)
        if not self._exits:
            self._repeat_ms = 0

    def done(self, command: str, steps: list[StepId], failed: list[tuple[StepId, str]]) -> None:
        self.frame(Done(command=command, steps=tuple(steps), failed=tuple(failed)))

    def next_ms(self, now: Instant) -> int | None:
        """When something is due to be told, by the boot clock."""
        if not self.attached:
            return None
        if self._unsent or self._started:
            return now.boot_ms if self._urgent or not self._due_ms else self._due_ms
        return self._repeat_ms if self._exits and self._repeat_ms else None

    def take(self, now: Instant) -> list[AnyFrame]:
        """The frames to send now; at most `MAX_BATCH` exits a turn."""
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
        # An exit says when its step began: no second report of that.
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
