"""Which CPUs steps have for themselves, without any process."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import StepId
from hal.core.model.cpu_lists import CpuTopology, cpus_of, format_cpus, mask_of, parse_cpus
from hal.daemons.agent.keeper.cpu_sets import CpuSets
from tests.examples import examples

TWO_SOCKETS = CpuTopology(cores=tuple(0b11 << 2 * core for core in range(8)), nodes=(0x00FF, 0xFF00))
"""Eight cores of two threads each: CPUs 0-7 on one NUMA node, 8-15 on the other."""


def step(number: int) -> StepId:
    return StepId(number, 0, 1, 0)


def taken(sets: CpuSets, number: int, milli: int) -> str:
    return format_cpus(cpus_of(sets.acquire(step(number), milli)))


def test_small_steps_have_a_core_each_while_there_is_one() -> None:
    """The ninth shares a core; all of one NUMA node first, so that the other stays whole."""
    sets = CpuSets(TWO_SOCKETS)
    assert [taken(sets, number, 1000) for number in range(9)] == ["0", "2", "4", "6", "1", "3", "5", "7", "8"]


def test_a_large_step_has_whole_cores_of_one_numa_node() -> None:
    """With one CPU taken on the first, seven are left there: eight are on the second, four on the first."""
    sets = CpuSets(TWO_SOCKETS)
    sets.acquire(step(1), 1000)
    assert [taken(sets, 2, 8000), taken(sets, 3, 4000)] == ["8-15", "2-5"]


def test_a_step_that_fits_no_numa_node_has_as_few_as_can_be() -> None:
    """Ten: all of one, two of the other."""
    assert taken(CpuSets(TWO_SOCKETS), 1, 10_000) == "0-9"


def test_steps_of_parts_share_as_many_cpus_as_they_need_together() -> None:
    """0.5 and 0.5 are on one CPU; with 1.5 more they are on three."""
    sets = CpuSets(TWO_SOCKETS)
    assert [taken(sets, 1, 500), taken(sets, 2, 500), taken(sets, 3, 1500)] == ["0", "0", "0,2-3"]
    assert sets.moved.keys() == {step(1), step(2)}


def test_what_the_pool_needs_no_more_is_for_whole_steps() -> None:
    """0.7, 0.7 and 0.6 take both CPUs of two; when 0.7 and 0.3 of it have ended one CPU is whole again."""
    sets = CpuSets(CpuTopology(cores=(1, 2), nodes=(3,)))
    for number, milli in ((1, 700), (2, 700), (3, 600)):
        sets.acquire(step(number), milli)
    sets.release(step(1))
    sets.release(step(2))
    assert taken(sets, 4, 1000) == "1"
    assert cpus_of(sets.mask_of(step(3))) == (0,)


def test_a_step_for_which_too_few_are_free_is_not_bound() -> None:
    """On an oversubscribed node it may use all CPUs, like every other such step."""
    sets = CpuSets(CpuTopology(cores=(1, 2), nodes=(3,)))
    assert [taken(sets, 1, 2000), taken(sets, 2, 1000)] == ["0-1", ""]


def test_the_heir_of_a_step_has_its_cpus() -> None:
    """And nobody else until it has ended, too."""
    sets = CpuSets(TWO_SOCKETS)
    sets.acquire(step(1), 4000)
    sets.pass_on(step(1), step(2))
    assert cpus_of(sets.given_to(step(2))) == (0, 1, 2, 3)
    assert taken(sets, 3, 16_000) == ""
    sets.release(step(2))
    assert taken(sets, 3, 16_000) == "0-15"


def test_cpus_of_a_suspended_step_are_given_out_last() -> None:
    """Resumed while somebody has them, it goes on elsewhere."""
    sets = CpuSets(CpuTopology(cores=(1, 2, 4), nodes=(7,)))
    sets.acquire(step(1), 1000)
    sets.lend(step(1))
    assert [taken(sets, 2, 1000), taken(sets, 3, 1000), taken(sets, 4, 1000)] == ["1", "2", "0"]
    sets.release(step(3))
    sets.reclaim(step(1))
    assert cpus_of(sets.mask_of(step(1))) == (2,)
    assert list(sets.moved) == [step(1)]


def test_after_a_restart_no_step_has_what_another_has_by_its_journal() -> None:
    """CPUs that this node does not have are ignored, whoever wrote them there."""
    sets = CpuSets(CpuTopology(cores=(1, 2, 4), nodes=(7,)))
    sets.adopt(step(1), mask_of((1, 4000)), 1000)
    sets.adopt(step(2), mask_of((0,)), 500)
    assert [taken(sets, 3, 500), taken(sets, 4, 1000), taken(sets, 5, 1000)] == ["0", "2", ""]


def test_a_running_step_that_asks_for_another_amount_is_moved() -> None:
    """From one CPU to three."""
    sets = CpuSets(TWO_SOCKETS)
    sets.acquire(step(1), 1000)
    sets.resize(step(1), 3000)
    assert sets.mask_of(step(1)).bit_count() == 3
    assert list(sets.moved) == [step(1)]


@dataclass
class Site:
    """What runs, by step: its amount; a reference that only adds."""

    cpus: int
    running: dict[StepId, int] = field(default_factory=dict)
    begun: int = 0

    @property
    def free_milli(self) -> int:
        return self.cpus * 1000 - sum(self.running.values())


@settings(max_examples=examples(150))
@given(data=st.data(), sockets=st.integers(1, 3), cores=st.integers(1, 3), threads=st.integers(1, 2))
def test_safety_no_cpu_serves_two_owners_while_amounts_fit(
    data: st.DataObject, sockets: int, cores: int, threads: int
) -> None:
    """Each whole step has as many as it asked for, nobody else's; steps of parts are together on as many as they need
    at least; whatever starts, ends, is passed on, as long as the amounts fit into the node."""
    count = sockets * cores * threads
    core, socket = (1 << threads) - 1, (1 << cores * threads) - 1
    sets = CpuSets(
        CpuTopology(
            tuple(core << threads * number for number in range(sockets * cores)),
            tuple(socket << cores * threads * number for number in range(sockets)),
        )
    )
    site = Site(count)
    for _ in range(data.draw(st.integers(1, 25))):
        if site.running and data.draw(st.booleans()):
            one = data.draw(st.sampled_from(sorted(site.running)))
            if data.draw(st.booleans()):
                site.begun += 1
                sets.pass_on(one, step(site.begun))
                site.running[step(site.begun)] = site.running.pop(one)
            else:
                sets.release(one)
                del site.running[one]
        elif site.free_milli >= 100:
            whole = st.integers(1, max(1, site.free_milli // 1000)).map(lambda n: n * 1000)
            milli = min(data.draw(whole | st.integers(1, 29).map(lambda n: n * 100)), site.free_milli)
            site.begun += 1
            sets.acquire(step(site.begun), milli)
            site.running[step(site.begun)] = milli
        owned = [sets.mask_of(one) for one, milli in site.running.items() if not milli % 1000]
        pools = {sets.mask_of(one) for one, milli in site.running.items() if milli % 1000}
        pool_milli = sum(milli for milli in site.running.values() if milli % 1000)
        assert [mask.bit_count() for mask in owned] == [n // 1000 for n in site.running.values() if not n % 1000]
        assert len(pools) <= 1
        assert sum(mask.bit_count() for mask in pools) * 1000 >= pool_milli
        every = [*owned, *pools]
        assert sum(every) == mask_of(tuple(cpu for mask in every for cpu in cpus_of(mask)))
        assert sum(mask.bit_count() for mask in every) == sum(every).bit_count()


@pytest.mark.parametrize(
    ("text", "cpus"), [("", ()), ("0", (0,)), ("0-2,5", (0, 1, 2, 5)), ("8,10-11,9", (8, 9, 10, 11))]
)
def test_a_list_of_cpus_is_read(text: str, cpus: tuple[int, ...]) -> None:
    """In any order, as the kernel and people write it."""
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "0-9999999", "1,,2"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    """Not read as something else, and not expanded without a bound."""
    with pytest.raises(ValueError, match=r"."):
        parse_cpus(text)
