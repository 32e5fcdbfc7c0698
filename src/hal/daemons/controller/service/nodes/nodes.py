"""Everything that can be asked about nodes: close, open, fence and remove them, wait until one is empty, read them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import HALError, InternalError, NotFoundError, SpecError
from hal.daemons.controller.service.nodes.views import NodeView
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView, outcome_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter, reason_of
from hal.store import NodeRow

MAX_NODES = 10_000
"""Nodes named in one request."""


class NodeAction(StrEnum):
    """What may be done to several nodes at once."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    REMOVE = "remove"


class NodesBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nodes that a request changes, and the reason."""

    nodes: list[str]
    reason: str = ""
    """For people, kept with the node; cordon and drain only."""


class Nodes:
    """Control and read them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def control(self, action: NodeAction, asked: NodesBody, by: Submitter) -> Outcomes:
        """Change each node named; one outcome for each. Returns when it is durable; the state is that of then.

        Raises:
            SpecError: no node is named, or too many.
            OverloadedError, StoreError: nothing was done.
        """
        names = list(dict.fromkeys(asked.nodes))
        if not 0 < len(names) <= MAX_NODES:
            raise SpecError(f"nodes: {len(names)} named; between 1 and {MAX_NODES} may be")
        if asked.reason and action in (NodeAction.UNCORDON, NodeAction.REMOVE):
            raise SpecError(f"reason: not kept by {action}", hint="cordon and drain keep one")

        admission = self._parts.node_admission

        def work(now_ms: int) -> list[OutcomeView]:
            results = [self._do(action, name, asked.reason, by, now_ms) for name in names]
            if action is NodeAction.REMOVE:
                admission.end_membership([result.id for result in results if result.ok], now_ms)
            return results

        results = await self._parts.loop.inbox.call(work)
        if action is NodeAction.REMOVE:
            for result in results:
                if result.ok:
                    self._parts.agents.forget(result.id)
        return Outcomes(results=results)

    def _do(self, action: NodeAction, name: str, reason: str, by: Submitter, now_ms: int) -> OutcomeView:
        plane = self._parts.plane
        try:
            if action is NodeAction.REMOVE:
                plane.remove_node(name, by)
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

    async def wait(self, name: str, timeout_s: float) -> None:
        """Wait until the node holds nothing, is not being drained, or the time has passed.

        Raises:
            NotFoundError: there is none of that name (any more).
        """
        parts = self._parts
        deadline_ms = parts.runtime.monotonic_ms() + round(timeout_s * 1000)
        while parts.plane.is_draining(name):
            left_ms = deadline_ms - parts.runtime.monotonic_ms()
            if left_ms <= 0 or not await parts.node_waiters.change(name, left_ms / 1000):
                break
        if name not in parts.plane.nodes:
            raise _no_node(name)

    async def fence(self, node: str, by: Submitter) -> None:
        """Declare an unreachable node gone for good; its attempts are lost.

        Raises:
            NotFoundError, ConflictError: see `TaskPlane.node_gone`.
        """
        await self._parts.loop.inbox.call(lambda now_ms: self._parts.plane.fence_node(node, by, now_ms))

    async def revoke(self, node: str) -> None:
        """Take a node's certificates back, and close its connection.

        Raises:
            NotFoundError: it has none.
        """
        await self._parts.node_admission.revoke_node(node)
        self._parts.agents.dismiss(node, "denied", f"the certificate of node '{node}' was revoked")

    def report_lies_to(self, report: Callable[[str, str], None]) -> None:
        """Set what is called with each node that is closed because it lied, and how it did."""
        self._parts.agents.on_lie = report

    def waited_for(self, name: str) -> bool:
        """Whether anybody waits for a change of the node."""
        return self._parts.node_waiters.waits(name)

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def all(self) -> list[NodeView]:
        """All nodes by name."""
        running = self._parts.plane.tally_nodes()
        return [self._node(row, running.get(name, 0)) for name, row in sorted(self._parts.plane.nodes.items())]

    def get(self, name: str) -> NodeView:
        """One node.

        Raises:
            NotFoundError: there is none of that name.
        """
        row = self._parts.plane.nodes.get(name)
        if row is None:
            raise _no_node(name)
        return replace(self._node(row, self._parts.plane.tally_nodes().get(name, 0)), facts=row.about.facts)

    def _node(self, row: NodeRow, running: int) -> NodeView:
        heard = self._parts.agents.last_heard_ms(row.name) or row.last_seen_ms
        return NodeView(
            name=row.name,
            state=row.state,
            capacity=row.capacity,
            free=self._parts.engine.free(row),
            labels=row.labels,
            reason=reason_of(row),
            last_seen_ms=heard or None,
            running=running,
            notes=row.notes,
            connected=self._parts.agents.connected(row.name),
            boot_id=row.boot_id,
            closures=row.about.closures,
        )


def _no_node(name: str) -> NotFoundError:
    return NotFoundError(f"there is no node '{name}'", hint="`hal nodes` lists them")
