"""What the alerts look at: the metrics and nodes of the controller of this home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import InternalError, NodeState
from hal.core.model.alert_config import AlertsSection
from hal.planes.observability.alerts.part import AlertsPart
from hal.rest.controller_client import ControllerClient
from hal.rest.dialling import UNIX
from hal.runtime.authority import authority_file
from hal.runtime.interface import Runtime

NODES_A_PAGE: Final = 1_000
MAX_PAGES: Final = 20


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


def alerts_part(runtime: Runtime, path: Path, section: AlertsSection) -> AlertsPart:
    """The part, with what it looks at."""
    home = runtime.paths
    source = ControllerSource(ControllerClient([f"{UNIX}{home.api_socket()}"], authority_file(home.authority)))
    return AlertsPart(runtime, path, section, scrape=source.metrics, nodes_away=source.nodes_away)
