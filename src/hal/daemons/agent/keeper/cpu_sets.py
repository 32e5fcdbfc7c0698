"""Which CPUs of a node each running step has for itself, and which are shared by steps that ask for parts of a CPU.

Pure. A step of whole CPUs gets that many, nobody else's: of one NUMA node if one has so many free (the fullest that
does, so that large steps find an empty one), whole cores before parts of cores; a step that is smaller than a core gets
a core of its own while there is one, as the kernel would choose. Steps of other amounts share a pool, as many CPUs as
they need together. Whole amounts and a pool rounded up always fit where the amounts do, so that no CPU serves two
owners unless the node is oversubscribed; a step for which too few are free is not bound. Sets are bit masks: bit N is
CPU N. O(CPUs taken) for a step, O(steps in the pool) when the pool changes.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import StepId
from hal.core.model.cpu_lists import CpuTopology, cpus_of

MILLI: Final = 1_000
"""Millicores of one CPU."""


class Share(Struct):
    """What one step has."""

    milli: int
    pooled: bool
    mask: int
    """Where its processes belong now; 0: they are not bound."""
    given: int
    """Where its first process was begun, as its helper was told."""
    lent: bool = False
    """It is suspended: others may have its CPUs."""


class CpuSets:
    """The CPUs of one node."""

    def __init__(self, topology: CpuTopology) -> None:
        self.moved: dict[StepId, None] = {}
        """Running steps whose CPUs have changed; whoever moves their processes removes them."""
        self._nodes = topology.nodes
        self._core_of = {cpu: core for core in topology.cores for cpu in cpus_of(core)}
        self._all = sum(topology.cores)
        self._free = self._all
        """CPUs without a holder."""
        self._idle = self._all
        """Of those, the ones on cores that are free as a whole."""
        self._holders = dict.fromkeys(self._core_of, 0)
        """By CPU: a step, or the pool. More than one only after a restart with journals that contradict each other."""
        self._lent = 0
        """CPUs of suspended steps: free, and given out last."""
        self._pool = 0
        self._pool_milli = 0
        self._pooled: dict[StepId, Share] = {}
        self._shares: dict[StepId, Share] = {}

    def acquire(self, step: StepId, milli: int, near: int = 0) -> int:
        """Give CPUs to a step that is about to begin; returns its mask, 0 if it is not bound.

        Args:
            near: mask of those that are near its GPUs, and go before others; 0: it has none.
        """
        if milli <= 0 or step in self._shares:
            return self.mask_of(step)
        if milli % MILLI:
            self._share_pool(step, Share(milli, pooled=True, mask=0, given=0))
        else:
            count = milli // MILLI
            mask = self._take(count, near)
            if not mask and self._shrink_pool():
                mask = self._take(count, near)
            if not mask:
                return 0
            self._hold(mask)
            self._shares[step] = Share(milli, pooled=False, mask=mask, given=mask)
        share = self._shares[step]
        share.given = share.mask
        self.moved.pop(step, None)
        return share.mask

    def adopt(self, step: StepId, mask: int, milli: int) -> None:
        """Take over what a running step has, as its helper has journalled; bits of other machines' CPUs are ignored."""
        mask &= self._all
        if not mask or step in self._shares:
            return
        share = Share(milli, pooled=bool(milli % MILLI), mask=mask, given=mask)
        if share.pooled:
            self._grow_pool(mask & ~self._pool)
            self._share_pool(step, share)
        else:
            self._hold(mask)
            self._shares[step] = share

    def pass_on(self, step: StepId, heir: StepId) -> None:
        """The heir begins where that step has ended."""
        share = self._shares.pop(step, None)
        self.moved.pop(step, None)
        if share is None:
            return
        self._shares[heir] = share
        if share.pooled:
            del self._pooled[step]
            self._pooled[heir] = share
        if share.mask != share.given:
            self.moved[heir] = None

    def release(self, step: StepId) -> None:
        """No process of the step is left."""
        share = self._shares.pop(step, None)
        self.moved.pop(step, None)
        if share is None:
            return
        if share.pooled:
            del self._pooled[step]
            self._pool_milli -= share.milli
            if not self._pooled:
                self._drop(self._pool)
                self._pool = 0
        elif share.lent:
            self._lent &= ~share.mask
        else:
            self._drop(share.mask)

    def resize(self, step: StepId, milli: int) -> None:
        """A running step asks for another amount from now on."""
        former = self._shares.get(step)
        if former is None or former.milli == milli or former.lent:
            return
        self.release(step)
        self.acquire(step, milli)
        share = self._shares.get(step)
        if share is None:  # too few are free: it may use all, as if it had never been bound
            share = self._shares[step] = Share(milli, pooled=False, mask=0, given=0)
        share.given = former.given
        if share.mask != former.mask:
            self.moved[step] = None

    def lend(self, step: StepId) -> None:
        """The step is suspended: its CPUs are free, for whoever finds no others."""
        share = self._shares.get(step)
        if share is not None and not share.pooled and not share.lent:
            share.lent = True
            self._drop(share.mask)
            self._lent |= share.mask

    def reclaim(self, step: StepId) -> None:
        """The step is resumed: on its own CPUs, or on others if somebody has them."""
        share = self._shares.get(step)
        if share is None or not share.lent:
            return
        share.lent = False
        self._lent &= ~share.mask
        if share.mask & ~self._free and (other := self._take(share.mask.bit_count())):
            share.mask = other
            self.moved[step] = None
        self._hold(share.mask)

    def mask_of(self, step: StepId) -> int:
        """Where its processes belong; 0: it is not bound."""
        share = self._shares.get(step)
        return 0 if share is None else share.mask

    def given_to(self, step: StepId) -> int:
        """Where its first process was begun; 0: it was not bound."""
        share = self._shares.get(step)
        return 0 if share is None else share.given

    @property
    def all(self) -> int:
        """All that may be given out."""
        return self._all

    # ── the pool ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _share_pool(self, step: StepId, share: Share) -> None:
        self._pool_milli += share.milli
        self._shares[step] = self._pooled[step] = share
        missing = -(-self._pool_milli // MILLI) - self._pool.bit_count()
        while missing > 0:  # as many as there are: the rest of the node's amount is taken, or it is oversubscribed
            if more := self._take(missing):
                self._grow_pool(more)
                break
            missing -= 1
        share.mask = self._pool

    def _grow_pool(self, more: int) -> None:
        self._hold(more)
        self._move_pool(self._pool | more)

    def _shrink_pool(self) -> bool:
        """Free what its steps do not need any more, the last CPUs first; returns whether there was any."""
        spare = self._pool.bit_count() - -(-self._pool_milli // MILLI)
        if spare <= 0:
            return False
        freed = 0
        for _ in range(spare):
            freed |= 1 << (self._pool & ~freed).bit_length() - 1
        self._drop(freed)
        self._move_pool(self._pool & ~freed)
        return True

    def _move_pool(self, mask: int) -> None:
        self._pool = mask
        for step, share in self._pooled.items():
            if share.mask != mask:
                share.mask = mask
                self.moved[step] = None

    # ── free CPUs ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, count: int, near: int = 0) -> int:
        """Choose free CPUs, of `near` if so many of these are; 0: there are fewer."""
        free = self._free & ~self._lent
        if free.bit_count() < count:
            free = self._free
        if free.bit_count() < count:
            return 0
        if near and (free & near).bit_count() >= count:
            return self._choose(free & near, count)
        if len(self._nodes) == 1:
            return self._choose(free, count)
        rooms = [(room.bit_count(), room) for node in self._nodes if (room := free & node)]
        fitting = min((one for one in rooms if one[0] >= count), default=None)
        if fitting is not None:
            return self._choose(fitting[1], count)
        chosen = 0
        for size, room in sorted(rooms, key=lambda one: (-one[0], one[1])):
            part = min(size, count - chosen.bit_count())
            chosen |= self._choose(room, part)
            if chosen.bit_count() == count:
                break
        return chosen

    def _choose(self, room: int, count: int) -> int:
        """Choose that many of the CPUs of `room`, which has them."""
        chosen = 0
        while count:
            idle = room & self._idle & ~chosen
            rest = idle or room & ~chosen
            cpu = rest & -rest
            core = self._core_of[cpu.bit_length() - 1] & rest if idle else cpu
            size = core.bit_count()
            if size > count:
                core, size = cpu, 1
            chosen |= core
            count -= size
        return chosen

    def _hold(self, mask: int) -> None:
        for cpu in cpus_of(mask):
            self._holders[cpu] += 1
            self._free &= ~(1 << cpu)
            self._idle &= ~self._core_of[cpu]

    def _drop(self, mask: int) -> None:
        for cpu in cpus_of(mask):
            self._holders[cpu] -= 1
            if not self._holders[cpu]:
                self._free |= 1 << cpu
                core = self._core_of[cpu]
                if self._free & core == core:
                    self._idle |= core
