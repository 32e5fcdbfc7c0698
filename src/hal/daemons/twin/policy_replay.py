"""Replay a workload under a site's whole policy: admission, queues, shares, limits, and the engine's own loop.

It drives the engine, as `replay` does for the bare policies: it reads no clock and decides nothing. Submitted jobs have
passed the controller's admission; what starts, and when, is decided by `Scheduler`. Event order of one second of the
log: ends, then submits in order, then the engine's slices. O(1) Python steps per start.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hal.core.engine import new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import (
    END,
    INF,
    START,
    AttemptsEnded,
    ClockAdvanced,
    JobsCancelled,
    JobsSubmitted,
    NodesChanged,
    StartsRefused,
    submit_rows,
)
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import pending, share_rows
from hal.core.engine.why.explain import explain
from hal.core.kernels.structures.layout import MODE_SUSPEND
from hal.core.model import InternalError
from hal.core.model.gpu_slices import gpu_milli
from hal.core.model.policy import DEFAULT_QUEUE
from hal.daemons.twin.extensions import NOT_GROWN, Extended, ExtensionFigures, Extensions, Gone, Grown
from hal.daemons.twin.gang_domains import GangDomains, GangFigures
from hal.daemons.twin.gpu_use import GpuFigures, GpuUse
from hal.daemons.twin.grouped_jobs import GroupedJobs
from hal.daemons.twin.legs import Ended, Held, Legs
from hal.daemons.twin.limit_watch import LimitWatch, WaitingCount
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.population import Population
from hal.daemons.twin.replay import Report, node_specs, on_levels
from hal.daemons.twin.site_admission import Admission, Refusal, Site, admit, admitted_people
from hal.daemons.twin.swf import Workload
from hal.planes.tasks import BookingTimes

IntArray = NDArray[np.int64]

REPORT_EVERY = 1 << 10
"""Instants between two calls of `report`."""
IDLE_WAKES_MAX = 10_000
"""Consecutive calls that the engine may request while nothing runs, arrives or starts; what waits after that never
starts."""
SLICES_MAX = 1 << 20
"""Slices of scheduling at one instant; beyond that, the engine spins."""
EXPLAINED = 1_000
"""Jobs that never started for which the engine is asked why."""

_MILLI = 1000


@dataclass(frozen=True, slots=True, eq=False)
class PolicyRun:
    """The outcome of a workload under one site; arrays of shape (J,), in the workload's order, in seconds of the log.

    Attributes:
        people: the owner of each job, after admission.
        start_s: its first start; -1 if the job never started: refused, or still waiting when the replay ended.
        end_s: its last end, or when a running job would end, perhaps after `until_s`; -1 if it does not run.
        run_s: its run time: a policy may shorten its walltime.
        arrived: how many jobs, the first ones, were submitted before the replay ended.
        until_s: when the replay ended.
        refused: jobs that the policy did not accept, by reason.
        reason: index into `refused`; -1 if the job was accepted.
        waiting: why jobs wait at the end, by the engine: reason -> jobs; the first EXPLAINED of them.
        target: (account, user) -> its fraction of the whole in the tree of shares, as the engine has it.
        cycles: how many slices of scheduling there were.
        held: when jobs held their processors, until `until_s`.
        preemptions: how often a running job was preempted.
        lost_s: processor-seconds lost by that.
        gangs: on how many domains jobs of several nodes were; None without a topology.
        gpus: how GPUs were used; None without any.
        grown: when extensions of jobs held their processors, and how many each.
        extensions: what came of extensions; None without any.
        places: on the nodes of a cluster: those of each job's last start, in rank order; () of one that did not start.
        held_gpus: by job, what that start held of their GPUs, in words; '' for nothing.
    """

    site: Site
    clairvoyant: bool
    machine: Machine
    people: Population
    id: IntArray
    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    procs: IntArray
    run_s: IntArray
    arrived: int
    until_s: int
    refused: tuple[Refusal, ...]
    reason: IntArray
    waiting: dict[str, int]
    target: dict[tuple[str, str], float]
    cycles: int
    held: Held
    preemptions: int
    lost_s: float
    gangs: GangFigures | None = None
    gpus: GpuFigures | None = None
    grown: Grown = NOT_GROWN
    extensions: ExtensionFigures | None = None
    places: tuple[tuple[str, ...], ...] = ()
    held_gpus: tuple[str, ...] = ()

    @property
    def asked_s(self) -> NDArray[np.float64]:
        """Processor-seconds that each job needs, whether or not it started."""
        return self.procs.astype(np.float64) * self.run_s

    @property
    def used(self) -> tuple[Held, IntArray]:
        """When jobs held processors, their extensions included, and how many."""
        if not self.grown.held.job.size:
            return self.held, self.procs[self.held.job]
        both = (self.held, self.grown.held)
        columns = (
            np.concatenate(of_both) for of_both in zip(*((h.job, h.begin_s, h.end_s) for h in both), strict=True)
        )
        return Held(*columns), np.concatenate([self.procs[self.held.job], self.grown.procs])

    @property
    def started(self) -> NDArray[np.bool_]:
        """Which jobs started and have an end."""
        return self.end_s >= 0

    @property
    def wait_s(self) -> IntArray:
        """For jobs with an end: all time from submit to end in which they made no progress."""
        return self.end_s - self.submit_s - self.run_s


def replay_under(
    workload: Workload,
    machine: Machine,
    people: Population,
    site: Site,
    *,
    origin_s: int = 0,
    until_s: int | None = None,
    clairvoyant: bool = False,
    check: bool = False,
    report: Report | None = None,
) -> PolicyRun:
    """Run the workload through admission and engine under a site's policy.

    Args:
        people: the owner of each job; its names must be known to the site (`check_names`).
        origin_s: the instant of second 0 of the log, since 1970; queue hours and limit periods depend on it.
        until_s: stop at this second of the log, whatever waits or runs.
        clairvoyant: the engine plans with the true run times instead of the limits.
        check: verify the whole state, and every limit by an independent count, after every slice (slow).
        report: called with the number of finished jobs, about every REPORT_EVERY instants.
    Raises: InternalError when a rule of the site is faulty, or a check fails.
    """
    admission = admit(site, workload, machine, people, origin_s * _MILLI)
    return _Replay(workload, machine, people, site, admission, origin_s, clairvoyant, check).run(until_s, report)


def load_site_kernels(site: Site) -> None:
    """Compile or load every kernel that a replay under this site uses, so that its time excludes it."""
    one = np.ones(3, np.int64)
    nobody = np.zeros(3, np.int64)
    tiny = Workload(
        id=one, submit_s=np.array([0, 0, 1]), run_s=2 * one, limit_s=3 * one, procs=one, user=one, skipped={}
    )
    people = Population((DEFAULT_QUEUE,), ("",), ("u1",), nobody, nobody, nobody)
    replay_under(tiny, Machine(nodes=2, cpus_per_node=1), people, site, until_s=10)


class _Replay:
    """One run: the engine, arriving jobs, running jobs."""

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        people: Population,
        site: Site,
        admission: Admission,
        origin_s: int,
        clairvoyant: bool,
        check: bool,
    ) -> None:
        self.workload, self.machine, self.site = workload, machine, site
        self.people = admitted_people(people, admission)
        self.admission = admission
        self.clairvoyant = clairvoyant
        self.check = check
        self.origin_ms = origin_s * _MILLI
        self.state = new_state(on_levels(site.engine, machine))
        self.groups = GroupedJobs(admission.groups, admission.classes)
        self.gangs = GangDomains(machine, self._is_group)
        self.gpus: GpuUse | None = None
        """Of a cluster."""
        self.places: list[tuple[str, ...]] = []
        self.held_gpus: list[str] = []
        if machine.cluster is not None:
            began_ms = self.origin_ms + int(workload.submit_s[0]) * _MILLI
            self.gpus = GpuUse(machine.cluster, site.engine, began_ms)
            self.places = [()] * workload.jobs
            self.held_gpus = [""] * workload.jobs
        self.extensions = Extensions(self._extended())
        self.packs: list[tuple[int, int]] = []
        """When jobs that wait for one domain give that up, and which: a heap."""
        self.refused: list[np.void] = []
        """Starts that do not happen: another one of the same plan took the part of a GPU that they need."""
        self.scheduler = Scheduler(self.state, self)
        self.waiting = WaitingCount(site.policy)
        self.watch = LimitWatch(site.policy, site.engine.zones)
        self.bookings = BookingTimes()
        self.full: dict[str, int] = {}
        """Limits on waiting jobs, by message: their indexes after the refusals of admission."""
        self.reason = admission.reason.copy()
        limit_s = np.where(admission.kind >= 0, admission.kinds[admission.kind, 2], 1) if admission.kinds.size else None
        if limit_s is not None:
            limit_s = np.where(limit_s > 0, limit_s, workload.run_s)
        self.run_s = workload.run_s if limit_s is None else np.minimum(workload.run_s, limit_s)
        self.start_ms = [-1] * workload.jobs
        self.legs = Legs((self.run_s * _MILLI).tolist(), self.origin_ms, self.extensions.jobs)
        self.now = 0
        self.arrived = self.started = self.cycles = 0
        self.submits = self._submit_rows()

    def _submit_rows(self) -> NDArray[np.void]:
        """Build a submit row for each job of the workload; job ids count from 1. Refused jobs are left out later."""
        load, kind = self.workload, np.maximum(self.admission.kind, 0)
        rows = submit_rows(load.jobs)
        rows["job"] = np.arange(1, load.jobs + 1)
        rows["submit_ms"] = self.origin_ms + load.submit_s * _MILLI
        rows["eligible_ms"] = rows["submit_ms"]
        if self.admission.kinds.size:
            kinds = self.admission.kinds[kind]
            rows["class_index"], rows["owner_index"] = kinds[:, 0], kinds[:, 1]
            rows["walltime_ms"] = np.where(kinds[:, 2] > 0, kinds[:, 2] * _MILLI, INF)
            rows["priority"] = kinds[:, 3]
        rows["planned_ms"] = self.run_s * _MILLI if self.clairvoyant else rows["walltime_ms"]
        return rows

    def _extended(self) -> dict[int, Extended]:
        """The jobs that may have extensions."""
        if not self.admission.extended:
            return {}
        found: dict[int, Extended] = {}
        for at, kind in enumerate(self.admission.kind.tolist()):
            if kind in self.admission.extended:
                most, class_index, owner_index = self.admission.extended[kind]
                nodes = self.admission.classes[int(self.admission.kinds[kind, 0])].nodes
                found[at] = Extended(most, class_index, owner_index, nodes)
        return found

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, until_s: int | None, report: Report | None) -> PolicyRun:
        """Process instants in order until nothing is left to do."""
        submit_ms = self.submits["submit_ms"].tolist()
        jobs = len(submit_ms)
        last = INF if until_s is None else self.origin_ms + until_s * _MILLI
        self.now = submit_ms[0]
        # The clock first: usage counts from here, not from 1970.
        self.scheduler.feed(ClockAdvanced(self.now))
        nodes = node_specs(self.machine) if self.gpus is None else self.gpus.specs()
        self.scheduler.feed(NodesChanged(nodes=nodes))
        idle = instants = 0
        wake = INF
        while True:
            arrival = submit_ms[self.arrived] if self.arrived < jobs else INF
            end = self.legs.next_ms
            rounded = -(-wake // _MILLI) * _MILLI if wake < INF else INF
            give_up = self.packs[0][0] if self.packs else INF
            leave = self.extensions.next_ms
            self.now = min(arrival, end, give_up, leave, max(rounded, self.now + _MILLI))
            if self.now >= last or self.now == INF:
                break
            idle = idle + 1 if arrival == end == give_up == leave == INF else 0
            if idle > IDLE_WAKES_MAX:
                break
            if self.now == end:
                self._end(self.now)
            if self.now == leave:
                self._let_leave()
            self._give_up()
            if self.now == arrival:
                first = self.arrived
                while self.arrived < jobs and submit_ms[self.arrived] == self.now:
                    self.arrived += 1
                self._submit(first, self.arrived)
            wake = self._decide()
            instants += 1
            if report is not None and not instants % REPORT_EVERY:
                report(self.started + int((self.reason[: self.arrived] >= 0).sum()))
        return self._result(last)

    def _decide(self) -> int:
        """Start everything that can start now; returns when to call again."""
        before = self.started
        news = self.bookings.news(self.site.policy, self.now)
        if news is not None:
            self.scheduler.feed(ClockAdvanced(self.now))
            self.scheduler.feed(news)
        for _ in range(SLICES_MAX):
            step = self.scheduler.step(self.now)
            self.cycles += 1
            if self.check:
                check_invariants(self.state)
            if not self._tell() and not step.more:
                return step.wake_ms
        raise InternalError(f"{self.site.label}: no end of slices at {self.now} ms, {self.started - before} starts")

    def accept(self, plan: Plan) -> None:
        """Carry out a plan; see `hal.core.engine.scheduler.Sink`."""
        if plan.moves.shape[0]:
            self._move(plan)
        self.gangs.count(plan)
        for place, (number, task) in enumerate(plan.starts[["job", "task"]].tolist()):
            at = number - 1
            if task and self.groups.has(self._class_of(at)):
                continue  # a group that starts with the first one, or not
            if task:
                self._extend(at, task, plan, place)
                continue
            if self.gpus is not None and not self._place(at, plan, place):
                continue
            if self.start_ms[at] < 0:
                self.start_ms[at] = self.now
                self.started += 1
            self.legs.begin(at, self.now)
            self.extensions.let_wait(at)
            if self.check or self.waiting.asks:
                self._started(at)

    def _extend(self, at: int, task: int, plan: Plan, place: int) -> None:
        """Start an extension, if its base still runs and its GPUs are there."""
        start = plan.starts[place]
        nodes = (self.state.node_name(int(plan.rows[int(start["row_offset"])])),)
        key, request = self._key(at, task), self._whose(at)[1].request
        gpus = self.gpus if self._gpus_of(at) else None
        if not self.legs.runs(at) or (gpus is not None and not gpus.start(key, nodes, (request,), self.now)):
            self.refused.append(start)
            return
        self.extensions.begin(at, task, nodes[0], self.now)
        self._set_pace(at)
        if self.check:
            self.watch.started(*self._whose_extension(at), self.now)

    def _let_leave(self) -> None:
        """The grace of extensions that left for others is over."""
        left = self.extensions.leave(self.now)
        rows = np.zeros(len(left), END)
        rows["job"] = [one.at + 1 for one in left]
        rows["task"] = [one.task for one in left]
        rows["attempt"] = [one.attempt for one in left]
        rows["requeue"] = 1
        rows["ended_ms"] = self.now
        self.scheduler.feed(AttemptsEnded(rows))
        for one in left:
            self._extension_over(one)

    def _send_away(self, at: int) -> None:
        """The base of a job does not run any more, or is about to leave: nor do its extensions, from now on."""
        gone = self.extensions.send_away(at, self.now)
        for one in gone:
            self._extension_over(one)
        if gone:
            self._set_pace(at)

    def _extension_over(self, one: Gone) -> None:
        if self.gpus is not None:
            self.gpus.end(self._key(one.at, one.task), self.now)
        if self.check:
            self.watch.ended(*self._whose_extension(one.at))

    def _set_pace(self, at: int) -> None:
        """With as many nodes again a job is done in half the time."""
        nodes, more = self.extensions.width(at)
        self.legs.pace(at, nodes + more, nodes, self.now)

    def _key(self, at: int, task: int) -> int:
        """By what the book of GPUs knows an extension."""
        return at + task * self.workload.jobs

    def _whose_extension(self, at: int) -> tuple[OwnerSpec, ClassSpec]:
        _, class_index, owner_index = self.admission.extended[int(self.admission.kind[at])]
        return self.admission.owners[owner_index], self.admission.classes[class_index]

    def _place(self, at: int, plan: Plan, place: int) -> bool:
        """Note the nodes of a start, and choose its GPUs; False: it does not happen."""
        assert self.gpus is not None
        starts = self.groups.starts(plan, place, self._class_of(at))
        first, width = int(starts["row_offset"][0]), int(starts["row_count"].sum())
        nodes = tuple(map(self.state.node_name, plan.rows[first : first + width].tolist()))
        if self._gpus_of(at):
            if not self.gpus.start(at, nodes, self.groups.requests(self._class_of(at)), self.now):
                self.refused.extend(starts)
                return False
            self.gpus.wants(-1, self.now)
            self.held_gpus[at] = self.gpus.held_by(at)
        self.places[at] = nodes
        return True

    def _note_pack(self, at: int) -> None:
        """A job waits; note when it gives up waiting for one domain, if it does."""
        packed = self.admission.packed.get(int(self.admission.kind[at]))
        if packed is not None:
            give_up_ms = int(self.submits["submit_ms"][at]) + -(-packed[0] // _MILLI) * _MILLI
            heapq.heappush(self.packs, (max(give_up_ms, self.now), at))

    def _give_up(self) -> None:
        """Jobs that have waited for one domain for as long as they say may start anywhere from now on."""
        while self.packs and self.packs[0][0] <= self.now:
            _, at = heapq.heappop(self.packs)
            row = self.submits[at : at + 1]
            row["class_index"] = self.admission.packed[int(self.admission.kind[at])][1]
            waits = self.legs.attempt_waiting(at)
            if waits:
                row["attempt"] = waits
                self.scheduler.feed(JobsCancelled(row["job"].copy()))
                rows = self.groups.submits(row)
                self.scheduler.feed(JobsSubmitted(rows, self.admission.classes, self.admission.owners))

    def _tell(self) -> bool:
        """Tell the engine of starts that did not happen, of extensions that wait or have ended with their base, and of
        what is left of GPUs that are shared; whether there was anything to tell."""
        refused, self.refused = self.refused, []
        if refused:
            self.scheduler.feed(StartsRefused(np.array(refused, START)))
        events = self.extensions.events(self.submits, self.now, self.admission.classes, self.admission.owners)
        for event in events:
            self.scheduler.feed(event)
        nodes = () if self.gpus is None else self.gpus.untold()
        if nodes:
            self.scheduler.feed(NodesChanged(nodes=nodes))
        return bool(refused or events or nodes)

    def _gpus_of(self, at: int) -> int:
        """What a job asks for of each of its nodes, thousandths; the most of any group."""
        request = self._whose(at)[1]
        return max(gpu_milli(part.request) for part in (request, *request.groups))

    def _move(self, plan: Plan) -> None:
        """Preempt, suspend and resume running work."""
        for move in plan.preemptions:
            at, mode = int(move["job"]) - 1, int(move["mode"])
            if move["task"] and self.groups.has(self._class_of(at)):
                continue  # it leaves with the first one
            if move["task"]:
                self.extensions.ask(at, int(move["task"]), int(move["grace_ms"]), self.now)
                self._set_pace(at)
                continue
            self._send_away(at)
            self.legs.take(at, mode, int(move["grace_ms"]), self.now)
            if mode == MODE_SUSPEND and self.check:
                self.watch.ended(*self._whose(at))
        for move in plan.resumes:
            at = int(move["job"]) - 1
            self.legs.begin(at, self.now)
            self.extensions.let_wait(at)
            if self.check:
                self.watch.resumed(*self._whose(at))

    def _class_of(self, at: int) -> int:
        """The class that a job waits or runs with; of several groups that of the first."""
        return int(self.submits["class_index"][at])

    def _is_group(self, number: int, task: int) -> bool:
        """Whether a start of the engine is that of another group than the first of a job."""
        return task > 0 and self.groups.has(self._class_of(number - 1))

    def _whose(self, at: int) -> tuple[OwnerSpec, ClassSpec]:
        class_index, owner_index, _, _ = self.admission.kinds[self.admission.kind[at]].tolist()
        return self.admission.owners[owner_index], self.admission.classes[class_index]

    def _started(self, at: int) -> None:
        owner, request = self._whose(at)
        self.waiting.started(owner)
        if self.check:
            self.watch.started(owner, request, self.now)

    def _end(self, now: int) -> None:
        ended = self.legs.pop(now)
        if not ended:
            return
        rows = np.zeros(len(ended), END)
        rows["job"] = [one.at + 1 for one in ended]
        rows["attempt"] = [one.attempt for one in ended]
        rows["requeue"] = [one.requeue for one in ended]
        rows["ended_ms"] = now
        rows = self.groups.ends(rows, [self._class_of(one.at) for one in ended])
        self.scheduler.feed(AttemptsEnded(rows))
        for one in ended:
            self._ended(one)
        self._tell()

    def _ended(self, one: Ended) -> None:
        self._send_away(one.at)
        if one.cancelled:
            self.run_s[one.at] = (self.legs.end_ms[one.at] - self.start_ms[one.at]) // _MILLI
        if self.gpus is not None:
            self.gpus.end(one.at, self.now)
            if one.requeue and self._gpus_of(one.at):
                self.gpus.wants(1, self.now)
        if one.requeue:
            self._note_pack(one.at)
        if one.requeue and self.waiting.asks:
            self.waiting.returns(self._whose(one.at)[0])
        if self.check:
            self.watch.ended(*self._whose(one.at))

    def _submit(self, first: int, last: int) -> None:
        """Submit jobs first..last-1, except those that admission or a limit on waiting jobs refuses."""
        if self.waiting.asks:
            for at in range(first, last):
                if self.reason[at] < 0:
                    full = self.waiting.refuses(self.admission.owners[int(self.submits["owner_index"][at])])
                    if full:
                        known = len(self.admission.refusals)
                        self.reason[at] = known + self.full.setdefault(full, len(self.full))
        rows = self.groups.submits(self.submits[first:last][self.reason[first:last] < 0])
        if rows.shape[0]:
            self.scheduler.feed(JobsSubmitted(rows, self.admission.classes, self.admission.owners))
        for at in range(first, last) if self.admission.packed else ():
            if self.reason[at] < 0:
                self._note_pack(at)
        if self.gpus is not None:
            wanting = sum(self.reason[at] < 0 and self._gpus_of(at) > 0 for at in range(first, last))
            self.gpus.wants(int(wanting), self.now)

    # ── what came of it ───────────────────────────────────────────────────────────────────────────────────────────

    def _result(self, last: int) -> PolicyRun:
        load = self.workload
        start_ms = np.array(self.start_ms, np.int64)
        end_ms = np.array([self.legs.foreseen_end_ms(at) for at in range(load.jobs)], np.int64)
        start_s = np.where(start_ms >= 0, (start_ms - self.origin_ms) // _MILLI, -1)
        end_s = np.where(end_ms >= 0, (end_ms - self.origin_ms) // _MILLI, -1)
        until_s = int(max(load.submit_s.max(), end_s.max()))
        if last < INF:
            until_s = min(until_s, (last - self.origin_ms) // _MILLI)
        for at in self.extensions.jobs:
            if end_s[at] >= 0:  # with extensions it is done sooner than its base would be alone
                self.run_s[at] = self.legs.made_ms(at) // _MILLI
        grown = self.extensions.grown(self.origin_ms, self.origin_ms + until_s * _MILLI, self._procs_of_extensions())
        # Later submits than the end have not happened.
        reasons = [(one.what, one.example) for one in self.admission.refusals]
        reasons += [("pending", text) for text in self.full]
        reason = self.reason[: self.arrived]
        count = np.bincount(reason[reason >= 0], minlength=len(reasons)).tolist()
        refusals = [Refusal(what, jobs, text) for (what, text), jobs in zip(reasons, count, strict=True)]
        return PolicyRun(
            site=self.site, clairvoyant=self.clairvoyant, machine=self.machine, people=self.people, id=load.id,
            submit_s=load.submit_s, start_s=start_s, end_s=end_s, procs=load.procs, run_s=self.run_s,
            arrived=self.arrived, until_s=until_s, refused=tuple(refusals), reason=self.reason, waiting=self._left(),
            target=self._targets(), cycles=self.cycles, held=self.legs.held(self.origin_ms + until_s * _MILLI),
            preemptions=self.legs.taken,
            lost_s=float(sum(lost * int(load.procs[at]) for at, lost in self.legs.lost_ms.items())) / _MILLI,
            gangs=self.gangs.figures(),
            grown=grown, extensions=self.extensions.figures(grown),
            gpus=None if self.gpus is None else self.gpus.figures(self.origin_ms + until_s * _MILLI),
            places=tuple(self.places), held_gpus=tuple(self.held_gpus),
        )  # fmt: skip

    def _procs_of_extensions(self) -> dict[int, int]:
        """Of each job that may have some: the processors of one, whole cores."""
        return {
            at: max(-(-self._whose_extension(at)[1].request.get("cpu", 0) // _MILLI), 1) for at in self.extensions.jobs
        }

    def _left(self) -> dict[str, int]:
        """Return why jobs still wait at the end, in the engine's own words."""
        left = np.unique(pending(self.state)["job"])[:EXPLAINED].tolist()
        return dict(Counter(str(explain(self.state, job, self.now).reason) for job in left))

    def _targets(self) -> dict[tuple[str, str], float]:
        """Return each leaf's fraction of the whole: the product of its and its ancestors' fractions among their
        siblings."""
        part: dict[tuple[str, ...], float] = {}
        leaves: dict[tuple[str, str], float] = {}
        for row in share_rows(self.state):
            if row.user is None:
                part[row.path] = row.target * (part[row.path[:-1]] if row.path else 1.0)
            else:
                leaves[row.path[-1] if row.path else "", row.user] = row.target * part[row.path]
        return leaves
