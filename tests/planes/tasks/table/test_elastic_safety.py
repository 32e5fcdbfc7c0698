"""Jobs with extensions on the task plane with the real store, under any order of events and restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from hal.core.model import JobSpec, StepId, TaskState, spec_from_plain
from hal.planes.tasks.table.extensions import base_runs
from hal.wire.frames.agent_keeper import ExitCause, StepExit, StepStarted, Usage
from tests.planes.tasks.test_plane_safety import BY, NODES, PlaneMachine, lives


class ElasticMachine(PlaneMachine):
    """The same as for other jobs, where most have extensions; of the first one, the base runs."""

    @initialize()
    def open(self) -> None:
        super().open()
        (job,) = self.plane.submit(
            [spec_from_plain({"command": ["true"], "extensions": 3, "retries": {"max": 2}})], BY, self.now_ms
        )
        self.commit()
        self.submitted.add(job.id)
        self._start(job.id, 0)

    def _start(self, job: int, task: int) -> None:
        """A task of one node is started, and its processes run."""
        starts, rows = self.engine.plan([(job, task)], {job: 1})
        self.engine.assume(starts)
        self.plane.allocate(starts, rows, NODES.__getitem__, self.epoch, self.now_ms)
        self.commit()
        attempt = self.plane._table.jobs[job].active[task]
        step = StepId(job, task, attempt.attempt, 0)
        self.plane.record_starts(attempt.nodes[0], [StepStarted(step, 7, self.now_ms)], self.now_ms)
        self.commit()

    def _spec(self, raw: dict[str, Any], place: int, data: st.DataObject) -> JobSpec:
        raw = dict(raw)
        extensions = data.draw(st.integers(0, 3))
        if extensions:
            raw.pop("array", None)
            raw["nodes"], raw["extensions"] = 1, extensions
        return super()._spec(raw, place, data)

    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        """An extension begins to run."""
        ready = sorted(t for t, (_, eligible_ms) in self.engine.pending.items() if eligible_ms <= self.now_ms)
        ready = [(job, task) for job, task in ready if self.plane._table.jobs[job].spec.is_extension(task)]
        if ready:
            self._start(*data.draw(st.sampled_from(ready)))

    @rule(data=st.data(), code=st.sampled_from([0, 0, 3]))
    def end_base(self, data: st.DataObject, code: int) -> None:
        """The command of a base ends, while its extensions do whatever they do."""
        running = [job for job in self.plane._table.jobs.values() if job.spec.extensions and base_runs(job)]
        if running:
            job = data.draw(st.sampled_from(running))
            node, step = job.active[0].steps_left(job.id)[0]
            usage = Usage(5, 1, 100, 0, 0)
            report = StepExit(step, ExitCause.EXITED, code, 0, self.now_ms, self.now_ms, usage, "")
            self.plane.record_exits(node, [report], self.now_ms)
            self.commit()

    @invariant()
    def safety_no_extension_runs_without_its_base(self) -> None:
        """Nor waits: what runs is being ended, and what waits is held."""
        for job in self.plane._table.jobs.values():
            if job.spec.extensions and not base_runs(job):
                assert all(attempt.stopping for task, attempt in job.active.items() if task)
                assert all(r.state is not TaskState.PENDING for r in job.ranges if r.first)

    @invariant()
    def safety_a_job_ends_as_its_base(self) -> None:
        for job_id in self.submitted:
            row = self.store.job(job_id)
            assert row is not None
            if row.spec.extensions and row.end_ms is not None:
                (base,) = self.store.tasks(job_id, limit=1)
                assert row.state is base.state
                assert not (row.failed + row.timed_out) - (base.state in (TaskState.FAILED, TaskState.TIMED_OUT))


ElasticMachine.TestCase.settings = lives(5)
TestElasticSafety = ElasticMachine.TestCase


@pytest.mark.slow
def test_safety_many_lives_of_elastic_jobs() -> None:
    """The same with more histories."""
    run_state_machine_as_test(ElasticMachine, settings=lives(60))
