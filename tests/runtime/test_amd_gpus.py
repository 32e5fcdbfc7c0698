"""AMD GPUs, from files as the kernel's driver writes them."""

from __future__ import annotations

from pathlib import Path

from hal.core.model.devices import link_islands
from hal.core.model.facts import GpuFacts
from hal.runtime.amd_gpus import read_amd_gpus
from hal.runtime.gpus import machine_gpus

NODES = "sys/class/kfd/kfd/topology/nodes"


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def gpu(number: int, bus: int, *linked: int) -> dict[str, str]:
    """The files of one GPU: with a PCI bus, and XGMI links to other nodes of the driver's topology."""
    place, device = f"{NODES}/{number}", f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
    told = f"simd_count 304\nvendor_id 4098\nlocation_id {bus << 8}\ndomain 0\ndrm_render_minor {126 + number}\n"
    files = {
        f"{place}/properties": f"{told}unique_id {0xABC0 + number}\n",
        f"{place}/name": "aqua_vanjaram\n",
        f"{place}/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206141652992\n",
        f"{place}/io_links/0/properties": f"type 2\nnode_from {number}\nnode_to 0\n",
        f"{device}/numa_node": "1\n",
        f"{device}/local_cpulist": "64-127\n",
        f"{device}/drm/card{number}/dev": "226:1\n",
    }
    for place_of_link, other in enumerate(linked, 1):
        files[f"{place}/io_links/{place_of_link}/properties"] = f"type 11\nnode_from {number}\nnode_to {other}\n"
    return files


def test_gpus_are_read_without_the_processors_between_them(tmp_path: Path) -> None:
    """Node 0 of the driver's topology is the machine's processor: it has no SIMD units."""
    cpu = {f"{NODES}/0/properties": "cpu_cores_count 128\nsimd_count 0\n"}
    root = written(tmp_path, cpu | gpu(2, 0x1B, 3) | gpu(3, 0x3D, 2) | gpu(10, 0x9B))
    found = read_amd_gpus(root)
    assert found[0] == GpuFacts(
        index=0, vendor="amd", model="AMD aqua_vanjaram", memory_bytes=206_141_652_992, uuid="GPU-000000000000abc2",
        numa=1, pci="0000:1b:00.0", cpus="64-127", links=("", "XGMI", ""),
        files=("/dev/dri/card2", "/dev/dri/renderD128"),
    )  # fmt: skip
    assert [one.pci[5:7] for one in found] == ["1b", "3d", "9b"]
    assert link_islands(found) == [[0, 1], [2]]


def test_the_driver_names_the_model_where_it_can(tmp_path: Path) -> None:
    """Its file of the product, instead of the chip's code name."""
    name = {"sys/bus/pci/devices/0000:1b:00.0/product_name": "AMD Instinct MI300X\n"}
    assert [one.model for one in read_amd_gpus(written(tmp_path, gpu(2, 0x1B) | name))] == ["AMD Instinct MI300X"]


def test_a_machine_without_the_driver_has_none(tmp_path: Path) -> None:
    """Nor does an odd file make one."""
    assert read_amd_gpus(tmp_path) == ()
    assert read_amd_gpus(written(tmp_path, {f"{NODES}/1/properties": "simd_count many\n\n"})) == ()


def test_declared_gpus_go_before_those_of_the_machine(tmp_path: Path) -> None:
    """The site knows better."""
    root = written(tmp_path, gpu(2, 0x1B))
    declared = (GpuFacts(index=0, vendor="odd"),)
    assert machine_gpus(declared, root) == declared
    assert [one.vendor for one in machine_gpus((), root)] == ["amd"]
