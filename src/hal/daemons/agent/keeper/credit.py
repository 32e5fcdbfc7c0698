"""Steps on credit: sent to the node ahead of time, each waits here for the slot of a step of its job that ends.

Pure. A slot is what the controller's engine allocated to a step of that job on this node: it is passed on inside the
node, so that short tasks follow each other without asking the controller. The first of the waiting steps are sent ahead
to the spawner, where steps of their job run: there a slot is passed on without asking the keeper either. Nothing waits
longer than its credit lasts. A step's exit names the step that got its slot, so the controller knows who has which slot
whatever dies meanwhile (docs/decisions/0014, 0024).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.step import HeldStep, Phase
from hal.wire.frames.agent_keeper import StopReason

CREDIT_OVER: Final = "credit-over"
RECALLED: Final = "recalled"
"""Codes of refusals of steps on credit; the same attempt is never begun after one."""


class Credit:
    """The waiting steps on credit, by job; bounded by what the ledger holds."""

    def __init__(self) -> None:
        self._lanes: dict[int, dict[StepId, HeldStep]] = {}
        """In order of arrival."""
        self._due: list[tuple[int, StepId]] = []
        """When each credit ends, by the boot clock; entries of steps that no longer wait are skipped."""
        self._placed: list[StepId] = []
        self._ahead: dict[StepId, HeldStep] = {}
        """Sent ahead to the spawner; none of them is known to have begun."""
        self._barred: dict[int, set[StepId]] = {}
        """Steps whose slot is being preempted, by job: while one runs, nothing of the job is sent ahead."""

    def wait(self, held: HeldStep, now: Instant) -> None:
        """Add a waiting step."""
        held.on_credit, held.credit_until_boot_ms = True, now.boot_ms + held.start.credit_ms
        self._lanes.setdefault(held.step.job, {})[held.step] = held
        heapq.heappush(self._due, (held.credit_until_boot_ms, held.step))

    def pass_slot_on(self, ended: HeldStep) -> StepId | None:
        """Pass on the slot of a step that has ended; returns who gets it, or has it; nobody if it was preempted."""
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
        """Remove a step that no longer waits."""
        held.on_credit = False
        self._ahead.pop(held.step, None)
        lane = self._lanes.get(held.step.job)
        if lane is not None:
            lane.pop(held.step, None)
            if not lane:
                del self._lanes[held.step.job]

    def take_steps_with_slot(self) -> list[StepId]:
        """Return the steps that got a slot since the last call, in order: they can begin."""
        placed, self._placed = self._placed, []
        return placed

    def over(self, now: Instant) -> list[HeldStep]:
        """Return the steps whose credit has ended without a slot."""
        found = []
        while self._due and self._due[0][0] <= now.boot_ms:
            _, step = heapq.heappop(self._due)
            held = self._lanes.get(step.job, {}).get(step) or self._ahead.get(step)
            if held is not None:
                found.append(held)
        return found

    # ── what is handed on ─────────────────────────────────────────────────────────────────────────────────────────

    def jobs(self) -> list[int]:
        """Return the jobs with waiting steps that may be sent ahead."""
        return [job for job in self._lanes if job not in self._barred] if self._lanes else []

    def take_for_spawner(self, job: int, room: int) -> list[HeldStep]:
        """Return the first waiting steps, for the spawner; those that must end with their keeper are never sent
        ahead of it."""
        lane = self._lanes.get(job, {})
        handed = [held for held in islice(lane.values(), room) if not held.template.guard]
        for held in handed:
            del lane[held.step]
            self._ahead[held.step] = held
        if not lane:
            self._lanes.pop(job, None)
        return handed

    def is_ahead(self, held: HeldStep) -> bool:
        """Whether it was sent ahead and is not known to have begun."""
        return held.step in self._ahead

    def return_unstarted(self, returned: Sequence[HeldStep]) -> None:
        """Return steps that were sent ahead and have not begun to the front of their job's queue."""
        for held in reversed(returned):
            self._ahead.pop(held.step, None)
            held.phase = Phase.QUEUED
            self._lanes[held.step.job] = {held.step: held, **self._lanes.get(held.step.job, {})}

    def bar(self, steps: Iterable[StepId]) -> list[StepId]:
        """The slots of these steps are being preempted; returns what was sent ahead and could inherit one."""
        jobs = set()
        for step in steps:
            self._barred.setdefault(step.job, set()).add(step)
            jobs.add(step.job)
        return [step for step in self._ahead if step.job in jobs]

    def allow(self, step: StepId) -> None:
        """A step with a preempted slot has ended: waiting steps of its job may be sent ahead again."""
        barred = self._barred.get(step.job)
        if barred is not None:
            barred.discard(step)
            if not barred:
                del self._barred[step.job]

    def next_ms(self) -> int | None:
        """When the next credit ends, by the boot clock."""
        while self._due and not self._waits(self._due[0][1]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _waits(self, step: StepId) -> bool:
        return step in self._ahead or step in self._lanes.get(step.job, ())
