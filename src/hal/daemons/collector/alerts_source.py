"""What the alerts look at: the metrics and nodes of the controller of this home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import InternalError, NodeState
from hal.core.model.alert_config import AlertsSection
from hal.planes.observability.alert_rules import MOST_NODES, NODE_DISK
from hal.planes.observability.alerts.part import AlertsPart
from hal.planes.observability.alerts.recording import Labels
from hal.planes.observability.samples.part import Samples
from hal.rest.controller_client import ControllerClient
from hal.rest.dialling import UNIX
from hal.runtime.authority import authority_file
from hal.runtime.interface import Runtime

NODES_A_PAGE: Final = 1_000
MAX_PAGES: Final = 20
FRESH_MS: Final = 60_000
"""What a node sent longer ago says nothing of it now."""


class _Node(Struct):
    name: str
    state: str


class _Nodes(Struct):
    nodes: list[_Node]
    cursor: str | None = None


_NODES: Final = msgspec.json.Decoder(_Nodes)


class ControllerSource:
    """Asks the controller of one home, as this process itself."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller

    async def metrics(self) -> bytes:
        """In Prometheus' text format.

        Raises:
            HALError: it does not answer.
        """
        return await self._controller.ask("GET", "/v1/metrics")

    async def nodes_away(self) -> Mapping[str, Sequence[str]]:
        """Nodes that are not up, by state.

        Raises:
            HALError: it does not answer.
        """
        found: dict[str, list[str]] = {}
        query = {"limit": str(NODES_A_PAGE)}
        for _ in range(MAX_PAGES):
            try:
                page = _NODES.decode(await self._controller.ask("GET", "/v1/nodes", query))
            except msgspec.DecodeError:
                raise InternalError("the controller's list of nodes is not understood") from None
            for node in page.nodes:
                if node.state != NodeState.UP:
                    found.setdefault(node.state, []).append(node.name)
            if not page.cursor:
                break
            query = {**query, "cursor": page.cursor}
        return found


def fullest_disks(samples: Samples) -> dict[str, dict[Labels, float]]:
    """Of the nodes with the fullest disks of HAL_HOME: what is free, and the size; of those that were heard lately."""
    free_name, size_name = NODE_DISK
    now_ms = samples.monotonic_ms()
    found: list[tuple[float, str, float, float]] = []
    for source in samples.sources():
        if not source.is_node or now_ms - source.heard_ms > FRESH_MS:
            continue
        free, size = source.newest_of((free_name, ())), source.newest_of((size_name, ()))
        if free is not None and size:
            found.append((free / size, source.name, free, size))
    fullest = nsmallest(MOST_NODES, found)
    return {
        free_name: {(("node", name),): free for _, name, free, _ in fullest},
        size_name: {(("node", name),): size for _, name, _, size in fullest},
    }


def alerts_part(runtime: Runtime, path: Path, section: AlertsSection, samples: Samples) -> AlertsPart:
    """The part, with what it looks at."""
    home = runtime.paths
    source = ControllerSource(ControllerClient([f"{UNIX}{home.api_socket()}"], authority_file(home.authority)))
    return AlertsPart(
        runtime,
        path,
        section,
        scrape=source.metrics,
        nodes_away=source.nodes_away,
        sampled=partial(fullest_disks, samples),
    )
