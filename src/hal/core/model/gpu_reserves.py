"""What work without GPUs leaves of a node to its GPUs (`gpu_reserve`): by the site, and by queues that say otherwise.

Pure. A node has, for each amount that is left, the rest as an amount of its own. Work asks for the rest that its queue
may use, and for each larger one, so the rests are one within the other: work of a strict queue counts against what a
lax one may use, not the other way round. O(reserves) a node or class.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from hal.core.model.devices import AT, BESIDE_GPUS, WHOLE
from hal.core.model.gpu_slices import gpu_milli
from hal.core.model.policy import Queue
from hal.core.model.units import format_amount

Asked = tuple[tuple[str, str], ...]
"""What work without GPUs asks for: as much of the second as of the first."""
NOTHING: Final[Mapping[str, int]] = {}
NO_QUEUES: Final[Mapping[str, Queue]] = {}
NO_RESTS: Final[Mapping[str, str]] = {}


class GpuReserves:
    """What is left for each whole GPU of a node, in base units."""

    def __init__(
        self,
        site: Mapping[str, int] = NOTHING,
        queues: Mapping[str, Queue] = NO_QUEUES,
        former: Mapping[str, str] = NO_RESTS,
    ) -> None:
        """Args:
        site: holds for work of queues that say nothing.
        queues: by name.
        former: amounts of earlier policies, with their resources. What runs may hold them, and nothing else asks for
            them, so a node has of them as much as of these resources.
        """
        own = {name: queue.gpu_reserve for name, queue in queues.items() if queue.gpu_reserve is not None}
        self._site = {name: amount for name, amount in site.items() if amount}
        every = {
            (name, amount) for reserve in (self._site, *own.values()) for name, amount in reserve.items() if amount
        }
        self._rests = {
            (name, amount): _rest(name, amount, self._site.get(name, 0) == amount) for name, amount in sorted(every)
        }
        self.resource_of = {rest: name for (name, _), rest in self._rests.items()}
        """By the amounts that work asks for."""
        self._former = {rest: name for rest, name in former.items() if rest not in self.resource_of}
        self._asked_by_site = self._asked(self._site)
        self._asked_by = {name: self._asked(reserve) for name, reserve in own.items()}

    @property
    def rests_of(self) -> Collection[tuple[str, int]]:
        """What is left of each, by resource; a rest is an amount of each node."""
        return self._rests.keys()

    def __bool__(self) -> bool:
        return bool(self._rests or self._former)

    def rests(self, capacity: Mapping[str, int]) -> dict[str, int]:
        """What is left of a node to work without GPUs: all but its part for each GPU. Slices count as parts of one."""
        gpus = gpu_milli(capacity)
        return {rest: capacity.get(name, 0) for rest, name in self._former.items()} | {
            rest: max(capacity.get(name, 0) - amount * gpus // WHOLE, 0) for (name, amount), rest in self._rests.items()
        }

    def asked_in(self, queue: str) -> Asked:
        """What work of a queue asks for, if it asks for no GPUs."""
        return self._asked_by.get(queue, self._asked_by_site)

    def _asked(self, reserve: Mapping[str, int]) -> Asked:
        return tuple((name, rest) for (name, amount), rest in self._rests.items() if amount <= reserve.get(name, 0))


def _rest(name: str, amount: int, of_site: bool) -> str:
    return BESIDE_GPUS[name] if of_site else f"{BESIDE_GPUS[name]}{AT}{format_amount(name, amount)}"


def asked_beside(request: Mapping[str, int], asked: Asked) -> dict[str, int]:
    """What a request asks for of these: nothing if it asks for GPUs."""
    if gpu_milli(request):
        return {}
    return {rest: request[name] for name, rest in asked if request.get(name, 0)}
