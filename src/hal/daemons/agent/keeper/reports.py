"""What the keeper has to tell its agent: gathered during a turn, taken as few frames; exits until acknowledged.

Nothing is gathered while no agent is attached, except exits, which wait.
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


class Reports:
    """Frames for the agent, in an order that makes sense to it: answers, refusals, starts, exits."""

    def __init__(self) -> None:
        self.attached = False
        self._frames: list[AnyFrame] = []
        self._refusals: list[Refusal] = []
        self._started: list[StepStarted] = []
        self._exits: OrderedDict[StepId, HeldStep] = OrderedDict()
        """Unacknowledged; those sent longest ago, or never, first."""

    def attach(self) -> None:
        """A new agent listens: it is told every exit again."""
        self.detach()
        self.attached = True
        for held in self._exits.values():
            held.sent_boot_ms = -1

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

    def started(self, held: HeldStep) -> None:
        if self.attached:
            self._started.append(StepStarted(held.step, held.pid, held.started_ms))

    def exited(self, held: HeldStep) -> None:
        """Tell this exit in the next frames, again if it was told before."""
        held.sent_boot_ms = -1
        self._exits[held.step] = held
        self._exits.move_to_end(held.step, last=False)

    def acknowledged(self, step: StepId) -> None:
        self._exits.pop(step, None)

    def done(self, command: str, steps: list[StepId], failed: list[tuple[StepId, str]]) -> None:
        self.frame(Done(command=command, steps=tuple(steps), failed=tuple(failed)))

    def next_repeat(self, now: Instant) -> int | None:
        """When an exit is due to be sent again, by the boot clock."""
        if not self.attached or not self._exits:
            return None
        oldest = next(iter(self._exits.values()))
        return now.boot_ms if oldest.sent_boot_ms < 0 else oldest.sent_boot_ms + REPEAT_MS

    def take(self, now: Instant) -> list[AnyFrame]:
        """The frames to send now; at most `MAX_BATCH` exits a turn."""
        if not self.attached:
            return []
        frames = self._frames
        self._frames = []
        if self._refusals:
            frames += (Refused(steps=tuple(part)) for part in _batches(self._refusals))
            self._refusals = []
        if self._started:
            frames += (Started(steps=tuple(part)) for part in _batches(self._started))
            self._started = []
        due: list[StepExit] = []
        for held in islice(self._exits.values(), MAX_BATCH):
            if held.sent_boot_ms >= 0 and now.boot_ms - held.sent_boot_ms < REPEAT_MS:
                break
            held.sent_boot_ms = now.boot_ms
            assert held.exit is not None
            due.append(held.exit)
        if due:
            for exit_ in due:
                self._exits.move_to_end(exit_.step)
            frames.append(Exits(exits=tuple(due)))
        return frames


T = TypeVar("T")


def _batches(items: list[T]) -> list[list[T]]:
    return [items[at : at + MAX_BATCH] for at in range(0, len(items), MAX_BATCH)]
