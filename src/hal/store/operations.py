"""What can be written to the store: typed row operations, gathered into one group that is committed as a whole.

Values only. The same row types are used for writing and for reading, so `load` returns what was committed. Times are
milliseconds since 1970; amounts are in base units. Operations are executed in the order of the group; an operation on a
row that does not exist is a bug, and the whole group is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from hal.core.model import AttemptState, EventKind, JobSpec, NodeState, TaskState
from hal.core.model.devices import HeldGpus
from hal.core.model.facts import Facts
from hal.core.model.periodic import PeriodicSpec, RunOutcome

MAX_MESSAGE: Final = 2_000
"""Characters of what a node says about the end of a step; a longer text is cut and ends in '…'."""
MAX_EVENT_JOBS: Final = 1_000
"""How many jobs of an event are listed when it is read; `events` with a job finds every event about that job."""


AGENT: Final = "agent"
"""The role of a node's certificate, as in `hal.wire.roles`."""


class Removed(IntEnum):
    """What has been removed of an ended job; it only grows, until the job lives again."""

    NOTHING = 0
    OUTPUTS = 1
    """Its nodes delete its outputs."""
    ATTEMPTS_GOING = 2
    """Its outputs, and its attempts are being deleted: it cannot run again."""
    ATTEMPTS = 3
    """Its outputs and all of its attempts."""
    JOB = 4
    """Everything: no reader sees it any more; its rows are deleted a few at a time."""


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobRow(Struct, frozen=True, gc=False):
    """A job: its spec, the fields of it that can change, and its progress."""

    id: int
    """Ascending from 1 in submission order."""
    spec: JobSpec
    """Shared between equal jobs of one group; replaced as a whole by `EditJobs`."""
    name: str
    queue: str
    account: str
    user: str
    priority: int
    state: TaskState
    tasks: int
    nodes: int
    walltime_ms: int | None
    submit_ms: int
    eligible_ms: int
    start_ms: int | None = None
    """First start of any of its tasks."""
    end_ms: int | None = None
    """When its last task ended; None while it is live: `load` returns the jobs that have none."""
    hold: bool = False
    """The job as a whole is held: tasks that return to pending are held too."""
    trace_id: str = ""
    reason: str = ""
    pending: int = 0
    """Pending tasks, without held ones."""
    held: int = 0
    active: int = 0
    """Tasks with an attempt that has not ended, including running ones."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    cancelled: int = 0
    exit_code: int | None = None
    """Of the single task, or the largest of an array's tasks."""
    restarts: int = 0
    """How often the job was requeued."""
    version: int = 1
    """Incremented with every change of the row; ignored when writing."""
    removed: int = Removed.NOTHING
    """A `Removed`; set by `MarkRemoved`, and 0 again with any progress."""

    @property
    def removed_tasks(self) -> int:
        """How many of its tasks were removed on their own; only of an ended job."""
        return self.tasks - (self.succeeded + self.failed + self.timed_out + self.cancelled) if self.end_ms else 0


class JobProgress(Struct, frozen=True, gc=False):
    """The progress of a job; all of these columns are set."""

    id: int
    state: TaskState
    eligible_ms: int
    start_ms: int | None
    end_ms: int | None
    reason: str
    pending: int
    held: int
    active: int
    running: int
    succeeded: int
    failed: int
    timed_out: int
    cancelled: int
    exit_code: int | None
    restarts: int


class JobEdit(Struct, frozen=True, kw_only=True):
    """What a person changed in a job; only the fields that are set."""

    id: int
    spec: JobSpec | UnsetType = UNSET
    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    walltime_ms: int | UnsetType | None = UNSET
    nodes: int | UnsetType = UNSET
    hold: bool | UnsetType = UNSET


class TaskRangeRow(Struct, frozen=True, order=True, gc=False):
    """A range of equal tasks of one job: without an active attempt, and not ended through one."""

    job: int
    first: int
    count: int
    state: TaskState
    """pending, held, cancelled or failed."""
    attempt: int = 1
    """Number of these tasks' next attempt."""
    retries: int = 0
    """Retries that these tasks have used."""
    eligible_ms: int = 0
    """Earliest start (back-off); 0: when the job is eligible."""
    reason: str = ""


class StepEnd(Struct, frozen=True, array_like=True):
    """How one rank of an attempt ended."""

    rank: int
    cause: str
    exit_code: int
    signal: int
    ended_ms: int
    message: str = ""
    usage: dict[str, int] | None = None


class Preemption(Struct, frozen=True, omit_defaults=True):
    """When and for whom an attempt was last preempted, or by whom it was evicted."""

    mode: str = ""
    """requeue, suspend, checkpoint, cancel."""
    for_job: int = 0
    qos: str = ""
    """Of that job."""
    lent_by: str = ""
    """The account (or user) whose quota it had borrowed within the cohort; "": it had not borrowed."""
    nodes: int = 0
    """It is moved to make room for a gang of so many nodes; 0: it is not moved."""
    alone_ms: int = 0
    """When that gang would have started without; 0: nobody knew."""
    at_ms: int = 0
    due_ms: int = 0
    """When it must have stopped at the latest."""
    since_ms: int = 0
    """Suspended since; 0: it is not suspended."""
    times: int = 0
    """How often it was suspended."""
    paused_ms: int = 0
    """How long it had been suspended before."""
    by: str = ""
    """The person who evicted it; '': the engine preempted it for `for_job`."""
    reason: str = ""
    """Of the eviction, in that person's words."""


class AttemptRow(Struct, frozen=True, gc=False):
    """One try at running one task."""

    job: int
    task: int
    attempt: int
    state: AttemptState
    nodes: tuple[str, ...]
    """In rank order."""
    token: str
    allocated_ms: int
    retries: int = 0
    """Retries that the task had used when this attempt began."""
    credit: bool = False
    """Sent to its node ahead of time: it holds no resources yet."""
    started_ms: int | None = None
    ended_ms: int | None = None
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    usage: dict[str, int] | None = None
    message: str = ""
    steps: tuple[StepEnd, ...] = ()
    """Ranks that have ended so far."""
    preemption: Preemption | None = None
    """In the column `taking`."""
    gpus: tuple[HeldGpus, ...] = ()
    """What it holds of the GPUs of each node; null in the store where that is nothing."""
    port: int = 0
    """At which its ranks meet; null in the store where it has none."""


class AttemptMark(Struct, frozen=True, gc=False):
    """A live attempt whose state changes."""

    job: int
    task: int
    attempt: int
    state: AttemptState
    started_ms: int | None = None
    """None keeps the stored value."""
    steps: tuple[StepEnd, ...] | None = None
    """None keeps the stored value."""
    cause: str | None = None
    """Why it is being ended, so that a restarted controller knows; None keeps the stored value."""
    credit: bool = False
    """Still on credit."""
    preemption: Preemption | None = None
    """None keeps the stored value."""


class AttemptEnd(Struct, frozen=True, gc=False):
    """An attempt that has ended."""

    job: int
    task: int
    attempt: int
    state: AttemptState
    ended_ms: int
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    usage: dict[str, int] | None = None
    message: str = ""
    started_ms: int | None = None
    """None keeps the stored value."""
    steps: tuple[StepEnd, ...] | None = None
    """None keeps the stored value."""
    more_nodes: tuple[str, ...] = ()
    """Of a gang: its nodes from rank 1 on."""


class ReaderRow(Struct, frozen=True, kw_only=True):
    """A registered reader of the feeds: what it has not read is kept for it, within a bound."""

    name: str
    user: str
    """Who registered it."""
    created_ms: int
    heard_ms: int
    """When it last acknowledged something, or was registered."""
    attempts: int | None = None
    """It has read the ends of attempts up to this sequence number; None: it does not follow them."""
    events: int | None = None
    """The same of events."""


class Closure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason that keeps new work away from a node, until its author removes it."""

    source: str
    """`person`; each source has at most one on a node."""
    reason: str = ""
    """Free text."""
    by: str = ""
    """The person, if a person did it."""
    since_ms: int
    drain: bool = False
    """The node is to become empty; until then, it drains."""
    evict: str = ""
    """How what is left at `evict_at_ms` is evicted: `requeue`, `checkpoint`, `cancel`; '': nothing is."""
    evict_at_ms: int = 0
    grace_ms: int = 0
    """How long evicted work has to end."""
    evicted: bool = False
    """What was left has been evicted."""


class NodeAbout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored about a node outside its own columns."""

    closures: tuple[Closure, ...] = ()
    facts: Facts = Facts()
    taints: dict[str, str] = {}
    """What keeps work away that does not tolerate it, by key."""


class NodeRow(Struct, frozen=True):
    """A node as it was last seen."""

    name: str
    capacity: dict[str, int]
    """By resource name, base units."""
    labels: dict[str, str] = {}
    state: NodeState = NodeState.UP
    boot_id: str = ""
    reason: str = ""
    """Why it is unreachable or down; what keeps work away from a reachable node is in `about`."""
    last_seen_ms: int = 0
    notes: tuple[str, ...] = ()
    about: NodeAbout = NodeAbout()


EACH_NODE: Final = ""
"""Instead of a node's name."""


class ForgetRow(Struct, frozen=True, order=True, gc=False):
    """Files that a node must delete: of that attempt number of `count` tasks from `first` on."""

    node: str
    """`EACH_NODE`: each that the removed job ran on; they are to be named in later groups, and until then the rows of
    the job are not swept."""
    job: int
    attempt: int = 0
    """0: everything of the job, which never runs again."""
    first: int = 0
    count: int = 0


class PolicyRow(Struct, frozen=True, kw_only=True):
    """One version of the policy, and who applied it."""

    version: int
    """Ascending from 1."""
    at_ms: int
    user: str = ""
    """Empty: imported from hal.toml."""
    note: str = ""
    document: str = ""
    """Canonical JSON; '' in listings."""


class JoinTokenRow(Struct, frozen=True, kw_only=True):
    """A token with which machines can join, or processes of other roles get their certificates."""

    id: str
    secret_hash: str
    """SHA-256 of its secret, in hex."""
    node: str = ""
    """The only name that may be joined under with it, whatever the role; '': any new one."""
    user: str = ""
    """Who created it."""
    created_ms: int
    expires_ms: int
    used_ms: int | None = None
    """When it was used last."""
    used_by: str = ""
    """The node that joined with it last."""
    revoked_ms: int | None = None
    uses: int = 1
    """So many machines can join with it; 0: any number, until it expires."""
    used: int = 0
    """So many have."""
    labels: dict[str, str] = {}
    """That each node which joins with it has, whatever its agent says."""
    role: str = AGENT
    """The only role for which it gives a certificate."""


class CertificateRow(Struct, frozen=True, kw_only=True):
    """A certificate that was issued on request, to a node or to a process of another role."""

    serial: str
    """Lower-case hex digits."""
    node: str
    """The name in it, whatever the role."""
    issued_ms: int
    expires_ms: int
    revoked_ms: int | None = None
    token: str = ""
    """Id of the token with which the node joined; '': it joined before that was kept."""
    labels: dict[str, str] = {}
    """Of that token."""
    role: str = AGENT


class PeriodicRow(Struct, frozen=True, kw_only=True):
    """A periodic job."""

    id: int
    user: str
    """Whose it is: its jobs are submitted in this name and with this user's rights."""
    name: str
    """Unique among those of the user."""
    spec: PeriodicSpec
    created_ms: int
    created_by: str
    changed_ms: int
    """When somebody last changed, held or resumed it."""
    on_system: bool = False
    """The controller's machine knew its user when it was made."""
    held_by: str = ""
    """Who holds it; '': nobody."""
    next_ms: int | None = None
    """The next due time; None: there is none, or it is held."""
    runs: int = 0
    """Entries that its history ever got."""
    live: tuple[int, ...] = ()
    """Its jobs, ascending; some may have ended since the last one was submitted."""


class PeriodicRun(Struct, frozen=True, kw_only=True):
    """What became of a due time of a periodic job."""

    periodic: int
    """Its id."""
    number: int
    """Ascending from 1."""
    due_ms: int
    at_ms: int
    """When that was decided."""
    outcome: RunOutcome
    manual: bool = False
    """A person asked for it; `due_ms` is when."""
    job: int | None = None
    """The job that was submitted."""
    times: int = 1
    """Of due times that were missed together: how many; `due_ms` is the last."""
    reason: str = ""


class NoticeRow(Struct, frozen=True, gc=False):
    """A job that notifies somebody, and what of it was told."""

    job: int
    open: bool = True
    """It has not ended, or that was not told."""
    start_ms: int | None = None
    """As the job's row had it when that was told last."""
    end_ms: int | None = None
    restarts: int = 0
    ended_seq: int = 0
    """Ends of its attempts up to this number were told."""


class NewEvent(Struct, frozen=True, kw_only=True):
    """An entry for the feed; the commit assigns its sequence number."""

    at_ms: int
    kind: EventKind
    cause: str = ""
    trace_id: str = ""
    jobs: tuple[int, ...] | list[int] | range = ()
    """All jobs that it is about, in any order, however many."""
    payload: dict[str, Any] = {}


def id_ranges(jobs: Iterable[int]) -> list[list[int]]:
    """Compress numbers into ranges [first, last] of consecutive ones, ascending."""
    if isinstance(jobs, range) and jobs.step == 1:
        return [[jobs.start, jobs.stop - 1]] if jobs else []
    found: list[list[int]] = []
    for job in sorted(set(jobs)):
        if found and found[-1][1] == job - 1:
            found[-1][1] = job
        else:
            found.append([job, job])
    return found


# ── operations ────────────────────────────────────────────────────────────────────────────────────────────────────


class InsertJobs(Struct, frozen=True):
    """New jobs; jobs with equal specs share one stored spec."""

    rows: list[JobRow]


class ProgressJobs(Struct, frozen=True):
    """States and counts of existing jobs."""

    rows: list[JobProgress]


class EditJobs(Struct, frozen=True):
    """Changes that people made to existing jobs."""

    rows: list[JobEdit]


class PutTaskRanges(Struct, frozen=True):
    """Write ranges of any jobs: first delete those in `drop` (job, first), then write those in `put`, replacing
    ranges with the same first task.

    Starting the first 10 of 100 tasks: `drop=[(7, 0)], put=[TaskRangeRow(7, 10, 90, …)]`.
    """

    drop: list[tuple[int, int]] = []
    put: list[TaskRangeRow] = []


class InsertAttempts(Struct, frozen=True):
    """New attempts."""

    rows: list[AttemptRow]


class MarkAttempts(Struct, frozen=True):
    """Live attempts whose state changes."""

    rows: list[AttemptMark]


class EndAttempts(Struct, frozen=True):
    """Attempts that have ended."""

    rows: list[AttemptEnd]


class PutNodes(Struct, frozen=True):
    """Nodes, new or changed, as whole rows."""

    rows: list[NodeRow]


class DropNodes(Struct, frozen=True):
    """Delete nodes."""

    names: list[str]


class MarkRemoved(Struct, frozen=True):
    """Ended jobs of which that much is removed from now on; those of which it was before, or that live, stay as they
    are. The rows themselves are deleted later, by `Store.sweep`."""

    jobs: list[int]
    removed: Removed
    rule: str = ""
    """Of retention, by which that is so; or empty."""


class RemoveTasks(Struct, frozen=True):
    """Tasks of an ended job are removed from now on; nothing happens if it has run again since. Their attempts are
    deleted later."""

    job: int
    end_ms: int
    """When it ended."""
    ranges: tuple[tuple[int, int], ...]
    """All tasks that are removed of it then, [first, end): disjoint, ascending."""
    succeeded: int = 0
    """Of those that are removed now, so many; the job counts them no longer."""
    failed: int = 0
    timed_out: int = 0
    cancelled: int = 0


class PutForgets(Struct, frozen=True):
    """Files that nodes must delete, besides those that they must delete already."""

    rows: list[ForgetRow]


class DropForgets(Struct, frozen=True):
    """Nodes have deleted these."""

    rows: list[ForgetRow]


class AppendPolicy(Struct, frozen=True):
    """The next version of the policy; it applies from now on."""

    row: PolicyRow


class PutJoining(Struct, frozen=True):
    """Insert or replace join tokens and certificates, and delete others by id and serial number."""

    tokens: tuple[JoinTokenRow, ...] = ()
    certificates: tuple[CertificateRow, ...] = ()
    forget_tokens: tuple[str, ...] = ()
    forget_certificates: tuple[str, ...] = ()


class PutReaders(Struct, frozen=True):
    """Insert or replace readers, and delete others by name."""

    rows: tuple[ReaderRow, ...] = ()
    forget: tuple[str, ...] = ()


class PutPeriodic(Struct, frozen=True):
    """Insert or replace periodic jobs, delete others with their history, and add to histories, of which the newest
    `spec.keep` entries stay."""

    rows: tuple[PeriodicRow, ...] = ()
    forget: tuple[int, ...] = ()
    runs: tuple[PeriodicRun, ...] = ()


class PutNotices(Struct, frozen=True):
    """Insert or replace what was told of jobs."""

    rows: tuple[NoticeRow, ...]
    new: bool = False
    """The jobs are new: none has such a row."""


class PutMeta(Struct, frozen=True):
    """Small facts by name; None deletes one."""

    values: Mapping[str, str | None]


class AppendEvents(Struct, frozen=True):
    """Entries for the feed, in order."""

    events: list[NewEvent]


class RememberIdempotent(Struct, frozen=True):
    """The response to a request with this idempotency key; the first response is kept."""

    key: str
    fingerprint: str
    """Digest of the request: the same key with a different request is an error of the caller."""
    response: bytes


Operation = (
    InsertJobs
    | ProgressJobs
    | EditJobs
    | PutTaskRanges
    | InsertAttempts
    | MarkAttempts
    | EndAttempts
    | PutNodes
    | DropNodes
    | MarkRemoved
    | RemoveTasks
    | PutForgets
    | DropForgets
    | AppendPolicy
    | PutJoining
    | PutReaders
    | PutPeriodic
    | PutNotices
    | PutMeta
    | AppendEvents
    | RememberIdempotent
)
"""Everything that can be written."""


class Group(Struct):
    """What is committed as a whole, or not at all."""

    commit_id: str
    """Chosen by the caller, unique; the outcome of a commit can be looked up by it."""
    now_ms: int
    """The instant of the decision; never earlier than that of a previous group."""
    operations: list[Operation] = []

    def add(self, *operations: Operation) -> None:
        """Append operations, in order."""
        self.operations.extend(operations)


class Committed(Struct, frozen=True):
    """A group that is durable."""

    commit_id: str
    first_seq: int
    """Sequence number of its first event; `last_seq` + 1 when it had none."""
    last_seq: int
    """Sequence number of the newest event after the commit."""
    number: int = 0
    """Its own number, ascending from 1 without gaps."""
    last_end: int = 0
    """Sequence number of the newest end of an attempt after the commit."""


class Newest(Struct, frozen=True):
    """The sequence numbers given last."""

    event: int
    end: int
    """Of an attempt."""
