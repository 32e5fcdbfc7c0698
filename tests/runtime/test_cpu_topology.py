"""Where CPUs are, read from recorded trees of /sys."""

from __future__ import annotations

from pathlib import Path

from hal.core.model.cpu_lists import CpuTopology
from hal.runtime.cpu_topology import Cache, online_cpus, read_last_caches, read_sockets, read_topology


def test_the_topology_of_a_machine_is_read(tmp_path: Path) -> None:
    """Two NUMA nodes of one core with two threads each; one CPU may not be used."""
    for cpu in range(4):
        place = tmp_path / f"cpu/cpu{cpu}/topology"
        place.mkdir(parents=True)
        (place / "core_cpus_list").write_text("0,2\n" if cpu % 2 == 0 else "1,3\n")
    for node in range(2):
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(f"{node},{node + 2}\n")
    assert read_topology({0, 1, 2}, tmp_path) == CpuTopology((0b101, 0b010), (0b101, 0b010))


def test_a_machine_that_says_nothing_has_one_node_of_single_cores(tmp_path: Path) -> None:
    """As in some containers."""
    assert read_topology({0, 3}, tmp_path) == CpuTopology((0b0001, 0b1000), (0b1001,))


def two_sockets(system: Path) -> None:
    """Sockets 0 and 3 of four cores with two threads each (CPU N and N + 8), and a last cache for each two cores."""
    for cpu in range(16):
        core, socket = cpu % 8, cpu % 8 // 4
        place = system / f"cpu/cpu{cpu}/topology"
        place.mkdir(parents=True)
        (place / "core_cpus_list").write_text(f"{core},{core + 8}\n")
        (place / "physical_package_id").write_text(f"{socket * 3}\n")
        (place / "package_cpus_list").write_text(f"{socket * 4}-{socket * 4 + 3},{socket * 4 + 8}-{socket * 4 + 11}\n")
        first = core // 2 * 2
        shared = {0: (1, "48K", f"{core},{core + 8}"), 1: (3, "32M", f"{first}-{first + 1},{first + 8}-{first + 9}")}
        for index, (level, size, cpus) in shared.items():
            cache = system / f"cpu/cpu{cpu}/cache/index{index}"
            cache.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", cpus)):
                (cache / name).write_text(f"{text}\n")
    (system / "cpu/online").write_text("0-15\n")


def test_sockets_are_read_by_number(tmp_path: Path) -> None:
    """Numbers may have gaps."""
    two_sockets(tmp_path)
    assert list(read_sockets(online_cpus(tmp_path), tmp_path)) == [(0, 0x0F0F), (3, 0xF0F0)]


def test_the_last_cache_of_each_cpu_is_read_once(tmp_path: Path) -> None:
    """Not the smaller ones before it."""
    two_sockets(tmp_path)
    caches = list(read_last_caches(online_cpus(tmp_path), tmp_path))
    assert caches == [Cache(3, 32 << 20, mask) for mask in (0x0303, 0x0C0C, 0x3030, 0xC0C0)]


def test_a_cpu_that_is_off_is_part_of_nothing(tmp_path: Path) -> None:
    """Of core 0, one thread is left."""
    two_sockets(tmp_path)
    (tmp_path / "cpu/online").write_text("0-7,9-15\n")
    online = online_cpus(tmp_path)
    assert dict(read_sockets(online, tmp_path))[0] == 0x0E0F
    assert next(read_last_caches(online, tmp_path)).cpus == 0x0203


def test_what_sys_does_not_say_is_left_out(tmp_path: Path) -> None:
    """As in a container without /sys, and where a file has something else."""
    assert (online_cpus(tmp_path), list(read_sockets(3, tmp_path)), list(read_last_caches(3, tmp_path))) == (0, [], [])
    two_sockets(tmp_path)
    (tmp_path / "cpu/cpu0/cache/index1/level").write_text("third")
    (tmp_path / "cpu/cpu0/cache/index0/size").write_text("much")
    assert next(read_last_caches(1, tmp_path)) == Cache(1, 0, 1)
