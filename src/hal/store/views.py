"""What the store returns: everything that a controller starts from, pages of lists, and what retention keeps.

Values only.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import TaskState
from hal.store.operations import AttemptRow, JobRow, NodeRow, PolicyRow, TaskRangeRow
from hal.store.pending_columns import PendingColumns
from hal.store.readers import ReaderBounds

DAY_MS: Final = 86_400_000
MAX_PAGE: Final = 10_000
"""Longest page that a list returns."""


class Loaded(Struct, frozen=True, kw_only=True):
    """The live state, from which a controller continues."""

    epoch: int
    """Of the newest leader; 0 before the first."""
    last_seq: int
    """Sequence number of the newest event."""
    last_job_id: int
    """Largest job id ever given; 0 before the first."""
    now_ms: int
    """Instant of the newest commit; time must not be earlier."""
    jobs: list[JobRow]
    """Jobs that have not ended, by ascending id; without those in `pending_columns`."""
    pending_columns: tuple[PendingColumns, ...] = ()
    """By ascending id; empty unless columns were requested."""
    ranges: dict[int, list[TaskRangeRow]]
    """Of these jobs, by job, ordered by first task."""
    attempts: dict[int, list[AttemptRow]]
    """Of these jobs, the attempts that have not ended, by job, in order."""
    ended_dependencies: dict[int, JobRow]
    """Ended jobs that these jobs' dependencies name by id."""
    succeeded: dict[int, tuple[tuple[int, int], ...]] = {}
    """Of arrays among all these whose tasks ended in several ways: ranges [first, end) of tasks that succeeded."""
    nodes: list[NodeRow]
    policy: PolicyRow | None
    """The newest version; None before the first."""
    meta: dict[str, str]


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs to list; an empty field does not restrict."""

    states: tuple[TaskState, ...] = ()
    user: str = ""
    queue: str = ""
    name: str = ""
    account: str = ""
    labels: dict[str, str] = {}
    """All must match; an empty value only requires that the label exists."""
    ended_before_ms: int | None = None
    """Only jobs that ended before this instant."""
    node: str = ""
    """Only jobs that hold a part of this node now."""
    submitted_from_ms: int | None = None
    """Only jobs that were submitted at this instant or later."""
    submitted_before_ms: int | None = None


class TaskRow(Struct, frozen=True):
    """One task, computed from ranges and attempts."""

    job: int
    task: int
    state: TaskState
    attempt: int
    """Number of its latest attempt; 0 before the first."""
    retries: int = 0
    nodes: tuple[str, ...] = ()
    allocated_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    eligible_ms: int = 0
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    usage: dict[str, int] | None = None
    message: str = ""
    reason: str = ""
    """Why it waits, or ended without an attempt."""


class Remembered(Struct, frozen=True):
    """A stored response to an earlier request."""

    fingerprint: str
    response: bytes
    at_ms: int


class Kept(Struct, frozen=True, kw_only=True):
    """How much is kept of the ended jobs of one queue; what exceeds any limit is removed, oldest end first.

    When attempts go, outputs go with them; when a job goes, all of it goes.
    """

    jobs_ms: int = 365 * DAY_MS
    """Since the end of the job, as all three."""
    jobs_count: int = 1_000_000
    attempts_ms: int = 365 * DAY_MS
    attempts_count: int = 5_000_000
    """Tasks whose attempts are kept."""
    outputs_ms: int = 90 * DAY_MS
    outputs_count: int = 1_000_000
    """Tasks whose outputs are kept."""


class Retention(Struct, frozen=True, kw_only=True):
    """How much of the past is kept; an entry that exceeds any limit is removed."""

    jobs: Kept = Kept()
    """Of each queue that is not in `queues`."""
    queues: dict[str, Kept] = {}
    attempts_per_task: int = 100
    """The newest of each task, also while its job lives; at least `removal.LEAST_ATTEMPTS`."""
    events_ms: int = 30 * DAY_MS
    events_count: int = 1_000_000
    commits_count: int = 10_000
    idempotency_ms: int = DAY_MS
    idempotency_count: int = 1_000_000
    """The newest keys to keep, however young the others are."""
    policies_count: int = 1_000
    """Versions of the policy; the newest is always kept."""
    readers: ReaderBounds = ReaderBounds()
    """Until then, what a registered reader has not read is not removed, whatever else is said here."""

    def of(self, queue: str) -> Kept:
        """What is kept of that queue's jobs."""
        return self.queues.get(queue, self.jobs)


class Trimmed(Struct, frozen=True):
    """What one call of `trim` removed."""

    events: int
    commits: int
    keys: int
    policies: int
    more: bool
    """There is more to remove; call again."""


class OldAttempt(Struct, frozen=True):
    """An ended attempt that is not among the newest of its task."""

    job: int
    task: int
    attempt: int
    nodes: tuple[str, ...]


class OldJob(Struct, frozen=True):
    """A job that retention looks at."""

    id: int
    end_ms: int
    tasks: int


class Removal(Struct, frozen=True):
    """When all outputs that a job had were removed, perhaps with its attempts, and by which rule of retention."""

    at_ms: int
    rule: str


class Swept(Struct, frozen=True):
    """What one call of `sweep` deleted."""

    jobs: int
    attempts: int
    more: bool
    """There is more to delete; call again."""
