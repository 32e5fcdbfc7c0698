"""Workers on the task plane with the real store, under any order of events and restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from hal.core.lifecycle import PLACE_GIVEN_BACK
from hal.core.model import JobSpec, TaskState, spec_from_plain
from hal.planes.tasks import JobPatch
from hal.wire.frames.agent_keeper import ExitCause, StepExit, Usage
from tests.planes.tasks.test_plane_safety import BY, PlaneMachine, lives


class WorkerMachine(PlaneMachine):
    """The same as for other jobs, where most arrays have extensions, and many are of workers."""

    @initialize()
    def open(self) -> None:
        super().open()
        pool = {"command": ["true"], "array": "0-5%3", "extensions": 4, "workers": True, "retries": {"max": 2}}
        (job,) = self.plane.submit([spec_from_plain(pool)], BY, self.now_ms)
        self.commit()
        self.submitted.add(job.id)

    def _spec(self, raw: dict[str, Any], place: int, data: st.DataObject) -> JobSpec:
        raw = dict(raw)
        if "array" in raw:
            raw["nodes"] = 1
            raw["extensions"] = data.draw(st.integers(0, raw["array"]))
            raw["workers"] = data.draw(st.booleans())
        return super()._spec(raw, place, data)

    @rule(data=st.data(), most=st.integers(1, 6))
    def want(self, data: st.DataObject, most: int) -> None:
        """So many workers are wanted now."""
        pools = [job.id for job in self.plane._table.jobs.values() if job.spec.workers]
        if pools:
            self.plane.update(data.draw(st.sampled_from(sorted(pools))), JobPatch(max_running=most), BY, self.now_ms)
            self.commit()

    @rule(data=st.data(), code=st.sampled_from([0, PLACE_GIVEN_BACK, PLACE_GIVEN_BACK]), fails=st.booleans())
    def leave(self, data: st.DataObject, code: int, fails: bool) -> None:
        """A worker gives its place back, or finds no work left."""
        steps = [(node, step) for node, step in self._steps() if self.plane._table.jobs[step.job].spec.workers]
        if steps:
            node, step = data.draw(st.sampled_from(sorted(steps, key=str)))
            report = StepExit(step, ExitCause.EXITED, code, 0, self.now_ms, self.now_ms, Usage(5, 1, 100, 0, 0), "")
            self.plane.record_exits(node, [report], self.now_ms)
            self.commit(fails=fails)

    @invariant()
    def safety_nothing_waits_where_a_worker_found_no_work_left(self) -> None:
        for job in self.plane._table.jobs.values():
            if job.spec.workers and job.succeeded:
                assert job.counts.pending + job.counts.held == 0

    @invariant()
    def safety_no_more_wait_in_the_engine_than_are_wanted(self) -> None:
        for job in self.plane._table.jobs.values():
            if job.window:
                known = sum(number == job.id for number, _ in self.engine.pending)
                assert known <= max(job.window - len(job.active), 0)

    @invariant()
    def safety_extensions_never_fail(self) -> None:
        """Nor does a worker time out, and a pool of which none failed has succeeded once one found no work left."""
        for job_id in self.submitted:
            row = self.store.job(job_id)
            assert row is not None
            if not (row.spec.workers or row.spec.extensions):
                continue
            bad = [t.task for t in self.store.tasks(job_id, limit=100) if t.state in _BAD]
            assert not any(row.spec.is_extension(task) for task in bad)
            if row.spec.workers:
                assert row.timed_out == 0
                done = row.end_ms is not None and row.succeeded and not row.failed
                assert not done or row.state is TaskState.SUCCEEDED


_BAD = (TaskState.FAILED, TaskState.TIMED_OUT)

WorkerMachine.TestCase.settings = lives(5)
TestWorkerSafety = WorkerMachine.TestCase


@pytest.mark.slow
def test_safety_many_lives_of_workers() -> None:
    """The same with more histories."""
    run_state_machine_as_test(WorkerMachine, settings=lives(60))
