"""Whether active attempts of services are ready, as their nodes reported it.

Pure. Not stored: nodes report it again to each controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hal.core.model import AttemptState
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.reported import AttemptKey, Reported

MAX_NAMED: Final = 3
"""Tasks that are not ready and are named."""


class ReadyStanding(NamedTuple):
    """How one attempt stands."""

    ready: bool
    since_ms: int
    reason: str = ""
    """Why it is not ready."""
    ports: tuple[int, ...] = ()
    """Where it serves, in the order of its job's ports."""


class ReadyStandings(Reported[ReadyStanding]):
    """Those of all active attempts of services: of a gang, as its rank 0 stands."""

    def put(self, key: AttemptKey, standing: ReadyStanding) -> bool:
        """Record how an attempt stands; returns whether it stood differently before."""
        if self._of.get(key) == standing:
            return False
        self.set(key, standing)
        return True

    def of(self, key: AttemptKey) -> ReadyStanding | None:
        """As it was last reported; None: it is starting, or its node was not heard since this controller started."""
        return self._of.get(key)

    def committed(self, key: AttemptKey) -> ReadyStanding | None:
        """The same, as it was last committed."""
        return self._before[key] if key in self._before else self._of.get(key)


def can_serve(attempt: Attempt) -> bool:
    """Whether its processes run and are not being ended: what is reported of others is past."""
    return attempt.state is AttemptState.RUNNING and not attempt.stopping


def is_ready(standings: ReadyStandings, job: LiveJob, attempt: Attempt) -> bool:
    """Whether it serves, as was last committed."""
    known = standings.committed((job.id, attempt.task, attempt.attempt)) if can_serve(attempt) else None
    return known is not None and known.ready


def ready_attempts(standings: ReadyStandings, job: LiveJob) -> Iterator[Attempt]:
    """Those of its attempts that serve now. O(active attempts)."""
    return (one for one in job.active.values() if is_ready(standings, job, one))


def readiness_text(standings: ReadyStandings, job: LiveJob) -> str:
    """How many of its tasks are ready, and why others that run are not; '' for what is no service."""
    if job.spec.service is None or not job.active:
        return ""
    ready = 0
    others: list[str] = []
    more = 0
    for attempt in job.active.values():
        if is_ready(standings, job, attempt):
            ready += 1
        elif can_serve(attempt):
            if len(others) == MAX_NAMED:
                more += 1
                continue
            known = standings.committed((job.id, attempt.task, attempt.attempt))
            why = "is starting" if known is None else f"is not ready: {known.reason}"
            others.append(f"task {attempt.task} on {attempt.nodes[0]} {why}")
    parts = [f"{ready} of {job.spec.tasks} ready", *others] + ([f"and {more} more"] if more else [])
    return "; ".join(parts)
