"""One try at running one task, as a value.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.kernels.structures.layout import RUN_GOING, RUN_ON, RUN_SUSPENDED
from hal.core.model import AttemptState, StepId
from hal.core.model.devices import HeldGpus
from hal.store.operations import Preemption, StepEnd

CANCELLED = "cancelled"
REQUEUED = "requeued"
SIBLING = "sibling"
BOOKING_OVER = "booking-over"
PREEMPTED = "preempted"
EVICTED = "evicted"
"""Preempted for other work, or evicted by a person: its task waits again, or (`evicted`) is cancelled."""
PREEMPTING = frozenset({PREEMPTED, EVICTED})


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One try at running one task, not ended."""

    task: int
    attempt: int
    state: AttemptState
    nodes: tuple[str, ...]
    """In rank order."""
    token: str
    allocated_ms: int
    started_ms: int | None = None
    retries: int = 0
    """Retries that the task had used before this try."""
    credit: bool = False
    """It waits at its node for the slot of another task of its job (see `credit`); the engine does not know of it."""
    stopping: str = ""
    """Why it is being ended (`cancelled`, `requeued`, `sibling`, `preempted`, `evicted`,
    `booking-over`), or empty."""
    steps: tuple[StepEnd, ...] = ()
    """The steps that have ended so far."""
    gpus: tuple[HeldGpus, ...] = ()
    """What it holds of the GPUs of each of its nodes, in rank order; (): it asked for none, or none is bound."""
    port: int = 0
    """At which its ranks meet, on its first node; nobody else's on any of its nodes. 0: it has none."""
    preemption: Preemption | None = None
    """When and for whom it was last preempted."""

    @property
    def suspended(self) -> bool:
        """Whether it was suspended and not resumed since (also before its processes have begun)."""
        return self.preemption is not None and self.preemption.since_ms > 0 and not self.stopping

    @property
    def evicted_by_person(self) -> bool:
        """Whether it is being ended because a person, or a program in a person's name, said so."""
        return self.stopping in PREEMPTING and self.preemption is not None and self.preemption.by != ""

    @property
    def engine_state(self) -> tuple[int, int, int]:
        """As an adopted allocation: state, due or since, how often it was suspended. The engine does not know of what
        people stop."""
        preemption = self.preemption or Preemption()
        if self.stopping in PREEMPTING and not self.evicted_by_person:
            return RUN_GOING, preemption.due_ms, preemption.times
        if self.suspended:
            return RUN_SUSPENDED, preemption.since_ms, preemption.times
        return RUN_ON, 0, preemption.times

    def step(self, job: int, rank: int) -> StepId:
        """The id of its processes on its `rank`-th node."""
        return StepId(job, self.task, self.attempt, rank)

    def steps_left(self, job: int) -> list[tuple[str, StepId]]:
        """Node and id of each step that has not ended."""
        done = {end.rank for end in self.steps}
        return [(node, self.step(job, rank)) for rank, node in enumerate(self.nodes) if rank not in done]
