"""Slices of GPUs in MIG mode: counted by type, bound as a whole, never given twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import EngineConfig
from hal.core.model import HALError, SpecError
from tests.examples import examples
from tests.planes.tasks.gpu_site import GpuSite

SMALL, LARGE = "mig-1g.10gb", "mig-3g.40gb"


def held(site: GpuSite, job: int, task: int = 0) -> list[str]:
    """What a job of one node holds."""
    (gpus,) = site.running()[(job, task)].gpus
    return [str(one) for one in gpus]


def sliced(nodes: int = 1, *, parts: bool = False) -> GpuSite:
    """Each node has two whole GPUs and two in MIG mode, each of two small slices and a large one."""
    return GpuSite(nodes, 1, EngineConfig(gpu_parts=parts, gpu_islands=parts), sliced=2)


def test_a_job_is_given_slices_of_its_type_by_their_uuids() -> None:
    """Both small ones of one GPU, so that of the other one all are left. Its step is told of them."""
    site = sliced()
    small, large = site.submit(request={"cpu": 1, SMALL: 2}), site.submit(request={"cpu": 1, LARGE: 1})
    site.turn()
    assert held(site, small) == ["MIG-n1-0-0", "MIG-n1-0-1"]
    assert held(site, large) == ["MIG-n1-0-2"]
    assert [(one.index, one.uuid) for one in site.started[(large, 0, 0)]] == [(2, "MIG-n1-0-2")]


def test_slices_are_taken_where_the_fewest_are_free() -> None:
    """One small slice of the first GPU is held; the next one comes of it, too; then two of the other."""
    site = sliced()
    jobs = [site.submit(request={"cpu": 1, SMALL: count}) for count in (1, 1, 2)]
    site.turn()
    assert [held(site, job) for job in jobs] == [["MIG-n1-0-0"], ["MIG-n1-0-1"], ["MIG-n1-1-0", "MIG-n1-1-1"]]


def test_whole_gpus_are_never_those_in_mig_mode() -> None:
    """Two of the four."""
    site = sliced()
    with pytest.raises(HALError, match="3 gpu asked for"):
        site.submit(request={"cpu": 1, "gpu": 3})
    both = site.submit(request={"cpu": 1, "gpu": 2, SMALL: 1})
    site.turn()
    assert held(site, both) == ["n1-0", "n1-1", "MIG-n1-0-0"]


def test_what_waits_for_a_slice_starts_when_one_is_given_back() -> None:
    site = sliced()
    jobs = [site.submit(request={"cpu": 1, LARGE: 1}) for _ in range(3)]
    site.turn()
    assert site.pending() == [jobs[2]]
    site.restart()
    site.turn()
    assert site.pending() == [jobs[2]]
    site.end(jobs[0])
    site.turn()
    assert held(site, jobs[2]) == ["MIG-n1-0-2"]


def test_a_slice_is_not_divided_further() -> None:
    """Half of one is no amount."""
    with pytest.raises(SpecError, match=r"mig-1g\.10gb"):
        sliced(parts=True).submit(request={"cpu": 1, SMALL: "0.5"})


def test_work_with_slices_is_work_with_gpus() -> None:
    """It may use the cores that others must leave; its keeper lets it open device files of GPUs."""
    site = GpuSite(1, 1, EngineConfig(gpu_reserve={"cpu": 20_000}), sliced=2)
    job = site.submit(request={"cpu": 60, SMALL: 1})
    change = site.turn()
    (template,) = change.orders["n1"].templates.values()
    assert (job, 0) in site.running()
    assert template.gpu_milli == 142


class Slices(RuleBasedStateMachine):
    """Any order of starts, ends, failed commits and restarts of jobs with slices, whole GPUs, and parts of them."""

    parts = False

    def __init__(self) -> None:
        super().__init__()
        self.site = sliced(2, parts=self.parts)

    @rule(
        small=st.integers(0, 3), large=st.integers(0, 2), gpus=st.sampled_from(["0", "0", "1", "2", "0.4"]),
        nodes=st.integers(1, 2), fails=st.booleans(),
    )  # fmt: skip
    def submit(self, small: int, large: int, gpus: str, nodes: int, fails: bool) -> None:
        gpus = gpus if self.parts or gpus != "0.4" else "1"
        self.site.submit(request={"cpu": 1, "gpu": gpus, SMALL: small, LARGE: large}, nodes=nodes)
        self.site.turn(fails=fails)

    @rule(which=st.integers(0, 9), fails=st.booleans())
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

    @invariant()
    def all_that_run_have_what_they_asked_for(self) -> None:
        """So many slices of each type, and of GPUs as much; of no slice or GPU more than there is."""
        given: Counter[tuple[str, str]] = Counter()
        for (job, _task), attempt in self.site.running().items():
            request = self.site.plane._table.jobs[job].spec.request
            for node, gpus in zip(attempt.nodes, attempt.gpus or ((),) * len(attempt.nodes), strict=True):
                types = Counter({"0": "1g", "1": "1g", "2": "3g"}[one.id[-1]] for one in gpus if "MIG" in one.id)
                assert (types["1g"], types["3g"]) == (request.get(SMALL, 0), request.get(LARGE, 0))
                assert sum(one.milli for one in gpus if "MIG" not in one.id) == request.get("gpu", 0)
                for one in gpus:
                    given[node, one.id] += one.milli
        assert max(given.values(), default=0) <= 1_000
        check_invariants(self.site.engine.state)


class SlicesAndParts(Slices):
    """The same where whole GPUs are shared."""

    parts = True


@pytest.mark.parametrize("machine", [Slices, SlicesAndParts])
def test_safety_no_slice_is_given_twice(machine: type[Slices]) -> None:
    """Slices that fit by count can always be bound."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
    )
