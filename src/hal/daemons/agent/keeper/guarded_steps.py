"""Guarded steps (`on_node_lost: requeue`): they end with the keeper's lease, and with the keeper that started them.

Pure, as `core`, of which it is a part. Such a step is `lost`, however its processes ended: the controller may already
have given its task to another node. The kernel ends the processes with the keeper (see `guard`); here the next keeper
ends what is left and reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hal.core.model import StepId
from hal.daemons.agent.keeper.endings import Endings
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ledger import MAX_BATCH, Ledger
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.step import HeldStep
from hal.daemons.agent.keeper.timers import Due
from hal.wire.frames.agent_keeper import StopReason

LAPSED = "its keeper had not reached the controller for as long as its lease runs"
ORPHANED = "the keeper that had started it died"


class GuardedSteps:
    """The guarded steps of one keeper that have not ended."""

    def __init__(self, ledger: Ledger, endings: Endings, lease: Lease) -> None:
        self._ledger = ledger
        self._endings = endings
        self._lease = lease
        self._steps: dict[StepId, None] = {}

    def taken(self, taken: Iterable[HeldStep]) -> None:
        """Add accepted steps."""
        fresh = [held.step for held in taken if held.template.guard]
        if fresh and len(self._steps) > 2 * len(self._ledger.steps) + MAX_BATCH:
            self._steps = {step: None for step in self._steps if step in self._ledger.steps}
        self._steps.update(dict.fromkeys(fresh))

    def recover(self, missing: Sequence[HeldStep], now: Instant) -> None:
        """Kill what an earlier keeper left of its guarded steps, and report it lost. Called once, first."""
        guarded = [held for held in missing if held.template.guard]
        for held in guarded:
            held.stop, held.stop_grace_ms, held.term_boot_ms = StopReason.FENCED, 0, 0
            held.kill_boot_ms = now.boot_ms
            held.notes = (*held.notes, ORPHANED)
            self._endings.timers.add(now.boot_ms, Due.KILL, held.step)
        if guarded:
            self._ledger.stopping([held.step for held in guarded], StopReason.FENCED, now.boot_ms)

    def look(self, now: Instant) -> None:
        """Kill them all if the lease has lapsed. Costs nothing while it is valid."""
        if not self._steps or not self._lease.lapsed(now):
            return
        steps = [step for step in self._steps if (held := self._ledger.steps.get(step)) is not None and held.active]
        self._steps.clear()
        self._endings.stop(steps, StopReason.FENCED, 0, now, note=LAPSED)

    def next_ms(self) -> int | None:
        """When to check next, by the boot clock."""
        return self._lease.until_boot_ms + 1 if self._steps else None
