"""Everything that can be asked about nodes: close, open, fence and remove them, wait until one is empty, read them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import ConflictError, HALError, InternalError, NotFoundError, SpecError, parse_duration
from hal.core.model.eviction import DEFAULT_GRACE_MS, EvictMode
from hal.core.model.taint import check_taints
from hal.daemons.controller.service.nodes.views import NodeView
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView, outcome_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Drain, Submitter, Work, reason_of, without_jobs
from hal.store import NodeRow

MAX_NODES = 10_000
"""Nodes named in one request."""


class NodeAction(StrEnum):
    """What may be done to several nodes at once."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    REMOVE = "remove"
    TAINT = "taint"
    UNTAINT = "untaint"


class NodesBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nodes that a request changes, and the reason."""

    nodes: list[str]
    reason: str = ""
    """For people, kept with the node; cordon and drain only."""


class DrainBody(NodesBody, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nodes that are drained, and what becomes of work that does not end by itself."""

    evict: EvictMode | None = None
    """How what is left is evicted; null: it may run to its end."""
    within: Any = None
    """How long it may run to its end before that, as a duration (`2h`); at once by default."""
    grace: Any = None
    """How long evicted work has to end before it is killed, as a duration; 30s by default."""
    move: bool = False
    """Of one node: drain it only if all that runs there may be moved, has room elsewhere, and what is gained pays for
    what is lost (`compaction` of hal.toml); it then leaves at once."""

    @property
    def eviction(self) -> Drain | None:
        """What it says of evicting.

        Raises:
            SpecError: a time that is none, or one without a mode.
        """
        if self.move:
            for name in ("evict", "within", "grace"):
                if getattr(self, name) is not None:
                    raise SpecError(
                        f"{name}: what is moved leaves at once, and is requeued", hint="leave out move, or it"
                    )
            if len(set(self.nodes)) != 1:
                raise SpecError("move: one node at a time", hint="each takes room from the others")
            return Drain(mode=EvictMode.REQUEUE, within_ms=0, grace_ms=DEFAULT_GRACE_MS)
        if self.evict is None:
            for name in ("within", "grace"):
                if getattr(self, name) is not None:
                    raise SpecError(f"{name}: nothing is evicted without a mode", hint="name one: evict")
            return None
        within_ms = 0 if self.within is None else int(parse_duration(self.within, field="within"))
        grace_ms = DEFAULT_GRACE_MS if self.grace is None else int(parse_duration(self.grace, field="grace"))
        return Drain(mode=self.evict, within_ms=within_ms, grace_ms=grace_ms)


class TaintBody(NodesBody, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nodes that get taints."""

    taints: dict[str, str] = {}
    """By key; a value may be empty. One of a key that a node has already takes that one's place."""


class UntaintBody(NodesBody, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nodes from which taints are taken."""

    keys: list[str] = []
    """Keys of the taints; of one that a node has not, nothing changes."""


class FenceBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How somebody knows that a node is gone."""

    machine_gone: bool = False
    """Its machine no longer exists: the node may be in any state, and the same boot of this machine gets no work any
    more. Else the node must be unreachable."""
    reason: str = ""
    """One line for people."""


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
        if asked.reason and action not in (NodeAction.CORDON, NodeAction.DRAIN):
            raise SpecError(f"reason: not kept by {action}", hint="cordon and drain keep one")

        if isinstance(asked, TaintBody):
            if not asked.taints:
                raise SpecError("taints: none is named", hint="name one, as KEY or KEY=VALUE")
            check_taints(asked.taints)
        if isinstance(asked, UntaintBody) and not asked.keys:
            raise SpecError("keys: none is named", hint="`hal node show` lists the taints of a node")

        admission = self._parts.node_admission
        evict = asked.eviction if isinstance(asked, DrainBody) else None  # what is malformed is so for all nodes

        def work(now_ms: int) -> Work[list[OutcomeView]]:
            results = []
            for name in names:  # each of them looks at all that runs
                results.append(self._do(action, name, asked, evict, by, now_ms))
                yield
            if action is NodeAction.REMOVE:
                admission.end_membership([result.id for result in results if result.ok], now_ms)
            return results

        results = await self._parts.loop.inbox.call_in_slices(work)
        if action is NodeAction.REMOVE:
            for result in results:
                if result.ok:
                    self._parts.agents.forget(result.id)
        return Outcomes(results=results)

    def _do(
        self, action: NodeAction, name: str, asked: NodesBody, evict: Drain | None, by: Submitter, now_ms: int
    ) -> OutcomeView:
        plane = self._parts.plane
        try:
            if action is NodeAction.REMOVE:
                plane.remove_node(name, by)
                return OutcomeView(id=name, ok=True, state="removed")
            if action is NodeAction.UNCORDON:
                row = plane.uncordon(name, by)
            elif isinstance(asked, TaintBody):
                row = plane.taint(name, asked.taints, by)
            elif isinstance(asked, UntaintBody):
                row = plane.untaint(name, asked.keys, by)
            else:
                if isinstance(asked, DrainBody) and asked.move:
                    self._check_moves(name, now_ms)
                row = plane.cordon(name, asked.reason, by, now_ms, drain=action is NodeAction.DRAIN, evict=evict)
        except InternalError:
            raise
        except HALError as error:
            return outcome_view(name, error)
        return OutcomeView(id=name, ok=True, state=row.state.value, detail=plane.node_reason(name))

    def _check_moves(self, name: str, now_ms: int) -> None:
        """Check that all work of a node may be moved, and that this pays.

        Raises:
            NotFoundError: there is no such node.
            ConflictError: it is not so.
        """
        if name not in self._parts.plane.nodes:
            raise no_node(name)
        if not self._parts.engine.moves_work:
            raise ConflictError("move: this HAL moves no work", hint="set compaction under [engine] of hal.toml")
        found = self._parts.engine.emptied(name, now_ms)
        if found is None:
            raise ConflictError(
                f"node '{name}' runs work that may not be moved now, or has no room elsewhere",
                hint="drain it without move; `GET /v1/plan` lists rented nodes that can be emptied (`releasable`)",
            )
        if not found.pays:
            raise ConflictError(
                f"moving the work of node '{name}' would lose {found.lost_ms // 1000} s of a node, which does not pay, "
                "since it will soon be empty by itself",
                hint="drain it without move",
            )

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
            raise no_node(name)

    async def fence(self, node: str, asked: FenceBody, by: Submitter) -> None:
        """Declare a node gone for good; its attempts are lost, and their tasks wait again at once.

        Raises:
            NotFoundError, ConflictError, SpecError: see `arrivals.fence_node`.
        """
        plane = self._parts.plane
        gone, reason = asked.machine_gone, asked.reason
        await self._parts.loop.inbox.call_in_slices(
            lambda now_ms: plane.fencing(node, by, now_ms, machine_gone=gone, reason=reason)
        )
        # What is there in spite of that dials again, is asked to stop what it holds, and gets nothing new.
        self._parts.agents.dismiss(node, "", "this node was declared gone")

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

    def all(self, *, to_all: bool = False, after: str = "", limit: int | None = None) -> list[NodeView]:
        """Nodes by name.

        Args:
            to_all: as everybody may see them, without jobs.
            after: only those behind this name.
            limit: the first so many of these; None: all.
        """
        running = self._parts.plane.tally_nodes()
        nodes = self._parts.plane.nodes
        names = sorted(name for name in nodes if name > after)[:limit]
        return [self._node(nodes[name], running.get(name, 0), to_all) for name in names]

    def get(self, name: str, *, to_all: bool = False) -> NodeView:
        """One node; `to_all`: as for `all`.

        Raises:
            NotFoundError: there is none of that name.
        """
        row = self._parts.plane.nodes.get(name)
        if row is None:
            raise no_node(name)
        running = self._parts.plane.tally_nodes().get(name, 0)
        topology = self._parts.topology
        view = replace(self._node(row, running, to_all), facts=row.about.facts)
        if topology is None:
            return view
        places = zip(topology.levels, topology.domains_of(name, row.labels), strict=True)
        return replace(view, domains={level: domain for level, domain in places if domain})

    def _node(self, row: NodeRow, running: int, to_all: bool) -> NodeView:
        heard = self._parts.agents.last_heard_ms(row.name) or row.last_seen_ms
        return NodeView(
            name=row.name,
            state=row.state,
            capacity=row.capacity,
            free=self._parts.engine.free(row),
            labels=row.labels,
            reason=reason_of(row, to_all=to_all),
            last_seen_ms=heard or None,
            running=running,
            notes=row.notes,
            connected=self._parts.agents.connected(row.name),
            boot_id=row.boot_id,
            taints=row.about.taints,
            closures=tuple(map(without_jobs, row.about.closures)) if to_all else row.about.closures,
        )


def no_node(name: str) -> NotFoundError:
    """The error for a node that does not exist."""
    return NotFoundError(f"there is no node '{name}'", hint="`hal nodes` lists them")
