"""What can happen to the engine: every event is a block of columns, and `apply(state, event)` is the only door.

Pure values. An event carries what it names by value (node names, resource names, classes, owners), so a recorded list
of events is self-contained: replaying it into a fresh `State` of the same configuration rebuilds an equal state.

Times are integers in milliseconds of one clock that never goes back. `INF` means never. Amounts are integers in base
units (millicores, bytes, milli-devices). Job ids are int64 and ascend in submit order: **the job id is the submit
sequence** and breaks ties of the order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
import numpy as np

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.plan import START, Plan, Rows, StartRows
from hal.core.engine.tables.advice import Floats
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.kernels.structures.arrays import Ints, Records
from hal.core.kernels.structures.layout import INF, KEEP
from hal.core.model.advice import KeySpace
from hal.core.model.offer import Offer

SubmitRows: TypeAlias = Records
"""Shape (J,), dtype `SUBMIT`: one row for a run of alike tasks of one job."""
EndRows: TypeAlias = Records
"""Shape (J,), dtype `END`: one row for each attempt that ended."""
AdoptRows: TypeAlias = Records
"""Shape (J,), dtype `ADOPT`: one row for each attempt that runs already."""
UpdateRows: TypeAlias = Records
"""Shape (J,), dtype `UPDATE`: one row for each edited job."""
JobIds: TypeAlias = Ints
"""Shape (J,): job ids."""

SUBMIT: Final = np.dtype(
    [
        ("job", np.int64),  # ascending over the life of the engine
        ("first_task", np.int64),  # 0 unless a restarting controller loads the rest of an array
        ("tasks", np.int64),  # how many alike tasks follow first_task; >= 1
        ("attempt", np.int64),  # attempt number that the next start of these tasks gets; 1 for new work
        ("class_index", np.int64),  # index into JobsSubmitted.classes
        ("owner_index", np.int64),  # index into JobsSubmitted.owners
        ("priority", np.int64),  # higher first; -131072 .. 131071
        ("submit_ms", np.int64),
        ("eligible_ms", np.int64),  # <= now: waits for resources; later: begin-at or back-off; INF: blocked
        ("held", np.int64),  # 1 = held by a person until JobsReleased
        ("walltime_ms", np.int64),  # limit; INF = none
        ("planned_ms", np.int64),  # what the plan uses instead of the limit; -1 = the limit
        ("deadline_ms", np.int64),  # when it should have ended; 0 or INF = none
    ]
)
END: Final = np.dtype(
    [
        ("job", np.int64),
        ("task", np.int64),
        ("attempt", np.int64),
        ("requeue", np.int64),  # 1 = the task returns to pending as attempt + 1
        ("eligible_ms", np.int64),  # of the requeued task: 0 = at once, later = back-off, INF = until JobsEligible
        ("held", np.int64),  # of the requeued task
        ("ended_ms", np.int64),  # when it ended; 0 = the clock
    ]
)
ADOPT: Final = np.dtype(
    [
        ("job", np.int64),
        ("task", np.int64),
        ("attempt", np.int64),
        ("class_index", np.int64),
        ("owner_index", np.int64),
        ("priority", np.int64),
        ("submit_ms", np.int64),
        ("start_ms", np.int64),
        ("walltime_ms", np.int64),
        ("planned_ms", np.int64),
        ("row_offset", np.int64),  # the attempt's node indices are node_index[row_offset : row_offset + row_count]
        ("row_count", np.int64),
        ("deadline_ms", np.int64),  # 0 or INF = none
        ("state", np.int64),  # hal.core.kernels.structures.layout RUN_ON, RUN_GOING (told to end), RUN_SUSPENDED
        ("due_ms", np.int64),  # going: when it is out at the latest; suspended: since when
        ("taken", np.int64),  # how often it was suspended
    ]
)
UPDATE: Final = np.dtype(
    [("job", np.int64), ("priority", np.int64), ("walltime_ms", np.int64), ("planned_ms", np.int64)]
)
CORRECTION: Final = np.dtype([("job", np.int64), ("task", np.int64), ("planned_ms", np.int64)])


def submit_rows(count: int) -> SubmitRows:
    """A block of `count` submit rows with the defaults: one task, attempt 1, eligible at once, no limit."""
    rows = np.zeros(count, SUBMIT)
    rows["tasks"] = 1
    rows["attempt"] = 1
    rows["walltime_ms"] = INF
    rows["planned_ms"] = -1
    return rows


def update_rows(count: int) -> UpdateRows:
    """A block of `count` update rows that keep everything until a column is set."""
    rows = np.zeros(count, UPDATE)
    for name in ("priority", "walltime_ms", "planned_ms"):
        rows[name] = KEEP
    return rows


class Health(StrEnum):
    """What may start on a node. Running attempts are never touched by a change of health."""

    UP = "up"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DOWN = "down"


class NodeSpec(msgspec.Struct, frozen=True):
    """One node as it now is: amounts by resource name in base units, labels, health.

    domains: by level of `EngineConfig.levels` the name of the domain that it is in; '', or missing at the end: in none.
    Domains of one name are the same where those of all wider levels are the same, too.
    """

    name: str
    capacity: dict[str, int]
    labels: dict[str, str] = {}
    health: Health = Health.UP
    withheld: dict[str, int] = {}
    """Of its capacity, what nothing new can have though nothing holds it: what is left of GPUs that are shared is on
    several of them. Below zero: more is left than the sum says."""
    domains: tuple[str, ...] = ()
    taints: dict[str, str] = {}
    """What keeps work away that does not tolerate it, by key; what runs already stays."""


class NodesChanged(msgspec.Struct, frozen=True):
    """Nodes that joined or changed (matched by name; a row once given stays), and names of nodes that left.

    A node that left keeps its row as a tombstone until the attempts on it have ended, then the row is used again.
    """

    nodes: tuple[NodeSpec, ...] = ()
    removed: tuple[str, ...] = ()


class JobsSubmitted(msgspec.Struct, frozen=True, gc=False):
    """New pending work: rows (dtype SUBMIT) with indices into `classes` and `owners`.

    Passing the *same tuple objects* for `classes` and `owners` again is fast: the engine remembers how it interned
    them. Raises EngineError on an index out of range, a job id whose tasks are already live, tasks < 1, or a priority
    out of range; then nothing of the block was applied.
    """

    rows: SubmitRows
    classes: tuple[ClassSpec, ...]
    owners: tuple[OwnerSpec, ...] = (OwnerSpec(),)


class JobsEligible(msgspec.Struct, frozen=True):
    """Pending tasks of these jobs become eligible at `eligible_ms` (a dependency was met, a begin-at was set)."""

    jobs: JobIds
    eligible_ms: Ints


class JobsHeld(msgspec.Struct, frozen=True):
    """Pending tasks of these jobs wait until JobsReleased. Unknown jobs are ignored (they may all run)."""

    jobs: JobIds


class JobsReleased(msgspec.Struct, frozen=True):
    """Held tasks of these jobs go on waiting for resources at their old place."""

    jobs: JobIds


class JobsCancelled(msgspec.Struct, frozen=True):
    """Pending tasks leave the engine: whole jobs (`first_task` None) or task ranges by columns of equal length.

    Running attempts are not touched: they leave through AttemptsEnded.
    """

    jobs: JobIds
    first_task: Ints | None = None
    tasks: Ints | None = None


class JobsUpdated(msgspec.Struct, frozen=True):
    """New priority, walltime or planned time (dtype UPDATE, KEEP = unchanged): waiting tasks, running attempts."""

    rows: UpdateRows


class RuntimesPredicted(msgspec.Struct, frozen=True):
    """A signal: how long tasks of these jobs are expected to run, instead of up to their walltime. Advice, no limit.

    The whole table of one version: it replaces what an earlier one said (jobs that it does not name are planned by
    their walltime again), and nobody believes it after `expires_ms`. A version that is not newer is ignored, and so are
    jobs that are not live. What runs longer than expected is planned to run as long again, up to its walltime.

    Args:
        jobs: shape (J,), each once. planned_ms: shape (J,), > 0; above the walltime means the walltime.
    """

    version: int
    jobs: JobIds
    planned_ms: Ints
    expires_ms: int = INF


class AdviceUpdated(msgspec.Struct, frozen=True):
    """A part of an update of one kind of advice, which policies may read; nothing else depends on it.

    What is read changes with the last part (`more` is False): then all parts of this version replace what was held
    (`whole`), or go over it. Parts of another version that were never completed are dropped. Only planes advise, never
    the engine itself. A version that is not newer than the one held is ignored.

    Raises EngineError, nothing held otherwise, when a kind's keys would name something else, or there were more kinds
    or keys than the bounds of `hal.core.model.advice`.

    Args:
        keys: names, or job ids as int; unknown ones are kept: a node may join later. values: shape (len(keys),), finite
            or NaN (none); of a key that is there twice the last one holds.
        expires_ms: from then on nothing is held of the kind.
    """

    kind: str
    space: KeySpace
    version: int
    keys: tuple[str, ...] | tuple[int, ...]
    values: Floats
    expires_ms: int = INF
    whole: bool = True
    more: bool = False


class AdviceWithdrawn(msgspec.Struct, frozen=True):
    """Nothing is held of these kinds any more. Kinds that are not held are ignored."""

    kinds: tuple[str, ...]


class KeysRenewed(msgspec.Struct, frozen=True):
    """The order is asked for the keys of these jobs again: advice about them has changed. `Scheduler` applies it."""

    jobs: JobIds


class EstimatesCorrected(msgspec.Struct, frozen=True):
    """Attempts that run longer than was expected, and how long they are expected to run now (dtype CORRECTION)."""

    rows: Records


class PlanAssumed(msgspec.Struct, frozen=True, gc=False):
    """The plan's starts, reservations and parking become true. The plan must be the last one made from this state."""

    plan: Plan


class StartsRefused(msgspec.Struct, frozen=True):
    """Assumed starts that did not happen (commit failed, agent refused): back to pending at the same place.

    Args:
        starts: rows of dtype START; only job, task and attempt are read.
        new_attempt: count the refused try: the next start gets attempt + 1 (use it when the attempt was committed).
    """

    starts: StartRows
    new_attempt: bool = False


class AttemptsEnded(msgspec.Struct, frozen=True, gc=False):
    """Attempts that ended (dtype END): their rows come free; with requeue the task is pending again."""

    rows: EndRows


class AllocationsAdopted(msgspec.Struct, frozen=True):
    """Attempts that run already (dtype ADOPT), as a restarting controller loads them. Nodes first, then these.

    `nodes` are names; `node_index` holds, for each attempt, the indices of its nodes in `nodes`.
    """

    rows: AdoptRows
    node_index: Rows
    nodes: tuple[str, ...]
    classes: tuple[ClassSpec, ...]
    owners: tuple[OwnerSpec, ...] = (OwnerSpec(),)


class ClockAdvanced(msgspec.Struct, frozen=True, gc=False):
    """Time has reached `now_ms`: tasks whose eligible_ms has come enter their buckets. `Scheduler` applies it."""

    now_ms: int


class WholePassDue(msgspec.Struct, frozen=True, gc=False):
    """The next pass looks at everything again, reservations included. `Scheduler` applies it after an unfinished pass
    during which something changed that only the fast lane has looked at, and only in part."""


class BookingsChanged(msgspec.Struct, frozen=True):
    """All bookings there are now, each occurrence by itself; those that were known keep their chosen nodes.

    Raises EngineError for a name that is there twice, an empty time, or neither nodes nor a count. Whether bookings may
    overlap, and who may use them, is for the caller to say.
    """

    bookings: tuple[BookingSpec, ...] = ()


class NodesOffered(msgspec.Struct, frozen=True):
    """All machines that could be rented, ordered by name. Nothing is placed on them: they only answer whether a request
    could ever be held, and why work waits that none of the nodes could hold. So no decision depends on them."""

    offers: tuple[Offer, ...] = ()


class ConfigChanged(msgspec.Struct, frozen=True):
    """Another policy. A new order re-keys everything that waits; all reservations are planned anew."""

    config: EngineConfig


class HoursSpent(msgspec.Struct, frozen=True, order=True):
    """What attempts that have ended used of a limit's hours in one period.

    The names are those of the limit and of its '*' (see `hal.core.model.policy.Limit`). units: base-unit-seconds.
    """

    limit: str
    queue: str
    account: str
    user: str
    qos: str
    resource: str
    units: int
    ends_ms: int
    """When the period ends: what was spent in an earlier one counts no more."""


class SharesLoaded(msgspec.Struct, frozen=True):
    """What had been used before, as a restarting controller finds it: added to what is known.

    use: (account, user, units decayed to `at_ms`) of leaves of the tree of shares. hours: of limits, without what
    attempts that still run are charged. Without a policy nothing is kept.
    """

    use: tuple[tuple[str, str, float], ...]
    at_ms: int
    hours: tuple[HoursSpent, ...] = ()


Event: TypeAlias = (
    NodesChanged
    | JobsSubmitted
    | JobsEligible
    | JobsHeld
    | JobsReleased
    | JobsCancelled
    | JobsUpdated
    | RuntimesPredicted
    | AdviceUpdated
    | AdviceWithdrawn
    | KeysRenewed
    | EstimatesCorrected
    | PlanAssumed
    | StartsRefused
    | AttemptsEnded
    | AllocationsAdopted
    | ClockAdvanced
    | WholePassDue
    | BookingsChanged
    | ConfigChanged
    | SharesLoaded
    | NodesOffered
)

__all__ = [
    "ADOPT",
    "CORRECTION",
    "END",
    "INF",
    "KEEP",
    "START",
    "SUBMIT",
    "UPDATE",
    "AdviceUpdated",
    "AdviceWithdrawn",
    "AllocationsAdopted",
    "AttemptsEnded",
    "BookingSpec",
    "BookingsChanged",
    "ClockAdvanced",
    "ConfigChanged",
    "EstimatesCorrected",
    "Event",
    "Health",
    "JobsCancelled",
    "JobsEligible",
    "JobsHeld",
    "JobsReleased",
    "JobsSubmitted",
    "JobsUpdated",
    "KeySpace",
    "KeysRenewed",
    "NodeSpec",
    "NodesChanged",
    "NodesOffered",
    "PlanAssumed",
    "RuntimesPredicted",
    "SharesLoaded",
    "StartsRefused",
    "WholePassDue",
    "submit_rows",
    "update_rows",
]
