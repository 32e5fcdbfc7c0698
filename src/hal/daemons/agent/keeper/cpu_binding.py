"""Bind steps to CPUs of their own, so that `nproc` in a step says what its job asked for.

A helper binds itself before it spawns a step (2 µs): the step's first process is born bound, and its heirs are bound to
the same CPUs without asking. That is advice: a process may use other CPUs if it asks for them. Where this keeper has
the cpuset controller, the CPUs of a step older than a second are also set in its cgroup, and no process of it gets
beyond them; short steps never cost that. After a restart the helpers' journals say who has what.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hal.core.model import StepId
from hal.core.model.cpu_lists import cpus_of, mask_of
from hal.daemons.agent.keeper.cpu_sets import CpuSets
from hal.daemons.agent.keeper.limits import Cgroups
from hal.daemons.agent.keeper.processes import ProcessInfo
from hal.daemons.agent.keeper.slot import Slot

MAX_KNOWN: Final = 1_024
"""Sets whose CPUs are listed once."""
PASSES: Final = 5
"""Passes over the threads of a step that begins others while it is being moved."""

Members = Callable[[Sequence[StepId]], Mapping[StepId, list[ProcessInfo]]]
"""Finds the processes of steps."""


class CpuBinding:
    """The CPUs of the running steps of one node."""

    def __init__(self, sets: CpuSets | None, cgroups: Cgroups, slots: Mapping[StepId, Slot], members: Members) -> None:
        """Args:
        sets: what may be given out; None: steps are not bound.
        slots: of the running steps.
        """
        self._sets = sets
        self._cgroups = cgroups
        self._slots = slots
        self._members = members
        self._lists: dict[int, tuple[int, ...]] = {0: ()}

    def acquire(self, step: StepId, cpu_milli: int, near: int = 0) -> tuple[int, ...]:
        """Return the CPUs on which a step is to begin; (): on all.

        Args:
            near: mask of those that are near its GPUs; 0: it has none.
        """
        return () if self._sets is None else self._list(self._sets.acquire(step, cpu_milli, near))

    def given_to(self, step: StepId) -> tuple[int, ...]:
        """Return the CPUs on which a running step was begun; (): on all."""
        return () if self._sets is None else self._list(self._sets.given_to(step))

    def cpus_of(self, step: StepId) -> tuple[int, ...]:
        """Return the CPUs on which a running step is; (): on all."""
        return () if self._sets is None else self._list(self._sets.mask_of(step))

    def adopt(self, step: StepId, cpus: tuple[int, ...], cpu_milli: int) -> None:
        """Take over a step that an earlier helper began on these CPUs."""
        if self._sets is not None and cpus:
            self._sets.adopt(step, mask_of(cpus), cpu_milli or len(cpus) * 1_000)

    def pass_on(self, step: StepId, heir: StepId | None) -> None:
        """That step has ended, and its heir has its slot."""
        if self._sets is not None and heir is not None:
            self._sets.pass_on(step, heir)

    def release(self, step: StepId) -> None:
        """No process of it is left."""
        if self._sets is not None:
            self._sets.release(step)

    def resize(self, step: StepId, cpu_milli: int) -> None:
        """A running step gets another amount."""
        if self._sets is not None and cpu_milli:
            self._sets.resize(step, cpu_milli)

    def suspend(self, steps: Iterable[StepId]) -> None:
        """Their processes are stopped."""
        if self._sets is not None:
            for step in steps:
                self._sets.lend(step)

    def resume(self, steps: Iterable[StepId]) -> None:
        """Their processes are about to go on."""
        if self._sets is not None:
            for step in steps:
                self._sets.reclaim(step)

    def confine(self, steps: Iterable[StepId]) -> None:
        """Keep the processes of these steps from other CPUs, where a cgroup can and does not do it yet."""
        if self._sets is None or not self._cgroups.can_confine:
            return
        for step in steps:
            slot = self._slots.get(step)
            if slot is not None and not slot.confined and (cpus := self.cpus_of(step)):
                self._cgroups.confine(slot, cpus)

    def move(self, begun: Callable[[StepId], bool]) -> None:
        """Move the processes of steps whose CPUs have changed, once they have begun."""
        if self._sets is None or not self._sets.moved:
            return
        steps = [step for step in self._sets.moved if begun(step)]
        free: dict[StepId, set[int]] = {}
        for step in steps:
            del self._sets.moved[step]
            slot = self._slots.get(step)
            cpus = self.cpus_of(step) or cpus_of(self._sets.all)
            if slot is None or not slot.confined or not self._cgroups.confine(slot, cpus):
                free[step] = set(cpus)
        for _ in range(PASSES if free else 0):
            found = self._members(list(free))
            moved = [_move_threads(found[step], wanted) for step, wanted in free.items()]
            if not any(moved):
                break

    def _list(self, mask: int) -> tuple[int, ...]:
        known = self._lists.get(mask)
        if known is None:
            if len(self._lists) >= MAX_KNOWN:
                self._lists = {0: ()}
            known = self._lists[mask] = cpus_of(mask)
        return known


def _move_threads(found: Iterable[ProcessInfo], cpus: set[int]) -> bool:
    """Move the threads of processes; returns whether any was elsewhere."""
    moved = False
    for info in found:
        with contextlib.suppress(OSError):  # it has ended
            for entry in os.listdir(f"/proc/{info.pid}/task"):
                with contextlib.suppress(OSError):
                    if os.sched_getaffinity(int(entry)) != cpus:
                        os.sched_setaffinity(int(entry), cpus)
                        moved = True
    return moved
