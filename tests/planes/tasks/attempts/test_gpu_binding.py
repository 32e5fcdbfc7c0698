"""Attempts are given certain GPUs as they start; nothing else has them until they end, whoever is the controller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import HALError, Reason
from hal.core.model.devices import bind_gpus
from tests.examples import examples
from tests.planes.tasks.gpu_site import GpuSite

ONE = {"cpu": 1}


def ids(site: GpuSite, job: int, task: int = 0) -> list[list[str]]:
    return [[str(one) for one in of_node] for of_node in site.running()[(job, task)].gpus]


def test_a_start_says_which_gpus_are_its_own() -> None:
    """Two of one island; the next job has the other one."""
    site = GpuSite()
    first, second = (site.submit(request={**ONE, "gpu": 2}) for _ in range(2))
    site.turn()
    assert [ids(site, first), ids(site, second)] == [[["n1-0", "n1-1"]], [["n1-2", "n1-3"]]]
    assert [device.index for device in site.started[(second, 0, 0)]] == [2, 3]


def test_a_gang_has_gpus_on_each_of_its_nodes() -> None:
    """In rank order."""
    site = GpuSite(nodes=2)
    gang = site.submit(request={**ONE, "gpu": 3}, nodes=2)
    site.turn()
    nodes = site.running()[(gang, 0)].nodes
    assert [one[0].partition("-")[0] for one in ids(site, gang)] == list(nodes)
    assert [len(one) for one in ids(site, gang)] == [3, 3]


def test_what_asks_for_no_gpu_has_none() -> None:
    """And its row holds nothing of them."""
    site = GpuSite()
    job = site.submit(request=ONE)
    site.turn()
    assert (site.running()[(job, 0)].gpus, site.started[(job, 0, 0)]) == ((), ())
    assert site.store.load().attempts[job][0].gpus == ()


def test_a_controller_that_starts_again_gives_no_gpu_twice() -> None:
    """What runs holds what its row says; the one that is left goes to the next."""
    site = GpuSite()
    three = site.submit(request={**ONE, "gpu": 3})
    site.turn()
    held = ids(site, three)
    site.restart()
    assert ids(site, three) == held
    one = site.submit(request={**ONE, "gpu": 1})
    site.turn()
    assert ids(site, one) == [["n1-3"]]


def test_gpus_of_a_commit_that_failed_are_free() -> None:
    """And those of an end that was not committed are not."""
    site = GpuSite()
    lost = site.submit(request={**ONE, "gpu": 4})
    site.turn(fails=True)
    assert lost not in {job for job, _ in site.running()}
    job = site.submit(request={**ONE, "gpu": 4})
    site.turn()
    site.end(job)
    site.turn(fails=True)
    assert ids(site, job) == [["n1-0", "n1-1", "n1-2", "n1-3"]]


def test_a_node_that_returns_with_fewer_gpus_gives_none_twice() -> None:
    """A running step keeps one that is gone; the others are counted and given as before."""
    site = GpuSite()
    job = site.submit(request={**ONE, "gpu": 4})
    site.turn()
    site.join("n1", gpus=3)
    site.turn()
    more = site.submit(request={**ONE, "gpu": 1})
    site.turn()
    assert more in site.pending()
    site.end(job)
    site.turn()
    assert ids(site, more) == [["n1-2"]]


@pytest.mark.parametrize("parts", [False, True])
def test_a_node_whose_gpus_are_gone_still_takes_work_without(parts: bool) -> None:
    """Four are held of three. A GPU is free when two of these have ended, the lost one among them; and so after a
    restart."""
    site = GpuSite(config=EngineConfig(gpu_parts=parts))
    jobs = [site.submit(request={**ONE, "gpu": 1}) for _ in range(4)]
    site.turn()
    site.join("n1", gpus=3)
    site.turn()
    plain, late = site.submit(request=ONE), site.submit(request={**ONE, "gpu": 1})
    site.turn()
    assert (plain, 0) in site.running()
    site.restart()
    site.turn()
    assert (site.engine.state.nodes.free[:1] >= 0).all()
    site.end(jobs[3])
    site.turn(fails=True)
    site.end(jobs[3])
    site.turn()
    assert site.pending() == [late]
    site.end(jobs[0])
    site.turn()
    assert ids(site, late) == [["n1-0"]]
    check_invariants(site.engine.state)


class Machine(RuleBasedStateMachine):
    """Any order of starts, ends, failed commits and restarts; `check_table` judges after each."""

    def __init__(self) -> None:
        super().__init__()
        self.site = GpuSite(nodes=2)

    @rule(gpus=st.sampled_from([1, 2, 3, 4]), nodes=st.integers(1, 2), tasks=st.integers(1, 3), fails=st.booleans())
    def submit(self, gpus: int, nodes: int, tasks: int, fails: bool) -> None:
        array = {"array": tasks} if tasks > 1 else {}
        self.site.submit(request={**ONE, "gpu": gpus}, nodes=nodes, wait_for_change=True, **array)
        self.site.turn(fails=fails)

    @rule(which=st.integers(0, 7), fails=st.booleans())
    def end(self, which: int, fails: bool) -> None:
        running = sorted(self.site.running())
        if running:
            self.site.end(*running[which % len(running)])
            self.site.turn(fails=fails)

    @rule()
    def restart(self) -> None:
        before = {key: attempt.gpus for key, attempt in self.site.running().items()}
        self.site.restart()
        assert {key: attempt.gpus for key, attempt in self.site.running().items()} == before

    @rule(which=st.integers(0, 1), gpus=st.integers(0, 4))
    def lose_gpus(self, which: int, gpus: int) -> None:
        """A node returns with fewer of them, or with those that it had lost."""
        self.site.join(self.site.names[which], gpus=gpus)
        self.site.turn()

    @invariant()
    def no_node_has_less_than_nothing(self) -> None:
        """It would take nothing at all."""
        assert (self.site.engine.state.nodes.free[: len(self.site.names)] >= 0).all()

    @invariant()
    def all_that_run_have_gpus(self) -> None:
        """As many as they asked for, of whole ones."""
        for (job, _), attempt in self.site.running().items():
            asked = self.site.plane._table.jobs[job].spec.request["gpu"]
            assert [1_000 * len(of_node) for of_node in attempt.gpus] == [asked] * len(attempt.nodes)


def test_safety_no_gpu_is_given_twice() -> None:
    """Whole GPUs that fit by count can always be bound."""
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )


# ── parts of GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def sharing(nodes: int = 1, island: int = 1, **config: Any) -> GpuSite:
    """Several jobs may share a GPU; two on each node unless `island` says otherwise."""
    return GpuSite(nodes, island, EngineConfig(gpu_parts=True, **config))


def test_two_halves_of_one_gpu_go_to_one_gpu() -> None:
    """So that a whole one is left."""
    site = sharing()
    halves = [site.submit(request={**ONE, "gpu": "0.5"}) for _ in range(2)]
    site.turn()
    assert [ids(site, job) for job in halves] == [[["n1-0:0.5"]]] * 2
    whole = site.submit(request={**ONE, "gpu": 1})
    site.turn()
    assert ids(site, whole) == [["n1-1"]]


def test_what_is_left_on_two_gpus_is_no_gpu() -> None:
    """0.4 of each of two: 0.8 of a GPU are free, and neither a whole one nor 0.5 of one."""
    site = sharing()
    for _ in range(2):
        site.submit(request={**ONE, "gpu": "0.6"})
    site.turn()
    half, whole = site.submit(request={**ONE, "gpu": "0.5"}), site.submit(request={**ONE, "gpu": 1})
    site.turn()
    assert site.pending() == [half, whole]
    assert site.engine.explain(half, site.now_ms).reason is Reason.RESOURCES
    little = site.submit(request={**ONE, "gpu": "0.4"})
    site.turn()
    assert site.pending() == [half, whole]
    assert ids(site, little) == [["n1-0:0.4"]]


def test_a_gpu_whose_parts_are_given_back_is_whole_again() -> None:
    """Who waits for it starts."""
    site = sharing()
    one, two = (site.submit(request={**ONE, "gpu": "0.6"}) for _ in range(2))
    site.turn()
    pair = site.submit(request={**ONE, "gpu": 2})
    site.turn()
    site.end(one)
    site.turn()
    assert site.pending() == [pair]
    site.end(two)
    site.turn()
    assert ids(site, pair) == [["n1-0", "n1-1"]]


def test_parts_that_one_plan_cannot_give_start_with_the_next() -> None:
    """Four GPUs: a plan counts on one of them, of which 0.4 is left after the first of four tasks."""
    site = sharing(island=2)
    job = site.submit(request={**ONE, "gpu": "0.6"}, array=4)
    site.turn()
    assert sorted(ids(site, job, task)[0][0] for task in range(4)) == [f"n1-{gpu}:0.6" for gpu in range(4)]


def test_parts_go_to_no_node_that_gives_whole_gpus_only() -> None:
    """Without the setting nothing is shared; it says what would help."""
    site = GpuSite()
    with pytest.raises(HALError, match="gpu_parts = true") as refused:
        site.submit(request={**ONE, "gpu": "0.5"})
    assert "whole GPUs" in str(refused.value) + str(refused.value.hint)


def test_whole_gpus_with_a_part_of_one_are_not_bound() -> None:
    """There is no such GPU."""
    site = sharing()
    with pytest.raises(HALError):
        site.submit(request={**ONE, "gpu": "1.5"})


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_a_controller_that_starts_again_shares_as_before(backfill: Backfill) -> None:
    """0.6 of each GPU is held: what could not start before cannot start now."""
    site = sharing(backfill=backfill)
    for _ in range(2):
        site.submit(request={**ONE, "gpu": "0.6"})
    site.turn()
    half = site.submit(request={**ONE, "gpu": "0.5"})
    site.turn()
    site.restart()
    site.turn()
    assert site.pending() == [half]


class Sharing(Machine):
    """Any order of starts, ends, failed commits and restarts of parts and whole ones."""

    backfill = Backfill.EASY

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self.site = sharing(2, 2, backfill=self.backfill)

    @rule(gpus=st.sampled_from(["0.2", "0.5", "0.6", "1", "2", "3"]), tasks=st.integers(1, 3), fails=st.booleans())
    def submit(self, gpus: str, tasks: int, fails: bool) -> None:  # type: ignore[override]
        array = {"array": tasks} if tasks > 1 else {}
        self.site.submit(request={**ONE, "gpu": gpus}, wait_for_change=True, **array)
        self.site.turn(fails=fails)

    @invariant()
    def all_that_run_have_gpus(self) -> None:
        """As much as they asked for."""
        for (job, _), attempt in self.site.running().items():
            asked = self.site.plane._table.jobs[job].spec.request["gpu"]
            assert [sum(one.milli for one in of_node) for of_node in attempt.gpus] == [asked]
        check_invariants(self.site.engine.state)

    @invariant()
    def who_waits_first_could_not_run(self) -> None:
        """A plain judge tries every node: what fits is never refused."""
        table = self.site.plane._table
        waiting = self.site.pending()
        milli = table.jobs[waiting[0]].spec.request["gpu"] if waiting else 0
        for name in self.site.names if waiting else ():
            row = table.nodes[name]
            assert bind_gpus(table.gpus.gpus_of(row), table.gpus.held(name), milli) is None


class SharingConservatively(Sharing):
    """The same with timelines."""

    backfill = Backfill.CONSERVATIVE


@pytest.mark.parametrize("machine", [Sharing, SharingConservatively])
def test_safety_no_gpu_is_shared_by_more_than_it_holds(machine: type[Sharing]) -> None:
    """And nothing that fits is refused for ever."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )
