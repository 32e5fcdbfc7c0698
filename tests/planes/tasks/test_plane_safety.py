"""The task plane with the real store under any order of events: nothing is lost, nothing is doubled, counts agree."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from hal.core.model import AttemptState, Failed, HALError, JobSpec, TaskState, spec_from_plain
from hal.core.model.eviction import Evict, EvictMode
from hal.core.model.policy import Policy
from hal.core.model.topology.files import topology_from_text
from hal.planes.tasks import (
    Arrival,
    Drain,
    EndedJob,
    EndedTask,
    JobPatch,
    Submitter,
    TaskPlane,
    UnknownJobs,
    check_table,
)
from hal.planes.tasks.slices import finished
from hal.planes.tasks.table.jobs_by_id import MAX_OBJECTS
from hal.store import Group, MemoryDatabase, Store
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepExit, StepStarted, Usage
from tests.planes.tasks.pending_model import PendingModel

BY = Submitter("alice", "trace")
NODES = ("n1", "n2")
SITE = topology_from_text('levels = ["zone", "rack"]\n[nodes]\nn1 = "east/r1"\nn2 = "east/r2"\n', "site.toml")
ENDS = [
    (ExitCause.EXITED, 0),
    (ExitCause.EXITED, 3),
    (ExitCause.SIGNALLED, 137),
    (ExitCause.TIMED_OUT, 143),
    (ExitCause.OUT_OF_MEMORY, 137),
    (ExitCause.LOST, 0),
    (ExitCause.CANCELLED, 143),
    (ExitCause.SPAWN_FAILED, 127),
]
specs = st.fixed_dictionaries(
    {},
    optional={
        "array": st.integers(1, 5) | st.just(40),
        "hold": st.booleans(),
        "nodes": st.integers(1, 2),
        "pack": st.sampled_from(["rack:1s", "rack:3s", "zone:30s"]),
        "retries": st.just({"max": 1, "backoff": "1s"}),
        "begin_at_ms": st.sampled_from([0, 5_000, 10_000_000]),
        "max_running": st.integers(1, 3),
        "on_dependency_failed": st.sampled_from(["cancel", "hold", "run"]),
        "kinds": st.lists(
            st.sampled_from(["after", "afterany", "afterok", "afternotok", "aftercorr", "singleton", "either"]),
            min_size=1,
            max_size=3,
        ),
    },
)


class PlaneMachine(RuleBasedStateMachine):
    """Every step is one or a few staged calls, then a commit or a commit that failed."""

    max_objects = MAX_OBJECTS

    @initialize()
    def open(self) -> None:
        self.disk = MemoryDatabase()
        self.now_ms, self.commits = 1_000, 0
        self.boots = dict.fromkeys(NODES, 1)
        self.start()
        self.submitted: set[int] = set()
        for name in NODES:
            self.join(name)
        self.commit()

    def start(self) -> None:
        self.store = Store.open(self.disk)
        self.epoch = self.store.take_leadership("test", self.now_ms)
        self.engine = PendingModel()
        self.plane = TaskPlane(Policy(), self.engine, topology=SITE)
        self.plane._table.jobs.max_objects = self.max_objects
        for event in self.plane.load(self.store.load(in_columns=True)):
            self.engine.apply(event)

    def join(self, name: str, held: tuple[Any, ...] = ()) -> None:
        boot_id = f"boot{self.boots[name]}"
        arrival = Arrival(name=name, capacity={"cpu": 64_000}, boot_id=boot_id, held=held, credit=name == "n1")
        self.plane.record_arrival(arrival, self.now_ms)

    def commit(self, *, fails: bool = False) -> None:
        change = self.plane.seal(self.now_ms)
        if fails:
            self.plane.undo()
            return
        self.commits += 1
        if not change.empty:
            group = Group(f"{self.epoch}-{self.commits}", self.now_ms, change.operations)
            self.store.commit(group, epoch=self.epoch)
        self.plane.keep()
        for event in change.engine:
            self.engine.apply(event)

    # ── what may happen ───────────────────────────────────────────────────────────────────────────────────────────

    @rule(plain=st.lists(specs, min_size=1, max_size=3), data=st.data(), fails=st.booleans())
    def submit(self, plain: list[dict[str, Any]], data: st.DataObject, fails: bool) -> None:
        before = self.plane._table.next_id
        batch = [self._spec(raw, place, data) for place, raw in enumerate(plain)]
        ended: dict[int, EndedJob] = {}
        try:
            jobs = self.plane.submit(batch, BY, self.now_ms)
        except UnknownJobs as unknown:
            for job_id in unknown.jobs:
                row = self.store.job(job_id)
                assert row is not None
                succeeded = (
                    self.store.succeeded(job_id) if row.state is not TaskState.SUCCEEDED and row.spec.several else ()
                )
                ended[job_id] = EndedJob(row.id, row.name, row.state, row.tasks, succeeded)
            jobs = self.plane.submit(batch, BY, self.now_ms, ended=ended)
        assert [job.id for job in jobs] == list(range(before, before + len(batch)))
        self.commit(fails=fails)
        if not fails:
            self.submitted.update(job.id for job in jobs)

    def _spec(self, raw: dict[str, Any], place: int, data: st.DataObject) -> JobSpec:
        raw = dict(raw)
        kinds, limit = raw.pop("kinds", []), raw.pop("max_running", 0)
        if "array" in raw:
            raw["array"] = {"count": raw["array"], "max_running": limit}
        names = [f"p{n}" for n in range(place)] + [str(job) for job in sorted(self.submitted)]
        raw["dependencies"] = [entry for kind in kinds for entry in self._entry(kind, names, raw, data)]
        return spec_from_plain({"command": ["true"], "name": f"p{place}", **raw})

    def _entry(self, kind: str, names: list[str], raw: dict[str, Any], data: st.DataObject) -> list[dict[str, Any]]:
        if kind == "singleton":
            return [{"kind": kind}]
        if kind == "either":
            some = [kind for kind in ("afterok", "afternotok", "aftercorr", "afterany") if data.draw(st.booleans())]
            members = [one for kind in some for one in self._entry(kind, names, raw, data)]
            return [{"any_of": members}] if members else []
        if kind == "aftercorr":
            rows = {str(job): self.store.job(job) for job in sorted(self.submitted)}
            length = raw["array"]["count"] if "array" in raw else 0
            names = [name for name, row in rows.items() if row is not None and row.tasks == length]
        return [{"job": data.draw(st.sampled_from(names)), "kind": kind}] if names else []

    @precondition(lambda self: self.submitted)
    @rule(
        what=st.sampled_from(["cancel", "hold", "release", "update", "requeue"]),
        data=st.data(),
        task=st.none() | st.integers(0, 4),
        fails=st.booleans(),
    )
    def control(self, what: str, data: st.DataObject, task: int | None, fails: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.submitted)))
        try:
            if what == "update":
                patch = data.draw(
                    st.sampled_from(
                        [
                            JobPatch(priority=5),
                            JobPatch(hold=True),
                            JobPatch(begin_at_ms=9),
                            JobPatch(account="a"),
                            JobPatch(name="p1"),
                            JobPatch(max_running=2),
                            JobPatch(max_running=0),
                            JobPatch(pack="rack:5s"),
                            JobPatch(pack=""),
                            JobPatch(on_dependency_failed=Failed.RUN),
                        ]
                    )
                )
                self.plane.update(job, patch, BY, self.now_ms)
            elif what == "requeue":
                self._requeue(job, task)
            else:
                getattr(self.plane, what)(job, task, BY, self.now_ms)
        except HALError:
            pass  # the thing named is in no state for it: nothing may have changed, which the invariants check
        self.commit(fails=fails)

    def _requeue(self, job: int, task: int | None) -> None:
        row = self.store.job(job)
        assert row is not None
        ended = [
            EndedTask(t.task, t.attempt, t.state, t.exit_code)
            for t in self.store.tasks(job, limit=10_000)
            if t.state.ended and t.attempt
        ]
        if job not in self.plane._table.jobs:
            if task is not None and task >= row.tasks:
                return
            self.plane.revive(row, self.store.ranges(job), self.store.succeeded(job) if row.spec.several else ())
        self.plane.requeue(job, task, ended, BY, self.now_ms)

    @rule(data=st.data(), fails=st.booleans(), credit=st.booleans())
    def plan(self, data: st.DataObject, fails: bool, credit: bool) -> None:
        ready = sorted(t for t, (_, eligible_ms) in self.engine.pending.items() if eligible_ms <= self.now_ms)
        if not ready:
            return
        chosen = sorted(data.draw(st.sets(st.sampled_from(ready), min_size=1, max_size=4)))
        width = {job: self.plane._table.jobs[job].spec.nodes for job, _ in chosen}
        starts, rows = self.engine.plan(chosen, width)
        if not fails:
            self.engine.assume(starts)
        self.plane.allocate(starts, rows, NODES.__getitem__, self.epoch, self.now_ms, credit=credit)
        self.commit(fails=fails)

    @rule(data=st.data(), fails=st.booleans(), end=st.sampled_from(ENDS), began=st.booleans())
    def exit(self, data: st.DataObject, fails: bool, end: tuple[ExitCause, int], began: bool) -> None:
        steps = self._steps()
        if not steps:
            return
        node, step = data.draw(st.sampled_from(steps))
        cause, code = end
        at_ms = self.now_ms if began and cause is not ExitCause.SPAWN_FAILED else 0
        heirs = [s for n, s in steps if n == node and s.job == step.job and s.rank == 0 and s != step]
        heir = data.draw(st.none() | st.sampled_from(heirs)) if heirs else None
        report = StepExit(step, cause, code, 0, at_ms, self.now_ms, Usage(5, 1, 100, 0, 0), "", heir)
        for _ in range(2):  # told twice: the second changes nothing
            self.plane.record_exits(node, [report], self.now_ms)
        self.commit(fails=fails)

    @rule(data=st.data(), fails=st.booleans())
    def begin(self, data: st.DataObject, fails: bool) -> None:
        steps = self._steps()
        if steps:
            node, step = data.draw(st.sampled_from(steps))
            self.plane.record_starts(node, [StepStarted(step, 7, self.now_ms)], self.now_ms)
            self.commit(fails=fails)

    @rule(
        data=st.data(),
        code=st.sampled_from(["overloaded", "not-held", "already-ended", "bad-workdir", "credit-over", "recalled"]),
        fails=st.booleans(),
    )
    def refuse(self, data: st.DataObject, code: str, fails: bool) -> None:
        steps = self._steps()
        if steps:
            node, step = data.draw(st.sampled_from(steps))
            self.plane.record_refusals(node, [Refusal(step, code, "no")], self.now_ms)
            self.commit(fails=fails)

    @rule(name=st.sampled_from(NODES), boots=st.booleans(), fails=st.booleans())
    def node(self, name: str, boots: bool, fails: bool) -> None:
        if boots and not fails:
            self.boots[name] += 1
        self.join(name)
        self.commit(fails=fails)

    @rule(name=st.sampled_from(NODES), fails=st.booleans())
    def machine_gone(self, name: str, fails: bool) -> None:
        self.plane.fence_node(name, BY, self.now_ms, machine_gone=True)
        self.commit(fails=fails)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data(), mode=st.sampled_from(EvictMode), task=st.none() | st.integers(0, 4), fails=st.booleans())
    def evict(self, data: st.DataObject, mode: EvictMode, task: int | None, fails: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.submitted)))
        with contextlib.suppress(HALError):
            self.plane.evict(job, task, Evict(mode=mode, reason="why"), BY, self.now_ms)
        self.commit(fails=fails)

    @rule(
        name=st.sampled_from(NODES),
        mode=st.sampled_from(EvictMode),
        within_ms=st.sampled_from([0, 2_000]),
        again=st.booleans(),
        fails=st.booleans(),
    )
    def drain(self, name: str, mode: EvictMode, within_ms: int, again: bool, fails: bool) -> None:
        self.plane.cordon(
            name, "why", BY, self.now_ms, drain=True, evict=Drain(mode=mode, within_ms=within_ms, grace_ms=1_000)
        )
        self.commit(fails=fails)
        if again:
            self.plane.uncordon(name, BY)
            self.commit()

    @precondition(lambda self: self.plane.next_due_ms <= self.now_ms)
    @rule(fails=st.booleans())
    def due(self, fails: bool) -> None:
        finished(self.plane.carrying_out_due(self.now_ms))
        self.commit(fails=fails)
        assert fails or self.plane.next_due_ms > self.now_ms
        for job in self.plane._table.jobs.values() if not fails else ():
            over = job.counts.pending and job.spec.nodes > 1 and job.eligible_ms <= self.now_ms - 60_000
            assert not (over and job.spec.pack and job.id in {one for one, _ in self.engine.pending})

    @rule(name=st.sampled_from(NODES), gone=st.booleans(), fails=st.booleans())
    def silence(self, name: str, gone: bool, fails: bool) -> None:
        self.plane.record_silence(name, "not heard", self.now_ms, self.now_ms)
        if gone:
            with contextlib.suppress(HALError):
                self.plane.fence_node(name, BY, self.now_ms)
        self.commit(fails=fails)

    @rule(ms=st.sampled_from([1, 2_000, 60_000]))
    def later(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def restart(self) -> None:
        """The controller dies and starts again from rows: an equal plane, and an engine that knows the same."""
        before = self.plane._table
        self.store.close()
        self.start()
        after = self.plane._table
        # What an array's limit lets through is chosen anew: a back-off may have passed.
        fed = {job: replace(live, fed=()) for job, live in after.jobs.items()}
        assert fed == {job: replace(live, fed=()) for job, live in before.jobs.items()}
        assert (after.ended, after.followers) == (before.ended, before.followers)
        assert {k: v for k, v in after.dependants.items() if v} == {k: v for k, v in before.dependants.items() if v}
        assert (after.busy, after.nodes, after.next_id) == (before.busy, before.nodes, before.next_id)
        assert after.evictions == before.evictions

    def _steps(self) -> list[tuple[str, Any]]:
        return [
            place
            for job in self.plane._table.jobs.values()
            for attempt in job.active.values()
            for place in attempt.steps_left(job.id)
        ]

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def safety_table_and_engine_agree(self) -> None:
        check_table(self.plane._table)
        self.engine.check(self.plane._table)

    @invariant()
    def safety_no_task_is_lost_or_doubled(self) -> None:
        """Every submitted job is live or has ended; its tasks, each counted once, give the counts of its row."""
        for job_id in self.submitted:
            row = self.store.job(job_id)
            assert row is not None
            assert (row.end_ms is None) == (job_id in self.plane._table.jobs)
            tasks = self.store.tasks(job_id, limit=10_000)
            assert [t.task for t in tasks] == list(range(row.tasks))
            states = Counter(t.state for t in tasks)
            active = sum(states[s] for s in TaskState if s.active)
            assert (row.pending, row.held, row.active, row.running) == (
                states[TaskState.PENDING],
                states[TaskState.HELD],
                active,
                states[TaskState.RUNNING],
            )
            assert (row.succeeded, row.failed, row.timed_out, row.cancelled) == (
                states[TaskState.SUCCEEDED],
                states[TaskState.FAILED],
                states[TaskState.TIMED_OUT],
                states[TaskState.CANCELLED],
            )
            live = Counter(a.task for a in self.store.attempts(job_id, limit=10_000) if not a.state.ended)
            assert all(count == 1 for count in live.values())
            assert all(
                a.state is not AttemptState.FINALISING or a.cause for a in self.store.attempts(job_id) if not a.ended_ms
            )


class CrowdedMachine(PlaneMachine):
    """The same where jobs that only wait become columns with the commit that made them."""

    max_objects = 0


def lives(count: int) -> settings:
    """So many histories."""
    return settings(max_examples=count, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


PlaneMachine.TestCase.settings = CrowdedMachine.TestCase.settings = lives(5)
TestPlaneSafety = PlaneMachine.TestCase
TestCrowdedPlaneSafety = CrowdedMachine.TestCase


@pytest.mark.slow
@pytest.mark.parametrize("machine", [PlaneMachine, CrowdedMachine])
def test_safety_many_lives_of_the_plane(machine: type[PlaneMachine]) -> None:
    """The same with more histories."""
    run_state_machine_as_test(machine, settings=lives(40))
