"""`gpu_reserve`: work without GPUs leaves a node's GPUs the cores and memory that they will need."""

from __future__ import annotations

from hal.core.engine.config import EngineConfig
from hal.core.model import Reason
from hal.core.model.devices import asked_beside, left_beside
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
