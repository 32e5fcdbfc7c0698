"""The GPUs of a simulated cluster: who holds which ones, by the binding of production, and how well they are used.

Pure. What several jobs share of a GPU is told to the engine as a controller tells it (see decision 0066). O(GPUs of
the node) for a start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hal.core.engine.config import EngineConfig
from hal.core.engine.events import NodeSpec
from hal.core.model import InternalError
from hal.core.model.devices import WHOLE, HeldGpu, HeldGpus, link_islands
from hal.core.model.facts import GPU_LABEL
from hal.core.model.gpu_reserves import GpuReserves
from hal.core.model.gpu_slices import gpu_milli, slice_milli, slice_resource
from hal.daemons.twin.cluster import Cluster
from hal.planes.tasks import GpuBook, node_spec
from hal.store.operations import NodeRow

NO_MODEL = "gpu"
"""GPUs whose model is not named."""


class GpuFigures(NamedTuple):
    """How the GPUs of a cluster were used; fractions are 0..1 of GPU time."""

    gpus: int
    """Of the cluster."""
    allocated: float
    """Held by jobs, of all GPUs from the first submission to the end of the replay."""
    allocated_in_demand: float | None
    """The same while some job that asks for GPUs waited; None: none ever did."""
    by_model: Mapping[str, float]
    """`allocated`, by the model of the GPUs."""
    islands: float | None
    """Mean number of link islands that the GPUs of one node were on, of starts with several of them; None: no such
    start."""

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {**self._asdict(), "by_model": dict(self.by_model)}


class GpuUse:
    """Of one replay."""

    def __init__(self, cluster: Cluster, engine: EngineConfig, began_ms: int) -> None:
        """Args:
        engine: says if jobs may share a GPU, and what others leave for each.
        began_ms: from when on it is counted.
        """
        self._topology = cluster.topology
        self._rows = {row.name: row for row in cluster.rows}
        self._book = GpuBook(parts=engine.gpu_parts, islands=engine.gpu_islands)
        self._reserves = GpuReserves(engine.gpu_reserve, engine.policy.queues if engine.policy is not None else {})
        self._held: dict[int, tuple[tuple[str, ...], tuple[HeldGpus, ...]]] = {}
        """By job: its nodes, and what it holds of each."""
        self._gpus = cluster.gpus
        self._models = {
            row.name: row.labels.get(GPU_LABEL, NO_MODEL) for row in cluster.rows if gpu_milli(row.capacity)
        }
        self._there: Counter[str] = Counter()
        for name, model in self._models.items():
            self._there[model] += gpu_milli(self._rows[name].capacity)
        self._now: Counter[str] = Counter()
        """Thousandths held, by model."""
        self._sums: Counter[str] = Counter()
        """Their integral over time, in milliseconds."""
        self._wanted = self._wanted_ms = self._sum_wanted = 0
        self._began_ms = self._at_ms = began_ms
        self._starts = self._islands = 0
        self._island_of = {row.name: _islands(row) for row in cluster.rows if row.name in self._models}

    def specs(self) -> tuple[NodeSpec, ...]:
        """The nodes as the engine is told of them at first."""
        return tuple(node_spec(row, self._book, self._topology, self._reserves) for row in self._rows.values())

    def untold(self) -> tuple[NodeSpec, ...]:
        """Nodes of which the engine is to be told that other parts of GPUs are left."""
        if not self._book.tells:
            return ()
        return tuple(
            node_spec(row, self._book, self._topology, self._reserves) for row in self._book.take_untold(self._rows)
        )

    def wants(self, change: int, now_ms: int) -> None:
        """So many more jobs wait that ask for GPUs."""
        self._pass(now_ms)
        self._wanted += change

    def start(self, job: int, nodes: tuple[str, ...], requests: Sequence[Mapping[str, int]], now_ms: int) -> bool:
        """Choose and hold what a job that starts has of each of its nodes.

        Args:
            requests: by node.
        Returns:
            False: another start of the same plan has taken what would hold it.
        Raises:
            InternalError: whole GPUs are short, which the engine had counted.
        """
        chosen: list[HeldGpus] = []
        for node, request in zip(nodes, requests, strict=True):
            if not gpu_milli(request):
                chosen.append(())
                continue
            held = self._book.bind(self._rows[node], request)
            if held is None:
                if self._book.tells:
                    return False
                raise InternalError(f"job {job} was started on {node}, whose GPUs that are free do not hold it")
            chosen.append(held)
        self._pass(now_ms)
        gpus = tuple(chosen)
        self._book.take(nodes, gpus)
        self._held[job] = (nodes, gpus)
        for node, of_node in zip(nodes, gpus, strict=True):
            if not of_node:
                continue
            self._now[self._models[node]] += sum(map(_milli, of_node))
            whole = [one for one in of_node if one.id in self._island_of[node]]
            if len(whole) > 1:
                self._starts += 1
                self._islands += len({self._island_of[node][one.id] for one in whole})
        self._check(nodes)
        return True

    def end(self, job: int, now_ms: int) -> None:
        """A job holds nothing any longer; also of one that held none."""
        found = self._held.pop(job, None)
        if found is None:
            return
        self._pass(now_ms)
        nodes, gpus = found
        self._book.give(nodes, gpus)
        for node, of_node in zip(nodes, gpus, strict=True):
            if of_node:
                self._now[self._models[node]] -= sum(map(_milli, of_node))

    def held_by(self, job: int) -> str:
        """What a running job holds, in words: `n1: 0 1, n2: 3`; '' for none."""
        found = self._held.get(job)
        if found is None:
            return ""
        return ", ".join(f"{node}: {' '.join(map(str, gpus))}" for node, gpus in zip(*found, strict=True) if gpus)

    def figures(self, until_ms: int) -> GpuFigures | None:
        """What came of it until then; None without GPUs."""
        if not self._there:
            return None
        self._pass(until_ms)
        span = max(self._at_ms - self._began_ms, 1)
        in_all = self._there.total()
        return GpuFigures(
            gpus=self._gpus,
            allocated=self._sums.total() / (in_all * span),
            allocated_in_demand=self._sum_wanted / (in_all * self._wanted_ms) if self._wanted_ms else None,
            by_model={model: self._sums[model] / (there * span) for model, there in sorted(self._there.items())},
            islands=self._islands / self._starts if self._starts else None,
        )

    def _pass(self, now_ms: int) -> None:
        """Count until now."""
        passed, self._at_ms = now_ms - self._at_ms, max(now_ms, self._at_ms)
        if passed <= 0:
            return
        for model, milli in self._now.items():
            self._sums[model] += milli * passed
        if self._wanted:
            self._wanted_ms += passed
            self._sum_wanted += self._now.total() * passed

    def _check(self, nodes: tuple[str, ...]) -> None:
        """No GPU is given more than once over."""
        for node in nodes:
            for gpu, milli in self._book.held(node).items():
                if milli > WHOLE:
                    raise InternalError(f"GPU {gpu} of {node} is given {milli / WHOLE:g} times")


def _milli(held: HeldGpu) -> int:
    """How much of a GPU it is; a slice is as much as it has of its compute."""
    return slice_milli(slice_resource(held.kind)) or held.milli


def _islands(row: NodeRow) -> dict[str, int]:
    """The number of each GPU's link island, by its id."""
    facts = row.about.facts.gpus
    ids = {gpu.index: gpu.id for gpu in facts}
    return {ids[index]: number for number, island in enumerate(link_islands(facts)) for index in island}
