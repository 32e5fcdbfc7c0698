"""`gpu_reserve`: work without GPUs leaves a node's GPUs the cores and memory that they will need."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import Reason
from hal.core.model.gpu_reserves import asked_beside, left_beside
from tests.examples import examples
from tests.planes.tasks.gpu_site import GpuSite

CORES = 64
"""Of each node, beside four GPUs."""
RESERVE = {"cpu": 12_000}
"""For each GPU: 48 cores of a node, so 16 are left to other work."""


def reserving(nodes: int = 1) -> GpuSite:
    return GpuSite(nodes, config=EngineConfig(placement="auto", gpu_reserve=RESERVE))


def test_work_without_gpus_leaves_each_gpu_its_cores() -> None:
    """Of five jobs of four cores four run: 16 of 64 cores. The GPU jobs that come have theirs."""
    site = reserving()
    others = [site.submit(request={"cpu": 4}) for _ in range(5)]
    site.turn()
    assert site.pending() == [others[-1]]
    with_gpus = [site.submit(request={"cpu": 12, "gpu": 1}) for _ in range(4)]
    site.turn()
    assert site.pending() == [others[-1]]
    assert {job for job, _task in site.running()} >= set(with_gpus)


def test_without_the_setting_nothing_is_left() -> None:
    """Sixteen jobs of four cores take all; a job with a GPU waits."""
    site = GpuSite(config=EngineConfig(placement="auto"))
    for _ in range(16):
        site.submit(request={"cpu": 4})
    site.turn()
    late = site.submit(request={"cpu": 4, "gpu": 1})
    site.turn()
    assert site.pending() == [late]


def test_work_with_gpus_may_use_all_that_is_there() -> None:
    """One GPU and every core of the node."""
    site = reserving()
    job = site.submit(request={"cpu": CORES, "gpu": 1})
    site.turn()
    assert site.running()[(job, 0)].nodes == ("n1",)


def test_what_waits_for_it_says_so() -> None:
    """There are 48 free cores, and none that it may use."""
    site = reserving()
    first = site.submit(request={"cpu": 16})
    site.turn()
    second = site.submit(request={"cpu": 16})
    site.turn()
    assert site.pending() == [second]
    verdict = site.engine.explain(second, site.now_ms)
    assert verdict.reason is Reason.RESOURCES
    assert "cpu-beside-gpus" in str(verdict)
    site.end(first)
    site.turn()
    assert not site.pending()


def test_a_restart_counts_what_runs() -> None:
    site = reserving()
    running = site.submit(request={"cpu": 12})
    site.turn()
    site.restart()
    late = site.submit(request={"cpu": 8})
    site.turn()
    assert site.pending() == [late]
    assert [job for job, _task in site.running()] == [running]


def test_a_node_with_less_than_is_reserved_leaves_nothing() -> None:
    """Eight GPUs at twelve cores each are more than its 64; of memory a half is left; nodes without GPUs keep all."""
    reserve = {"cpu": 12_000, "memory": 4 << 30}
    left = left_beside({"cpu": 64_000, "memory": 64 << 30, "gpu": 8_000}, reserve)
    assert left == {"cpu-beside-gpus": 0, "memory-beside-gpus": 32 << 30}
    assert left_beside({"cpu": 64_000}, {"cpu": 12_000}) == {"cpu-beside-gpus": 64_000}
    assert asked_beside({"cpu": 4_000, "gpu": 500}, reserve) == {}


class Beside(RuleBasedStateMachine):
    """Work with parts of GPUs, with whole ones and with none, packed on two nodes, in any order of starts, ends, failed
    commits and restarts."""

    backfill = Backfill.EASY

    def __init__(self) -> None:
        super().__init__()
        config = EngineConfig(placement="auto", gpu_parts=True, gpu_reserve=RESERVE, backfill=self.backfill)
        self.site = GpuSite(nodes=2, config=config)

    @rule(
        gpus=st.sampled_from(["0", "0", "0.3", "0.5", "1", "2"]), cores=st.sampled_from([1, 6, 12]),
        tasks=st.integers(1, 3), fails=st.booleans(),
    )  # fmt: skip
    def submit(self, gpus: str, cores: int, tasks: int, fails: bool) -> None:
        array = {"array": tasks} if tasks > 1 else {}
        self.site.submit(request={"cpu": cores} | ({"gpu": gpus} if gpus != "0" else {}), **array)
        self.site.turn(fails=fails)

    @rule(which=st.integers(0, 9), fails=st.booleans())
    def end(self, which: int, fails: bool) -> None:
        running = sorted(self.site.running())
        if running:
            self.site.end(*running[which % len(running)])
            self.site.turn(fails=fails)

    @rule()
    def restart(self) -> None:
        self.site.restart()

    @invariant()
    def work_without_gpus_has_what_is_left_to_it(self) -> None:
        """Sixteen of the 64 cores of each node; no GPU is given more than once over, and no node more than it has."""
        others, gpus = dict.fromkeys(self.site.names, 0), dict[str, int]()
        for (job, _task), attempt in self.site.running().items():
            request = self.site.plane._table.jobs[job].spec.request
            for node, held in zip(attempt.nodes, attempt.gpus or ((),), strict=True):
                others[node] += 0 if request.get("gpu") else request["cpu"]
                for one in held:
                    gpus[one.id] = gpus.get(one.id, 0) + one.milli
        assert max(others.values()) <= 16_000
        assert max(gpus.values(), default=0) <= 1_000
        check_invariants(self.site.engine.state)


class BesideConservatively(Beside):
    """The same with timelines."""

    backfill = Backfill.CONSERVATIVE


@pytest.mark.parametrize("machine", [Beside, BesideConservatively])
def test_safety_gpus_keep_the_cores_that_are_reserved_for_them(machine: type[Beside]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )
