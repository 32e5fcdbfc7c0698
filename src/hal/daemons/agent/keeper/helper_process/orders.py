"""The orders of the keeper that were not begun: those that can begin, and those sent ahead, which wait for a slot."""

from __future__ import annotations

import os

from hal.daemons.agent.keeper.helper_process.cgroup_moves import Cpus, Moves
from hal.daemons.agent.keeper.helper_process.own_files import Streams


class Given:
    """What a keeper has opened for a step whose user may not open it."""

    __slots__ = ("into", "numbers", "outputs", "script")

    def __init__(self, numbers: tuple[int, ...], script: str, outputs: list[int], into: list[int]) -> None:
        self.numbers = numbers
        """Of the files of stdout and stderr, for the journal."""
        self.script = script
        """Path of its script; "": it has none."""
        self.outputs = outputs
        """Open files of stdout and stderr; fewer than two if the disk is full, none if HAL keeps neither."""
        self.into = into
        """Open files of the moves into its cgroups."""

    def close(self) -> None:
        """Close what nobody has taken."""
        for fd in (*self.outputs, *self.into):
            os.close(fd)
        self.outputs, self.into = [], []


class Order:
    """One step to spawn, as the keeper sent it."""

    __slots__ = (
        "cpus",
        "env",
        "given",
        "may_stay",
        "moves",
        "prefix",
        "recipe",
        "slot",
        "step",
        "streams",
        "until_boot_ms",
    )

    def __init__(
        self,
        step: str,
        recipe: int,
        env: dict[str, str],
        prefix: str,
        slot: str,
        moves: Moves,
        may_stay: bool,
        cpus: Cpus = (),
        until_boot_ms: int = 0,
        streams: Streams | None = None,
        given: Given | None = None,
    ) -> None:
        self.step = step
        self.recipe = recipe
        """Number of what it has in common with other steps."""
        self.env = env
        self.prefix = prefix
        """Path of its files without their endings."""
        self.slot = slot
        self.moves = moves
        self.may_stay = may_stay
        """Whether the helper may stay in its cgroups for a moment."""
        self.cpus = cpus
        """On which it runs, ascending; (): on all, or, if it waits for a slot, on those of the step that had it."""
        self.until_boot_ms = until_boot_ms
        """When its credit ends, by the boot clock, if it was sent ahead."""
        self.streams = streams
        """Its own files; None: it has none."""
        self.given = given
        """What its keeper has opened for it; None: this process opens everything itself."""


class Orders:
    """What waits in this helper."""

    def __init__(self) -> None:
        self.ready: list[tuple[Order, str]] = []
        """Orders that can begin, each with the step whose slot it inherits, or ""."""
        self._ahead: dict[str, dict[str, Order]] = {}
        """Orders that wait for a slot, by job and step, in order of arrival."""

    def add(self, order: Order) -> None:
        """Add an order that has a slot."""
        self.ready.append((order, ""))

    def add_ahead(self, waiting: Order) -> None:
        """Add an order that waits for the slot of a step of its job."""
        self._ahead.setdefault(job_of(waiting.step), {})[waiting.step] = waiting

    def give_slot(self, step: str, after: str, cpus: Cpus) -> None:
        """Let a waiting order begin in the slot of a step that has ended, on its CPUs, as the keeper decided."""
        order = self.forget(step)
        if order is not None:
            order.cpus = cpus
            self.ready.append((order, after))

    def waiting(self, job: str) -> list[str]:
        """Return the steps of a job that wait for a slot, in order of arrival."""
        return list(self._ahead.get(job, ()))

    def forget(self, step: str) -> Order | None:
        """Remove the order of a step that no longer waits for a slot."""
        job = job_of(step)
        lane = self._ahead.get(job)
        order = lane.pop(step, None) if lane else None
        if not lane:
            self._ahead.pop(job, None)
        return order

    def clear(self) -> None:
        """Drop all."""
        for order in (
            *[one for one, _ in self.ready],
            *[one for lane in self._ahead.values() for one in lane.values()],
        ):
            if order.given is not None:
                order.given.close()
        self.ready.clear()
        self._ahead.clear()


def job_of(step: str) -> str:
    """Return the part of a step's id before the first dot."""
    return step.partition(".")[0]
