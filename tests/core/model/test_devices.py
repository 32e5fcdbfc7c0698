"""Which GPUs of a node go to a step: few islands, the fullest that do, never one that is held."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.model import SpecError
from hal.core.model.declared_gpus import GpuSection, SliceSection, declared_gpus
from hal.core.model.devices import (
    WHOLE,
    HeldGpu,
    bind_gpus,
    bound_gpus,
    choose_gpus,
    indexes_to_bind,
    link_islands,
)
from hal.core.model.facts import Facts, GpuFacts
from hal.core.model.gpu_slices import bound_slices, offered_gpus
from hal.core.model.node_config import NodeSection, check_node_section
from tests.examples import examples


def machine(*islands: int, numa: int = 1) -> tuple[GpuFacts, ...]:
    """GPUs in link islands of these sizes; `numa` islands in a row are beside one NUMA node."""
    return declared_gpus(
        tuple(
            GpuSection(island=f"i{number}", numa=number // numa, uuid=f"GPU-{number}{letter}")
            for number, size in enumerate(islands)
            for letter in "abcdefgh"[:size]
        )
    )


def test_gpus_that_reach_each_other_through_others_are_one_island() -> None:
    """A ring of four, and one apart."""
    even, odd = ("", "NV1", "", "NV1", ""), ("NV1", "", "NV1", "", "")
    gpus = [GpuFacts(index=index, links=links) for index, links in enumerate([even, odd, even, odd, ()])]
    assert link_islands(gpus) == [[0, 1, 2, 3], [4]]


def test_a_pcie_switch_makes_no_island() -> None:
    """`PIX` and `SYS` are what two GPUs are behind, not a link of their own."""
    gpus = [GpuFacts(index=0, links=("", "PIX")), GpuFacts(index=1, links=("PIX", ""))]
    assert link_islands(gpus) == [[0], [1]]


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ((0, 1, 2, 3, 4, 5, 6, 7), 4, (0, 1, 2, 3)),
        ((0, 1, 4, 5, 6, 7), 2, (0, 1)),  # the island of which two are left, not the whole one
        ((0, 4, 5, 6, 7), 1, (0,)),
        ((0, 4, 5, 6, 7), 4, (4, 5, 6, 7)),
        ((0, 1, 4, 5, 6), 4, (0, 4, 5, 6)),  # no island has four: three of one, one of the other
        ((0, 1), 3, ()),
        ((), 1, ()),
    ],
)
def test_gpus_of_a_step_are_of_one_island_where_one_has_so_many(
    free: tuple[int, ...], count: int, chosen: tuple[int, ...]
) -> None:
    """Two islands of four."""
    assert choose_gpus(machine(4, 4), free, count) == chosen


def test_without_links_gpus_of_a_step_are_beside_one_numa_node() -> None:
    """Four alone, two beside each NUMA node: 1 is taken, so two come from the other one."""
    assert choose_gpus(machine(1, 1, 1, 1, numa=2), (0, 2, 3), 2) == (2, 3)


@settings(max_examples=examples(200))
@given(islands=st.lists(st.integers(1, 4), min_size=1, max_size=4), numa=st.integers(1, 2), data=st.data())
def test_no_choice_spans_fewer_islands(islands: list[int], numa: int, data: st.DataObject) -> None:
    """Beside a judge that tries all: as many as asked, all free, of as few islands as can be."""
    gpus = machine(*islands, numa=numa)
    free = data.draw(st.sets(st.integers(0, len(gpus) - 1), min_size=1))
    count = data.draw(st.integers(1, len(free)))
    chosen = choose_gpus(gpus, free, count)
    of = {index: number for number, island in enumerate(link_islands(gpus)) for index in island}
    assert (len(set(chosen)), set(chosen) <= free, sorted(chosen) == list(chosen)) == (count, True, True)
    fewest = min(len({of[index] for index in some}) for some in combinations(sorted(free), count))
    one_numa = len({gpus[index].numa for index in chosen}) == 1
    assert len({of[index] for index in chosen}) == fewest or one_numa


def test_two_halves_go_to_one_gpu() -> None:
    """And the third opens another one."""
    gpus, held = machine(2, 2), {"GPU-0a": 500}
    assert bind_gpus(gpus, held, 500) == (HeldGpu("GPU-0a", 500),)
    assert bind_gpus(gpus, {"GPU-0a": WHOLE}, 500) == (HeldGpu("GPU-0b", 500),)
    assert str(HeldGpu("GPU-0a", 500)) == "GPU-0a:0.5"


def test_parts_that_are_left_on_two_gpus_hold_no_larger_part() -> None:
    """Two times 0.4 is 0.8, and no GPU has that."""
    gpus = machine(2)
    assert bind_gpus(gpus, {"GPU-0a": 600, "GPU-0b": 600}, 500) is None
    assert bind_gpus(gpus, {"GPU-0a": 500, "GPU-0b": 500}, WHOLE) is None
    assert bind_gpus(gpus, {"GPU-0a": 500}, 1_500) == (HeldGpu("GPU-0b"), HeldGpu("GPU-0a", 500))


@settings(max_examples=examples(200))
@given(
    islands=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    asked=st.lists(st.sampled_from([100, 250, 400, 500, 600, 1_000, 1_500, 2_000, 3_000]), max_size=20),
    ends=st.lists(st.integers(0, 19), max_size=20),
)
def test_safety_no_gpu_is_over_packed(islands: list[int], asked: list[int], ends: list[int]) -> None:
    """A plain judge adds up; what is refused does not fit on any GPU."""
    gpus, running = machine(*islands), dict[int, tuple[HeldGpu, ...]]()
    for number, milli in enumerate(asked):
        held: dict[str, int] = {}
        for one in (one for those in running.values() for one in those):
            held[one.id] = held.get(one.id, 0) + one.milli
        assert max(held.values(), default=0) <= WHOLE
        given = bind_gpus(gpus, held, milli)
        whole, part = divmod(milli, WHOLE)
        left = sorted(WHOLE - held.get(gpu.id, 0) for gpu in gpus)
        unused, others = left.count(WHOLE), [room for room in left if room < WHOLE]
        holds = unused >= whole + (part > 0 and max(others, default=0) < part)
        assert (given is not None) == holds
        if given is not None:
            assert sum(one.milli for one in given) == milli
            running[number] = given
        for end in ends[number : number + 1]:
            running.pop(end, None)


def test_a_node_binds_the_gpus_that_it_offers() -> None:
    """All of the machine; those of its share; none where it offers another number, or parts."""
    gpus = machine(4)
    assert indexes_to_bind(gpus, 4_000, None) == (0, 1, 2, 3)
    assert indexes_to_bind(gpus, 2_000, None) == ()
    assert indexes_to_bind(gpus, 2_000, (2, 3)) == (2, 3)
    assert indexes_to_bind(gpus, 1_500, (2, 3)) == ()


def test_a_node_that_contradicts_itself_is_not_believed() -> None:
    """Fewer than its capacity, or two of one uuid: its GPUs are only counted."""
    facts = Facts(gpus=machine(2), bound_gpus=(0, 1))
    assert [gpu.id for gpu in bound_gpus(facts, 2_000)] == ["GPU-0a", "GPU-0b"]
    assert bound_gpus(facts, 3_000) == ()
    assert (
        bound_gpus(replace(facts, gpus=(facts.gpus[0], replace(facts.gpus[1], index=0)), bound_gpus=(0,)), 2_000) == ()
    )
    twins = tuple(replace(gpu, uuid="GPU-x") for gpu in facts.gpus)
    assert bound_gpus(replace(facts, gpus=twins), 2_000) == ()


def test_a_share_of_a_machine_has_the_links_among_its_own_gpus() -> None:
    """Of four in two islands, the second and third: no link is left."""
    facts = Facts(gpus=machine(2, 2), bound_gpus=(1, 2))
    assert link_islands(bound_gpus(facts, 2_000)) == [[1], [2]]


def test_declared_gpus_are_as_they_are_written() -> None:
    """AMD's links have their own word."""
    sections = (
        GpuSection(vendor="amd", model="MI300X", memory="192GiB", island="x", files=("/dev/dri/renderD128",)),
        GpuSection(vendor="amd", island="x"),
    )
    one, two = declared_gpus(check_node_section(NodeSection(gpus=sections)).gpus)
    assert one == GpuFacts(
        index=0, vendor="amd", model="MI300X", memory_bytes=192 << 30, links=("", "XGMI"),
        files=("/dev/dri/renderD128",),
    )  # fmt: skip
    assert (two.index, two.links, two.id) == (1, ("XGMI", ""), "1")


@pytest.mark.parametrize(
    ("gpu", "match"),
    [
        (GpuSection(vendor="NVIDIA Corp"), "vendor"),
        (GpuSection(uuid="a b"), "uuid"),
        (GpuSection(files=("/etc/passwd",)), "files"),
        (GpuSection(files=("/dev/../etc/x",)), "files"),
        (GpuSection(numa=5_000), "NUMA"),
        (GpuSection(model="x\ny"), "model"),
    ],
)
def test_a_gpu_that_cannot_be_is_refused(gpu: GpuSection, match: str) -> None:
    """By its place and field."""
    with pytest.raises(SpecError, match=match):
        check_node_section(NodeSection(gpus=(gpu,)))


@pytest.mark.parametrize(
    ("slices", "match"),
    [
        ((SliceSection(type="8g.10gb", uuid="MIG-1"),), "type of slices"),
        ((SliceSection(type="a100", uuid="MIG-1"),), "type of slices"),
        ((SliceSection(type="1g.10gb", uuid="GPU-1"),), "uuid"),
        ((SliceSection(type="1g.10gb", uuid="MIG-1", files=("/etc/passwd",)),), "files"),
        ((SliceSection(type="1g.10gb", uuid="MIG-1"),) * 2, "same uuid"),
    ],
)
def test_a_slice_that_cannot_be_is_refused(slices: tuple[SliceSection, ...], match: str) -> None:
    with pytest.raises(SpecError, match=match):
        check_node_section(NodeSection(gpus=(GpuSection(slices=slices),)))


def test_a_node_binds_slices_of_which_it_offers_as_many_as_there_are() -> None:
    """By type; of a type of which two have one uuid, none."""
    small = tuple(SliceSection(type="1g.10gb", uuid=f"MIG-{at}") for at in range(2))
    large = (SliceSection(type="3g.40gb", uuid="MIG-3"),)
    gpus = declared_gpus((GpuSection(), GpuSection(slices=small + large)))
    facts = Facts(gpus=gpus, bound_gpus=indexes_to_bind(gpus, 1_000, None))
    offered = offered_gpus(gpus)
    assert offered == {"gpu": 1_000, "mig-1g.10gb": 2, "mig-3g.40gb": 1}
    assert [gpu.index for gpu in bound_gpus(facts, offered["gpu"])] == [0]
    assert {name: len(found) for name, found in bound_slices(facts, offered).items()} == {
        "mig-1g.10gb": 2, "mig-3g.40gb": 1,
    }  # fmt: skip
    assert set(bound_slices(facts, offered | {"mig-1g.10gb": 3})) == {"mig-3g.40gb"}
    twins = replace(gpus[1], slices=(gpus[1].slices[0], *gpus[1].slices[:1], gpus[1].slices[2]))
    assert set(bound_slices(replace(facts, gpus=(gpus[0], twins)), offered)) == {"mig-3g.40gb"}


def test_two_gpus_of_one_uuid_are_refused() -> None:
    """They would be one."""
    with pytest.raises(SpecError, match="same uuid"):
        check_node_section(NodeSection(gpus=(GpuSection(uuid="x"), GpuSection(uuid="x"))))
