"""TaskPlane: submission, the life of jobs, dependencies and nodes as one object without I/O.

Pure: time, tokens and rows of other jobs are passed in. Calls are staged in memory; `seal` gives what to commit, then
`durable` or `undo` says how the commit went, and only then the next call may be made. The engine is read (does it fit,
why does it wait), never changed: its events come out of `seal`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from hal.core.engine.config import EngineConfig
from hal.core.engine.events import Event
from hal.core.engine.plan import Rows, StartRows
from hal.core.interfaces.admit import Admit
from hal.core.model import EventKind, JobSpec, TaskState, Verdict
from hal.core.model.policy import Policy
from hal.core.model.policy_change import Difference
from hal.planes.tasks import attempts, closing, control, gates, loading, nodes, starting, submission, taking_back
from hal.planes.tasks.booking_ends import end_with_bookings
from hal.planes.tasks.control import EndedTask, EndedTasks, JobPatch
from hal.planes.tasks.dependencies import EndedJob
from hal.planes.tasks.draft import Change
from hal.planes.tasks.engine_view import EngineView
from hal.planes.tasks.leftovers import Leftovers
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.nodes import Arrival
from hal.planes.tasks.policy_change import change_policy
from hal.planes.tasks.runs import Runs
from hal.planes.tasks.slices import Work, finished
from hal.planes.tasks.submission import Submitter
from hal.planes.tasks.table import STEP_SECRET, JobTable
from hal.planes.tasks.taking_back import Moves
from hal.planes.tasks.why import why
from hal.store.mark import INSTANCE
from hal.store.operations import JobRow, NodeRow, Operation, PutMeta
from hal.store.operations import Span as SpanRow
from hal.store.views import JobFilter, Loaded
from hal.wire.frames import FailingCheck, Refusal, StepExit, StepGate, StepStarted

TERM_DIGITS = 8
"""Random hex digits at the end of an attempt's token."""
MAX_DEPENDANTS = 1_000
"""Most dependants of one job that are listed."""


class TaskPlane:
    """The task plane of one controller."""

    def __init__(
        self, policy: Policy, engine: EngineView, config: EngineConfig | None = None, rules: Sequence[Admit] = ()
    ) -> None:
        """Under a policy that was checked; `config` is what the engine decides by beside it, `rules` are the site's."""
        self.table = JobTable(policy, config or EngineConfig(), rules)
        self._engine = engine

    # ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, loaded: Loaded, policy: Policy | None = None) -> list[Event]:
        """Start from rows, under that policy; the events that bring an empty engine to the same point."""
        if policy is not None:
            self.table.policy = policy
        return loading.load(self.table, loaded)

    def seal(self, now_ms: int) -> Change:
        """What was staged since the last commit; `durable` or `undo` must be called before anything else."""
        return finished(self.sealing(now_ms))

    def sealing(self, now_ms: int) -> Work[Change]:
        """`seal`, in slices."""
        return self.table.sealing(now_ms)

    @property
    def unsettled(self) -> bool:
        """Whether something that follows from what was staged is left to `settling`."""
        return self.table.unsettled

    def settling(self) -> Work[None]:
        """What follows from what was staged, in slices; to be done before anything else is staged."""
        return self.table.settling()

    def durable(self) -> None:
        """The sealed change was committed."""
        self.table.durable()

    @property
    def crowded(self) -> bool:
        """Whether there is memory to be given back: `durable` does some of it, also after nothing was staged."""
        return self.table.jobs.crowded

    def undo(self) -> None:
        """The sealed change was not committed: everything is as it was before."""
        self.table.undo()

    def undoing(self) -> Work[None]:
        """`undo`, in slices."""
        return self.table.undoing()

    @property
    def leftovers(self) -> Leftovers:
        """What is to be freed in slices, between groups."""
        return self.table.leftovers

    def engine_events(self) -> list[Event]:
        """What brings an empty engine to where the plane is; nothing may be staged."""
        return loading.engine_events(self.table)

    def take_engine_events(self) -> list[Event]:
        """What has been staged for the engine so far; after an `undo` it must begin anew (`engine_events`)."""
        finished(self.table.settling())
        self.table.refill_all()
        return self.table.draft.feed.take()

    def also(self, *operations: Operation) -> None:
        """Further rows of the same transaction."""
        self.table.draft.other.extend(operations)

    def controller_started(self, epoch: int) -> None:
        """Note it in the feed."""
        attempts_count = sum(len(self.table.jobs[job].active) for job in self.table.busy)
        self.table.draft.note(
            EventKind.CONTROLLER_STARTED,
            "controller",
            "",
            epoch=epoch,
            jobs=len(self.table.jobs),
            attempts=attempts_count,
        )

    def identify(self, fresh: str, secret: str) -> None:
        """This HAL is `fresh` (32 random hex digits) for good, unless an earlier start has named it already; so with
        the secret by which it knows its steps. Tokens of attempts that begin from now on end differently."""
        self.table.term = f".{fresh[:TERM_DIGITS]}"
        if not self.table.step_secret:
            self.table.step_secret = secret
            self.also(PutMeta({STEP_SECRET: secret}))
        if not self.table.instance:
            self.table.instance = fresh
            self.also(PutMeta({INSTANCE: fresh}))

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        specs: Sequence[JobSpec],
        by: Submitter,
        now_ms: int,
        *,
        ended: Mapping[int, EndedJob] = {},
        dry_run: bool = False,
    ) -> list[LiveJob]:
        """See `submission.submitting`."""
        return finished(self.submitting(specs, by, now_ms, ended=ended, dry_run=dry_run))

    def submitting(
        self,
        specs: Sequence[JobSpec],
        by: Submitter,
        now_ms: int,
        *,
        ended: Mapping[int, EndedJob] = {},
        dry_run: bool = False,
    ) -> Work[list[LiveJob]]:
        """`submit`, in slices."""
        return submission.submitting(self.table, self._engine, specs, by, now_ms, ended=ended, dry_run=dry_run)

    def cancel(self, job: int, task: int | None, by: Submitter, now_ms: int) -> TaskState:
        """See `control.cancel`."""
        return finished(self.cancelling(job, task, by, now_ms))

    def cancelling(self, job: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
        """`cancel`, in slices."""
        return control.cancel(self.table, job, task, by, now_ms)

    def hold(self, job: int, task: int | None, by: Submitter, now_ms: int) -> TaskState:
        """See `control.hold`."""
        return finished(self.holding(job, task, by, now_ms))

    def holding(self, job: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
        """`hold`, in slices."""
        return control.hold(self.table, job, task, by, now_ms)

    def release(self, job: int, task: int | None, by: Submitter, now_ms: int) -> TaskState:
        """See `control.release`."""
        return finished(self.releasing(job, task, by, now_ms))

    def releasing(self, job: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
        """`release`, in slices."""
        return control.release(self.table, job, task, by, now_ms)

    def update(self, job: int, patch: JobPatch, by: Submitter, now_ms: int) -> LiveJob:
        """See `control.update`."""
        return finished(self.updating(job, patch, by, now_ms))

    def updating(self, job: int, patch: JobPatch, by: Submitter, now_ms: int) -> Work[LiveJob]:
        """`update`, in slices."""
        return control.update(self.table, self._engine, job, patch, by, now_ms)

    def requeue(
        self, job: int, task: int | None, ended: EndedTasks | Iterable[EndedTask], by: Submitter, now_ms: int
    ) -> TaskState:
        """See `control.requeue`."""
        known = ended if isinstance(ended, EndedTasks) else EndedTasks(ended)
        return finished(self.requeueing(job, task, known, by, now_ms))

    def requeueing(self, job: int, task: int | None, ended: EndedTasks, by: Submitter, now_ms: int) -> Work[TaskState]:
        """`requeue`, in slices."""
        return control.requeue(self.table, job, task, ended, by, now_ms)

    def revive(self, row: JobRow, spans: list[SpanRow], succeeded: Runs | None = None) -> None:
        """Let a job that has ended live again; `requeue` must follow in the same draft. See `loading.revive`."""
        loading.revive(self.table, row, spans, succeeded)

    def matching(self, wanted: JobFilter) -> Work[list[int]]:
        """Live jobs that match, in slices."""
        return control.matching(self.table, wanted)

    # ── policy ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def policy(self) -> Policy:
        """The policy as it was last committed."""
        return self.table.committed_policy

    def change_policy(self, policy: Policy, by: Submitter | None, now_ms: int, note: str = "") -> list[Difference]:
        """See `policy_change.change_policy`."""
        return change_policy(self.table, policy, by, now_ms, note)

    # ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def assumed(
        self,
        starts: StartRows,
        rows: Rows,
        row_name: Callable[[int], str],
        epoch: int,
        now_ms: int,
        *,
        credit: bool = False,
    ) -> int:
        """The engine's starts become attempts; see `starting.allocate`. The engine must hear what comes of credit."""
        return starting.allocate(self.table, starts, rows, row_name, epoch, now_ms, credit=credit)

    def end_with_bookings(self, now_ms: int) -> int:
        """See `booking_ends.end_with_bookings`."""
        return end_with_bookings(self.table, now_ms)

    def taken_back(self, moves: Moves, now_ms: int) -> int:
        """Running attempts leave, or are suspended, for other work; see `taking_back.take_back`."""
        return taking_back.take_back(self.table, moves, now_ms)

    def goes_on(self, moves: Moves, now_ms: int) -> int:
        """Suspended attempts go on; see `taking_back.let_go_on`."""
        return taking_back.let_go_on(self.table, moves, now_ms)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def started(self, node: str, steps: Sequence[StepStarted], now_ms: int) -> None:
        """See `attempts.started`."""
        attempts.started(self.table, node, steps, now_ms)

    def exited(self, node: str, exits: Sequence[StepExit], now_ms: int) -> None:
        """See `attempts.exited`."""
        attempts.exited(self.table, node, exits, now_ms)
        closing.drained(self.table)

    def refused(self, node: str, refusals: Sequence[Refusal], now_ms: int) -> None:
        """See `attempts.refused`."""
        attempts.refused(self.table, node, refusals, now_ms)
        closing.drained(self.table)

    def node_joined(self, arrival: Arrival, now_ms: int) -> NodeRow:
        """See `nodes.joined`."""
        row = nodes.joined(self.table, arrival, now_ms)
        closing.drained(self.table)
        return row

    def node_silent(self, name: str, reason: str, now_ms: int, last_seen_ms: int) -> None:
        """See `nodes.silent`."""
        nodes.silent(self.table, name, reason, now_ms, last_seen_ms)

    def node_lease_over(self, name: str, silent_ms: int, now_ms: int) -> None:
        """See `nodes.lease_over`."""
        nodes.lease_over(self.table, name, silent_ms, now_ms)

    def node_heard(self, name: str, now_ms: int) -> None:
        """See `nodes.heard`."""
        nodes.heard(self.table, name, now_ms)

    def node_gone(self, name: str, by: Submitter, now_ms: int) -> NodeRow:
        """See `nodes.fence`."""
        row = nodes.fence(self.table, name, by, now_ms)
        closing.drained(self.table)
        return row

    def cordon(self, name: str, reason: str, by: Submitter, now_ms: int, *, drain: bool = False) -> NodeRow:
        """See `closing.cordon`."""
        return closing.cordon(self.table, name, reason, by, now_ms, drain=drain)

    def uncordon(self, name: str, by: Submitter) -> NodeRow:
        """See `closing.uncordon`."""
        return closing.uncordon(self.table, name, by)

    def node_health(self, name: str, failing: Sequence[FailingCheck], now_ms: int) -> None:
        """See `closing.checks_told`."""
        closing.checks_told(self.table, name, failing, now_ms)

    def node_lied(self, name: str, reason: str, now_ms: int) -> None:
        """See `closing.quarantine`."""
        closing.quarantine(self.table, name, reason, now_ms)

    def quarantined(self, name: str) -> bool:
        """Whether the node is closed because it lied."""
        row = self.table.nodes.get(name)
        return row is not None and closing.is_quarantined(row)

    def node_gates(self, name: str, told: Sequence[StepGate], now_ms: int) -> None:
        """See `gates.gates_told`."""
        gates.gates_told(self.table, name, told, now_ms)

    def node_removed(self, name: str, by: Submitter) -> None:
        """See `closing.remove`."""
        closing.remove(self.table, name, by)

    def drains(self, name: str) -> bool:
        """Whether the node is to become empty and is not yet."""
        row = self.table.nodes.get(name)
        return (
            row is not None and any(one.drain for one in row.about.closures) and closing.holding(self.table, name) > 0
        )

    def node_reason(self, name: str) -> str:
        """See `closing.reason_of`."""
        return closing.reason_of(self.table.nodes[name])

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, job: int) -> LiveJob | None:
        """The live job as it was last committed; not to be changed."""
        return self.table.committed(job)

    def dependants(self, job: int) -> list[int]:
        """Live jobs that wait and name this one, the first `MAX_DEPENDANTS` by id."""
        table = self.table
        known = (other for other in table.dependants.get(job, ()) if table.committed(other) is not None)
        return heapq.nsmallest(MAX_DEPENDANTS, known)

    def why(self, job: LiveJob, now_ms: int) -> Verdict:
        """Why its waiting tasks do not start."""
        return why(self.table, self._engine, job, now_ms)
