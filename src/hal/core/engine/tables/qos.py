"""Queues and qualities of service as standings: who may take from whom, how, and after what grace.

Pure. A row is a standing: a queue and a QOS that take part in preemption. Row 0 is for all other work: it takes from
nobody and nobody takes from it. Taking is transitive among queues, and among QOS: whoever may take from B may take from
all that B may take from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hal.core.engine.errors import EngineError
from hal.core.kernels.structures import layout as L
from hal.core.model.grace import DEFAULT_GRACE_MS
from hal.core.model.policy import Policy, PreemptMode, Qos, Queue, preempting_entries

MODES: Final = {
    PreemptMode.OFF: L.MODE_OFF,
    PreemptMode.REQUEUE: L.MODE_REQUEUE,
    PreemptMode.SUSPEND: L.MODE_SUSPEND,
    PreemptMode.CHECKPOINT: L.MODE_CHECKPOINT,
    PreemptMode.CANCEL: L.MODE_CANCEL,
}
LAST_GRACE_MS: Final = DEFAULT_GRACE_MS
"""After the grace in which work saves itself, between SIGTERM and SIGKILL."""
SHRINK: Final = "shrink"
"""The mode by which extensions of jobs leave; no policy names it."""
MODE_NAMES: Final = {number: mode.value for mode, number in MODES.items()} | {L.MODE_SHRINK: SHRINK}
EXTENSION: Final = "\0extension"
"""How the standings of extensions of jobs begin, once there are any: one for each grace; no QOS has such a name."""


Standing = tuple[str, str]
"""Queue and QOS, each empty where it takes no part in preemption."""


def closure(entries: Mapping[str, Queue] | Mapping[str, Qos]) -> dict[str, set[str]]:
    """For each entry all that it may take from, directly or through others. Names that do not exist are left out."""
    takes: dict[str, set[str]] = {}
    for name in entries:
        found: set[str] = set()
        ahead = list(entries[name].preempts)
        while ahead:
            other = ahead.pop()
            if other in entries and other not in found:
                found.add(other)
                ahead.extend(entries[other].preempts)
        takes[name] = found
    return takes


def check_qos(policy: Policy | None) -> None:
    """Raise EngineError when a QOS or queue could take from itself: two jobs would take turns for ever."""
    if policy is None:
        return
    for kind, entries in (("QOS", closure(policy.qos)), ("queue", closure(policy.queues))):
        for name, others in entries.items():
            if name in others:
                raise EngineError(
                    f"{kind} '{name}' preempts itself, directly or through others: its jobs would preempt each other "
                    "for ever; remove one of the names from `preempts`"
                )


def _extension(grace_ms: int) -> Standing:
    return "", f"{EXTENSION} {grace_ms}"


class Standings:
    """Who may take from whom, by standing; never changed once it is made.

    By its queue from all that the queue may take from. By its QOS too, from work of queues that rank no higher: a
    queue's rank is the longest chain of queues that it may take from. So whoever takes ranks above whom he takes from
    by queue, or no lower and above him by QOS: nobody takes from himself through others.
    """

    __slots__ = ("_parts", "_policy", "_qos", "_queues", "_ranks", "all")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._queues, self._qos = closure(policy.queues), closure(policy.qos)
        self._ranks: dict[str, int] = {"": 0}
        for name in sorted(self._queues, key=lambda name: len(self._queues[name])):
            self._ranks[name] = 1 + max((self._ranks[other] for other in self._queues[name]), default=-1)
        self._parts = preempting_entries(policy.queues), preempting_entries(policy.qos)
        queues, qualities = (["", *sorted(part)] for part in self._parts)
        self.all: list[Standing] = [(queue, quality) for queue in queues for quality in qualities]

    def standing(self, queue: str, qos: str) -> Standing:
        """That of a job."""
        return queue if queue in self._parts[0] else "", qos if qos in self._parts[1] else ""

    def extension(self, queue: str, qos: str) -> Standing:
        """That of extensions of a job: they leave for everybody, within the grace that the job itself would have."""
        return _extension(int(self._says(self.standing(queue, qos)).grace))

    def extensions(self) -> dict[Standing, int]:
        """All standings of extensions, and their grace in ms."""
        graces = {int(self._says(standing).grace) for standing in self.all}
        return {_extension(grace_ms): grace_ms for grace_ms in sorted(graces)}

    def takes(self, one: Standing, other: Standing) -> bool:
        """Whether work of the first may have work of the other taken back, if that says how."""
        by_qos = other[1] in self._qos.get(one[1], ()) and self._ranks[one[0]] >= self._ranks[other[0]]
        return by_qos or other[0] in self._queues.get(one[0], ())

    def how(self, standing: Standing) -> tuple[PreemptMode, int]:
        """How work is taken back, by its QOS or else by its queue, and after what grace in ms."""
        says = self._says(standing)
        last = LAST_GRACE_MS if says.preempt_mode is PreemptMode.CHECKPOINT else 0
        return says.preempt_mode, int(says.grace) + last

    def _says(self, standing: Standing) -> Qos | Queue:
        """Whose mode and grace count."""
        queue = self._policy.queues.get(standing[0], Queue())
        qos = self._policy.qos.get(standing[1])
        off = PreemptMode.OFF
        return queue if qos is None or (qos.preempt_mode is off and queue.preempt_mode is not off) else qos
