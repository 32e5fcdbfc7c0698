"""What may be written to the store: typed row operations, gathered into one group that is committed as a whole.

Values only. A row type is the same for writing and for reading, so what `load` gives back equals what was committed.
Times are milliseconds since 1970; amounts are base units. Operations are carried out in the order in which they stand
in the group; an operation on a row that does not exist is a fault and undoes the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from hal.core.model import AttemptState, EventKind, JobSpec, NodeState, TaskState
from hal.core.model.facts import Facts

MAX_EVENT_JOBS: Final = 1_000
"""How many jobs an event lists when it is read; all of them can be asked for by job."""


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobRow(Struct, frozen=True, gc=False):
    """A job: its spec, what of it may change, and how far it has come."""

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
    """When its last task ended; None while it lives: `load` gives the jobs that have none."""
    hold: bool = False
    """The job as a whole is held: its tasks that return to pending are held too."""
    trace_id: str = ""
    reason: str = ""
    pending: int = 0
    """Tasks waiting, those held not counted."""
    held: int = 0
    active: int = 0
    """Tasks with an attempt that has not ended, running ones included."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    cancelled: int = 0
    exit_code: int | None = None
    """Of the single task, or the largest of the array's."""
    restarts: int = 0
    """How often it was requeued."""
    version: int = 1
    """Raised by one with every change of the row; ignored when writing."""


class JobProgress(Struct, frozen=True, gc=False):
    """How far a job has come: all of these columns are set."""

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
    """What a person changed of a job: only the fields that are set."""

    id: int
    spec: JobSpec | UnsetType = UNSET
    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    walltime_ms: int | UnsetType | None = UNSET
    hold: bool | UnsetType = UNSET


class Span(Struct, frozen=True, order=True, gc=False):
    """A run of tasks of one job that are alike: without an active attempt, and not ended through one."""

    job: int
    first: int
    count: int
    state: TaskState
    """pending, held, cancelled or failed."""
    attempt: int = 1
    """Number that the next attempt of these tasks will have."""
    retries: int = 0
    """Retries that these tasks have used up."""
    eligible_ms: int = 0
    """Not before this instant (back-off); 0: when the job is eligible."""
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


class Taking(Struct, frozen=True, omit_defaults=True):
    """When and for whom an attempt was last taken back."""

    mode: str = ""
    """requeue, suspend, checkpoint, cancel."""
    for_job: int = 0
    qos: str = ""
    """Of that job."""
    lent_by: str = ""
    """It had borrowed what this account (or user) had lent to its cohort; "": it had not."""
    at_ms: int = 0
    due_ms: int = 0
    """When it is out at the latest."""
    since_ms: int = 0
    """Suspended since; 0: it is not."""
    times: int = 0
    """How often it was suspended."""
    paused_ms: int = 0
    """How long it was suspended before."""


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
    """Retries that the task had used up when this attempt began."""
    credit: bool = False
    """Handed to its node ahead of time: it holds no resources yet."""
    started_ms: int | None = None
    ended_ms: int | None = None
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    usage: dict[str, int] | None = None
    message: str = ""
    steps: tuple[StepEnd, ...] = ()
    """Ranks that have ended so far."""
    taking: Taking | None = None


class AttemptMark(Struct, frozen=True, gc=False):
    """An attempt that goes on in another state."""

    job: int
    task: int
    attempt: int
    state: AttemptState
    started_ms: int | None = None
    """None leaves it as it is."""
    steps: tuple[StepEnd, ...] | None = None
    """None leaves them as they are."""
    cause: str | None = None
    """Why it is being ended, so that a restarted controller knows; None leaves it as it is."""
    credit: bool = False
    """Still on credit."""
    taking: Taking | None = None
    """None leaves it as it is."""


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
    """None leaves it as it is."""
    steps: tuple[StepEnd, ...] | None = None
    """None leaves them as they are."""


class Closure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that keeps new work away from a node, until whoever put it there takes it away."""

    source: str
    """`person`; each source has at most one on a node."""
    reason: str = ""
    """In words."""
    by: str = ""
    """The person, where one did it."""
    since_ms: int
    drain: bool = False
    """The node is to become empty; until it is, it drains."""


class NodeAbout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a node beside its columns."""

    closures: tuple[Closure, ...] = ()
    facts: Facts = Facts()


class NodeRow(Struct, frozen=True):
    """A node as it was last seen."""

    name: str
    capacity: dict[str, int]
    """By resource name, base units."""
    labels: dict[str, str] = {}
    state: NodeState = NodeState.UP
    boot_id: str = ""
    reason: str = ""
    """Why it is unreachable or down; what keeps work away from a node that is heard, `about` says."""
    last_seen_ms: int = 0
    notes: tuple[str, ...] = ()
    about: NodeAbout = NodeAbout()


class PolicyRow(Struct, frozen=True, kw_only=True):
    """One version of the policy, and who made it the one that holds."""

    version: int
    """Ascending from 1."""
    at_ms: int
    user: str = ""
    """Empty: taken in from hal.toml."""
    note: str = ""
    document: str = ""
    """Canonical JSON; '' in listings."""


class JoinTokenRow(Struct, frozen=True, kw_only=True):
    """A token with which one machine may join, once."""

    id: str
    secret_hash: str
    """SHA-256 of its secret, in hex."""
    node: str = ""
    """The only node that may join with it; '' for any that is new."""
    user: str = ""
    """Who made it."""
    created_ms: int
    expires_ms: int
    used_ms: int | None = None
    used_by: str = ""
    """The node that joined with it."""
    revoked_ms: int | None = None


class CertificateRow(Struct, frozen=True, kw_only=True):
    """A certificate that a node was given."""

    serial: str
    """Lower-case hex digits."""
    node: str
    issued_ms: int
    expires_ms: int
    revoked_ms: int | None = None


class NewEvent(Struct, frozen=True, kw_only=True):
    """An entry for the feed; its sequence number is given by the commit."""

    at_ms: int
    kind: EventKind
    cause: str = ""
    trace_id: str = ""
    jobs: tuple[int, ...] | list[int] | range = ()
    """All jobs it is about, in any order, however many."""
    payload: dict[str, Any] = {}


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


class PutSpans(Struct, frozen=True):
    """Spans of any jobs: those in `drop` (job, first) go, then those in `put` are written over what starts there.

    Starting the first 10 of 100 tasks: `drop=[(7, 0)], put=[Span(7, 10, 90, …)]`.
    """

    drop: list[tuple[int, int]] = []
    put: list[Span] = []


class InsertAttempts(Struct, frozen=True):
    """New attempts."""

    rows: list[AttemptRow]


class MarkAttempts(Struct, frozen=True):
    """Attempts that go on."""

    rows: list[AttemptMark]


class EndAttempts(Struct, frozen=True):
    """Attempts that have ended."""

    rows: list[AttemptEnd]


class PutNodes(Struct, frozen=True):
    """Nodes, new or changed, as whole rows."""

    rows: list[NodeRow]


class DropNodes(Struct, frozen=True):
    """Nodes that are forgotten."""

    names: list[str]


class AppendPolicy(Struct, frozen=True):
    """The next version of the policy; it holds from now on."""

    row: PolicyRow


class PutJoining(Struct, frozen=True):
    """Insert or replace join tokens and certificates, and forget others by id and serial number."""

    tokens: tuple[JoinTokenRow, ...] = ()
    certificates: tuple[CertificateRow, ...] = ()
    forget_tokens: tuple[str, ...] = ()
    forget_certificates: tuple[str, ...] = ()


class PutMeta(Struct, frozen=True):
    """Small facts by name; None forgets one."""

    values: Mapping[str, str | None]


class AppendEvents(Struct, frozen=True):
    """Entries for the feed, in order."""

    events: list[NewEvent]


class RememberIdempotent(Struct, frozen=True):
    """The answer that was given to a request with this idempotency key; the first answer stays."""

    key: str
    fingerprint: str
    """Digest of the request: the same key with another request is the caller's mistake."""
    response: bytes


Operation = (
    InsertJobs
    | ProgressJobs
    | EditJobs
    | PutSpans
    | InsertAttempts
    | MarkAttempts
    | EndAttempts
    | PutNodes
    | DropNodes
    | AppendPolicy
    | PutJoining
    | PutMeta
    | AppendEvents
    | RememberIdempotent
)
"""Everything that can be written."""


class Group(Struct):
    """What is committed as a whole, or not at all."""

    commit_id: str
    """Chosen by the caller, unique; by it the outcome of a commit can be looked up."""
    now_ms: int
    """The instant of the decision; never before that of an earlier group."""
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
    """Its own, ascending from 1 without gaps."""
