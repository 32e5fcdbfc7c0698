"""`gpu_reserve`: work without GPUs leaves a node's GPUs the cores and memory that they will need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import Reason, SpecError
from hal.core.model.gpu_reserves import GpuReserves, asked_beside
from hal.core.model.policy import Policy, Queue
from hal.core.model.policy_check import check_policy
from hal.core.model.resources import Resources
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
    reserves = GpuReserves({"cpu": 12_000, "memory": 4 << 30})
    left = reserves.rests({"cpu": 64_000, "memory": 64 << 30, "gpu": 8_000})
    assert left == {"cpu-beside-gpus": 0, "memory-beside-gpus": 32 << 30}
    assert GpuReserves({"cpu": 12_000}).rests({"cpu": 64_000}) == {"cpu-beside-gpus": 64_000}
    assert asked_beside({"cpu": 4_000, "gpu": 500}, reserves.asked_in("default")) == {}


# ── by queue ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def queues(**reserves: dict[str, int]) -> Policy:
    """Queues that reserve so much of what the site reserves otherwise."""
    return Policy(queues={name: Queue(name=name, gpu_reserve=Resources(one)) for name, one in reserves.items()})


LAX = {"cpu": 4_000}
"""For each GPU: 16 of 64 cores, so 48 are left to work of such a queue."""


def test_a_queue_that_reserves_less_uses_more() -> None:
    """Its work has 48 cores; that of other queues no more than 16, which counts against the 48."""
    site = GpuSite(config=EngineConfig(placement="auto", gpu_reserve=RESERVE), policy=queues(lax=LAX, default=RESERVE))
    strict = [site.submit(request={"cpu": 8}) for _ in range(3)]
    site.turn()
    assert site.pending() == [strict[-1]]
    lax = [site.submit(request={"cpu": 8}, queue="lax") for _ in range(5)]
    site.turn()
    assert site.pending() == [strict[-1], lax[-1]]
    assert "cpu-beside-gpus-at-4" in str(site.engine.explain(lax[-1], site.now_ms))
    assert "8 cpu-beside-gpus" in str(site.engine.explain(strict[-1], site.now_ms))


def test_a_queue_may_reserve_where_the_site_does_not() -> None:
    """Work of others has all cores."""
    site = GpuSite(policy=queues(strict=RESERVE, default={}))
    site.submit(request={"cpu": 48})
    strict = [site.submit(request={"cpu": 8}, queue="strict") for _ in range(3)]
    site.turn()
    assert site.pending() == [strict[-1]]


def test_a_queue_may_reserve_nothing() -> None:
    """Although the site does."""
    site = GpuSite(config=EngineConfig(gpu_reserve=RESERVE), policy=queues(urgent={}, default=RESERVE))
    site.submit(request={"cpu": CORES}, queue="urgent")
    site.turn()
    assert not site.pending()


def test_what_waits_asks_for_what_its_queue_leaves_now() -> None:
    """The queue's reserve falls from twelve cores to four for each GPU; a failed commit changes nothing. What runs
    counts as before: two of five jobs. After a restart all count, and of 48 cores 40 are used."""
    site = GpuSite(config=EngineConfig(placement="auto"), policy=queues(default=RESERVE))
    jobs = [site.submit(request={"cpu": 8}) for _ in range(5)]
    site.turn()
    assert site.pending() == jobs[2:]
    site.change_policy(queues(default=LAX), fails=True)
    assert site.pending() == jobs[2:]
    site.change_policy(queues(default=LAX))
    assert site.pending() == []
    site.restart()
    more = [site.submit(request={"cpu": 8}) for _ in range(2)]
    site.turn()
    assert site.pending() == more[1:]
    site.change_policy(queues(default=RESERVE))
    site.end(jobs[0])
    site.turn()
    assert site.pending() == []
    check_invariants(site.engine.state)


def test_what_runs_stays_when_the_reserve_rises_and_gpus_are_used_beside_it() -> None:
    """48 cores are used, of which 16 may be, after a restart. Work with GPUs starts; other work when 16 are used again
    and a further job has ended."""
    site = GpuSite(config=EngineConfig(placement="auto", gpu_reserve=LAX))
    jobs = [site.submit(request={"cpu": 8}) for _ in range(6)]
    site.turn()
    site.config = replace(site.config, gpu_reserve=RESERVE)
    site.restart()
    with_gpu, late = site.submit(request={"cpu": 8, "gpu": 1}), site.submit(request={"cpu": 8})
    site.turn()
    assert (with_gpu, 0) in site.running()
    for job in jobs[:4]:
        site.end(job)
        site.turn(fails=True)
        site.end(job)
        site.turn()
        assert site.pending() == [late]
        check_invariants(site.engine.state)
    site.end(jobs[4])
    site.turn()
    assert not site.pending()


def test_nothing_is_left_where_more_is_reserved_than_there_is_and_what_runs_stays() -> None:
    """After a restart with 20 cores for each of four GPUs; work with GPUs starts beside it."""
    site = reserving()
    job = site.submit(request={"cpu": 8})
    site.turn()
    site.config = replace(site.config, gpu_reserve={"cpu": 20_000})
    site.restart()
    late, with_gpu = site.submit(request={"cpu": 1}, wait_for_change=True), site.submit(request={"cpu": 1, "gpu": 1})
    site.turn()
    assert set(site.running()) == {(job, 0), (with_gpu, 0)}
    site.end(job)
    site.turn()
    assert site.pending() == [late]
    assert (site.engine.state.nodes.free[:1] >= 0).all()


def test_too_many_reserves_are_refused() -> None:
    """Each is an amount of each node; so are resources that GPUs do not need."""
    with pytest.raises(SpecError, match="9 different amounts of cpu"):
        check_policy(queues(**{f"q{number}": {"cpu": 1_000 * number} for number in range(1, 10)}))
    with pytest.raises(SpecError, match=r"queues\.q\.gpu_reserve: gpu cannot be reserved"):
        check_policy(queues(q={"gpu": 1_000}))


class Beside(RuleBasedStateMachine):
    """Work with parts of GPUs, with whole ones and with none, packed on two nodes, in any order of starts, ends, failed
    commits and restarts."""

    backfill = Backfill.EASY

    def __init__(self) -> None:
        super().__init__()
        config = EngineConfig(placement="auto", gpu_parts=True, gpu_reserve=RESERVE, backfill=self.backfill)
        self.site = GpuSite(nodes=2, config=config, policy=queues(default=RESERVE, lax=LAX))

    @rule(
        gpus=st.sampled_from(["0", "0", "0.3", "0.5", "1", "2"]), cores=st.sampled_from([1, 6, 12]),
        tasks=st.integers(1, 3), queue=st.sampled_from(["default", "lax"]), fails=st.booleans(),
    )  # fmt: skip
    def submit(self, gpus: str, cores: int, tasks: int, queue: str, fails: bool) -> None:
        array = {"array": tasks} if tasks > 1 else {}
        self.site.submit(request={"cpu": cores} | ({"gpu": gpus} if gpus != "0" else {}), queue=queue, **array)
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
        """Sixteen of the 64 cores of each node, of the lax queue 48 less what the others have; no GPU is given more
        than once over, and no node more than it has."""
        others, gpus = dict.fromkeys(self.site.names, 0), dict[str, int]()
        strict = dict(others)
        for (job, _task), attempt in self.site.running().items():
            request = self.site.plane._table.jobs[job].spec.request
            for node, held in zip(attempt.nodes, attempt.gpus or ((),), strict=True):
                cores = 0 if request.get("gpu") else request["cpu"]
                others[node] += cores
                strict[node] += cores if self.site.plane._table.jobs[job].queue == "default" else 0
                for one in held:
                    gpus[one.id] = gpus.get(one.id, 0) + one.milli
        assert max(strict.values()) <= 16_000
        assert max(others.values()) <= 48_000
        assert max(gpus.values(), default=0) <= 1_000
        check_invariants(self.site.engine.state)


class BesideConservatively(Beside):
    """The same with timelines."""

    backfill = Backfill.CONSERVATIVE


class Changing(RuleBasedStateMachine):
    """The same while the policy and, with a restart, the site change what is left to GPUs."""

    def __init__(self) -> None:
        super().__init__()
        config = EngineConfig(placement="auto", gpu_reserve=LAX)
        self.site = GpuSite(nodes=2, config=config, policy=queues(default={}, x={}))

    @rule(gpus=st.sampled_from([0, 0, 0, 1]), cores=st.sampled_from([4, 8]), queue=st.sampled_from(["default", "x"]))
    def submit(self, gpus: int, cores: int, queue: str) -> None:
        request = {"cpu": cores} | ({"gpu": gpus} if gpus else {})
        self.site.submit(request=request, queue=queue, wait_for_change=True)
        self.site.turn()

    @rule(which=st.integers(0, 9), fails=st.booleans())
    def end(self, which: int, fails: bool) -> None:
        running = sorted(self.site.running())
        if running:
            self.site.end(*running[which % len(running)])
            self.site.turn(fails=fails)

    @rule(one=st.sampled_from([{}, LAX, RESERVE]), other=st.sampled_from([{}, LAX, RESERVE]), fails=st.booleans())
    def change_queues(self, one: dict[str, int], other: dict[str, int], fails: bool) -> None:
        self.site.change_policy(queues(default=one, x=other), fails=fails)

    @rule(reserve=st.sampled_from([{}, LAX, RESERVE]))
    def restart(self, reserve: dict[str, int]) -> None:
        self.site.config = replace(self.site.config, gpu_reserve=reserve)
        self.site.restart()

    @invariant()
    def no_node_has_less_than_nothing(self) -> None:
        """Of anything; so who waits first for a GPU could not run on what the nodes have free of cores and GPUs."""
        state = self.site.engine.state
        free = state.nodes.free[: len(state.nodes.names)]
        assert (free >= 0).all()
        check_invariants(state)
        waiting = self.site.pending()
        request = self.site.plane._table.jobs[waiting[0]].spec.request if waiting else {}
        if request.get("gpu"):
            of = {name: free[:, state.nodes.resources.index(name)] for name in request}
            assert not np.logical_and.reduce([of[name] >= amount for name, amount in request.items()]).any()


def test_safety_no_node_is_lost_when_reserves_change() -> None:
    run_state_machine_as_test(
        Changing, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )


@pytest.mark.parametrize("machine", [Beside, BesideConservatively])
def test_safety_gpus_keep_the_cores_that_are_reserved_for_them(machine: type[Beside]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )
