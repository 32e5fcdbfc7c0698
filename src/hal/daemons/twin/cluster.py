"""A cluster as a file describes it: nodes of several kinds with GPUs, labels, taints, in domains of a topology.

Pure. Its nodes are rows as a controller has them, so the code of production makes the engine's nodes, labels and GPUs
of them. O(nodes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from hal.core.model import SpecError
from hal.core.model.codec import convert
from hal.core.model.declared_gpus import GpuSection, SliceSection, check_gpus, declared_gpus
from hal.core.model.errors import shown
from hal.core.model.facts import AUTOMATIC, CORES_LABEL, MAX_PARTS, Facts, automatic_labels
from hal.core.model.gpu_slices import offered_gpus
from hal.core.model.resources import Resources
from hal.core.model.taint import taints_of
from hal.core.model.topology.node_lists import expand_names, natural_key
from hal.core.model.topology.tree import Topology
from hal.core.model.units import format_amount, parse_amount
from hal.store.operations import NodeAbout, NodeRow

MAX_CLUSTER_NODES: Final = 100_000
_MILLI: Final = 1000


class NodeSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says of nodes that are alike."""

    cpus: float | str
    memory: int | str = 0
    gpus: int | str = 0
    """How many, or `MODEL:N`."""
    gpus_linked: int = 0
    """So many neighbours are one link island; 0: none are linked."""
    gpu_slices: tuple[str, ...] = ()
    """Each of its GPUs is in MIG mode, and divided so."""
    resources: dict[str, Any] = field(default_factory=dict)
    """Further amounts, by name."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """`KEY` or `KEY=VALUE`."""


class Cluster(Struct, frozen=True, eq=False):
    """Nodes, in the order in which the engine is told of them: by name, as people count."""

    name: str
    """Of the file."""
    rows: tuple[NodeRow, ...]
    topology: Topology | None = None

    @property
    def cpus(self) -> int:
        """Whole cores of all nodes."""
        return max(sum(row.capacity.get("cpu", 0) for row in self.rows) // _MILLI, 1)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(len(row.about.facts.gpus) for row in self.rows)


def cluster_of(name: str, nodes: Mapping[str, Any], topology: Topology | None) -> Cluster:
    """The cluster whose nodes are described so.

    Args:
        name: of the file, for errors.
        nodes: by list of names (`n[01-16]`) what a `NodeSection` has.
    Raises:
        SpecError: there is a mistake in it, a node is there twice, or there is none.
    """
    rows: dict[str, NodeRow] = {}
    for names, raw in nodes.items():
        try:
            section = convert(raw, NodeSection)
            for node in expand_names(names):
                if node in rows:
                    raise SpecError(f"'{node}' is described twice", hint="name each node once")
                rows[node] = _row(node, section)
        except SpecError as error:
            raise SpecError(f"{name}: nodes.'{shown(names)}': {error.message}", hint=error.hint) from error
        if len(rows) > MAX_CLUSTER_NODES:
            raise SpecError(f"{name}: more than {MAX_CLUSTER_NODES:,} nodes")
    if not rows:
        raise SpecError(f"{name}: it describes no node", hint='[nodes."n[01-16]"], and below it cpus = 64')
    return Cluster(name, tuple(rows[node] for node in sorted(rows, key=natural_key)), topology)


def _row(node: str, section: NodeSection) -> NodeRow:
    """The row of one node. Raises SpecError."""
    capacity = {
        **Resources.parse(section.resources, field="resources"),
        "cpu": parse_amount("cpu", section.cpus, field="cpus"),
        "memory": parse_amount("memory", section.memory, field="memory"),
    }
    gpus = _gpus(section)
    for label in section.labels:
        if label.startswith(AUTOMATIC):
            raise SpecError(f"labels: '{shown(label)}' is one that HAL makes", hint="give it another name")
    facts = Facts(gpus=declared_gpus(gpus), bound_gpus=tuple(range(len(gpus))))
    capacity |= offered_gpus(facts.gpus)
    labels = {
        **section.labels,
        **automatic_labels(node, facts),
        CORES_LABEL: format_amount("cpu", capacity["cpu"]),
    }
    about = NodeAbout(facts=facts, taints=taints_of(section.taints))
    return NodeRow(node, {name: amount for name, amount in capacity.items() if amount}, labels, about=about)


def _gpus(section: NodeSection) -> tuple[GpuSection, ...]:
    """Its GPUs. Raises SpecError."""
    model, _, text = section.gpus.rpartition(":") if isinstance(section.gpus, str) else ("", "", section.gpus)
    try:
        count = int(text)
    except ValueError:
        raise SpecError(f"gpus: '{shown(section.gpus)}' is no number of GPUs", hint="8, or a100:8") from None
    linked = section.gpus_linked
    if not 0 <= count <= MAX_PARTS or not 0 <= linked <= MAX_PARTS:
        raise SpecError(f"gpus: {count} GPUs, {linked} of them linked", hint=f"0 to {MAX_PARTS}")
    if section.gpu_slices and linked:
        raise SpecError("gpus_linked: GPUs in MIG mode are not linked", hint="leave it out, or gpu_slices")
    gpus = tuple(
        GpuSection(
            model=model,
            island=f"i{at // linked}" if linked > 1 else "",
            slices=tuple(SliceSection(type=one, uuid=f"MIG-{at}-{n}") for n, one in enumerate(section.gpu_slices)),
        )
        for at in range(count)
    )
    check_gpus(gpus)
    return gpus
