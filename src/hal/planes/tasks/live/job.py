"""A job that has not ended, in memory: columns for all its tasks, one value for each active attempt.

Pure. `LiveJob` is changed in place by the plane only, after the plane kept a copy for a rollback; everything inside it
is either immutable or a container that the copy does not share. Nothing in it leads back to it, so the
garbage collector need not look at it, nor at the rows that are made of it (`gc=False`).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import INF
from hal.core.lifecycle import TaskCounts, job_state
from hal.core.model import Failed, JobSpec, TaskState
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.standings import EndedJob, Phase, Waits, phase_of
from hal.planes.tasks.live.task_ranges import ONE_TASK, TaskRange, TaskRanges, locate, summed
from hal.planes.tasks.live.task_sets import TaskSet

ONE_PENDING = TaskCounts(pending=1)
"""Of a single task that waits."""


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

    A range's own instant is infinite, too, while its tasks wait for the tasks of another array.
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
    ranges: TaskRanges = ()
    active: dict[int, Attempt]
    """By task."""
    succeeded: TaskSet = ()
    """Of an array: the tasks that succeeded."""
    fed: tuple[TaskRange, ...] = ()
    """Of an array with `max_running`: the waiting tasks that the engine knows."""
    exit_code: int | None = None
    """Largest over the tasks that have ended."""
    restarts: int = 0
    """Attempts that ended and whose task went back to pending."""

    def kept(self) -> LiveJob:
        """A copy that later changes of this one do not reach."""
        return replace(self, active=self.active.copy(), counts=replace(self.counts))

    def task_state(self, task: int) -> TaskState | None:
        """The state of one task; None when it ended through an attempt (its row says how) or does not exist."""
        attempt = self.active.get(task)
        if attempt is not None:
            return TaskState(attempt.state)
        task_range = locate(self.ranges, task)
        return task_range.state if task_range else None

    def state_by_tasks(self) -> TaskState:
        """The state that follows from those of its tasks; in the end the base of a job with extensions decides alone,
        and workers of which one found that no work was left have succeeded.

        Extensions never end as failed or timed out, so what is worse than cancelled is the base's, or that of workers
        that are no extensions.
        """
        found = job_state(self.counts)
        if found is not TaskState.CANCELLED or not self.succeeded:
            return found
        done = self.spec.workers or (self.spec.has_base and self.succeeded[0][0] == 0)
        return TaskState.SUCCEEDED if done else found

    @property
    def key(self) -> tuple[str, str]:
        """By what singletons know it."""
        return (self.user, self.name)

    @property
    def window(self) -> int:
        """How many tasks of the array may run at once; 0: no limit."""
        return self.spec.array.max_running if self.spec.array else 0

    @property
    def only_waits(self) -> bool:
        """Whether it is one task, no array, that waits for resources and to which nothing has happened."""
        return (
            self.ranges == ONE_TASK
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
    def succeeded_in_part(self) -> TaskSet:
        """Which tasks of an array succeeded, when neither all nor none did."""
        return () if self.state is TaskState.SUCCEEDED else self.succeeded

    @property
    def ended_in_ranges(self) -> int:
        """Tasks that ended otherwise than through an attempt."""
        return summed(self.ranges).ended

    def eligible_of(self, task_range: TaskRange) -> int:
        """When the engine may start these tasks."""
        return max(task_range.eligible_ms, self.eligible_ms)


def with_state(task_range: TaskRange, state: TaskState, reason: str = "") -> TaskRange:
    """The same tasks in another state."""
    return replace(task_range, state=state, reason=reason)
