"""Steps on credit: handed to the node ahead of time, each waits here for the place of a step of its job that ends.

Pure. A place is what the controller's engine gave a step of that job on this node: it goes on inside the node, so that
short tasks follow each other without asking. Nothing waits longer than its credit lasts. Whoever got a place is named
in the exit of the step that had it, so the controller knows who has which whatever dies meanwhile
(docs/decisions/0014).
"""

from __future__ import annotations

import heapq
from typing import Final

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.step import HeldStep, Phase
from hal.wire.frames import StopReason

CREDIT_OVER: Final = "credit-over"
RECALLED: Final = "recalled"
"""Codes of the refusals with which a step on credit is given back; the same attempt is never begun after one."""


class Credit:
    """The steps on credit that wait, by job; bounded by what the ledger holds."""

    def __init__(self) -> None:
        self._lanes: dict[int, dict[StepId, HeldStep]] = {}
        """In the order in which they came."""
        self._due: list[tuple[int, StepId]] = []
        """When which credit ends, by the boot clock; entries of steps that wait no more are skipped."""
        self._placed: list[StepId] = []

    def wait(self, held: HeldStep, now: Instant) -> None:
        """It waits from now on."""
        held.on_credit = True
        self._lanes.setdefault(held.step.job, {})[held.step] = held
        heapq.heappush(self._due, (now.boot_ms + held.start.credit_ms, held.step))

    def pass_on(self, ended: HeldStep) -> StepId | None:
        """A step that had a place has ended: who gets it; nobody when it was taken away for other work."""
        lane = self._lanes.get(ended.step.job)
        if lane is None or ended.stop is StopReason.PREEMPTED:
            return None
        heir = next(iter(lane.values()))
        self.forget(heir)
        self._placed.append(heir.step)
        return heir.step

    def forget(self, held: HeldStep) -> None:
        """It waits no more."""
        held.on_credit = False
        lane = self._lanes.get(held.step.job)
        if lane is not None:
            lane.pop(held.step, None)
            if not lane:
                del self._lanes[held.step.job]

    def take_placed(self) -> list[StepId]:
        """Steps that got a place since the last call, in order: they can begin."""
        placed, self._placed = self._placed, []
        return placed

    def over(self, now: Instant) -> list[HeldStep]:
        """Steps whose credit has ended without a place; they wait no more."""
        found = []
        while self._due and self._due[0][0] <= now.boot_ms:
            _, step = heapq.heappop(self._due)
            held = self._lanes.get(step.job, {}).get(step)
            if held is not None and held.phase is Phase.QUEUED:
                self.forget(held)
                found.append(held)
        return found

    def next_ms(self) -> int | None:
        """When a credit ends next, by the boot clock."""
        while self._due and self._due[0][1] not in self._lanes.get(self._due[0][1].job, {}):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None
