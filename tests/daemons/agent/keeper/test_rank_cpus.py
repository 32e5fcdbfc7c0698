"""Which CPUs of a step each rank keeps to."""

from __future__ import annotations

from pathlib import Path

from hal.daemons.agent.keeper.stream_process.rank_cpus import parts_of_cpus


def machine(root: Path) -> Path:
    """Two NUMA nodes of two cores with two CPUs each: CPU n and n + 4 share a core."""
    for cpu in range(8):
        place = root / f"cpu/cpu{cpu}/topology"
        place.mkdir(parents=True)
        (place / "core_cpus_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        (root / f"node/node{node}").mkdir(parents=True)
        (root / f"node/node{node}/cpulist").write_text(f"{cpus}\n")
    return root


def test_ranks_share_no_core_and_neighbours_share_a_numa_node(tmp_path: Path) -> None:
    system = machine(tmp_path)
    assert parts_of_cpus(range(8), 4, system) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert parts_of_cpus(range(8), 2, system) == [(0, 4, 1, 5), (2, 6, 3, 7)]


def test_cpus_that_cannot_be_divided_evenly_are_shared(tmp_path: Path) -> None:
    """As are those of a step without CPUs of its own; and one rank has all of them anyway."""
    system = machine(tmp_path)
    assert [parts_of_cpus(cpus, ranks, system) for cpus, ranks in (((0, 1, 2), 2), ((), 2), ((0, 1), 1))] == [[]] * 3
