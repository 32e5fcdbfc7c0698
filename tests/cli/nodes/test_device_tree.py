"""`hal node show --devices`: the inside of a node as it is drawn."""

from __future__ import annotations

from collections.abc import Callable

from hal.cli.nodes.device_tree import device_lines
from hal.core.model import to_plain
from hal.core.model.facts import CacheFacts, CpuFacts, Facts, GpuFacts, NumaFacts, SliceFacts, SocketFacts
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json

GIB = 1 << 30
TWO_SOCKETS = Facts(
    cpu=CpuFacts(sockets=2, cores=8, threads=16),
    sockets=(SocketFacts(id=0, cpus="0-3,8-11", cores=4), SocketFacts(id=1, cpus="4-7,12-15", cores=4)),
    numa=(
        NumaFacts(id=0, cpus="0-3,8-11", memory_bytes=64 * GIB),
        NumaFacts(id=1, cpus="4-7,12-15", memory_bytes=64 * GIB),
    ),
    caches=(CacheFacts(level=3, size_bytes=32 << 20, cpus="0-3,8-11"),),
    gpus=(
        GpuFacts(index=0, model="NVIDIA H200", pci="0000:19:00.0", numa=0, links=("", "NV18", "SYS")),
        GpuFacts(index=1, model="NVIDIA H200", pci="0000:9b:00.0", numa=1, links=("NV18", "", "SYS")),
        GpuFacts(index=2, model="NVIDIA T4", links=("SYS", "SYS", "")),
    ),
)


def test_gpus_are_drawn_beside_the_cpus_that_are_near_them() -> None:
    """One whose place is not known is drawn last; islands and other links follow the tree."""
    assert device_lines("n1", TWO_SOCKETS) == [
        "n1: 2 sockets, 8 cores, 16 threads, 3 GPUs",
        "├─ socket 0: cpus 0-3,8-11, 4 cores",
        "│  └─ NUMA 0: cpus 0-3,8-11, 64GiB",
        "│     ├─ L3: 32MiB, cpus 0-3,8-11",
        "│     └─ GPU 0: NVIDIA H200, 0000:19:00.0",
        "├─ socket 1: cpus 4-7,12-15, 4 cores",
        "│  └─ NUMA 1: cpus 4-7,12-15, 64GiB",
        "│     └─ GPU 1: NVIDIA H200, 0000:9b:00.0",
        "└─ GPU 2: NVIDIA T4",
        "linked by NVLink: GPU 0, GPU 1",
        "NV18: 0-1",
        "SYS: 0-2 1-2",
    ]


def test_slices_are_drawn_below_their_gpu() -> None:
    slices = (SliceFacts(type="1g.10gb", uuid="MIG-1", memory_bytes=9 * GIB), SliceFacts(type="3g.40gb", uuid="MIG-2"))
    assert device_lines("n1", Facts(gpus=(GpuFacts(index=0, model="NVIDIA H100", mig=True, slices=slices),))) == [
        "n1: 1 GPU",
        "└─ GPU 0 (MIG): NVIDIA H100",
        "   ├─ 1g.10gb: MIG-1, 9GiB",
        "   └─ 3g.40gb: MIG-2",
    ]


def test_a_cache_over_several_numa_nodes_is_drawn_beside_them() -> None:
    """Where a socket is split into NUMA nodes."""
    facts = Facts(
        sockets=(SocketFacts(id=0, cpus="0-7"),),
        numa=(NumaFacts(id=0, cpus="0-3"), NumaFacts(id=1, cpus="4-7")),
        caches=(CacheFacts(level=3, size_bytes=1 << 20, cpus="0-7"),),
    )
    assert [line.strip("│├└─ ") for line in device_lines("n1", facts)[2:]] == [
        "L3: 1MiB, cpus 0-7",
        "NUMA 0: cpus 0-3",
        "NUMA 1: cpus 4-7",
    ]


def test_an_older_agent_is_drawn_with_what_it_reports() -> None:
    """NUMA nodes without sockets; nothing at all."""
    assert device_lines("n1", Facts(numa=(NumaFacts(id=0, cpus="odd", memory_bytes=GIB),))) == [
        "n1: nothing is known of its devices",
        "└─ NUMA 0: cpus odd, 1GiB",
    ]
    assert device_lines("n1", Facts()) == ["n1: nothing is known of its devices"]


def test_the_option_draws_instead_of_the_table(serve: Serve, hal: Callable[..., Ran]) -> None:
    """JSON stays the whole node."""
    serve(lambda asked: as_json({"name": "n1", "state": "up", "facts": to_plain(TWO_SOCKETS)}))
    ran = hal("node", "show", "n1", "--devices")
    assert (ran.code, ran.out.splitlines()) == (0, device_lines("n1", TWO_SOCKETS))
    assert '"pci": "0000:19:00.0"' in hal("node", "show", "n1", "--devices", "--json").out
