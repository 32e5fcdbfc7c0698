"""The table of live jobs and what may be done to one of them; every change is staged in the table's draft.

Pure. The invariants (`check_table` checks them): a task is in exactly one of spans, active attempts and
ended-through-an-attempt; counts agree with them; the engine's pending tasks are exactly the spans that are pending and
wait for no other job or task, of arrays with `max_running` only as many as may start. Held tasks, and jobs that wait
for others, cost the engine nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import INF
from hal.core.interfaces.admit import Admit
from hal.core.lifecycle import TASK, TaskCounts, TaskEvent, job_state, transition
from hal.core.model import (
    DependencyKind,
    EventKind,
    InternalError,
    JobSpec,
    NodeState,
    NotFoundError,
    StepId,
    TaskState,
)
from hal.core.model.policy import Policy
from hal.core.model.policy_scope import Owner
from hal.planes.tasks import awaiting, window
from hal.planes.tasks.awaiting import BY_DEPENDENCY
from hal.planes.tasks.dependencies import NAMESAKES, EndedJob, Phase
from hal.planes.tasks.draft import Change, Draft
from hal.planes.tasks.interning import Interning
from hal.planes.tasks.jobs import Jobs
from hal.planes.tasks.leftovers import Leftovers
from hal.planes.tasks.live import LiveJob, with_state
from hal.planes.tasks.namesakes import Namesakes
from hal.planes.tasks.rows import operations
from hal.planes.tasks.runs import Runs, merged
from hal.planes.tasks.slices import A_SLICE, Pace, Work, finished
from hal.planes.tasks.spans import ONE_TASK, Span, change, count_in, pieces, slices, summed, take
from hal.planes.tasks.waiting import Waiting
from hal.store.operations import NodeRow
from hal.store.untouched import Untouched

SETTLED_A_SLICE = 64
"""Jobs and ranges of tasks that are told of others' changes in one slice: 50 to 130 µs each."""
STEP_SECRET = "step-secret"
"""Under this name the store's meta table keeps by what this HAL knows its steps."""


class JobTable:
    """Live jobs, who waits for whom, nodes, and the draft of what is not durable yet."""

    def __init__(self, policy: Policy, config: EngineConfig, rules: Sequence[Admit] = ()) -> None:
        self.policy = policy
        """What holds now; set by `put_policy`."""
        self._config = config
        self.rules = tuple(rules)
        """Of the site, for what is submitted or changed."""
        self.waiting = Waiting(policy)
        self.interning = Interning()
        self.jobs = Jobs(self._unpacked, self.waiting.unpacked)
        self.dependants: dict[int, set[int]] = {}
        """Jobs that wait and name this one; their own `waits` say how."""
        self.followers: dict[int, set[int]] = {}
        """Of these, arrays that follow this one task by task."""
        self.ended: dict[int, EndedJob] = {}
        """Jobs that have ended and are named by jobs that wait."""
        self.names = Namesakes()
        self.now_ms = 0
        """Instant of the newest change."""
        self.busy: set[int] = set()
        """Jobs with active attempts."""
        self.nodes: dict[str, NodeRow] = {}
        self.draining: dict[str, tuple[int, int] | None] = {}
        """Nodes that drain, each with the job and task that was found there last; not stored."""
        self.credit_nodes: set[str] = set()
        """Nodes that take starts on credit; as long as their agents said so, not stored."""
        self.foreign: dict[str, frozenset[StepId]] = {}
        """Steps that nodes hold and this store has not given them, of attempts of another store or of a later state of
        this one; by node, as it said when it dialled, not stored. What is reported of them is of no attempt here, also
        where one gets the same id."""
        self.at_epilog: dict[tuple[int, int, int], set[int]] = {}
        """Active attempts (job, task, number) with the ranks whose epilog runs; as nodes have told, not stored."""
        self.failed_gates: dict[tuple[int, int, int], set[tuple[int, str]]] = {}
        """Active attempts with the ranks and scripts that are known to have failed; as nodes have told, not stored."""
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
        self.draft = Draft(self.interning, self.next_id)
        self.leftovers = Leftovers()
        self._unsettled: deque[Work[None]] = deque()
        """What follows from changes and was not done at once, in order."""
        self._settles = False

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
        self.waiting.touched(job_id)
        return job

    def add(self, job: LiveJob, *, stored: bool = False) -> None:
        """A new job, or (`stored`) one that had ended and lives again."""
        self.jobs[job.id] = job
        self.draft.jobs_before[job.id] = None
        self.waiting.touched(job.id)
        if stored:
            self.named(job, self.now_ms)
        else:
            self.draft.new_jobs.append(job.id)
            self.name(job)

    def name(self, job: LiveJob) -> None:
        """File a live job under its name."""
        if job.name:
            self.names.add(job.key, job.id)

    def drop_revived(self, job_id: int) -> None:
        """A job that was let live again is not run again after all: it has ended, as its rows say."""
        if self.draft.jobs_before.get(job_id, self) is None and job_id not in self.draft.new_jobs:
            del self.jobs[job_id], self.draft.jobs_before[job_id]
            del self.draft.stored_spans[job_id]
            self.waiting.touched(job_id)

    def link(self, job: LiveJob) -> None:
        """Note whom it waits for."""
        if job.waits is None:
            return
        for other, mentions in job.waits.mentions.items():
            if other == NAMESAKES:
                self.names.wait(job.key, job.id)
                continue
            self.dependants.setdefault(other, set()).add(job.id)
            if job.waits.by_task and any(kind is DependencyKind.AFTERCORR for _, kind in mentions):
                self.followers.setdefault(other, set()).add(job.id)

    def unlink(self, job: LiveJob) -> None:
        """Forget whom it waited for, and who of them has ended when nobody else waits for it."""
        for other in job.waits.mentions if job.waits else ():
            if other == NAMESAKES:
                self.names.leave(job.key, job.id)
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

    def either(self, job_id: int) -> LiveJob | EndedJob:
        """A job that others wait for; not to be changed."""
        return self.jobs.peek(job_id) or self.ended[job_id]

    def phase(self, job_id: int) -> Phase:
        """How far a job that others wait for has come."""
        return Phase.WAITS if self.jobs.is_packed(job_id) else self.either(job_id).phase

    def put_node(self, row: NodeRow) -> None:
        """A node that is new or changed."""
        self.draft.nodes_before.setdefault(row.name, self.nodes.get(row.name))
        self._set_node(row.name, row)

    def drop_node(self, name: str) -> None:
        """A node that is forgotten."""
        self.draft.nodes_before.setdefault(name, self.nodes[name])
        self._set_node(name, None)
        self.credit_nodes.discard(name)
        self.foreign.pop(name, None)

    def _set_node(self, name: str, row: NodeRow | None) -> None:
        if row is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = row
        if row is not None and row.state is NodeState.DRAINING:
            self.draining.setdefault(name)
        else:
            self.draining.pop(name, None)

    def class_of(self, spec: JobSpec, queue: str, policy: Policy | None = None) -> ClassSpec:
        """What each attempt of such a task takes in that queue under that policy; None: the one that holds now."""
        found = (policy or self.policy).queues.get(queue)
        return self.interning.class_of(spec, found.nodes if found is not None else ())

    def put_policy(self, policy: Policy) -> None:
        """Another policy holds from now on."""
        if self.draft.policy_before is None:
            self.draft.policy_before = self.policy
        self.policy = policy
        self.count_waiting()
        self.draft.feed.config(self.engine_config)

    def count_waiting(self) -> None:
        """Count anew how many tasks wait within each limit of the policy."""
        self.waiting.set_policy(self.policy, self.jobs.unpacked(), self.jobs.packed_owners())

    @property
    def engine_config(self) -> EngineConfig:
        """What the engine decides by: its own configuration, and the policy that holds now."""
        return replace(self._config, policy=self.policy)

    @property
    def committed_policy(self) -> Policy:
        """The policy as it was last committed."""
        return self.draft.policy_before or self.policy

    def is_foreign(self, node: str, step: StepId) -> bool:
        """Whether what the node holds under that id is no step of an attempt of this store."""
        return node in self.foreign and step in self.foreign[node]

    def committed(self, job_id: int) -> LiveJob | None:
        """The job as it was last committed; None when it was not live then. For readers: do not change it."""
        if job_id in self.draft.jobs_before:
            return self.draft.jobs_before[job_id]
        return self.jobs.peek(job_id)

    def committed_either(self, job_id: int) -> LiveJob | EndedJob:
        """A job that a committed job waits for, as it was last committed. For readers: do not change it."""
        found: LiveJob | EndedJob | None = self.committed(job_id)
        if found is None:
            found = self.draft.ended_before.get(job_id) or self.ended.get(job_id)
        if found is None:
            raise InternalError(f"job {job_id} is waited for and forgotten")
        return found

    def sealing(self, now_ms: int) -> Work[Change]:
        """What is to be committed now. `durable` or `undo` must follow before anything else is staged."""
        yield from self.settling()
        self.refill_all()
        yield from self.waiting.settling(self.jobs.peek)
        draft = self.draft
        changed = [self.jobs.get(job_id) or draft.ended_jobs[job_id] for job_id in draft.jobs_before]
        made = yield from operations(draft, changed, self.nodes, now_ms)
        ended, touched = list(draft.ended_jobs.values()), list(draft.jobs_before)
        return Change(made, draft.feed.take(), draft.orders, ended, touched, draft.lost_nodes)

    def durable(self) -> None:
        """The sealed change was committed."""
        self.waiting.settle(self.jobs.peek)
        self.jobs.came(self.draft.new_jobs)
        self.leftovers.add(self.draft.jobs_before.values())
        self.draft = Draft(self.interning, self.next_id)
        self.jobs.pack_some(self.waiting.packed)

    def undo(self) -> None:
        """Nothing of what was staged since the last commit has happened."""
        finished(self.undoing())

    def undoing(self) -> Work[None]:
        """`undo`, in slices; readers see what is committed meanwhile."""
        self._unsettled.clear()
        draft, pace = self.draft, Pace()
        for job_id, before in draft.jobs_before.items():
            if pace.over():
                yield
            now = self.jobs.pop(job_id)
            self.busy.discard(job_id)
            if now is not None:
                self.unlink(now)
                if now.name:
                    self.names.remove(now.key, job_id)
            if before is not None:
                self.jobs[job_id] = before
                self.name(before)
                self.link(before)
                if before.active:
                    self.busy.add(job_id)
            self.waiting.touched(job_id)
        for job_id, ended in draft.ended_before.items():
            if ended is not None:
                self.ended[job_id] = ended
            else:
                self.ended.pop(job_id, None)
        if draft.policy_before is not None:
            self.policy = draft.policy_before
            self.count_waiting()
        for name, row in draft.nodes_before.items():
            self._set_node(name, row)
        self.next_id = draft.next_id_before
        draft.feed.take()
        yield from self.waiting.settling(self.jobs.peek)
        self.durable()

    def _unpacked(self, columns: Untouched, place: int) -> LiveJob:
        """The job at that place, as it was stored; its request is that of the committed policy: `undo` restores it."""
        spec, walltime_ms = columns.spec(place), columns.walltime_ms[place]
        queue, account, user = columns.owners[columns.owner[place]]
        return LiveJob(
            id=columns.ids[place],
            spec=spec,
            name=columns.names[columns.name[place]],
            queue=queue,
            account=account,
            user=user,
            priority=columns.priority[place],
            walltime_ms=None if walltime_ms < 0 else walltime_ms,
            submit_ms=columns.submit_ms[place],
            eligible_ms=columns.eligible_ms[place],
            trace_id=columns.traces[columns.trace[place]],
            request=self.class_of(spec, queue, self.committed_policy),
            owner=self.interning.owner_of(Owner(queue, account, user, spec.qos)),
            counts=TaskCounts(pending=1),
            spans=ONE_TASK,
            active={},
        )

    # ── one job ───────────────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, job: LiveJob, span: Span) -> None:
        """These tasks begin to wait for resources, if they are pending and wait for no other job."""
        # Of an array with a limit the engine is told when the job is settled.
        if span.state is TaskState.PENDING and job.eligible_of(span) < INF and not job.window:
            self._submit(job, span)

    def leave(self, job: LiveJob, span: Span) -> None:
        """These tasks no longer wait for resources, if they did."""
        if span.state is not TaskState.PENDING or job.eligible_of(span) >= INF:
            return
        if not job.window:
            self.draft.feed.withdraw(job.id, span.first, span.count)
            return
        for known in pieces(job.fed, span.first, span.count):
            self.draft.feed.withdraw(job.id, known.first, known.count)
        job.fed = tuple(take(job.fed, span.first, span.count))

    def refill_all(self) -> None:
        """`refill` every array with `max_running` that has changed."""
        refills, self.draft.refills = self.draft.refills, set()
        for job_id in sorted(refills):
            job = self.jobs.get(job_id)
            if job is not None:
                self.refill(job)

    def refill(self, job: LiveJob) -> None:
        """Of an array with `max_running`: tell the engine of as many tasks as may start."""
        known, wanted = job.fed, window.fed(job, self.now_ms)
        if known == wanted:
            return
        job.fed = wanted
        for span in window.missing(known, wanted):
            self.draft.feed.withdraw(job.id, span.first, span.count)
        for span in window.missing(wanted, known):
            self._submit(job, span)

    def _submit(self, job: LiveJob, span: Span) -> None:
        limits = (job.priority, INF if job.walltime_ms is None else job.walltime_ms)
        self.draft.feed.submit(job, span.first, span.count, span.attempt, job.eligible_of(span), limits)

    def note_tasks(self, job: LiveJob, first: int, count: int, before: TaskState, after: TaskState) -> None:
        """Tasks went from one state to another: arrays that follow this one are told when the job is settled."""
        if before.ended != after.ended and job.id in self.followers:
            self.draft.ends.setdefault(job.id, []).append((first, first + count))

    def restating(self, job: LiveJob, first: int, count: int, event: TaskEvent, reason: str = "") -> Work[int]:
        """`restate`, in slices."""
        done = 0
        for low, tasks in slices(job.spans, first, count, A_SLICE):
            done += self.restate(job, low, tasks, event, reason)
            yield
        return done

    def restate(self, job: LiveJob, first: int, count: int, event: TaskEvent, reason: str = "") -> int:
        """Apply `event` to every waiting task in [first, first + count) for which it is declared; how many those are.

        The engine is told what leaves and what enters.
        """
        changed = [span for span in pieces(job.spans, first, count) if TASK.allows(span.state, event)]
        for span in changed:
            after = transition(TASK, span.state, event)
            self.leave(job, span)
            job.counts.move(span.state, after, span.count)
            self.note_tasks(job, span.first, span.count, span.state, after)
            self.enter(job, with_state(span, after, reason))
        if changed:
            end = changed[-1].end
            job.spans = change(job.spans, changed[0].first, end - changed[0].first, _restater(event, reason))
        return sum(span.count for span in changed)

    def settle(self, job: LiveJob, now_ms: int, cause: str) -> None:
        """Call after every change of a job: its state follows from its tasks; those that wait for it are told.

        Where they are many, the rest of them is left to `settling`, which must be done before anything else is staged.
        """
        self.now_ms = now_ms
        self._unsettled.append(self._settled(job, now_ms, cause))
        self._settle_some()

    def started(self, job: LiveJob, at_ms: int, now_ms: int) -> None:
        """Its first process runs: dependants that wait for its start go on."""
        if job.start_ms is None:
            job.start_ms = at_ms
            if job.id in self.dependants:
                self._unsettled.append(self._told(job.id, Phase.WAITS, Phase.STARTED, now_ms))
                self._settle_some()

    @property
    def unsettled(self) -> bool:
        """Whether something that follows from what was staged is left to `settling`."""
        return bool(self._unsettled)

    def settling(self) -> Work[None]:
        """What `settle` has left, in slices."""
        while self._unsettled:
            self._settle_some()
            yield

    def _settle_some(self) -> None:
        """One slice of what is left; nothing when it is called in the course of one."""
        if self._settles:
            return
        self._settles, left = True, SETTLED_A_SLICE
        try:
            while self._unsettled and left > 0:
                for _ in self._unsettled[0]:
                    left -= 1
                    if left <= 0:
                        return
                self._unsettled.popleft()
                left -= 1
        finally:
            self._settles = False

    def _settled(self, job: LiveJob, now_ms: int, cause: str) -> Work[None]:
        if job.end_ms is not None:
            return
        job.state = job_state(job.counts)
        if job.active:
            self.busy.add(job.id)
        else:
            self.busy.discard(job.id)
        if job.window:
            self.draft.refills.add(job.id)
        if job.waits is not None and job.eligible_ms < INF:
            awaiting.stop_if_decided(self, job)
        if job.state.ended:
            yield from self._end(job, now_ms, cause)
        elif job.id in self.ended:
            before = self.ended[job.id].phase
            self.remember(job.id, None)
            yield from self._told(job.id, before, job.phase, now_ms)
        if job.id in self.draft.ends:
            yield from self.tell_tasks(job.id, merged(self.draft.ends.pop(job.id)), now_ms)

    def _told(self, other: int, before: Phase, after: Phase, now_ms: int) -> Work[None]:
        """`other` went from one phase to another: its dependants are told, and settled afterwards."""
        for job_id in sorted(self.dependants.get(other, ())):
            job = self.jobs.get(job_id)
            if job is None or job.waits is None or other not in job.waits.mentions:
                continue
            changed = yield from awaiting.tell(self, job, other, before, after, now_ms)
            if changed:
                self._unsettled.append(self._settled(job, now_ms, BY_DEPENDENCY))
            yield

    def tell_tasks(self, other: int, runs: Runs, now_ms: int) -> Work[None]:
        """Those tasks of an array have ended, or wait again: arrays that follow it are told, and settled afterwards."""
        for job_id in sorted(self.followers.get(other, ())):
            if job_id not in self.jobs:
                continue
            job = self.touch(job_id)
            for first, end in runs:
                yield from awaiting.weigh(self, job, first, end - first)
                yield
            self._unsettled.append(self._settled(job, now_ms, BY_DEPENDENCY))

    def rename(self, job: LiveJob, name: str, now_ms: int) -> None:
        """Give it another name; singletons of both names are told."""
        if name == job.name:
            return
        waits = job.waits is not None and NAMESAKES in job.waits.mentions
        if waits:
            self.names.leave(job.key, job.id)
        self._unname(job, now_ms)
        job.name = name
        self.named(job, now_ms)
        if waits:
            self.names.wait(job.key, job.id)
            self._tell_first(job, alone=self.names.is_first(job.key, job.id), now_ms=now_ms)

    def named(self, job: LiveJob, now_ms: int) -> None:
        """It has its name from now on: a later singleton of this name has to wait."""
        if job.name:
            before = self.names.first(job.key)
            self.names.add(job.key, job.id)
            self._first_changed(job.key, before, now_ms)

    def _unname(self, job: LiveJob, now_ms: int) -> None:
        if job.name:
            before = self.names.first(job.key)
            self.names.remove(job.key, job.id)
            self._first_changed(job.key, before, now_ms)

    def _first_changed(self, key: tuple[str, str], before: int | None, now_ms: int) -> None:
        after = self.names.first(key)
        if before != after:
            for job_id in (before, after):
                if job_id is not None and job_id in self.jobs and self.names.waits(key, job_id):
                    self._tell_first(self.jobs[job_id], alone=job_id == after, now_ms=now_ms)

    def _tell_first(self, job: LiveJob, *, alone: bool, now_ms: int) -> None:
        """A singleton is now, or is no longer, the first of its name."""
        if job.waits is None or job.waits.alone == alone:
            return
        if finished(awaiting.tell_first(self, job, alone=alone, now_ms=now_ms)):
            self.settle(job, now_ms, BY_DEPENDENCY)

    def _end(self, job: LiveJob, now_ms: int, cause: str) -> Work[None]:
        before = Phase.WAITS if job.start_ms is None else Phase.STARTED
        job.end_ms = now_ms
        del self.jobs[job.id]
        self.recent_ms.pop(job.id, None)
        self.draft.ended_jobs[job.id] = job
        self.draft.note(EventKind.JOBS_ENDED, cause, job.trace_id, job.id, [job.id, job.state.value, job.exit_code])
        if job.waits is not None:
            awaiting.stop(self, job)
        self._unname(job, now_ms)
        if job.id in self.dependants:
            self.remember(job.id, job.past())
            yield from self._told(job.id, before, job.phase, now_ms)


def _restater(event: TaskEvent, reason: str) -> Callable[[Span], Span]:
    def restated(span: Span) -> Span:
        return with_state(span, transition(TASK, span.state, event), reason) if TASK.allows(span.state, event) else span

    return restated


def check_table(table: JobTable) -> None:
    """Raise when an invariant of the table does not hold (see the module's first lines).

    Raises:
        InternalError: names the job and what does not agree.
    """
    for job_id, job in table.jobs.items():
        counts, active = job.counts, {a.state.value: 0 for a in job.active.values()}
        for attempt in job.active.values():
            active[attempt.state.value] += 1
        waiting = dict.fromkeys((TaskState.PENDING, TaskState.HELD, TaskState.FAILED, TaskState.CANCELLED), 0)
        for span in job.spans:
            waiting[span.state] += span.count
        problems = [
            (counts.total != job.spec.tasks, "tasks are not all counted"),
            (job.id != job_id, "is filed under another id"),
            (counts.pending != waiting[TaskState.PENDING], "pending tasks disagree with the spans"),
            (counts.held != waiting[TaskState.HELD], "held tasks disagree with the spans"),
            (counts.failed < waiting[TaskState.FAILED], "failed tasks disagree with the spans"),
            (counts.cancelled < waiting[TaskState.CANCELLED], "cancelled tasks disagree with the spans"),
            (any(counts.of(TaskState(state)) != n for state, n in active.items()), "attempts disagree with the counts"),
            (counts.active != len(job.active), "active tasks disagree with the attempts"),
            (any(a.end > b.first for a, b in pairwise(job.spans)), "spans overlap"),
            (any(span.first <= t < span.end for t in job.active for span in job.spans), "an active task is in a span"),
            (job.state is not job_state(counts), "its state does not follow from its tasks"),
            (job.state.ended, "it has ended and is still live"),
            ((job.id in table.busy) != bool(job.active), "busy jobs disagree with the attempts"),
            *_waiting_problems(table, job),
            (
                job.window > 0 and count_in(job.fed, TaskState.PENDING) > max(job.window - len(job.active), 0),
                "too many",
            ),
        ]
        for wrong, what in problems:
            if wrong:
                raise InternalError(f"job {job.id}: {what}")

    for other in table.ended:
        if other in table.jobs or other not in table.dependants:
            raise InternalError(f"job {other} has ended and is remembered for nobody")


def _waiting_problems(table: JobTable, job: LiveJob) -> list[tuple[bool, str]]:
    if job.waits is None:
        undecided = job.eligible_ms >= INF or summed(job.spans).undecided > 0
        return [(undecided, "it waits for nobody and is not eligible")]
    named = [other for other in job.waits.mentions if other != NAMESAKES]
    fresh = awaiting.standings(table, job)
    return [
        (any(job.id not in table.dependants.get(other, ()) for other in named), "nobody will tell it"),
        (any(other not in table.jobs and other not in table.ended for other in named), "it waits for a forgotten job"),
        (job.waits != fresh, "what it was told disagrees with what it would find"),
        (job.eligible_ms >= INF and job.waits.open == 0 and job.waits.never == 0, "it waits for nothing"),
    ]
