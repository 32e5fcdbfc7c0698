"""Steps on credit: handed to the node ahead of time, each waits here for the place of a step of its job that ends.

Pure. A place is what the controller's engine gave a step of that job on this node: it goes on inside the node, so that
short tasks follow each other without asking. The first of those that wait are handed on to the spawner, where steps of
their job run: there a place goes on without asking the keeper either. Nothing waits longer than its credit lasts.
Whoever got a place is named in the exit of the step that had it, so the controller knows who has which whatever dies
meanwhile (docs/decisions/0014, 0024).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
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
        self._ahead: dict[StepId, HeldStep] = {}
        """Handed on to the spawner; none of them is known to have begun."""
        self._barred: dict[int, set[StepId]] = {}
        """Steps whose place is taken away for other work, by job: while one runs nothing of the job is handed on."""

    def wait(self, held: HeldStep, now: Instant) -> None:
        """It waits from now on."""
        held.on_credit, held.credit_until_boot_ms = True, now.boot_ms + held.start.credit_ms
        self._lanes.setdefault(held.step.job, {})[held.step] = held
        heapq.heappush(self._due, (held.credit_until_boot_ms, held.step))

    def pass_on(self, ended: HeldStep) -> StepId | None:
        """A step that had a place has ended: who gets it, or has it; nobody when it was taken away for other work."""
        if ended.heir is not None:
            return ended.heir
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
        self._ahead.pop(held.step, None)
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
        """Steps whose credit has ended without a place."""
        found = []
        while self._due and self._due[0][0] <= now.boot_ms:
            _, step = heapq.heappop(self._due)
            held = self._lanes.get(step.job, {}).get(step) or self._ahead.get(step)
            if held is not None:
                found.append(held)
        return found

    # ── what is handed on ─────────────────────────────────────────────────────────────────────────────────────────

    def jobs(self) -> list[int]:
        """Jobs of which steps wait here that may be handed on."""
        return [job for job in self._lanes if job not in self._barred] if self._lanes else []

    def hand_on(self, job: int, room: int) -> list[HeldStep]:
        """The first that wait, for the spawner; those that are to end with their keeper never go ahead of it."""
        lane = self._lanes.get(job, {})
        handed = [held for held in islice(lane.values(), room) if not held.template.guard]
        for held in handed:
            del lane[held.step]
            self._ahead[held.step] = held
        if not lane:
            self._lanes.pop(job, None)
        return handed

    def is_ahead(self, held: HeldStep) -> bool:
        """It was handed on, and is not known to have begun."""
        return held.step in self._ahead

    def take_back(self, returned: Sequence[HeldStep]) -> None:
        """These were handed on, have not begun, and wait here again: before all others of their job."""
        for held in reversed(returned):
            self._ahead.pop(held.step, None)
            held.phase = Phase.QUEUED
            self._lanes[held.step.job] = {held.step: held, **self._lanes.get(held.step.job, {})}

    def bar(self, steps: Iterable[StepId]) -> list[StepId]:
        """The places of these are taken away for other work: what was handed on and could inherit one."""
        jobs = set()
        for step in steps:
            self._barred.setdefault(step.job, set()).add(step)
            jobs.add(step.job)
        return [step for step in self._ahead if step.job in jobs]

    def allow(self, step: StepId) -> None:
        """It has ended: what waits of its job may be handed on again."""
        barred = self._barred.get(step.job)
        if barred is not None:
            barred.discard(step)
            if not barred:
                del self._barred[step.job]

    def next_ms(self) -> int | None:
        """When a credit ends next, by the boot clock."""
        while self._due and not self._waits(self._due[0][1]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _waits(self, step: StepId) -> bool:
        return step in self._ahead or step in self._lanes.get(step.job, ())
