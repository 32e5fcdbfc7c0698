"""The hardware and system of a node, as its agent found them; and the labels that follow from them.

Pure values. Facts never decide a placement: a job can ask for labels and capacity. Every text and list is bounded by
its sender (`MAX_TEXT`, `MAX_PARTS`), and again by its receiver (`bound_facts`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

from hal.core.model.errors import SpecError, one_line

MAX_TEXT: Final = 128
"""Most characters of a name that a machine reports."""
MAX_PARTS: Final = 64
"""Most disks, NUMA nodes and GPUs of one node that are reported."""
MAX_LINK: Final = 8
"""Most characters of the word for a link between GPUs."""
MAX_GPU_FILES: Final = 8
"""Device files of one GPU."""
MAX_SLICES: Final = 16
"""Slices of one GPU in MIG mode."""
MAX_TOLD: Final = 1_024
"""Most characters of a text that a node reports, for example a domain path."""
MAX_AMOUNT: Final = 1 << 53
MAX_DOMAINS: Final = 8
"""Levels of a domain path."""
AUTOMATIC: Final = "hal."
"""The prefix of labels that HAL makes."""
NODE_LABEL: Final = f"{AUTOMATIC}node"
DOMAIN_LABEL: Final = f"{AUTOMATIC}in."
"""With the name of a level behind it: the path of the domain in which a node is, which the engine alone sees."""
"""The label that has the node's name."""
GPU_LABEL: Final = f"{AUTOMATIC}gpu"
"""The label with the model of a node's GPUs; with a dot and a word of it behind it, a label of that word."""
MAX_GPU_WORDS: Final = 8
"""Words of a model that are labels."""
GPUS_LABEL: Final = f"{AUTOMATIC}gpus"
"""The label by which work that asks for parts of GPUs is kept from nodes that give whole ones only."""
WHOLE_GPUS: Final = "whole"
"""Its value."""
SANDBOX_LABEL: Final = f"{AUTOMATIC}sandbox"
CORES_LABEL: Final = f"{AUTOMATIC}cores"
"""How many cores a node offers; set by the controller, as the capacity says."""
"""The label of nodes that can run steps in sandboxes."""

_LEVEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_NOT_A_WORD: Final = re.compile(r"[^a-z0-9._]+")


class CpuFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The processors of the machine; 0 where unknown."""

    model: str = ""
    """Name of the model, as the processor reports it."""
    sockets: int = 0
    cores: int = 0
    """Of all sockets."""
    threads: int = 0
    """Logical processors of all cores."""


class SocketFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One socket."""

    id: int
    cpus: str = ""
    """Logical processors as ranges: `0-31,64-95`."""
    cores: int = 0


class CacheFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cache of the highest level, which several cores share."""

    level: int
    size_bytes: int = 0
    cpus: str = ""


class NumaFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One NUMA node."""

    id: int
    cpus: str = ""
    """Logical processors as ranges: `0-7,16-23`."""
    memory_bytes: int = 0


class DiskFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One mounted file system on a device of its own."""

    path: str
    """Where it is mounted."""
    device: str = ""
    file_system: str = ""
    """Its type: `ext4`."""
    kind: str = ""
    """`nvme`, `ssd`, `hdd`, or empty if unknown."""
    size_bytes: int = 0
    free_bytes: int = 0
    """When the agent dialled."""


class SliceFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One slice of a GPU in MIG mode."""

    type: str = ""
    """Its profile: `1g.10gb` has one of seven compute slices and 10 GB."""
    uuid: str = ""
    """`MIG-…`."""
    memory_bytes: int = 0
    files: tuple[str, ...] = ()
    """Device files that are its own, beside those of its GPU."""


class GpuFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, as NVML or the kernel reports it, or `[[node.gpus]]` of hal.toml declares it."""

    index: int
    vendor: str = ""
    """`nvidia`, `amd`, or another word of the site; empty: an older agent, which knows NVIDIA's alone."""
    model: str = ""
    memory_bytes: int = 0
    uuid: str = ""
    numa: int = -1
    """The nearest NUMA node; -1: unknown."""
    pci: str = ""
    """Address on the PCI bus, as /sys has it: `0000:1b:00.0`."""
    cpus: str = ""
    """Logical processors that are near it."""
    links: tuple[str, ...] = ()
    """To the GPUs of index 0, 1, …, in the words of `nvidia-smi topo`: `NV18` (18 NVLinks), or the narrowest thing that
    both are behind: `PIX` (one PCI switch), `PXB` (several), `PHB` (a host bridge), `NODE` (a NUMA node), `SYS`; empty:
    itself, or not known. `XGMI` is AMD's link. () where no other is there."""
    files: tuple[str, ...] = ()
    """Device files that are its own: `/dev/nvidia0`."""
    mig: bool = False
    """It is in MIG mode, and given by its slices only."""
    slices: tuple[SliceFacts, ...] = ()

    @property
    def id(self) -> str:
        """What it is called as long as it is in this machine: its uuid, or else its index."""
        return self.uuid or str(self.index)


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hardware and system of a node. A share of a machine has the facts of the whole machine."""

    node_id: str = ""
    """Random, made at the node's first start: an agent with the same name and another id is another node."""
    home_id: str = ""
    """Digest of the machine and directory of its HAL_HOME: it identifies the node within one boot if its `node_id` was
    lost."""
    system: str = ""
    """Name and version of the operating system."""
    system_id: str = ""
    """Its short name: `debian`."""
    kernel: str = ""
    architecture: str = ""
    host: str = ""
    """Host name of the machine."""
    cpu: CpuFacts = CpuFacts()
    memory_bytes: int = 0
    sockets: tuple[SocketFacts, ...] = ()
    numa: tuple[NumaFacts, ...] = ()
    caches: tuple[CacheFacts, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()
    bound_gpus: tuple[int, ...] = ()
    """Indexes of those that are this node's: each of its steps is given some of them. (): they are only counted."""
    sandbox: str = ""
    """What makes sandboxes for steps, `bwrap`; '': nothing here can."""
    steps: str = ""
    """As whom steps run: a word of `hal.runtime.step_users.Serving`; '': an older agent, which does not say."""
    account: str = ""
    """Who started the node."""
    domain: str = ""
    """Location, from the widest level to the narrowest: `dc1/rack3`."""
    address: str = ""
    """Where other machines reach the node. From an agent: what it was told to state, often nothing. From a controller:
    what holds, by `NodeAdmission.address_of`."""


def bound_facts(facts: Facts) -> Facts:
    """Return the same facts within bounds: texts of one line, at most MAX_PARTS parts, plausible amounts."""
    return Facts(
        **_bounded(facts),
        cpu=CpuFacts(**_bounded(facts.cpu)),
        sockets=tuple(SocketFacts(**_bounded(one)) for one in facts.sockets[:MAX_PARTS]),
        numa=tuple(NumaFacts(**_bounded(one)) for one in facts.numa[:MAX_PARTS]),
        caches=tuple(CacheFacts(**_bounded(one)) for one in facts.caches[:MAX_PARTS]),
        disks=tuple(DiskFacts(**_bounded(one)) for one in facts.disks[:MAX_PARTS]),
        gpus=tuple(
            GpuFacts(
                **_bounded(one) | {"uuid": one_line(one.uuid, MAX_TEXT), "vendor": one_line(one.vendor, MAX_TEXT)},
                links=tuple(one_line(link, MAX_LINK) for link in one.links[:MAX_PARTS]),
                files=tuple(one_line(file, MAX_TEXT) for file in one.files[:MAX_GPU_FILES]),
                slices=tuple(
                    SliceFacts(
                        type=one_line(part.type, MAX_TEXT),
                        uuid=one_line(part.uuid, MAX_TEXT),
                        memory_bytes=max(0, min(part.memory_bytes, MAX_AMOUNT)),
                        files=tuple(one_line(file, MAX_TEXT) for file in part.files[:MAX_GPU_FILES]),
                    )
                    for part in one.slices[:MAX_SLICES]
                ),
            )
            for one in facts.gpus[:MAX_PARTS]
        ),
        bound_gpus=tuple(facts.bound_gpus[:MAX_PARTS]),
    )


def _bounded(part: Struct) -> dict[str, Any]:
    """Bound its texts and numbers."""
    found: dict[str, Any] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, str):
            found[name] = one_line(value, MAX_TOLD)
        elif isinstance(value, int):
            found[name] = max(-1, min(value, MAX_AMOUNT))
    return found


def check_domain(path: str) -> str:
    """Normalise a domain path: without surrounding slashes, like `dc1/rack3`; '' is none.

    Raises:
        SpecError: too deep, or a level that is not a plain name.
    """
    levels = path.strip("/").split("/") if path.strip("/") else []
    if len(levels) > MAX_DOMAINS:
        raise SpecError(f"domain: '{path}' has {len(levels)} levels; at most {MAX_DOMAINS} are allowed")
    for level in levels:
        if not _LEVEL.match(level):
            raise SpecError(f"domain: '{level}' is not a valid name", hint="letters, digits, '.', '_', '-': dc1/rack3")
    return "/".join(levels)


def automatic_labels(node: str, facts: Facts) -> dict[str, str]:
    """Labels that constraints can use on any node: `hal.node`, `hal.host`, `hal.os`, `hal.arch`, `hal.cpu`, `hal.gpu`
    (with `hal.gpu.WORD` for each word that the models of all GPUs have), `hal.sandbox`, `hal.domain` (with
    `hal.domain.1`, `hal.domain.2` … for its levels). An unknown fact has no label."""
    models = {gpu.model for gpu in facts.gpus}
    found = {
        "node": node,
        "host": facts.host,
        "os": facts.system_id,
        "arch": facts.architecture,
        "cpu": label_word(facts.cpu.model),
        "gpu": label_word(models.pop()) if len(models) == 1 else "",
        "sandbox": label_word(facts.sandbox),
        "domain": facts.domain,
    }
    words = [frozenset(label_word(gpu.model).split("-")) - {""} for gpu in facts.gpus]
    found |= {f"gpu.{word}": word for word in sorted(frozenset.intersection(*words) if words else ())[:MAX_GPU_WORDS]}
    levels = facts.domain.split("/") if facts.domain else []
    found |= {f"domain.{depth}": "/".join(levels[:depth]) for depth in range(1, len(levels) + 1)}
    return {f"{AUTOMATIC}{key}": text for key, text in found.items() if text}


def label_word(text: str) -> str:
    """Turn a name into a label's value: `NVIDIA H200` becomes `nvidia-h200`."""
    return _NOT_A_WORD.sub("-", text.lower()).strip("-")
