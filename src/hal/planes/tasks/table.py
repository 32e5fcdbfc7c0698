"""The table of live jobs and what may be done to one of them; every change is staged in the table's draft.

Pure. The invariants (`check_table` checks them): a task is in exactly one of spans, active attempts and
ended-through-an-attempt; counts agree with them; the engine's pending tasks are exactly the spans that are pending, of
jobs that wait for no other job. Held tasks, and jobs that wait for others, cost the engine nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import INF
from hal.core.lifecycle import TASK, TaskEvent, job_state, transition
from hal.core.model import DependencyKind, EventKind, InternalError, JobSpec, NotFoundError, TaskState
from hal.core.model.policy import Policy
from hal.planes.tasks.dependencies import Standing, Waits, standing
from hal.planes.tasks.draft import Change, Draft
from hal.planes.tasks.interning import Interning
from hal.planes.tasks.live import LiveJob, with_state
from hal.planes.tasks.rows import operations
from hal.planes.tasks.spans import Span, change, pieces
from hal.planes.tasks.waiting import Waiting
from hal.store.operations import NodeRow

BY_DEPENDENCY = "dependency"
INSTANCE = "instance"
"""Under this name the store's meta table keeps which HAL it is."""


class JobTable:
    """Live jobs, who waits for whom, nodes, and the draft of what is not durable yet."""

    def __init__(self, policy: Policy, config: EngineConfig) -> None:
        self.policy = policy
        """What holds now; set by `put_policy`."""
        self._config = config
        self.waiting = Waiting(policy)
        self.interning = Interning()
        self.jobs: dict[int, LiveJob] = {}
        self.dependants: dict[int, set[int]] = {}
        """Jobs that may wait for this one; their own `waits` decide."""
        self.busy: set[int] = set()
        """Jobs with active attempts."""
        self.nodes: dict[str, NodeRow] = {}
        self.next_id = 1
        self.instance = ""
        """Which HAL this is, for the attempts' tokens: random, kept from its first start on."""
        self.draft = Draft(self.interning, self.next_id)

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
        if not stored:
            self.draft.new_jobs.append(job.id)
        self.link(job)

    def drop_revived(self, job_id: int) -> None:
        """A job that was let live again is not run again after all: it has ended, as its rows say."""
        if self.draft.jobs_before.get(job_id, self) is None and job_id not in self.draft.new_jobs:
            del self.jobs[job_id], self.draft.jobs_before[job_id]
            del self.draft.stored_spans[job_id]
            self.waiting.touched(job_id)

    def link(self, job: LiveJob) -> None:
        """Note whom it waits for."""
        for other in job.waits:
            self.dependants.setdefault(other, set()).add(job.id)

    def put_node(self, row: NodeRow) -> None:
        """A node that is new or changed."""
        self.draft.nodes_before.setdefault(row.name, self.nodes.get(row.name))
        self.nodes[row.name] = row

    def class_of(self, spec: JobSpec, queue: str) -> ClassSpec:
        """What each attempt of such a task takes in that queue."""
        found = self.policy.queues.get(queue)
        return self.interning.class_of(spec, found.nodes if found is not None else ())

    def put_policy(self, policy: Policy) -> None:
        """Another policy holds from now on."""
        if self.draft.policy_before is None:
            self.draft.policy_before = self.policy
        self.policy = policy
        self.waiting.set_policy(policy, self.jobs.values())
        self.draft.feed.config(self.engine_config)

    @property
    def engine_config(self) -> EngineConfig:
        """What the engine decides by: its own configuration, and the policy that holds now."""
        return replace(self._config, policy=self.policy)

    @property
    def committed_policy(self) -> Policy:
        """The policy as it was last committed."""
        return self.draft.policy_before or self.policy

    def committed(self, job_id: int) -> LiveJob | None:
        """The job as it was last committed; None when it was not live then. For readers: do not change it."""
        if job_id in self.draft.jobs_before:
            return self.draft.jobs_before[job_id]
        return self.jobs.get(job_id)

    def seal(self, now_ms: int) -> Change:
        """What is to be committed now. `durable` or `undo` must follow before anything else is staged."""
        draft = self.draft
        changed = [self.jobs.get(job_id) or draft.ended_jobs[job_id] for job_id in draft.jobs_before]
        made = operations(draft, changed, self.nodes, now_ms)
        return Change(made, draft.feed.take(), draft.orders, list(draft.ended_jobs.values()), list(draft.jobs_before))

    def durable(self) -> None:
        """The sealed change was committed."""
        self.waiting.settle(self.jobs.get)
        self.draft = Draft(self.interning, self.next_id)

    def undo(self) -> None:
        """Nothing of what was staged since the last commit has happened."""
        draft = self.draft
        for job_id, before in draft.jobs_before.items():
            now = self.jobs.pop(job_id, None)
            self.busy.discard(job_id)
            for other in now.waits if now else ():
                self._unlink(other, job_id)
            if before is not None:
                self.jobs[job_id] = before
                self.link(before)
                if before.active:
                    self.busy.add(job_id)
            self.waiting.touched(job_id)
        if draft.policy_before is not None:
            self.policy = draft.policy_before
            self.waiting.set_policy(self.policy, self.jobs.values())
        for name, row in draft.nodes_before.items():
            if row is None:
                del self.nodes[name]
            else:
                self.nodes[name] = row
        self.next_id = draft.next_id_before
        draft.feed.take()
        self.durable()

    # ── one job ───────────────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, job: LiveJob, span: Span) -> None:
        """These tasks begin to wait for resources, if they are pending and the job waits for no other."""
        if span.state is TaskState.PENDING and not job.waits:
            walltime = INF if job.walltime_ms is None else job.walltime_ms
            limits = (job.priority, walltime)
            self.draft.feed.submit(job, span.first, span.count, span.attempt, job.eligible_of(span), limits)

    def leave(self, job: LiveJob, span: Span) -> None:
        """These tasks no longer wait for resources, if they did."""
        if span.state is TaskState.PENDING and not job.waits:
            self.draft.feed.withdraw(job.id, span.first, span.count)

    def restate(self, job: LiveJob, first: int, count: int, event: TaskEvent, reason: str = "") -> int:
        """Apply `event` to every waiting task in [first, first + count) for which it is declared; how many those are.

        The engine is told what leaves and what enters.
        """
        changed = [span for span in pieces(job.spans, first, count) if TASK.allows(span.state, event)]
        for span in changed:
            after = transition(TASK, span.state, event)
            self.leave(job, span)
            job.counts.move(span.state, after, span.count)
            moved = with_state(span, after, reason)
            job.spans = change(job.spans, span.first, span.count, _restater(after, reason))
            self.enter(job, moved)
        return sum(span.count for span in changed)

    def settle(self, job: LiveJob, now_ms: int, cause: str) -> None:
        """Call after every change of a job: its state follows from its tasks; its end sets its dependants going."""
        work = deque([job])
        while work:
            job = work.popleft()
            job.state = job_state(job.counts)
            if job.active:
                self.busy.add(job.id)
            else:
                self.busy.discard(job.id)
            if job.state.ended and job.end_ms is None:
                self._end(job, now_ms, cause)
                cause = BY_DEPENDENCY
                work.extend(self._told(self.dependants.pop(job.id, set()), job, now_ms))

    def started(self, job: LiveJob, at_ms: int, now_ms: int) -> None:
        """Its first process runs: dependants that wait for its start go on."""
        if job.start_ms is None:
            job.start_ms = at_ms
            for other in self._told(self.dependants.get(job.id, set()), job, now_ms):
                self.settle(other, now_ms, BY_DEPENDENCY)

    def _end(self, job: LiveJob, now_ms: int, cause: str) -> None:
        job.end_ms = now_ms
        del self.jobs[job.id]
        self.draft.ended_jobs[job.id] = job
        self.draft.note(EventKind.JOBS_ENDED, cause, job.trace_id, job.id, [job.id, job.state.value, job.exit_code])
        for other in job.waits:
            self._unlink(other, job.id)

    def _told(self, dependants: set[int], other: LiveJob, now_ms: int) -> list[LiveJob]:
        """Tell the jobs that wait for `other` how it stands; those that changed."""
        changed = []
        for job_id in sorted(dependants):
            waiting = self.jobs.get(job_id)
            if waiting is None or other.id not in waiting.waits:
                continue
            standings = {
                k: standing(k, other.state, started=other.start_ms is not None) for k in waiting.waits[other.id]
            }
            never = [kind for kind, how in standings.items() if how is Standing.NEVER]
            left = tuple(kind for kind, how in standings.items() if how is Standing.WAITING)
            if never:
                self.fail_dependant(
                    self.touch(job_id), never_text(never[0], other.id, other.name or other.spec.title, other.state)
                )
            elif left != waiting.waits[other.id]:
                self._met(self.touch(job_id), other.id, left, now_ms)
            else:
                continue
            changed.append(waiting)
        return changed

    def fail_dependant(self, job: LiveJob, reason: str) -> None:
        """It waits for something that can never happen: all its tasks fail. `settle` must follow."""
        self.restate(job, 0, job.spec.tasks, TaskEvent.FAIL, BY_DEPENDENCY)
        job.reason = reason

    def _met(self, job: LiveJob, other: int, left: tuple[DependencyKind, ...], now_ms: int) -> None:
        waits: Waits = {k: v for k, v in job.waits.items() if k != other}
        if left:
            waits[other] = left
        job.waits = waits
        if not waits:
            job.eligible_ms = max(job.spec.begin_at_ms, now_ms)
            for span in job.spans:
                self.enter(job, span)

    def _unlink(self, other: int, job_id: int) -> None:
        waiting = self.dependants.get(other)
        if waiting is not None:
            waiting.discard(job_id)
            if not waiting:
                del self.dependants[other]


def never_text(kind: DependencyKind, job_id: int, title: str, state: TaskState) -> str:
    """Why a dependency can never be met."""
    return f"{BY_DEPENDENCY}: it waits for {kind} of job {job_id} ({title}), which {_ENDS[state]}"


_ENDS = {
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.TIMED_OUT: "timed out",
    TaskState.CANCELLED: "was cancelled",
}


def _restater(state: TaskState, reason: str) -> Callable[[Span], Span]:
    return lambda span: with_state(span, state, reason)


def check_table(table: JobTable) -> None:
    """Raise when an invariant of the table does not hold (see the module's first lines).

    Raises:
        InternalError: names the job and what does not agree.
    """
    for job in table.jobs.values():
        counts, active = job.counts, {a.state.value: 0 for a in job.active.values()}
        for attempt in job.active.values():
            active[attempt.state.value] += 1
        waiting = dict.fromkeys((TaskState.PENDING, TaskState.HELD, TaskState.FAILED, TaskState.CANCELLED), 0)
        for span in job.spans:
            waiting[span.state] += span.count
        problems = [
            (counts.total != job.spec.tasks, "tasks are not all counted"),
            (job.id != table.jobs[job.id].id, "is filed under another id"),
            (counts.pending != waiting[TaskState.PENDING], "pending tasks disagree with the spans"),
            (counts.held != waiting[TaskState.HELD], "held tasks disagree with the spans"),
            (counts.failed < waiting[TaskState.FAILED], "failed tasks disagree with the spans"),
            (counts.cancelled < waiting[TaskState.CANCELLED], "cancelled tasks disagree with the spans"),
            (any(counts.of(TaskState(state)) != n for state, n in active.items()), "attempts disagree with the counts"),
            (counts.active != len(job.active), "active tasks disagree with the attempts"),
            (any(a.end > b.first for a, b in zip(job.spans, job.spans[1:], strict=False)), "spans overlap"),
            (any(span.first <= t < span.end for t in job.active for span in job.spans), "an active task is in a span"),
            (job.state is not job_state(counts), "its state does not follow from its tasks"),
            (job.state.ended, "it has ended and is still live"),
            ((job.id in table.busy) != bool(job.active), "busy jobs disagree with the attempts"),
            (any(job.id not in table.dependants.get(other, ()) for other in job.waits), "nobody will tell it"),
            (any(other not in table.jobs for other in job.waits), "it waits for a job that is not live"),
        ]
        for wrong, what in problems:
            if wrong:
                raise InternalError(f"job {job.id}: {what}")
