"""GPUs of one link island: who asks for them never gets others, and waits while no island has as many free."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import HALError, Reason, SpecError
from tests.examples import examples
from tests.planes.tasks.gpu_site import GpuSite

ISLAND = 4
"""GPUs of each of the two islands of a node."""


def asking(gpus: int, *, one_island: bool = True) -> dict[str, int]:
    """The request of a job."""
    return {"cpu": 1, "gpu": gpus} | ({"gpu-island": gpus} if one_island else {})


def linked(nodes: int = 1, backfill: Backfill = Backfill.EASY, *, parts: bool = False) -> GpuSite:
    return GpuSite(nodes, ISLAND, EngineConfig(gpu_islands=True, gpu_parts=parts, backfill=backfill))


def indexes(site: GpuSite, job: int) -> list[int]:
    """Of the GPUs that a job of one node holds."""
    (held,) = site.running()[(job, 0)].gpus
    return [int(one.id.rpartition("-")[2]) for one in held]


def test_a_whole_island_is_bound_as_one() -> None:
    """Both islands are given, each as a whole."""
    site = linked()
    jobs = [site.submit(request=asking(4)) for _ in range(2)]
    site.turn()
    assert [indexes(site, job) for job in jobs] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_four_free_gpus_of_two_islands_are_no_island() -> None:
    """Two jobs of three leave one GPU of each island and run on; two free ones of one island are enough for two."""
    site = linked()
    first, second = (site.submit(request=asking(3)) for _ in range(2))
    site.turn()
    pair = site.submit(request=asking(2))
    site.turn()
    assert site.pending() == [pair]
    assert site.engine.explain(pair, site.now_ms).reason is Reason.RESOURCES
    assert "gpu-island" in str(site.engine.explain(pair, site.now_ms))
    apart = site.submit(request=asking(2, one_island=False))
    site.turn()
    assert indexes(site, apart) == [3, 7]
    site.end(second)
    site.turn()
    assert indexes(site, pair) == [4, 5]
    assert (first, 0) in site.running()


def test_an_island_that_work_without_the_wish_leaves_starts_who_waits_for_it() -> None:
    """Eight jobs of one GPU; as four of one island end, the job of a whole island begins there."""
    site = linked()
    singles = [site.submit(request=asking(1, one_island=False)) for _ in range(8)]
    site.turn()
    whole = site.submit(request=asking(4))
    for job in singles[3::-1]:
        site.turn()
        assert site.pending() == [whole]
        site.end(job)
    site.turn()
    assert indexes(site, whole) == [0, 1, 2, 3]


def test_more_than_the_largest_island_never_fits() -> None:
    """Although the node has eight GPUs."""
    with pytest.raises(HALError, match="5 gpu-island asked for") as refused:
        linked().submit(request=asking(5))
    assert "has 4" in str(refused.value)


def test_without_the_setting_the_refusal_names_it() -> None:
    with pytest.raises(HALError) as refused:
        GpuSite(island=ISLAND).submit(request=asking(4))
    assert "gpu_islands = true" in refused.value.hint


def test_both_amounts_are_the_same_number() -> None:
    """Two of four GPUs on one island is no request."""
    with pytest.raises(SpecError, match=r"request\.gpu-island: 2, beside 4 gpu"):
        linked().submit(request={"cpu": 1, "gpu": 4, "gpu-island": 2})


def test_who_waits_longest_for_an_island_claims_a_node() -> None:
    """Small jobs keep coming, and would hold GPUs of both islands for ever. After ten minutes nothing else starts
    there, and as what runs ends, the island is given."""
    site = linked()
    running = [site.submit(request=asking(1, one_island=False)) for _ in range(8)]
    site.turn()
    whole = site.submit(request=asking(4))
    for _ in range(40):
        site.now_ms += 60_000
        running.append(site.submit(request=asking(1, one_island=False)))
        site.end(min(site.running())[0])
        site.turn()
        if (whole, 0) in site.running():
            break
    assert (whole, 0) in site.running()


class Islands(RuleBasedStateMachine):
    """Any order of starts, ends, failed commits and restarts of jobs with the wish and without."""

    backfill = Backfill.EASY
    parts = False

    def __init__(self) -> None:
        super().__init__()
        self.site = linked(2, self.backfill, parts=self.parts)
        self.there = dict.fromkeys(self.site.names, 2 * ISLAND)

    @rule(
        gpus=st.integers(1, 4), one_island=st.booleans(), half=st.booleans(), tasks=st.integers(1, 3),
        fails=st.booleans(),
    )  # fmt: skip
    def submit(self, gpus: int, one_island: bool, half: bool, tasks: int, fails: bool) -> None:
        request: dict[str, object] = dict(asking(gpus, one_island=one_island))
        if self.parts and half:
            request = {"cpu": 1, "gpu": "0.5"}
        self.site.submit(request=request, wait_for_change=True, **({"array": tasks} if tasks > 1 else {}))
        self.site.turn(fails=fails)

    @rule(which=st.integers(0, 9), fails=st.booleans())
    def end(self, which: int, fails: bool) -> None:
        running = sorted(self.site.running())
        if running:
            self.site.end(*running[which % len(running)])
            self.site.turn(fails=fails)

    @rule(which=st.integers(0, 1), gpus=st.integers(0, 2 * ISLAND))
    def lose_gpus(self, which: int, gpus: int) -> None:
        """A node returns with fewer of them, or with those that it had lost."""
        node = self.site.names[which]
        self.site.join(node, gpus=gpus)
        self.site.turn()
        self.there[node] = gpus

    @rule()
    def restart(self) -> None:
        before = {key: attempt.gpus for key, attempt in self.site.running().items()}
        self.site.restart()
        assert {key: attempt.gpus for key, attempt in self.site.running().items()} == before

    def held(self) -> dict[tuple[str, int], int]:
        """By node and GPU: thousandths, as the attempts say."""
        found: dict[tuple[str, int], int] = {}
        for attempt in self.site.running().values():
            for node, gpus in zip(attempt.nodes, attempt.gpus, strict=True):
                for one in gpus:
                    key = (node, int(one.id.rpartition("-")[2]))
                    found[key] = found.get(key, 0) + one.milli
        return found

    @invariant()
    def all_that_run_have_what_they_asked_for(self) -> None:
        """As much; of one island, if they asked for that; and nothing twice."""
        for (job, _task), attempt in self.site.running().items():
            request = self.site.plane._table.jobs[job].spec.request
            assert [sum(one.milli for one in gpus) for gpus in attempt.gpus] == [request["gpu"]]
            if "gpu-island" in request:
                assert len({int(one.id.rpartition("-")[2]) // ISLAND for one in attempt.gpus[0]}) == 1
        assert max(self.held().values(), default=0) <= 1_000
        assert (self.site.engine.state.nodes.free[: len(self.site.names)] >= 0).all()
        check_invariants(self.site.engine.state)

    @invariant()
    def who_waits_first_could_not_run(self) -> None:
        """A plain judge tries every set of free GPUs of every node."""
        waiting = self.site.pending()
        if not waiting:
            return
        request, held = self.site.plane._table.jobs[waiting[0]].spec.request, self.held()
        for node in self.site.names:
            room = [1_000 - held.get((node, gpu), 0) for gpu in range(self.there[node])]
            if request["gpu"] < 1_000:
                assert max(room, default=0) < request["gpu"]
                continue
            free = [gpu for gpu, left in enumerate(room) if left == 1_000]
            for chosen in combinations(free, request["gpu"] // 1_000):
                assert "gpu-island" in request
                assert len({gpu // ISLAND for gpu in chosen}) > 1


class IslandsConservatively(Islands):
    """The same with timelines."""

    backfill = Backfill.CONSERVATIVE


class IslandsAndParts(Islands):
    """The same where GPUs are shared, too."""

    parts = True


@pytest.mark.parametrize("machine", [Islands, IslandsConservatively, IslandsAndParts])
def test_safety_an_island_is_never_made_of_two(machine: type[Islands]) -> None:
    """And nothing that fits is refused for ever."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )
