"""The table of live jobs and what may be done to one of them; every change is staged in the table's draft.

Pure. The invariants (`check_table` checks them): a task is in exactly one of ranges, active attempts and
ended-through-an-attempt; counts agree with them; the engine's pending tasks are exactly the ranges that are pending and
wait for no other job or task, of arrays with `max_running` only as many as may start. Held tasks, and jobs that wait
for others, cost the engine nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import INF, NodeSpec
from hal.core.interfaces.admit import Admit
from hal.core.lifecycle import TASK, TaskCounts, TaskEvent, transition
from hal.core.model import (
    AttemptState,
    Dependency,
    DependencyKind,
    InternalError,
    JobSpec,
    NodeState,
    NotFoundError,
    StepId,
    TaskState,
)
from hal.core.model.devices import GPU, GPU_PART, GPU_WHOLE, WHOLE
from hal.core.model.gpu_reserves import GpuReserves
from hal.core.model.offer import Offer
from hal.core.model.policy import Policy
from hal.core.model.policy_scope import Owner
from hal.core.model.returning_bookings import ReturningBookings
from hal.core.model.topology.tree import Topology
from hal.planes.tasks.dependencies.decisions import current_standings
from hal.planes.tasks.discarded import Discarded
from hal.planes.tasks.engine.interning import Interning
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.gate_standing import GateStandings
from hal.planes.tasks.live.gpu_book import GpuBook
from hal.planes.tasks.live.job import LiveJob, with_state
from hal.planes.tasks.live.node import GONE, domain_paths, eviction_of, node_spec
from hal.planes.tasks.live.port_book import PortBook
from hal.planes.tasks.live.ready_standing import ReadyStandings
from hal.planes.tasks.live.replacing import Replacing
from hal.planes.tasks.live.reserve_book import ReserveBook
from hal.planes.tasks.live.standings import SINGLETON, EndedJob, Mentions, Phase
from hal.planes.tasks.live.task_ranges import ONE_TASK, TaskRange, TaskRanges, change, parts_within, slices, take
from hal.planes.tasks.slices import A_SLICE, Pace, Work
from hal.planes.tasks.table import array_window
from hal.planes.tasks.table.draft import Draft
from hal.planes.tasks.table.group_figures import LiveTally
from hal.planes.tasks.table.jobs_by_id import JobsById
from hal.planes.tasks.table.packs import Packs, give_up_ms
from hal.planes.tasks.table.pending_limits import PendingLimits
from hal.planes.tasks.table.singletons import Singletons
from hal.planes.tasks.table.worklist import Worklist
from hal.runtime.time_zones import zone_offsets
from hal.store.operations import NodeRow
from hal.store.pending_columns import PendingColumns

MAX_RESTS: Final = 64
"""Amounts that are kept of former policies."""
STEP_SECRET = "step-secret"
"""Under this name the store's meta table keeps by what this HAL knows its steps."""


class JobTable:
    """Live jobs, who waits for whom, nodes, and the draft of what is not durable yet."""

    def __init__(
        self, policy: Policy, config: EngineConfig, rules: Sequence[Admit] = (), topology: Topology | None = None
    ) -> None:
        self.policy = policy
        """What holds now; set by `put_policy`."""
        self._config = config
        self.rules = tuple(rules)
        """Of the site, for what is submitted or changed."""
        self.topology = topology
        """In which domains nodes are, as the controller read it when it started; None: nobody declared any."""
        self.pending_limits = PendingLimits(policy)
        self.returning_bookings = ReturningBookings(policy)
        self.reshaped: set[int] = set()
        """Jobs of which attempts run that the engine knows in another class or under another owner than what waits."""
        """Those of the policy that holds now."""
        self.interning = Interning(gpu_parts=config.gpu_parts, domain_of=self._domain_of)
        self._reserves: list[tuple[Policy, GpuReserves]] = []
        """Of the policies that were asked for last: the one that holds, and the committed one while they differ."""
        self._rests: dict[str, str] = {}
        """Of all policies since this controller began: what work without GPUs may use, with the resource that it is of.
        What runs holds it when another policy reserves something else."""
        self.jobs = JobsById(self._from_columns, self.pending_limits.left_columns)
        self.tally = LiveTally()
        """Counts of committed live jobs and tasks, by queue and state."""
        self.dependants: dict[int, set[int]] = {}
        """Jobs that wait and name this one; their own `waits` say how."""
        self.followers: dict[int, set[int]] = {}
        """Of these, arrays that follow this one task by task."""
        self.ended: dict[int, EndedJob] = {}
        """Jobs that have ended and are named by jobs that wait."""
        self.singletons = Singletons()
        self.packs = Packs(self.jobs.peek)
        """When jobs give up their wish for one domain."""
        self.now_ms = 0
        """Instant of the newest change."""
        self.busy: set[int] = set()
        """Jobs with active attempts."""
        self.nodes: dict[str, NodeRow] = {}
        self.node_states: Counter[NodeState] = Counter()
        """How many of them are in each state."""
        self.draining: dict[str, tuple[int, int] | None] = {}
        """Nodes that drain, each with the job and task that was found there last; not stored."""
        self.evictions: dict[str, int] = {}
        """Of these, and of silent ones, those that evict what is left: when. As their rows say."""
        self.offers: dict[str, Offer] = {}
        """Machines that could be rented, by the name of their offer; never changed, replaced by `put_offers`."""
        self.credit_nodes: set[str] = set()
        """Nodes that take starts on credit; as long as their agents said so, not stored."""
        self.foreign: dict[str, frozenset[StepId]] = {}
        """Steps that nodes hold and this store has not given them, of attempts of another store or of a later state of
        this one; by node, as it said when it dialled, not stored. What is reported of them is of no attempt here, also
        where one gets the same id."""
        self.gates = GateStandings()
        """How the gates of active attempts stand."""
        self.gpus = GpuBook(parts=config.gpu_parts, islands=config.gpu_islands)
        """Which GPUs the active attempts hold; not stored, for their rows say it."""
        self.over_reserves = ReserveBook()
        """Nodes on which work without GPUs uses more than it may; not stored, for the attempts say it."""
        self.ports = PortBook()
        """At which ports the ranks of active attempts meet; not stored, for their rows say it."""
        self.readiness = ReadyStandings()
        """Whether active attempts of services are ready."""
        self.replacements: dict[int, Replacing] = {}
        """Services that take the place of others, by the new job; not stored: rows say which are under way."""
        self.pinned: Counter[int] = Counter()
        """Ended jobs whose rows a request has read and is about to act on, with how many requests; not stored. They are
        not removed meanwhile."""
        self.recent_ms: dict[int, tuple[int, ...]] = {}
        """How long the latest steps of an array took, newest last, by job; not stored."""
        self.next_id = 1
        self.instance = ""
        """Which HAL this is, for the attempts' tokens: random, kept from its first start on."""
        self.term = ""
        """Ends the attempts' tokens: random, of this start of the controller. A store that was restored gives epochs
        and numbers of attempts again."""
        self.step_secret = ""
        """By which this HAL knows its steps (see `step_token`): random, kept from the first start that needs it on."""
        self.reached_at: dict[str, str] = {}
        """Variables that say to a step where this HAL is reached from other machines; as the controller was started."""
        self.traced_share = 0.0
        """Of the traces of jobs without a `traceparent`, 0 to 1: those that their processes go on with."""
        self.draft = Draft(self.interning, self.next_id)
        self.worklist = Worklist()
        """What follows from changes and was not applied at once; see `table.propagation`."""
        self.discarded = Discarded()

    # ── staging ───────────────────────────────────────────────────────────────────────────────────────────────────

    def touch(self, job_id: int) -> LiveJob:
        """The live job, its committed value kept, ready to be changed.

        Raises:
            NotFoundError: there is no live job with this id.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise NotFoundError(f"there is no live job {job_id}", hint="`hal jobs --all` lists those that have ended")
        if job_id not in self.draft.jobs_before:
            self.draft.jobs_before[job_id] = job.kept()
        self.pending_limits.touched(job_id)
        return job

    def add(self, job: LiveJob, *, stored: bool = False) -> None:
        """A new job, or (`stored`) one that had ended and lives again: whose name is not filed yet."""
        self.jobs[job.id] = job
        self.draft.jobs_before[job.id] = None
        self.pending_limits.touched(job.id)
        if not stored:
            self.draft.new_jobs.append(job.id)
            self.file_name(job)

    def take_out(self, job: LiveJob) -> None:
        """Remove a job that has ended."""
        del self.jobs[job.id]
        self.recent_ms.pop(job.id, None)
        self.reshaped.discard(job.id)
        self.draft.ended_jobs[job.id] = job

    def file_name(self, job: LiveJob) -> None:
        """File a live job under its name."""
        if job.name:
            self.singletons.add(job.key, job.id)

    def drop_revived(self, job_id: int) -> None:
        """A job that was let live again is not run again after all: it has ended, as its rows say."""
        if self.draft.jobs_before.get(job_id, self) is None and job_id not in self.draft.new_jobs:
            del self.jobs[job_id], self.draft.jobs_before[job_id]
            del self.draft.stored_ranges[job_id]
            self.pending_limits.touched(job_id)

    # ── who waits for whom ────────────────────────────────────────────────────────────────────────────────────────

    def begin_waiting(self, job: LiveJob, mentions: Mentions | None = None) -> None:
        """It waits for what its spec says, as that stands now.

        Args:
            mentions: of its spec, where they are known.
        """
        job.waits = current_standings(job, self, mentions)
        self.link(job)

    def stop_waiting(self, job: LiveJob) -> None:
        """Let the job wait for no other job any more."""
        self.unlink(job)
        job.waits = None

    def set_dependencies(self, job: LiveJob, kept: tuple[Dependency, ...]) -> None:
        """Let the job wait for these alone, as they stand now."""
        self.stop_waiting(job)
        if kept != job.spec.dependencies:
            job.spec = replace(job.spec, dependencies=kept)
            self.draft.edited.add(job.id)
        if kept:
            self.begin_waiting(job)

    def link(self, job: LiveJob) -> None:
        """Note whom it waits for."""
        if job.waits is None:
            return
        for other, mentions in job.waits.mentions.items():
            if other == SINGLETON:
                self.singletons.wait(job.key, job.id)
                continue
            self.dependants.setdefault(other, set()).add(job.id)
            if job.waits.by_task and any(kind is DependencyKind.AFTERCORR for _, kind in mentions):
                self.followers.setdefault(other, set()).add(job.id)

    def unlink(self, job: LiveJob) -> None:
        """Forget whom it waited for, and who of them has ended when nobody else waits for it."""
        for other in job.waits.mentions if job.waits else ():
            if other == SINGLETON:
                self.singletons.leave(job.key, job.id)
                continue
            for listed in (self.dependants, self.followers):
                those = listed.get(other)
                if those is not None:
                    those.discard(job.id)
                    if not those:
                        del listed[other]
            if other in self.ended and other not in self.dependants:
                self.remember(other, None)

    def remember(self, job_id: int, ended: EndedJob | None) -> None:
        """A job that others wait for has ended (None: it lives, or nobody waits for it any more)."""
        before = self.ended.get(job_id)
        self.draft.ended_before.setdefault(job_id, before)
        if ended is not None:
            self.ended[job_id] = ended
        elif before is not None:
            del self.ended[job_id]

    def job_or_ended(self, job_id: int) -> LiveJob | EndedJob:
        """A job that others wait for; not to be changed."""
        return self.jobs.peek(job_id) or self.ended[job_id]

    def phase(self, job_id: int) -> Phase:
        """How far a job that others wait for has come."""
        return Phase.WAITS if self.jobs.is_in_columns(job_id) else self.job_or_ended(job_id).phase

    def is_live(self, job_id: int) -> bool:
        """Whether it has not ended."""
        return job_id in self.jobs

    def is_first(self, key: tuple[str, str], job_id: int) -> bool:
        """Whether no live job of that user and name has a lower id."""
        return self.singletons.is_first(key, job_id)

    # ── nodes and policy ──────────────────────────────────────────────────────────────────────────────────────────

    def put_node(self, row: NodeRow) -> None:
        """Put a node that is new or has changed."""
        self.draft.nodes_before.setdefault(row.name, self.nodes.get(row.name))
        self.set_node(row.name, row)

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self.draft.nodes_before.setdefault(name, self.nodes[name])
        self.set_node(name, None)
        self.credit_nodes.discard(name)
        self.foreign.pop(name, None)

    def address_of(self, name: str) -> str:
        """Where other machines reach a node; its name if that is not known."""
        row = self.nodes.get(name)
        return (row.about.facts.address if row is not None else "") or name

    def take_port(self, job: int, attempt: Attempt) -> None:
        """An attempt holds its port, wherever its nodes are reached now."""
        addresses = tuple(map(self.address_of, attempt.nodes))
        self.ports.take((job, attempt.task, attempt.attempt), attempt.port, addresses)

    def node_spec(self, row: NodeRow) -> NodeSpec:
        """The node as the engine knows it now."""
        spec = node_spec(row, self.gpus, self.topology, self.reserves_of(self.policy))
        over = self.over_reserves.withheld(row.name)
        return replace(spec, withheld={**spec.withheld, **over}) if over else spec

    def set_node(self, name: str, row: NodeRow | None) -> None:
        """Set the node as it is from now on; None: forget it."""
        if (known := self.nodes.get(name)) is not None:
            self.node_states[known.state] -= 1
        if row is not None:
            self.node_states[row.state] += 1
        if row is None:
            self.nodes.pop(name, None)
            self.gpus.forget(name)
        else:
            before = self.nodes.get(name)
            self.nodes[name] = row
            if before is not None and before.capacity != row.capacity:
                self.gpus.renew(name)
        if row is not None and row.state is NodeState.DRAINING:
            self.draining.setdefault(name)
        else:
            self.draining.pop(name, None)
        evict_at_ms = None if row is None else eviction_of(row)
        if evict_at_ms is None:
            self.evictions.pop(name, None)
        else:
            self.evictions[name] = evict_at_ms

    def put_offers(self, offers: dict[str, Offer]) -> None:
        """Put other offers in place of those there are."""
        if self.draft.offers_before is None:
            self.draft.offers_before = self.offers
        self.offers = offers
        self.draft.feed.offered(self.offers_of_engine)

    @property
    def offers_by_name(self) -> tuple[Offer, ...]:
        """All offers, ordered."""
        return tuple(self.offers[name] for name in sorted(self.offers))

    @property
    def offers_of_engine(self) -> tuple[Offer, ...]:
        """The same as the engine knows them: with what it counts beside GPUs."""
        offers = self.offers_by_name
        if self.gpus.parts:
            offers = tuple(map(_with_parts, offers))
        reserves = self.reserves_of(self.policy)
        if not reserves:
            return offers
        return tuple(replace(one, resources=one.resources | reserves.rests(one.resources)) for one in offers)

    def reserves_of(self, policy: Policy) -> GpuReserves:
        """What work without GPUs leaves to them under a policy."""
        for known, reserves in self._reserves:
            if known is policy:
                return reserves
        if len(self._rests) > MAX_RESTS:
            self._rests.clear()
        made = GpuReserves(self._config.gpu_reserve, policy.queues, self._rests)
        self._rests |= made.resource_of
        self._reserves = [(policy, made), *self._reserves[:1]]
        return made

    def feed_reserves(self) -> None:
        """Tell the engine of all nodes and offers again: what work without GPUs leaves to them is something else."""
        for row in self.nodes.values():
            if row.state not in GONE:
                self.draft.feed.node(self.node_spec(row))
        if self.offers:
            self.draft.feed.offered(self.offers_of_engine)

    def feed_shared_gpus(self) -> None:
        """Tell the engine what is left of the GPUs of nodes where that is no sum and has changed."""
        untold = self.gpus.take_untold(self.nodes)
        untold += [self.nodes[name] for name in self.over_reserves.take_untold() if name in self.nodes]
        for row in untold:
            if row.state not in GONE:
                self.draft.feed.node(self.node_spec(row))

    @property
    def committed_offers(self) -> tuple[Offer, ...]:
        """The same, as they were last committed."""
        before = self.draft.offers_before
        return self.offers_by_name if before is None else tuple(before[name] for name in sorted(before))

    def class_of(self, spec: JobSpec, queue: str, policy: Policy | None = None) -> ClassSpec:
        """What each attempt of such a task takes in that queue under that policy; None: the one that holds now."""
        policy = policy or self.policy
        found, reserves = policy.queues.get(queue), self.reserves_of(policy)
        return self.interning.class_of(spec, found.nodes if found is not None else (), reserves.asked_in(queue))

    def put_policy(self, policy: Policy) -> None:
        """Put another policy in force."""
        if self.draft.policy_before is None:
            self.draft.policy_before = self.policy
        self.policy = policy
        self.count_waiting()
        self.draft.feed.config(self.engine_config)

    def count_waiting(self) -> None:
        """Read again what is derived from the policy: how many tasks wait within each limit, returning bookings."""
        self.returning_bookings = ReturningBookings(self.policy)
        self.pending_limits.set_policy(self.policy, self.jobs.objects(), self.jobs.owners_in_columns())

    def _domain_of(self, node: str, level: str) -> str:
        """The path of the domain of a level in which a node is; '' for none."""
        row = self.nodes.get(node)
        if row is None or self.topology is None:
            return ""
        found = domain_paths(self.topology.levels, self.topology.domains_of(node, row.labels))
        return dict(found).get(level, "")

    @property
    def engine_config(self) -> EngineConfig:
        """What the engine decides by: its own configuration, and the policy that holds now."""
        levels = self.topology.levels if self.topology is not None else ()
        return replace(self._config, policy=self.policy, zones=zone_offsets(self.policy), levels=levels)

    @property
    def committed_policy(self) -> Policy:
        """The policy as it was last committed."""
        return self.draft.policy_before or self.policy

    def is_foreign(self, node: str, step: StepId) -> bool:
        """Whether what the node holds under that id is no step of an attempt of this store."""
        return node in self.foreign and step in self.foreign[node]

    # ── what is committed ─────────────────────────────────────────────────────────────────────────────────────────

    def committed(self, job_id: int) -> LiveJob | None:
        """The job as it was last committed; None when it was not live then. For readers: do not change it."""
        if job_id in self.draft.jobs_before:
            return self.draft.jobs_before[job_id]
        return self.jobs.peek(job_id)

    def committed_or_ended(self, job_id: int) -> LiveJob | EndedJob:
        """A job that a committed job waits for, as it was last committed. For readers: do not change it."""
        found: LiveJob | EndedJob | None = self.committed(job_id)
        if found is None:
            found = self.draft.ended_before.get(job_id) or self.ended.get(job_id)
        if found is None:
            raise InternalError(f"job {job_id} is waited for and forgotten")
        return found

    def _from_columns(self, columns: PendingColumns, index: int) -> LiveJob:
        """The job at that index, as it was stored; its request is that of the committed policy: `undo` restores it."""
        spec, walltime_ms = columns.spec(index), columns.walltime_ms[index]
        queue, account, user = columns.owners[columns.owner[index]]
        return LiveJob(
            id=columns.ids[index],
            spec=spec,
            name=columns.names[columns.name[index]],
            queue=queue,
            account=account,
            user=user,
            priority=columns.priority[index],
            walltime_ms=None if walltime_ms < 0 else walltime_ms,
            submit_ms=columns.submit_ms[index],
            eligible_ms=columns.eligible_ms[index],
            trace_id=columns.traces[columns.trace[index]],
            request=self.class_of(spec, queue, self.committed_policy),
            owner=self.interning.owner_of(Owner(queue, account, user, spec.qos)),
            counts=TaskCounts(pending=1),
            ranges=ONE_TASK,
            active={},
        )

    # ── one job ───────────────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, job: LiveJob, task_range: TaskRange) -> None:
        """These tasks begin to wait for resources, if they are pending and wait for no other job."""
        # Tasks of an array with a limit are fed when the job is settled.
        if task_range.state is TaskState.PENDING and job.eligible_of(task_range) < INF and not job.window:
            self._submit(job, task_range)

    def entering(self, job: LiveJob, tasks: TaskRanges) -> Work[None]:
        """`enter` for all of these, in slices."""
        pace = Pace()
        for task_range in tasks:
            self.enter(job, task_range)
            if pace.over():
                yield

    def leave(self, job: LiveJob, task_range: TaskRange) -> None:
        """These tasks no longer wait for resources, if they did."""
        if task_range.state is not TaskState.PENDING or job.eligible_of(task_range) >= INF:
            return
        if not job.window:
            self.draft.feed.withdraw(job, task_range.first, task_range.count)
            return
        for known in parts_within(job.fed, task_range.first, task_range.count):
            self.draft.feed.withdraw(job, known.first, known.count)
        job.fed = tuple(take(job.fed, task_range.first, task_range.count))

    def refill_all(self) -> None:
        """`refill` every array with `max_running` that has changed."""
        refills, self.draft.refills = self.draft.refills, set()
        for job_id in sorted(refills):
            job = self.jobs.get(job_id)
            if job is not None:
                self.refill(job)

    def refill(self, job: LiveJob) -> None:
        """Feed the engine as many tasks of an array with `max_running` as may start."""
        known, wanted = job.fed, array_window.fed(job, self.now_ms)
        if known == wanted:
            return
        job.fed = wanted
        for task_range in array_window.missing(known, wanted):
            self.draft.feed.withdraw(job, task_range.first, task_range.count)
        for task_range in array_window.missing(wanted, known):
            self._submit(job, task_range)

    def _submit(self, job: LiveJob, task_range: TaskRange) -> None:
        plain = job.spec.first_extension - task_range.first
        if job.spec.extensions and 0 < plain < task_range.count:
            # Extensions of an array are other work than its other tasks, to the engine.
            self._submit(job, replace(task_range, count=plain))
            task_range = replace(task_range, first=job.spec.first_extension, count=task_range.count - plain)
        self.packs.note(give_up_ms(job), job.id)
        limits = (job.priority, INF if job.walltime_ms is None else job.walltime_ms)
        self.draft.feed.submit(
            job, task_range.first, task_range.count, task_range.attempt, job.eligible_of(task_range), limits
        )

    def note_tasks(self, job: LiveJob, first: int, count: int, before: TaskState, after: TaskState) -> None:
        """Tasks went from one state to another: arrays that follow this one are informed when the job is settled."""
        if before.ended != after.ended and job.id in self.followers:
            self.draft.ends.setdefault(job.id, []).append((first, first + count))

    def applying_event(self, job: LiveJob, first: int, count: int, event: TaskEvent, reason: str = "") -> Work[int]:
        """`apply_event`, in slices."""
        done = 0
        for low, tasks in slices(job.ranges, first, count, A_SLICE):
            done += self.apply_event(job, low, tasks, event, reason)
            yield
        return done

    def apply_event(self, job: LiveJob, first: int, count: int, event: TaskEvent, reason: str = "") -> int:
        """Apply `event` to every waiting task in [first, first + count) for which it is declared; how many those are.

        The engine is fed what leaves and what enters.
        """
        changed = [
            task_range for task_range in parts_within(job.ranges, first, count) if TASK.allows(task_range.state, event)
        ]
        for task_range in changed:
            after = transition(TASK, task_range.state, event)
            self.leave(job, task_range)
            job.counts.move(task_range.state, after, task_range.count)
            self.note_tasks(job, task_range.first, task_range.count, task_range.state, after)
            self.enter(job, with_state(task_range, after, reason))
        if changed:
            end = changed[-1].end
            job.ranges = change(job.ranges, changed[0].first, end - changed[0].first, _with_event(event, reason))
        return sum(task_range.count for task_range in changed)

    def replace_range(self, job: LiveJob, before: TaskRange, after: TaskRange) -> None:
        """`after` instead of `before`, the same tasks of the job, which the engine does not know."""
        if after.state is not before.state:
            job.counts.move(before.state, after.state, before.count)
            self.note_tasks(job, before.first, before.count, before.state, after.state)
        job.ranges = change(job.ranges, before.first, before.count, partial(_as, after))
        self.enter(job, after)

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def is_unknown_to_engine(self, job: LiveJob, attempt: Attempt) -> bool:
        """Whether the engine does not know this attempt."""
        return attempt.credit or (job.id, attempt.task, attempt.attempt) in self.draft.unreported

    def recall_credit(self, job: LiveJob, node: str = "") -> None:
        """Ask back what waits on credit, on that node or ('') on all of its nodes."""
        for attempt in job.active.values():
            if attempt.credit and attempt.state is AttemptState.ALLOCATED and not attempt.stopping:
                for name, step in attempt.steps_left(job.id):
                    if not node or name == node:
                        self.draft.order(name).recalls.append(step)


def _with_parts(offer: Offer) -> Offer:
    gpus = offer.resources.get(GPU, 0)
    if not gpus:
        return offer
    return replace(offer, resources=offer.resources | {GPU_WHOLE: gpus, GPU_PART: min(gpus, WHOLE)})


def _as(after: TaskRange, part: TaskRange) -> TaskRange:
    return replace(after, first=part.first, count=part.count)


def _with_event(event: TaskEvent, reason: str) -> Callable[[TaskRange], TaskRange]:
    def changed(task_range: TaskRange) -> TaskRange:
        return (
            with_state(task_range, transition(TASK, task_range.state, event), reason)
            if TASK.allows(task_range.state, event)
            else task_range
        )

    return changed
