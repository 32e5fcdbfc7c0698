"""A job that has not ended, in memory: columns for all its tasks, one value for each active attempt.

Pure. `LiveJob` is changed in place by the plane only, after the plane kept a copy for a rollback; everything inside it
is either immutable or a container that the copy does not share. Nothing in it leads back to it, so the
garbage collector need not look at it, nor at the rows that are made of it (`gc=False`).
"""

from __future__ import annotations

from copy import copy

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import INF
from hal.core.kernels.layout import RUN_GOING, RUN_ON, RUN_SUSPENDED
from hal.core.lifecycle import TaskCounts
from hal.core.model import AttemptState, Failed, JobSpec, StepId, TaskState
from hal.planes.tasks.dependencies import EndedJob, Phase, Waits, phase_of
from hal.planes.tasks.runs import Runs
from hal.planes.tasks.spans import ONE_TASK, Span, Spans, locate, summed
from hal.store.operations import StepEnd, Taking

CANCELLED = "cancelled"
REQUEUED = "requeued"
SIBLING = "sibling"
BOOKING_OVER = "booking-over"
PREEMPTED = "preempted"
EVICTED = "evicted"
"""Taken back for other work: its task waits again, or (`evicted`) is cancelled."""
TAKEN_BACK = frozenset({PREEMPTED, EVICTED})


ONE_PENDING = TaskCounts(pending=1)
"""Of a single task that waits."""


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
    """It waits at its node for the place of another task of its job (see `credit`); the engine does not know of it."""
    stopping: str = ""
    """Why it is being ended (`cancelled`, `requeued`, `sibling`, `preempted`, `evicted`,
    `booking-over`), or empty."""
    steps: tuple[StepEnd, ...] = ()
    """The steps that have ended so far."""
    taking: Taking | None = None
    """When and for whom it was last taken back."""

    @property
    def suspended(self) -> bool:
        """It was suspended and not let go on since (also before its processes have begun)."""
        return self.taking is not None and self.taking.since_ms > 0 and not self.stopping

    @property
    def engine_state(self) -> tuple[int, int, int]:
        """As an adopted allocation: state, due or since, how often it was suspended."""
        taking = self.taking or Taking()
        if self.stopping in TAKEN_BACK:
            return RUN_GOING, taking.due_ms, taking.times
        if self.suspended:
            return RUN_SUSPENDED, taking.since_ms, taking.times
        return RUN_ON, 0, taking.times

    def step(self, job: int, rank: int) -> StepId:
        """The id of its processes on its `rank`-th node."""
        return StepId(job, self.task, self.attempt, rank)

    def steps_left(self, job: int) -> list[tuple[str, StepId]]:
        """Node and id of each step that has not ended."""
        done = {end.rank for end in self.steps}
        return [(node, self.step(job, rank)) for rank, node in enumerate(self.nodes) if rank not in done]


class LiveJob(Struct, kw_only=True, gc=False):
    """All that HAL keeps in memory about one job that has not ended."""

    id: int
    spec: JobSpec
    """As admitted; shared by jobs that are equal."""
    name: str
    queue: str
    account: str
    user: str
    priority: int
    walltime_ms: int | None
    submit_ms: int
    eligible_ms: int
    """Begin-at, or when its last dependency was met; the engine's infinity while it waits for other jobs.

    A span's own instant is infinite, too, while its tasks wait for the tasks of another array.
    """
    trace_id: str
    request: ClassSpec
    owner: OwnerSpec
    state: TaskState = TaskState.PENDING
    hold: bool = False
    """A person holds the whole job: tasks that come back to pending are held too."""
    start_ms: int | None = None
    end_ms: int | None = None
    reason: str = ""
    waits: Waits | None = None
    """How its dependencies stand; None once they are past. Tasks of a job that waits are not in the engine."""
    counts: TaskCounts
    spans: Spans = ()
    active: dict[int, Attempt]
    """By task."""
    succeeded: Runs = ()
    """Of an array: the tasks that succeeded."""
    fed: tuple[Span, ...] = ()
    """Of an array with `max_running`: the waiting tasks that the engine knows."""
    exit_code: int | None = None
    """Largest over the tasks that have ended."""
    restarts: int = 0
    """Attempts that ended and whose task went back to pending."""

    def kept(self) -> LiveJob:
        """A copy that later changes of this one do not reach."""
        other = copy(self)
        other.active = self.active.copy()
        other.counts = copy(self.counts)
        return other

    def task_state(self, task: int) -> TaskState | None:
        """The state of one task; None when it ended through an attempt (its row says how) or does not exist."""
        attempt = self.active.get(task)
        if attempt is not None:
            return TaskState(attempt.state)
        span = locate(self.spans, task)
        return span.state if span else None

    @property
    def key(self) -> tuple[str, str]:
        """By what singletons know it."""
        return (self.user, self.name)

    @property
    def window(self) -> int:
        """How many tasks of the array may run at once; 0: no limit."""
        return self.spec.array.max_running if self.spec.array else 0

    @property
    def untouched(self) -> bool:
        """Whether it is one task, no array, that waits for resources and to which nothing has happened."""
        return (
            self.spans == ONE_TASK
            and self.counts == ONE_PENDING
            and self.spec.array is None
            and self.waits is None
            and self.state is TaskState.PENDING
            and self.eligible_ms < INF
            and not (self.hold or self.active or self.reason or self.restarts)
            and self.start_ms is None
            and self.exit_code is None
        )

    @property
    def phase(self) -> Phase:
        """How far it has come, for those that depend on it."""
        return phase_of(self.state, started=self.start_ms is not None)

    @property
    def if_never(self) -> Failed:
        """What is done when its dependencies can no longer be met."""
        return self.spec.on_dependency_failed or Failed.CANCEL

    def past(self) -> EndedJob:
        """What is remembered of it when it has ended."""
        return EndedJob(self.id, self.name or self.spec.title, self.state, self.spec.tasks, self.succeeded_in_part)

    @property
    def succeeded_in_part(self) -> Runs:
        """Which tasks of an array succeeded, when neither all nor none did."""
        return () if self.state is TaskState.SUCCEEDED else self.succeeded

    @property
    def ended_in_spans(self) -> int:
        """Tasks that ended otherwise than through an attempt."""
        return summed(self.spans).ended

    def eligible_of(self, span: Span) -> int:
        """When the engine may start these tasks."""
        return max(span.eligible_ms, self.eligible_ms)


def with_state(span: Span, state: TaskState, reason: str = "") -> Span:
    """The same tasks in another state."""
    return replace(span, state=state, reason=reason)
