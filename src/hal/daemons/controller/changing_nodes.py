"""The part of the API that closes, opens and forgets nodes, and waits until one is empty."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from hal.core.model import HALError, InternalError, NotFoundError, SpecError, StoreError
from hal.daemons.controller.changing import Outcomes
from hal.daemons.controller.parts import Parts
from hal.daemons.controller.views import OutcomeView, outcome_view
from hal.planes.tasks import Submitter

MAX_NODES = 10_000
"""Nodes named in one request."""


class NodeAction(StrEnum):
    """What may be done to several nodes at once."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    REMOVE = "remove"


class NodesBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which nodes something is done to, and why."""

    nodes: list[str]
    reason: str = ""
    """For people, kept with the node; cordon and drain only."""


class ChangingNodes:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def control_nodes(self, action: NodeAction, asked: NodesBody, by: Submitter) -> Outcomes:
        """Do it to each node named; one outcome for each. Returns when it is durable; the state is that of then.

        Raises:
            SpecError: no node is named, or too many.
            OverloadedError, StoreError: nothing was done.
        """
        names = list(dict.fromkeys(asked.nodes))
        if not 0 < len(names) <= MAX_NODES:
            raise SpecError(f"nodes: {len(names)} named; between 1 and {MAX_NODES} may be")
        if asked.reason and action in (NodeAction.UNCORDON, NodeAction.REMOVE):
            raise SpecError(f"reason: not kept by {action}", hint="cordon and drain keep one")

        door = self._parts.node_door

        def work(now_ms: int) -> list[OutcomeView]:
            results = [self._do(action, name, asked.reason, by, now_ms) for name in names]
            if action is NodeAction.REMOVE:
                door.end_membership([result.id for result in results if result.ok], now_ms)
            return results

        try:
            results = await self._parts.loop.inbox.call(work)
        except StoreError:
            if action is NodeAction.REMOVE:
                await door.as_it_is_durable()
            raise
        if action is NodeAction.REMOVE:
            for result in results:
                if result.ok:
                    self._parts.agents.forget(result.id)
        return Outcomes(results=results)

    def _do(self, action: NodeAction, name: str, reason: str, by: Submitter, now_ms: int) -> OutcomeView:
        plane = self._parts.plane
        try:
            if action is NodeAction.REMOVE:
                plane.node_removed(name, by)
                return OutcomeView(id=name, ok=True, state="removed")
            if action is NodeAction.UNCORDON:
                row = plane.uncordon(name, by)
            else:
                row = plane.cordon(name, reason, by, now_ms, drain=action is NodeAction.DRAIN)
        except InternalError:
            raise
        except HALError as error:
            return outcome_view(name, error)
        return OutcomeView(id=name, ok=True, state=row.state.value, detail=plane.node_reason(name))

    async def wait_for_node(self, name: str, timeout_s: float) -> None:
        """Until the node holds nothing, or is not being drained, or so long.

        Raises:
            NotFoundError: there is none of that name (any more).
        """
        parts = self._parts
        deadline_ms = parts.runtime.monotonic_ms() + round(timeout_s * 1000)
        while parts.plane.drains(name):
            left_ms = deadline_ms - parts.runtime.monotonic_ms()
            if left_ms <= 0 or not await parts.node_waiters.change(name, left_ms / 1000):
                break
        if name not in parts.plane.table.nodes:
            raise NotFoundError(f"there is no node '{name}'", hint="`hal nodes` lists them")

    def tell_of_lies(self, tell: Callable[[str, str], None]) -> None:
        """Have that called with each node that is closed because it lied, and how it did."""
        self._parts.agents.on_lie = tell

    def waits_for_node(self, name: str) -> bool:
        """Whether anybody waits for a change of the node."""
        return self._parts.node_waiters.waits(name)
