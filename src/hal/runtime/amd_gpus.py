"""AMD GPUs of this machine, as the kernel's driver describes them in /sys; no library is needed.

Source: the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c (the files) and kfd_crat.h (kinds of links).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from hal.core.model.facts import MAX_PARTS, MAX_TEXT, MAX_TOLD, GpuFacts

NODES: Final = "sys/class/kfd/kfd/topology/nodes"
PCI: Final = "sys/bus/pci/devices"
XGMI: Final = 11
"""Type of a link between GPUs (CRAT_IOLINK_TYPE_XGMI)."""
LINK: Final = "XGMI"
MAX_NODES: Final = 1_024
"""Of the driver's topology: GPUs, and the machine's NUMA nodes."""
MAX_FILE_BYTES: Final = 1 << 16


def read_amd_gpus(root: Path = Path("/"), first: int = 0) -> tuple[GpuFacts, ...]:
    """Read all GPUs in the order in which ROCm counts them; () where the driver knows none.

    Args:
        root: the directory that contains /sys.
        first: index of the first.
    """
    places = [place for place in _numbered(root / NODES) if _properties(place / "properties").get("simd_count", 0)]
    places = places[:MAX_PARTS]
    found = [_gpu(place, first + at, root) for at, place in enumerate(places)]
    if len(found) < 2:
        return tuple(found)
    linked = [_linked(place) for place in places]
    numbers = [int(place.name) for place in places]
    return tuple(
        replace(gpu, links=tuple(LINK if number in linked[at] else "" for number in numbers))
        for at, gpu in enumerate(found)
    )


def _gpu(place: Path, index: int, root: Path) -> GpuFacts:
    told = _properties(place / "properties")
    location = told.get("location_id", 0)
    pci = f"{told.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
    device = root / PCI / pci
    banks = (_properties(bank / "properties") for bank in _numbered(place / "mem_banks"))
    unique = told.get("unique_id", 0)
    render = told.get("drm_render_minor", 0)
    numa = _text(device / "numa_node")
    cards = sorted(path.name for path in _entries(device / "drm") if path.name.startswith("card"))
    files = [f"/dev/dri/{name}" for name in cards[:1]] + ([f"/dev/dri/renderD{render}"] if render else [])
    return GpuFacts(
        index=index,
        vendor="amd",
        model=(_text(device / "product_name") or f"AMD {_text(place / 'name')}".strip())[:MAX_TEXT],
        memory_bytes=sum(bank.get("size_in_bytes", 0) for bank in banks),
        uuid=f"GPU-{unique:016x}" if unique else "",
        numa=int(numa) if numa.lstrip("-").isdigit() else -1,
        pci=pci,
        cpus=_text(device / "local_cpulist")[:MAX_TOLD],
        files=tuple(files),
    )


def _linked(place: Path) -> set[int]:
    """The driver's numbers of the nodes that this one has XGMI links to."""
    links = (_properties(link / "properties") for link in _numbered(place / "io_links"))
    return {link["node_to"] for link in links if link.get("type") == XGMI and "node_to" in link}


def _properties(path: Path) -> dict[str, int]:
    """A file of lines `name number`."""
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found


def _numbered(directory: Path) -> list[Path]:
    """Entries that are named by numbers, in that order."""
    named = [path for path in _entries(directory) if path.name.isdigit()]
    return sorted(named, key=lambda path: int(path.name))[:MAX_NODES]


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
