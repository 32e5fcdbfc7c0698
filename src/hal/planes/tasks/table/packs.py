"""When jobs that wait for one domain give that wish up: instants that follow from their rows, in order.

Pure. What is listed here may hold no longer, for a job may have ended, changed or begun meanwhile: who reads it asks
the job. So nothing is taken out where a job changes, and what is staged costs one push. Not stored: a controller that
starts again feeds its engine everything that waits, and what is fed is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from hal.core.engine.events import INF
from hal.core.model.topology.packing import packing_of
from hal.planes.tasks.live.job import LiveJob


def give_up_ms(job: LiveJob) -> int:
    """When a job gives up its wish for one domain; the engine's infinity where it has none, or none yet."""
    if not job.spec.pack or job.spec.nodes == 1 or job.eligible_ms >= INF:
        return INF
    return job.eligible_ms + packing_of(job.spec.pack).wait_ms


class Packs:
    """Instants at which some job may give up."""

    def __init__(self, job_of: Callable[[int], LiveJob | None]) -> None:
        """`job_of`: the live job as it is staged, for reading."""
        self._job_of = job_of
        self._heap: list[tuple[int, int]] = []
        self._listed: set[tuple[int, int]] = set()
        self._dropped: list[tuple[int, int]] = []
        """What was taken out because of what is staged."""

    def note(self, at_ms: int, job: int) -> None:
        """List that a job gives up then; INF: never."""
        if at_ms < INF and (at_ms, job) not in self._listed:
            self._listed.add((at_ms, job))
            heappush(self._heap, (at_ms, job))

    def lists(self, at_ms: int, job: int) -> bool:
        """Whether it is listed that a job gives up then."""
        return (at_ms, job) in self._listed

    def next_ms(self) -> int:
        """When the first one does; the engine's infinity for never."""
        while self._heap:
            at_ms, number = self._heap[0]
            job = self._job_of(number)
            if job is not None and job.counts.pending and give_up_ms(job) == at_ms:
                return at_ms
            heappop(self._heap)
            self._listed.discard((at_ms, number))
            self._dropped.append((at_ms, number))
        return INF

    def first(self) -> int:
        """The job that does, after `next_ms` gave an instant."""
        return self._heap[0][1]

    def keep(self) -> None:
        """What was staged is committed."""
        self._dropped.clear()

    def undo(self) -> None:
        """Nothing of what was staged has happened: what was taken out may hold."""
        dropped, self._dropped = self._dropped, []
        for at_ms, job in dropped:
            self.note(at_ms, job)
