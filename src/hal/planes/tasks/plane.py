"""TaskPlane: submission, the life of jobs, dependencies and nodes as one object without I/O.

Pure: time, tokens and rows of other jobs are passed in. Calls are staged in memory; `seal` gives what to commit, then
`keep` or `undo` says how the commit went, and only then the next call may be made. The engine is read (does it fit,
why does it wait), never changed: its events come out of `seal`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from hal.core.engine.config import EngineConfig
from hal.core.engine.events import Event
from hal.core.engine.plan import Plan, Rows, StartRows
from hal.core.interfaces.admit import Admit
from hal.core.model import EventKind, Forecast, HALError, JobSpec, Never, NodeState, TaskState, Verdict
from hal.core.model.eviction import Evict
from hal.core.model.offer import Offer
from hal.core.model.policy import Policy
from hal.core.model.policy_change import Difference
from hal.core.model.topology.tree import Topology
from hal.planes.tasks.admission import submission
from hal.planes.tasks.admission.policy_change import change_policy
from hal.planes.tasks.attempts import allocation, gate_reports, preemption, readiness_reports, reconciliation, reports
from hal.planes.tasks.attempts.booking_ends import end_with_bookings
from hal.planes.tasks.attempts.preemption import Moves
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs import (
    commands,
    evictions,
    foreseeing,
    packs,
    removal,
    replacements,
    requeues,
    tallies,
    updates,
)
from hal.planes.tasks.jobs.explanation import brief_reasons, never_of, why
from hal.planes.tasks.jobs.patches import JobPatch
from hal.planes.tasks.jobs.placement import Placement, placement_of
from hal.planes.tasks.jobs.requeues import EndedTask, EndedTasks
from hal.planes.tasks.jobs.selection import Done, Named
from hal.planes.tasks.jobs.tallies import QueueTally
from hal.planes.tasks.jobs.updates import Updated
from hal.planes.tasks.live import node as node_rows
from hal.planes.tasks.live.gate_standing import gates_text
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.ready_standing import ReadyStanding, can_serve, ready_attempts
from hal.planes.tasks.live.standings import EndedJob
from hal.planes.tasks.live.task_sets import TaskSet
from hal.planes.tasks.nodes import arrivals, closures, offers
from hal.planes.tasks.nodes.arrivals import Arrival
from hal.planes.tasks.nodes.closures import Drain
from hal.planes.tasks.slices import Work, finished
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table import restart
from hal.planes.tasks.table.commit import keep, sealing, undoing
from hal.planes.tasks.table.draft import Change
from hal.planes.tasks.table.extensions import base_runs, present_nodes
from hal.planes.tasks.table.group_figures import LiveTally
from hal.planes.tasks.table.propagation import settle, settling
from hal.planes.tasks.table.table import STEP_SECRET, JobTable
from hal.store.mark import INSTANCE
from hal.store.operations import JobRow, NodeRow, Operation, PutMeta, Removed, RemoveTasks, TaskRangeRow
from hal.store.views import JobFilter, Loaded
from hal.wire.frames.agent_keeper import Refusal, StepExit, StepStarted
from hal.wire.frames.controller_agent import FailingCheck, StepGate, StepReadiness

TERM_DIGITS = 8
"""Random hex digits at the end of an attempt's token."""
MAX_DEPENDANTS = 1_000
"""Most dependants of one job that are listed."""


class TaskPlane:
    """The task plane of one controller: all that daemons may call.

    A method whose name is a gerund (`submitting`) does in slices what the method without (`submit`) does at once. To
    the control loop it is a `hal.planes.interface.LeadPlane`.
    """

    name = "tasks"
    staged = True

    def __init__(
        self,
        policy: Policy,
        engine: EngineView,
        config: EngineConfig | None = None,
        rules: Sequence[Admit] = (),
        topology: Topology | None = None,
    ) -> None:
        """Under a policy that was checked.

        Args:
            config: what the engine decides by beside it.
            rules: the site's.
            topology: in which domains nodes are.
        """
        self._table = JobTable(policy, config or EngineConfig(), rules, topology)
        self._engine = engine

    # ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, loaded: Loaded, policy: Policy | None = None) -> list[Event]:
        """Start from rows, under that policy; the events that bring an empty engine to the same point."""
        if policy is not None:
            self._table.policy = policy
        return restart.load(self._table, loaded)

    def seal(self, now_ms: int) -> Change:
        """What was staged since the last commit; `keep` or `undo` must be called before anything else."""
        return finished(self.sealing(now_ms))

    def sealing(self, now_ms: int) -> Work[Change]:
        """`seal`, in slices."""
        return sealing(self._table, now_ms)

    @property
    def unsettled(self) -> bool:
        """Whether something that follows from what was staged is left to `settling`."""
        return bool(self._table.worklist)

    def settling(self) -> Work[None]:
        """What follows from what was staged, in slices; to be done before anything else is staged."""
        return settling(self._table)

    def keep(self) -> None:
        """The sealed change was committed."""
        keep(self._table)

    @property
    def crowded(self) -> bool:
        """Whether there is memory to be given back: `keep` does some of it, also after nothing was staged."""
        return self._table.jobs.crowded

    def undo(self) -> None:
        """The sealed change was not committed: everything is as it was before."""
        finished(self.undoing())

    def undoing(self) -> Work[None]:
        """`undo`, in slices."""
        return undoing(self._table)

    def discard(self, change: Change) -> None:
        """See `hal.planes.interface.LeadPlane`."""
        for values in change.lists():
            self._table.discarded.add(values)

    @property
    def has_discarded(self) -> bool:
        """Whether there is anything to be freed."""
        return bool(self._table.discarded)

    def free_discarded(self) -> None:
        """Free one slice of it."""
        self._table.discarded.free_some()

    def engine_events(self) -> list[Event]:
        """What brings an empty engine to where the plane is; nothing may be staged."""
        return restart.engine_events(self._table)

    def take_engine_events(self) -> list[Event]:
        """What was staged for the engine so far; after an `undo` the engine must be built again (`engine_events`)."""
        finished(self.settling())
        self._table.refill_all()
        self._table.feed_shared_gpus()
        return self._table.draft.feed.take()

    def add_operations(self, *operations: Operation) -> None:
        """Further rows of the same transaction."""
        self._table.draft.other.extend(operations)

    def note_controller_start(self, epoch: int) -> None:
        """Note it in the feed."""
        attempts_count = sum(len(self._table.jobs[job].active) for job in self._table.busy)
        self._table.draft.note(
            EventKind.CONTROLLER_STARTED,
            "controller",
            "",
            epoch=epoch,
            jobs=len(self._table.jobs),
            attempts=attempts_count,
        )

    @property
    def instance(self) -> str:
        """Which HAL this is: random, kept from its first start on."""
        return self._table.instance

    @property
    def step_secret(self) -> str:
        """By which this HAL knows its steps."""
        return self._table.step_secret

    def set_addresses(self, variables: dict[str, str]) -> None:
        """Variables that say to a step where this HAL is reached from other machines."""
        self._table.reached_at = variables

    def set_traced_share(self, share: float) -> None:
        """Of the traces of jobs without a `traceparent`, 0 to 1: those that their processes go on with."""
        self._table.traced_share = share

    def identify(self, fresh: str, secret: str) -> None:
        """This HAL is `fresh` (32 random hex digits) for good, unless an earlier start has named it already; so with
        the secret by which it knows its steps. Tokens of attempts that begin from now on end differently."""
        self._table.term = f".{fresh[:TERM_DIGITS]}"
        if not self._table.step_secret:
            self._table.step_secret = secret
            self.add_operations(PutMeta({STEP_SECRET: secret}))
        if not self._table.instance:
            self._table.instance = fresh
            self.add_operations(PutMeta({INSTANCE: fresh}))

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
        """`submit`, in slices; jobs that take the place of others begin to."""
        replacements.check(self._table, specs, by)
        jobs = yield from submission.submitting(
            self._table, self._engine, specs, by, now_ms, ended=ended, dry_run=dry_run
        )
        if not dry_run:
            yield from replacements.begin_all(self._table, jobs, now_ms, by.cause)
        return jobs

    def cancel(self, job: int, named: Named, by: Submitter, now_ms: int) -> TaskState:
        """See `commands.cancel`."""
        return finished(self.cancelling(job, named, by, now_ms)).state

    def cancelling(self, job: int, named: Named, by: Submitter, now_ms: int) -> Work[Done]:
        """`cancel`, in slices."""
        return commands.cancel(self._table, job, named, by, now_ms)

    def hold(self, job: int, named: Named, by: Submitter, now_ms: int) -> TaskState:
        """See `commands.hold`."""
        return finished(self.holding(job, named, by, now_ms)).state

    def holding(self, job: int, named: Named, by: Submitter, now_ms: int) -> Work[Done]:
        """`hold`, in slices."""
        return commands.hold(self._table, job, named, by, now_ms)

    def release(self, job: int, named: Named, by: Submitter, now_ms: int) -> TaskState:
        """See `commands.release`."""
        return finished(self.releasing(job, named, by, now_ms)).state

    def releasing(self, job: int, named: Named, by: Submitter, now_ms: int) -> Work[Done]:
        """`release`, in slices."""
        return commands.release(self._table, job, named, by, now_ms)

    def update(self, job: int, patch: JobPatch, by: Submitter, now_ms: int) -> Updated:
        """See `updates.update`."""
        return finished(self.updating(job, patch, by, now_ms))

    def updating(
        self, job: int, patch: JobPatch, by: Submitter, now_ms: int, ended: Mapping[int, EndedJob] | None = None
    ) -> Work[Updated]:
        """`update`, in slices."""
        return updates.update(self._table, self._engine, job, patch, by, now_ms, ended)

    def foresee(self, jobs: Sequence[LiveJob], now_ms: int) -> list[Forecast]:
        """See `foreseeing.foresee`."""
        return foreseeing.foresee(self._engine, jobs, now_ms)

    def previewing(
        self, job: int, patch: JobPatch, by: Submitter, now_ms: int, ended: Mapping[int, EndedJob] | None = None
    ) -> Work[tuple[Updated, bool | None]]:
        """See `updates.preview`."""
        return updates.preview(self._table, self._engine, job, patch, by, now_ms, ended)

    def requeue(
        self, job: int, named: Named, ended: EndedTasks | Iterable[EndedTask], by: Submitter, now_ms: int
    ) -> TaskState:
        """See `requeues.requeue`."""
        known = ended if isinstance(ended, EndedTasks) else EndedTasks(ended)
        return finished(self.requeueing(job, named, known, by, now_ms)).state

    def requeueing(self, job: int, named: Named, ended: EndedTasks, by: Submitter, now_ms: int) -> Work[Done]:
        """`requeue`, in slices."""
        return requeues.requeue(self._table, job, named, ended, by, now_ms)

    def evict(self, job: int, named: Named, asked: Evict, by: Submitter, now_ms: int) -> TaskState:
        """See `evictions.evict`."""
        return finished(self.evicting(job, named, asked, by, now_ms)).state

    def evicting(self, job: int, named: Named, asked: Evict, by: Submitter, now_ms: int) -> Work[Done]:
        """`evict`, in slices."""
        return evictions.evict(self._table, job, named, asked, by, now_ms)

    def revive(self, row: JobRow, ranges: list[TaskRangeRow], succeeded: TaskSet | None = None) -> None:
        """Let a job that has ended live again; `requeue` must follow in the same draft. See `restart.revive`."""
        restart.revive(self._table, row, ranges, succeeded)

    def remove(
        self, jobs: Sequence[int], removed: Removed, by: Submitter | None, rule: str = ""
    ) -> tuple[list[int], dict[int, HALError]]:
        """See `removal.remove`."""
        return removal.remove(self._table, jobs, removed, by, rule)

    def remove_tasks(self, tasks: RemoveTasks, count: int, by: Submitter) -> HALError | None:
        """See `removal.remove_tasks`."""
        return removal.remove_tasks(self._table, tasks, count, by)

    def pinned(self, jobs: Sequence[int]) -> AbstractContextManager[frozenset[int]]:
        """See `removal.pinned`."""
        return removal.pinned(self._table, jobs)

    def matching(self, wanted: JobFilter) -> Work[list[int]]:
        """Live jobs that match, in slices."""
        return self._table.jobs.matching(wanted)

    # ── policy ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def policy(self) -> Policy:
        """The policy as it was last committed."""
        return self._table.committed_policy

    @property
    def staged_policy(self) -> Policy:
        """The policy as it is staged."""
        return self._table.policy

    def change_policy(self, policy: Policy, by: Submitter | None, now_ms: int, note: str = "") -> list[Difference]:
        """See `policy_change.change_policy`."""
        return change_policy(self._table, policy, by, now_ms, note)

    # ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def allocate(
        self,
        starts: StartRows,
        rows: Rows,
        row_name: Callable[[int], str],
        epoch: int,
        now_ms: int,
        *,
        credit: bool = False,
    ) -> int:
        """The engine's starts become attempts; see `allocation.allocate`. The engine must hear what comes of credit."""
        return allocation.allocate(self._table, starts, rows, row_name, epoch, now_ms, credit=credit)

    def carry_out(self, plan: Plan, row_name: Callable[[int], str], epoch: int, now_ms: int, *, credit: bool) -> None:
        """See `hal.planes.interface.LeadPlane`."""
        self.preempt(plan.preemptions, now_ms)
        self.resume(plan.resumes, now_ms)
        self.allocate(plan.starts, plan.rows, row_name, epoch, now_ms, credit=credit)

    def end_with_bookings(self, now_ms: int) -> int:
        """See `booking_ends.end_with_bookings`."""
        return end_with_bookings(self._table, now_ms)

    def preempt(self, moves: Moves, now_ms: int) -> int:
        """End or suspend running attempts for other work; see `preemption.preempt`."""
        return preemption.preempt(self._table, moves, now_ms)

    def resume(self, moves: Moves, now_ms: int) -> int:
        """Resume suspended attempts; see `preemption.resume`."""
        return preemption.resume(self._table, moves, now_ms)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def record_starts(self, node: str, steps: Sequence[StepStarted], now_ms: int) -> None:
        """See `reports.record_starts`."""
        self._settle(reports.record_starts(self._table, node, steps, now_ms), node, now_ms)

    def record_exits(self, node: str, exits: Sequence[StepExit], now_ms: int) -> None:
        """See `reports.record_exits`."""
        self._settle(reports.record_exits(self._table, node, exits, now_ms), node, now_ms)
        closures.close_drained(self._table)

    def record_refusals(self, node: str, refusals: Sequence[Refusal], now_ms: int) -> None:
        """See `reports.record_refusals`."""
        self._settle(reports.record_refusals(self._table, node, refusals, now_ms), node, now_ms)
        closures.close_drained(self._table)

    def record_gates(self, name: str, gates: Sequence[StepGate], now_ms: int) -> None:
        """See `gate_reports.record_gates`."""
        self._settle(gate_reports.record_gates(self._table, name, gates, now_ms), name, now_ms)

    def record_readiness(self, name: str, steps: Sequence[StepReadiness], now_ms: int) -> None:
        """See `readiness_reports.record_readiness`."""
        for job in readiness_reports.record_readiness(self._table, name, steps, now_ms):
            replacements.look_at(self._table, job, now_ms)

    def record_arrival(self, arrival: Arrival, now_ms: int) -> NodeRow:
        """A node dialled, new or back again; see `arrivals.record_arrival`, `reconciliation.reconcile`."""
        row, restarted = arrivals.record_arrival(self._table, arrival, now_ms)
        if restarted:
            reconciliation.lose_all(self._table, row.name, "restarted while it ran", now_ms)
        reconciliation.reconcile(self._table, arrival, now_ms)
        closures.close_drained(self._table)
        return row

    def record_silence(self, name: str, reason: str, now_ms: int, last_seen_ms: int, *, stopped: bool = False) -> None:
        """See `arrivals.record_silence`."""
        arrivals.record_silence(self._table, name, reason, now_ms, last_seen_ms, stopped=stopped)

    def end_node_lease(self, name: str, silent_ms: int, now_ms: int) -> None:
        """See `reconciliation.end_lease`."""
        reconciliation.end_lease(self._table, name, silent_ms, now_ms)

    def record_return(self, name: str, now_ms: int) -> None:
        """See `arrivals.record_return`."""
        arrivals.record_return(self._table, name, now_ms)

    def fence_node(
        self, name: str, by: Submitter, now_ms: int, *, machine_gone: bool = False, reason: str = ""
    ) -> NodeRow:
        """`fencing`, at once."""
        return finished(self.fencing(name, by, now_ms, machine_gone=machine_gone, reason=reason))

    def fencing(
        self, name: str, by: Submitter, now_ms: int, *, machine_gone: bool = False, reason: str = ""
    ) -> Work[NodeRow]:
        """Somebody declares that the node is gone: its attempts are lost, their tasks wait again; in slices. See
        `arrivals.fence_node`."""
        row = arrivals.fence_node(self._table, name, by, now_ms, machine_gone=machine_gone, reason=reason)
        yield from reconciliation.lose_fenced(self._table, name, row.reason, now_ms)
        closures.close_drained(self._table)
        return row

    def _settle(self, jobs: Iterable[LiveJob], node: str, now_ms: int) -> None:
        for job in jobs:
            settle(self._table, job, now_ms, f"node:{node}")

    def cordon(
        self, name: str, reason: str, by: Submitter, now_ms: int, *, drain: bool = False, evict: Drain | None = None
    ) -> NodeRow:
        """See `closures.cordon`."""
        return closures.cordon(self._table, name, reason, by, now_ms, drain=drain, evict=evict)

    def evicting_from(self, names: Collection[str], asked: Evict, by: Submitter, now_ms: int) -> Work[dict[str, int]]:
        """See `evictions.evict_from`."""
        return evictions.evict_from(self._table, names, asked, by, now_ms)

    def taint(self, name: str, taints: dict[str, str], by: Submitter) -> NodeRow:
        """See `closures.taint`."""
        return closures.taint(self._table, name, taints, by)

    def untaint(self, name: str, keys: Sequence[str], by: Submitter) -> NodeRow:
        """See `closures.untaint`."""
        return closures.untaint(self._table, name, keys, by)

    def uncordon(self, name: str, by: Submitter) -> NodeRow:
        """See `closures.uncordon`."""
        return closures.uncordon(self._table, name, by)

    def record_checks(self, name: str, failing: Sequence[FailingCheck], now_ms: int) -> None:
        """See `closures.record_checks`."""
        closures.record_checks(self._table, name, failing, now_ms)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Machines that could be rented, by name, as they were last committed."""
        return self._table.committed_offers

    def put_offer(self, offer: Offer, by: Submitter, now_ms: int) -> Offer:
        """See `offers.put_offer`."""
        return offers.put_offer(self._table, offer, by, now_ms)

    def withdraw_offer(self, name: str, by: Submitter) -> Offer:
        """See `offers.withdraw_offer`."""
        return offers.withdraw_offer(self._table, name, by)

    @property
    def next_due_ms(self) -> int:
        """When something is due next by itself: an eviction, the end of an offer, a look at a replacement, a job that
        has waited long enough for one domain."""
        table = self._table
        return min(
            evictions.next_eviction_ms(table),
            offers.next_expiry_ms(table),
            replacements.next_look_ms(table),
            table.packs.next_ms(),
        )

    def carrying_out_due(self, now_ms: int) -> Work[None]:
        """Do what is due, in slices."""
        if offers.next_expiry_ms(self._table) <= now_ms:
            offers.expire_offers(self._table, now_ms)
        yield from evictions.evict_overdue(self._table, now_ms)
        yield from replacements.advance_due(self._table, now_ms)
        yield from packs.give_up_due(self._table, now_ms)

    def quarantine_node(self, name: str, reason: str, now_ms: int) -> None:
        """See `closures.quarantine`."""
        closures.quarantine(self._table, name, reason, now_ms)

    def is_quarantined(self, name: str) -> bool:
        """Whether the node is closed because it lied."""
        row = self._table.nodes.get(name)
        return row is not None and node_rows.is_quarantined(row)

    def remove_node(self, name: str, by: Submitter) -> None:
        """See `closures.remove`."""
        closures.remove(self._table, name, by)

    def is_draining(self, name: str) -> bool:
        """Whether the node is to become empty and is not yet."""
        row = self._table.nodes.get(name)
        return (
            row is not None and any(one.drain for one in row.about.closures) and closures.holding(self._table, name) > 0
        )

    def node_reason(self, name: str) -> str:
        """See `live.node.reason_of`."""
        return node_rows.reason_of(self._table.nodes[name])

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, job: int) -> LiveJob | None:
        """The live job as it was last committed; not to be changed."""
        return self._table.committed(job)

    def gates_text(self, job: int, task: int, attempt: int) -> str:
        """Which gates that attempt waits for, in words; '' when it is active and waits for none, or is not."""
        return gates_text(self._table.gates.waiting((job, task, attempt)))

    def present_nodes(self, job: int) -> tuple[str, ...] | None:
        """The nodes that an elastic job has now, its base's first; None where it is none, or its base does not run.
        O(its active attempts)."""
        live = self._table.committed(job)
        return present_nodes(live) if live is not None and live.spec.has_base and base_runs(live) else None

    def ready_count(self, job: int) -> int | None:
        """How many tasks of a service are ready; None where it is none, or not live. O(its active attempts)."""
        live = self._table.committed(job)
        if live is None or live.spec.service is None:
            return None
        return sum(1 for _ in ready_attempts(self._table.readiness, live))

    def readiness(self, job: int, task: int) -> ReadyStanding | None:
        """How a running task of a service stands; None where it is starting, or none of these."""
        live = self._table.committed(job)
        attempt = live.active.get(task) if live is not None else None
        if attempt is None or not can_serve(attempt):
            return None
        return self._table.readiness.committed((job, task, attempt.attempt))

    def staged_job(self, job: int) -> LiveJob | None:
        """The live job as it is staged; not to be changed."""
        return self._table.jobs.peek(job)

    def jobs_named(self, user: str, name: str) -> tuple[int, ...]:
        """Ids of the live jobs of that user and name, as they are staged. O(how many those are)."""
        return self._table.singletons.named((user, name))

    def is_live(self, job: int) -> bool:
        """Whether it lives, as it is staged."""
        return self._table.is_live(job)

    @property
    def live_count(self) -> int:
        """How many jobs live."""
        return len(self._table.jobs)

    def has_active(self, job: int) -> bool:
        """Whether it has active attempts, as it is staged."""
        return job in self._table.busy

    def live_jobs(self) -> Iterator[int]:
        """Ids of live jobs; none may come or go meanwhile."""
        return iter(self._table.jobs)

    def running_jobs(self) -> Iterator[LiveJob]:
        """Jobs with active attempts; not to be changed."""
        return (self._table.jobs[job] for job in self._table.busy)

    def running_ids(self) -> list[int]:
        """Ids of jobs with active attempts, as they are now."""
        return list(self._table.busy)

    def tally_states(self) -> dict[TaskState, int]:
        """See `tallies.tally_states`."""
        return tallies.tally_states(self._table)

    def tally_queues(self) -> dict[str, QueueTally]:
        """See `tallies.tally_queues`."""
        return tallies.tally_queues(self._table)

    @property
    def tally(self) -> LiveTally:
        """Counts of committed live jobs and tasks, by queue and state; kept up with each commit, O(1) to ask."""
        return self._table.tally

    @property
    def node_states(self) -> Mapping[NodeState, int]:
        """How many nodes are in each state; O(1)."""
        return self._table.node_states

    def tally_nodes(self) -> dict[str, int]:
        """See `tallies.tally_nodes`."""
        return tallies.tally_nodes(self._table)

    @property
    def nodes(self) -> Mapping[str, NodeRow]:
        """All nodes by name, as they are staged; not to be changed."""
        return self._table.nodes

    def dependants(self, job: int) -> list[int]:
        """Live jobs that wait and name this one, the first `MAX_DEPENDANTS` by id."""
        table = self._table
        known = (other for other in table.dependants.get(job, ()) if table.committed(other) is not None)
        return heapq.nsmallest(MAX_DEPENDANTS, known)

    def brief_reasons(self, jobs: Iterable[int], now_ms: int) -> Work[dict[int, Verdict]]:
        """See `explanation.brief_reasons`."""
        return brief_reasons(self._table, self._engine, jobs, now_ms)

    def placement(self, job: int) -> Placement | None:
        """Where it runs now; None when nothing of it holds a node. See `placement.placement_of`."""
        if job not in self._table.busy:
            return None
        live = self._table.committed(job)
        return None if live is None or not live.active else placement_of(live)

    def why(self, job: LiveJob, now_ms: int) -> Verdict:
        """Why its waiting tasks do not start."""
        return why(self._table, self._engine, job, now_ms)

    def never(self, job: LiveJob, now_ms: int) -> Never | None:
        """Why its tasks could not start even if nothing else ran; None if they could."""
        return never_of(self._table, self._engine, job, now_ms)
