"""'Why is it not running?': what the plane knows (held, dependencies, back-off, ended), else the engine's answer.

Pure. What would let it start sooner is tried by the engine on a copy of its state.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from hal.core.engine.classes import Elsewhere
from hal.core.engine.errors import EngineError
from hal.core.engine.events import INF
from hal.core.model import (
    Dependency,
    DependencyKind,
    Duration,
    Failed,
    HALError,
    Never,
    OnNodeLost,
    Reason,
    Sooner,
    TaskState,
    Verdict,
    each_dependency,
    plural,
    short_reason,
)
from hal.core.model.policy_check import instant_text
from hal.core.model.states import AWAY_NODE_STATES
from hal.core.model.units import format_wait, limit_ms
from hal.planes.tasks.admission.levels import never_within, unpacked
from hal.planes.tasks.admission.never import never_by_policy, never_on_nodes
from hal.planes.tasks.admission.policy_rules import LimitsByOwner, limits_of, owner_of
from hal.planes.tasks.attempts.ends import EVICTED_BY, NOT_BEGUN_REASONS, preempted_for
from hal.planes.tasks.attempts.exclusion import HELD_BY_GATE
from hal.planes.tasks.dependencies.decisions import BY_DEPENDENCY, entry_standing, is_held_by_rule
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs.packs import not_never, with_pack
from hal.planes.tasks.jobs.patches import JobPatch, as_changed
from hal.planes.tasks.live.attempt import PREEMPTING
from hal.planes.tasks.live.gate_standing import gates_text
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.ready_standing import readiness_text
from hal.planes.tasks.live.replacing import BEING_REPLACED
from hal.planes.tasks.live.standings import Phase, Standing
from hal.planes.tasks.live.task_ranges import TaskRange, startable, summed
from hal.planes.tasks.nodes.closures import closed_by_people, closed_to
from hal.planes.tasks.nodes.failed_gates import HELD_BY_PROLOG
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.extensions import base_runs, waits_for_base
from hal.planes.tasks.table.table import JobTable

BRIEF_A_SLICE = 8
"""Jobs whose reasons are found in one turn of the loop."""
NODES_A_SLICE = 1_024
"""Nodes that are looked at in one turn of the loop."""
AS_BASE = "its extensions wait for resources as soon as its base runs"
DRAINED = "node drain"
"""Short for: the nodes that could hold it are drained or cordoned."""
MAX_NAMED = 5
"""Most dependencies that the message names."""
RESERVED = "reservation"
"""The engine's word for what it has reserved."""
PLAYED = "the engine played forward by walltimes, without new jobs"
AT_LEAST = "at the earliest: the engine was played forward only this far"
MAX_QUEUES = 3
"""Other queues that the engine is asked about."""
MAX_QUEUES_ASKED = 50
"""Other queues that admission is asked about."""


def why(table: JobTable, engine: EngineView, job: LiveJob, now_ms: int) -> Verdict:
    """The first thing that keeps the job's waiting tasks from starting, or that they never can; how it goes when none
    waits."""
    verdict = _outside_engine(table, job, now_ms)
    waits = job.counts.pending or job.counts.held
    never = never_of(table, engine, job, now_ms) if waits else None
    if verdict is None and never is not None:
        verdict = _said_after(never.verdict(job.id), _not_begun(job))  # which node does not take it, and why
    elif verdict is not None and never is not None:
        message = f"{verdict.message}; even then it {never.text}"
        verdict = replace(verdict, never=True, message=message, starts_at_ms=None, basis="")
    if verdict is None:
        verdict = _with_changes(table, engine, job, with_pack(job, engine.explain(job.id, now_ms), now_ms), now_ms)
        verdict = _with_eviction(job, _with_closed_nodes(table, job, verdict), now_ms)
        if job.spec.has_base and base_runs(job):
            running = len(job.active) - 1
            grown = f"Its base runs, with {plural(running, 'extension')} of up to {job.spec.extensions}"
            verdict = replace(verdict, message=f"{grown}; one more {verdict.message}")
    if verdict.reason is Reason.NODES_DOWN and any(closed_by_people(table, job)):
        verdict = replace(verdict, short=DRAINED)
    return replace(verdict, short=short_reason(verdict))


def never_of(table: JobTable, engine: EngineView, job: LiveJob, now_ms: int) -> Never | None:
    """Why its waiting tasks could not start even if nothing else ran; None if they could."""
    never = _beyond_limits(table, job) or never_within(job.spec, table.topology)
    if never is not None or not table.nodes:
        return never
    walltime = None if job.walltime_ms is None else Duration(job.walltime_ms)
    request = table.class_of(unpacked(job.spec), job.queue) if job.spec.pack else job.request
    return never_on_nodes(engine, request, walltime, table.policy, table.returning_bookings, now_ms)


def _beyond_limits(table: JobTable, job: LiveJob, known: LimitsByOwner | None = None) -> Never | None:
    if not table.policy.limits:
        return None
    walltime = None if job.walltime_ms is None else Duration(job.walltime_ms)
    spec = replace(job.spec, queue=job.queue, account=job.account, user=job.user, walltime=walltime)
    return never_by_policy(spec, limits_of(spec, table.policy, known), table.policy)


def brief_reasons(table: JobTable, engine: EngineView, jobs: Iterable[int], now_ms: int) -> Work[dict[int, Verdict]]:
    """What `why` gives as reason and `short` for each of these jobs that waits, without message, rivals and advice.

    In slices: O(jobs), and O(nodes) for each class of jobs for which no node is up.
    """
    found: dict[int, Verdict] = {}
    pace = Pace(BRIEF_A_SLICE)
    drained: dict[object, bool] = {}
    limits: LimitsByOwner = {}
    for number in jobs:
        job = table.committed(number)
        if job is None or not (job.counts.pending or job.counts.held):
            continue
        verdict = _outside_engine(table, job, now_ms, brief=True)
        if verdict is None:
            never = _beyond_limits(table, job, limits) or never_within(job.spec, table.topology)
            verdict = never.verdict(number) if never is not None else None
        if verdict is None:
            try:
                verdict = not_never(job, engine.explain(number, now_ms, brief=True))
            except EngineError:  # the engine has not been told of it, or of its end, in this turn
                verdict = Verdict(job=number, reason=Reason.NOT_CONSIDERED, message="")
        if verdict.reason is Reason.NODES_DOWN:
            key = job.request.shape_key()
            if key not in drained:
                drained[key] = yield from _is_drained(table, job)
            if drained[key]:
                verdict = replace(verdict, short=DRAINED)
        found[number] = replace(verdict, short=short_reason(verdict))
        if pace.over():
            yield
    return found


def _is_drained(table: JobTable, job: LiveJob) -> Work[bool]:
    """Whether a node that could hold it is closed by somebody, in slices."""
    pace = Pace(NODES_A_SLICE)
    for is_closed in closed_by_people(table, job):
        if is_closed:
            return True
        if pace.over():
            yield
    return False


def _outside_engine(table: JobTable, job: LiveJob, now_ms: int, *, brief: bool = False) -> Verdict | None:
    """What keeps the job that the engine does not decide; None where the engine does.

    Args:
        brief: without messages that take long to write.
    """
    counts = job.counts
    if job.spec.has_base and not job.hold and counts.pending == 0 and job.active and waits_for_base(job):
        return Verdict(job=job.id, reason=Reason.NONE, message=f"{_goes_on(table, job)}; {AS_BASE}")
    if job.hold and job.reason.startswith(BEING_REPLACED):
        return _being_replaced(table, job)
    if counts.pending == 0 and counts.held == 0:
        return _unheard(table, job) or Verdict(job=job.id, reason=Reason.NONE, message=_goes_on(table, job))
    if is_held_by_rule(job):
        return Verdict(
            job=job.id,
            reason=Reason.HELD,
            message=f"held by its rule on_dependency_failed: {job.reason.removeprefix(BY_DEPENDENCY).lstrip(': ')}",
            helps=(f"hal release {job.id}", *_again(table, job)),
        )
    if job.waits is not None and job.eligible_ms >= INF:
        return _dependency(table, job, brief=brief)
    if counts.pending == 0:
        ruled = sum(s.count for s in job.ranges if s.state is TaskState.HELD and s.reason == BY_DEPENDENCY)
        by_gate = job.reason.startswith((HELD_BY_PROLOG, HELD_BY_GATE))
        reason = f" ({job.reason})" if job.reason and (ruled or by_gate) else ""
        return Verdict(
            job=job.id,
            reason=Reason.HELD,
            message=f"held: {plural(counts.held, 'task')} until somebody releases {_them(counts.held)}{reason}",
            helps=(f"hal release {job.id}",),
        )
    soonest_ms = summed(job.ranges).soonest_ms
    if soonest_ms >= INF:
        return _dependency(table, job, brief=brief)
    if max(soonest_ms, job.eligible_ms) > now_ms:
        return _later(job, next(startable(job.ranges, now_ms)), now_ms)
    if job.window and not job.fed:
        limit = job.window
        return Verdict(
            job=job.id,
            reason=Reason.MAX_RUNNING,
            message=f"{plural(len(job.active), 'task')} of it run, and its max_running is {limit}: "
            f"{plural(counts.pending, 'task')} wait for one of them to end",
            helps=(f"hal update {job.id} --max-running {limit * 2}",),
        )
    return None


def _being_replaced(table: JobTable, job: LiveJob) -> Verdict:
    ready = readiness_text(table.readiness, job)
    return Verdict(
        job=job.id,
        reason=Reason.HELD if job.counts.held else Reason.NONE,
        message=job.reason + (f"; {ready}" if ready else ""),
        helps=(f"hal cancel {job.reason.removeprefix(BEING_REPLACED)}   # then this one goes on",),
    )


def _with_eviction(job: LiveJob, verdict: Verdict, now_ms: int) -> Verdict:
    """The answer with who evicted the task that is next, where somebody did."""
    first = next(startable(job.ranges, now_ms), None)
    if first is None or not first.reason.startswith(EVICTED_BY):
        return verdict
    return replace(verdict, message=f"{verdict.message}. Its attempt {first.attempt - 1} was {first.reason}")


def _with_closed_nodes(table: JobTable, job: LiveJob, verdict: Verdict) -> Verdict:
    """The engine's answer with the nodes that would do and take nothing now, and why; and with the gate that the latest
    attempt of its first waiting task did not pass."""
    closed = closed_to(table, job) if verdict.reason in _NODES_MATTER else ""
    return _said_after(verdict, closed, _not_begun(job))


def _not_begun(job: LiveJob) -> str:
    """Why the latest attempt of its first waiting task did not begin; '' where it did, or there was none."""
    first = next(startable(job.ranges, INF), None)
    return first.reason if first is not None and first.reason.startswith(NOT_BEGUN_REASONS) else ""


def _said_after(verdict: Verdict, *more: str) -> Verdict:
    """The answer with further sentences."""
    return replace(verdict, message=". ".join(text for text in (verdict.message, *more) if text))


def _with_changes(table: JobTable, engine: EngineView, job: LiveJob, verdict: Verdict, now_ms: int) -> Verdict:
    """The engine's answer with what would let the job start now; advice that was not tried gives way to what was."""
    if verdict.reason not in _CHANGEABLE:
        return verdict
    seen = engine.look(job.id, now_ms, elsewhere(table, job, now_ms))
    if seen is None:
        return verdict
    helps = tuple(_as_advice(job, change) for change in seen.sooner)
    if not helps and verdict.reason not in (Reason.RESOURCES, Reason.PRIORITY):
        helps = verdict.helps
    verdict = replace(verdict, sooner=seen.sooner, helps=helps)
    if verdict.basis == RESERVED:
        return verdict
    if seen.started:
        return replace(verdict, starts_at_ms=seen.starts_at_ms, basis=PLAYED, forecast_at_ms=now_ms)
    if seen.starts_at_ms <= max(now_ms, verdict.starts_at_ms or 0):
        return verdict
    return replace(verdict, starts_at_ms=seen.starts_at_ms, basis=AT_LEAST, forecast_at_ms=now_ms)


def elsewhere(table: JobTable, job: LiveJob, now_ms: int) -> list[Elsewhere]:
    """The job in the other queues that its owner may use, as it would be there; the first MAX_QUEUES by priority."""
    found: list[Elsewhere] = []
    others = sorted(table.policy.queues.values(), key=lambda queue: (-queue.priority, queue.name))
    for queue in islice((one for one in others if one.name != job.queue and one.open), MAX_QUEUES_ASKED):
        try:
            spec = as_changed(table, job, JobPatch(queue=queue.name), Submitter(user=job.user), now_ms)
        except HALError:
            continue  # it may not go there
        request, owner = table.class_of(spec, queue.name), table.interning.owner_of(owner_of(spec))
        walltime = limit_ms(spec.walltime) or INF
        found.append(Elsewhere(queue.name, request, owner, walltime))
        if len(found) == MAX_QUEUES:
            break
    return found


def _as_advice(job: LiveJob, change: Sooner) -> str:
    first = "its first waiting task" if job.spec.tasks > 1 else "it"
    if change.field == "nodes":
        return f"with {plural(int(change.value), 'node')} instead of {job.spec.nodes} {first} would start now"
    return f"hal update {job.id} --{change.field} {change.value}   # {first} would start now"


_CHANGEABLE = (
    Reason.RESOURCES, Reason.PRIORITY, Reason.LIMIT, Reason.HOURS, Reason.STRICT, Reason.NODES_DOWN, Reason.BOOKING,
    Reason.LICENCE,
)  # fmt: skip
"""What a change of the job may get around."""

_NODES_MATTER = frozenset({Reason.RESOURCES, Reason.NODES_DOWN, Reason.PRIORITY, Reason.CONSTRAINTS})
"""What another node might change."""


def _dependency(table: JobTable, job: LiveJob, *, brief: bool) -> Verdict:
    """Which of its dependencies are not met, how far those jobs are, and what follows when it cannot be met."""
    assert job.waits is not None
    if brief:
        return Verdict(job=job.id, reason=Reason.DEPENDENCY, message="")

    def phase(other: int) -> Phase:
        return table.committed_or_ended(other).phase

    parts: list[str] = []
    helps: list[str] = []
    waiting_for = 0
    for index, entry in enumerate(job.spec.dependencies):
        by_task = index in job.waits.by_task
        if by_task or entry_standing(job.waits, entry, phase) is Standing.WAITING:
            waiting_for += 1
            if len(parts) < MAX_NAMED:
                parts.append(_entry(table, job, entry, helps))
    more = f"; and {waiting_for - len(parts)} more" if waiting_for > len(parts) else ""
    what = _IF_NEVER[job.if_never]
    can_fail = any(one.kind in _CAN_FAIL for one in each_dependency(job.spec.dependencies))
    return Verdict(
        job=job.id,
        reason=Reason.DEPENDENCY,
        message=f"waits for {'; '.join(parts)}{more}{f'. If that can never be met, {what}' if can_fail else ''}",
        helps=tuple(helps[:MAX_NAMED]),
    )


def _entry(table: JobTable, job: LiveJob, entry: Dependency, helps: list[str]) -> str:
    texts: list[str] = []
    for one in entry.alternatives:
        if len(texts) == MAX_NAMED:
            texts.append(f"{len(entry.any_of) - MAX_NAMED} more")
            break
        if one.kind is DependencyKind.SINGLETON:
            first = table.singletons.first(job.key)
            texts.append(f"all earlier jobs named '{job.name}' of {job.user} (the first is {first})")
            continue
        other = table.committed_or_ended(int(one.job))
        title = other.name or other.spec.title if isinstance(other, LiveJob) else other.title
        each = " task by task" if one.kind is DependencyKind.AFTERCORR else ""
        texts.append(f"{one.kind} of job {one.job} ({title}){each}, which is {other.state}")
        if isinstance(other, LiveJob) and other.state is TaskState.HELD:
            helps.append(f"hal release {one.job}")
    return texts[0] if len(texts) == 1 else f"one of ({' | '.join(texts)})"


def _again(table: JobTable, job: LiveJob) -> list[str]:
    """The jobs that would have to run again, as commands."""
    named = {int(one.job) for one in each_dependency(job.spec.dependencies) if one.job}
    failed = (other for other in sorted(named) if table.committed_or_ended(other).phase is Phase.FAILED)
    return [f"hal requeue {other}" for other in islice(failed, MAX_NAMED)]


_IF_NEVER = {
    Failed.CANCEL: "this job is cancelled",
    Failed.HOLD: "this job is held",
    Failed.RUN: "this job runs anyway",
}
_CAN_FAIL = (DependencyKind.AFTEROK, DependencyKind.AFTERNOTOK, DependencyKind.AFTERCORR)


def _later(job: LiveJob, first: TaskRange, now_ms: int) -> Verdict:
    at_ms = job.eligible_of(first)
    wait = format_wait(max(at_ms - now_ms, 0))
    if first.eligible_ms <= job.eligible_ms:
        return Verdict(
            job=job.id,
            reason=Reason.BEGIN_AT,
            message=f"may not begin before {instant_text(at_ms)} (in {wait})",
            starts_at_ms=at_ms,
            basis="begin-at",
        )
    return Verdict(
        job=job.id,
        reason=Reason.BACKOFF,
        message=f"{first.reason or 'tried again'}: next attempt in {wait}",
        starts_at_ms=at_ms,
        basis="back-off",
        helps=(f"hal requeue {job.id}",),
    )


def _goes_on(table: JobTable, job: LiveJob) -> str:
    if job.counts.active == 0:
        return f"has ended: {job.state}"
    text = f"nothing waits: {plural(job.counts.active, 'task')} {job.state}{_at_gates(table, job)}"
    if ready := readiness_text(table.readiness, job):
        text = f"{text}; {ready}" + (f"; {job.reason}" if job.reason else "")
    taken = [attempt for attempt in job.active.values() if attempt.suspended or attempt.stopping in PREEMPTING]
    if not taken:
        return text
    afterwards = "; it resumes when its cpu is free again" if taken[0].suspended else ""
    return f"{text}; task {taken[0].task} was {preempted_for(taken[0])}{afterwards}"


def _at_gates(table: JobTable, job: LiveJob) -> str:
    """Which gates its attempts wait for, and on which nodes."""
    there = (one for one in job.active.values() if not one.stopping)
    found = [standing for one in there for standing in table.gates.waiting((job.id, one.task, one.attempt))]
    return f"; {gates_text(found)}" if found else ""


def _unheard(table: JobTable, job: LiveJob) -> Verdict | None:
    """Of a job of which all that is left is on its way: the nodes that are not heard, and what follows."""
    names = {name for attempt in job.active.values() for name, _ in attempt.steps_left(job.id)}
    silent = sorted(name for name in names if table.nodes[name].state in AWAY_NODE_STATES)
    if not silent:
        return None
    more = f" and {len(silent) - MAX_NAMED} more" if len(silent) > MAX_NAMED else ""
    if len(silent) == 1:
        who = f"node {silent[0]} is silent ({table.nodes[silent[0]].reason})"
    else:
        who = f"nodes {', '.join(silent[:MAX_NAMED])}{more} are silent"
    if job.spec.on_node_lost is OnNodeLost.REQUEUE:
        follows = (
            "the node itself ends what runs there, which runs again elsewhere when that is certain (`hal status` "
            "shows when)"
        )
    else:
        follows = (
            "its steps continue there, and run nowhere else until the node returns (on_node_lost: wait). If nothing "
            "runs there any more, for example because it was switched off, `hal node fence` moves the work elsewhere"
        )
    return Verdict(
        job=job.id,
        reason=Reason.NONE,
        message=f"{_goes_on(table, job)}; {who}: {follows}",
        helps=tuple(f"hal node fence {name}   # only when nothing runs there any more" for name in silent[:MAX_NAMED]),
    )


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
