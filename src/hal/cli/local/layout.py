"""Which nodes `hal up` starts on this machine, and how they share its cores and memory.

HAL_HOME/run/layout.json keeps the layout of the last start, so that `hal up` alone starts the same nodes again.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hal.core.model import ConflictError, InternalError, SpecError, plural
from hal.core.model.devices import GPU, WHOLE
from hal.core.model.facts import GpuFacts, check_domain
from hal.core.model.gpu_slices import offered_gpus
from hal.core.model.node_address import check_node_address
from hal.core.model.node_config import check_labels
from hal.runtime.gpus import machine_gpus
from hal.runtime.home import Home, check_node_name
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular

MAX_LAYOUT_BYTES: Final = 16 << 20

MAX_NODES = 64
"""Most nodes on one machine."""
MIB = 1 << 20


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node: what it offers."""

    name: str
    cpu_milli: int
    memory_bytes: int
    resources: dict[str, int] = {}
    """Others by name, base units."""
    labels: dict[str, str] = {}
    domain: str = ""
    address: str = ""
    """Where other machines reach it; empty: where the controller sees it."""
    max_processes: int | None = None
    """Of each step; 0: as many as the kernel gives; None: as many as a keeper allows by itself."""
    gpus: tuple[int, ...] | None = None
    """Indexes of the machine's GPUs that are its own; (): it counts them only. None: an earlier version's, or there is
    none."""

    def keeper_arguments(self) -> list[str]:
        """What its keeper is started with, beside --home."""
        words = ["--node", self.name, "--cpu-milli", str(self.cpu_milli), "--memory", str(self.memory_bytes)]
        for name, amount in self.resources.items():
            words += ["--resource", f"{name}={amount}"]
        for key, value in self.labels.items():
            words += ["--label", f"{key}={value}"]
        if self.domain:
            words += ["--domain", self.domain]
        if self.address:
            words += ["--address", self.address]
        if self.max_processes is not None:
            words += ["--max-processes", str(self.max_processes)]
        if self.gpus is not None:
            words += ["--gpu", ",".join(map(str, self.gpus))]
        return words


class Layout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes, and the TCP addresses of REST and of the wire ('' if there is none, or if hal.toml has it)."""

    nodes: tuple[NodePlan, ...]
    tcp: str = ""
    wire: str = ""
    planes: tuple[str, ...] = ()
    """Names of the planes that run beside the controller."""
    restart: bool = True
    """Whether a supervisor starts again what ends."""

    def save(self, home: Home) -> None:
        """Save it for the next `hal up`."""
        write_private(_file(home), msgspec.json.encode(self).decode())


class AgentLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The node of a HAL on another machine that runs here."""

    node: NodePlan
    controllers: tuple[str, ...]
    """`HOST:PORT` of each."""
    restart: bool = True
    """Whether a supervisor starts the node again when it ends."""

    def save(self, home: Home) -> None:
        """Save it for the next `hal agent`."""
        write_private(_agent_file(home), msgspec.json.encode(self).decode(), durable=True)


def saved_agent(home: Home) -> AgentLayout | None:
    """Read the layout of the last `hal agent`; None before the first.

    Raises:
        InternalError: the file is damaged.
    """
    path = _agent_file(home)
    try:
        return msgspec.json.decode(read_regular(path, MAX_LAYOUT_BYTES), type=AgentLayout)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise InternalError(
            f"{path} is damaged: {error}", hint="delete it and join again: hal agent --join TOKEN"
        ) from error


def saved_layout(home: Home) -> Layout | None:
    """Read the layout of the last start; None before the first.

    Raises:
        InternalError: the file is damaged.
    """
    try:
        return msgspec.json.decode(read_regular(_file(home), MAX_LAYOUT_BYTES), type=Layout)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise InternalError(
            f"{_file(home)} is damaged: {error}", hint="delete it and give the options again: hal up --nodes …"
        ) from error


def host_node_name() -> str:
    """This machine's host name, without the characters that a node's name cannot have."""
    name = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0])
    return name.strip("-")[:63].strip("-") or "node"


def plan_nodes(
    count: int,
    *,
    name: str | None = None,
    cpu_milli: int | None = None,
    memory_bytes: int | None = None,
    resources: dict[str, int] | None = None,
    labels: dict[str, str] | None = None,
    domain: str = "",
    address: str = "",
    max_processes: int | None = None,
    declared: tuple[GpuFacts, ...] = (),
) -> tuple[NodePlan, ...]:
    """Plan `count` equal nodes; each has an equal share of what is not given: at least one core, whole GPUs.

    One is named after its host, several, which share it, n1 … nN; with a name they have that one, NAME1 … NAMEN.

    Args:
        declared: GPUs that the site declares; without them they are looked for.
    Raises:
        SpecError: they are too many, or the name is not valid.
    """
    if not 0 <= count <= MAX_NODES:
        raise SpecError(f"--nodes {count}: one machine can have between 0 and {MAX_NODES} nodes")
    if not count:
        return ()
    cpu_milli = cpu_milli or max(1, cores_here() // count) * 1000
    memory_bytes = memory_bytes or memory_here_bytes() // count // MIB * MIB
    offered = dict(resources or {})
    gpus = machine_gpus(declared)
    shares: list[tuple[int, ...] | None] = [None] * count
    if gpus:
        whole = [gpu for gpu in gpus if not gpu.mig]
        sliced = [gpu for gpu in gpus if gpu.mig] if GPU not in offered else []
        if whole or not sliced:
            offered.setdefault(GPU, len(whole) // count * WHOLE)
        shares = [_share(whole, sliced, offered.get(GPU, 0), number, count) for number in range(count)]
    names = [name or host_node_name()] if count == 1 else [f"{name or 'n'}{i + 1}" for i in range(count)]
    return tuple(
        NodePlan(
            name=check_node_name(one),
            cpu_milli=cpu_milli,
            memory_bytes=memory_bytes,
            resources=_with_slices(offered, gpus, shares[number]),
            labels=check_labels(dict(labels or {}), "--label"),
            domain=check_domain(domain),
            address=check_node_address(address),
            max_processes=max_processes,
            gpus=shares[number],
        )
        for number, one in enumerate(names)
    )


def _share(
    whole: Sequence[GpuFacts], sliced: Sequence[GpuFacts], capacity: int, number: int, count: int
) -> tuple[int, ...]:
    """Indexes of the GPUs of one of `count` nodes: of those in MIG mode an equal share; of whole ones as many as each
    node offers, in thousandths, or none where there are not as many, or parts of some are offered."""
    each, part = divmod(capacity, WHOLE)
    if part or each * count > len(whole):
        each = 0
    own = [*whole[number * each : (number + 1) * each], *_nth(sliced, number, count)]
    return tuple(gpu.index for gpu in own)


def _nth(gpus: Sequence[GpuFacts], number: int, count: int) -> Sequence[GpuFacts]:
    each = len(gpus) // count
    return gpus[number * each : (number + 1) * each]


def _with_slices(offered: Mapping[str, int], gpus: Sequence[GpuFacts], own: tuple[int, ...] | None) -> dict[str, int]:
    """What a node offers, with the slices of its GPUs that are in MIG mode."""
    slices = offered_gpus(gpu for gpu in gpus if gpu.mig and own is not None and gpu.index in own)
    return {**slices, **offered}


def same_or_refused(asked: Layout, running: Layout) -> Layout:
    """Return the layout that is asked for if it is the one that runs.

    Raises:
        ConflictError: another one runs.
    """
    if asked == running:
        return running
    if asked.tcp and asked.tcp != running.tcp:
        raise ConflictError(
            f"HAL is running {f'with --tcp {running.tcp}' if running.tcp else 'without a TCP port'}",
            hint="stop its controller first (jobs continue): hal down --leave",
        )
    if asked.wire and asked.wire != running.wire:
        raise ConflictError(
            f"HAL is running {f'with --wire {running.wire}' if running.wire else 'without --wire'}",
            hint="stop its controller first (jobs continue): hal down --leave",
        )
    raise ConflictError(
        f"HAL is running with other nodes ({plural(len(running.nodes), 'node')})",
        hint="see them: hal nodes; to change them, stop HAL first: hal down",
    )


def cores_here() -> int:
    """Cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def memory_here_bytes() -> int:
    """Memory of this machine, or of the cgroup around this process when that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [limit for limit in map(_limit, _limit_files()) if limit is not None]
    return min([total, *limits])


def _limit_files() -> list[Path]:
    """The files with the memory limits of cgroups v2 and v1, from this process's own group up to the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        if not controllers:
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        group = root / path.lstrip("/")
        files += [place / name for place in (group, *group.parents) if place.is_relative_to(root)]
    return files


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _agent_file(home: Home) -> Path:
    return home.run_dir / "agent.json"


def _file(home: Home) -> Path:
    return home.run_dir / "layout.json"
