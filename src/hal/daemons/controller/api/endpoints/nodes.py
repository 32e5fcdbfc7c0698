"""The endpoints about nodes: list, fence, control, wait."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from litestar import Response
from msgspec import Struct
from msgspec.structs import replace

from hal.daemons.controller.api.endpoints.endpoint import (
    DEFAULT_WAIT_S,
    LIMIT,
    NODE,
    TEXT,
    TIMEOUT,
    Endpoint,
    Param,
    body_of,
)
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.nodes.node_use import NodeUseView
from hal.daemons.controller.service.nodes.nodes import (
    DrainBody,
    FenceBody,
    NodeAction,
    NodesBody,
    TaintBody,
    UntaintBody,
)
from hal.daemons.controller.service.nodes.views import NodeView, TopologyView
from hal.daemons.controller.service.outcomes import Outcomes, refusals_of
from hal.rest.answers import sliced_answer
from hal.rest.endpoint import JSON
from hal.rest.enforcement import reach_of
from hal.rest.rights import EVERYBODY, OPERATORS, OWNERS, Reach


class NodesList(Struct, frozen=True, kw_only=True):
    """Nodes by name."""

    nodes: list[NodeView]
    cursor: str | None = None
    """With `limit`: asks for the next page; null at the end."""


async def list_nodes(api: ControllerApi, call: Call) -> object:
    """Return all nodes, or a page of them."""
    limit = call.params.limit() if call.params.text("limit") else None
    found = api.nodes.all(to_all=_as_all(call), after=call.params.text("cursor"), limit=limit)
    return NodesList(nodes=found, cursor=found[-1].name if found and len(found) == limit else None)


async def get_node(api: ControllerApi, call: Call) -> object:
    """Return a node."""
    return api.nodes.get(call.path("name"), to_all=_as_all(call))


def _as_all(call: Call) -> bool:
    """Whether the caller sees no more than everybody: not for whose job a script of the site has failed."""
    return reach_of(call.visit.identity, OWNERS, narrowed_too=False) is not Reach.ALL


async def get_topology(api: ControllerApi, call: Call) -> object:
    """Return the domains with their use."""
    found = await api.topology.view()
    return await sliced_answer(call, api.runtime, replace(found, domains=[]), "domains", list(found.domains), 200)


async def get_node_use(api: ControllerApi, call: Call) -> object:
    """All nodes in columns; 304 where they are as the caller knows them."""
    found = await api.node_use.encoded()
    headers = {"ETag": f'"{found.version}"'}
    if (call.header("if-none-match") or "").removeprefix("W/").strip('"') == found.version:
        return Response(content=b"", status_code=304, headers=headers)
    return Response(content=found.body, media_type=JSON, headers=headers)


async def fence_node(api: ControllerApi, call: Call) -> object:
    """Declare a node gone for good."""
    await api.nodes.fence(call.path("name"), call.body, call.submitter)
    return api.nodes.get(call.path("name"))


async def wait_for_node(api: ControllerApi, call: Call) -> object:
    """Wait until a node is empty; returns its state after at most the given time."""
    await api.nodes.wait(call.path("name"), call.params.seconds("timeout_s", DEFAULT_WAIT_S))
    return api.nodes.get(call.path("name"), to_all=_as_all(call))


async def control_nodes(action: NodeAction, api: ControllerApi, call: Call) -> object:
    """Change the nodes that are named."""
    asked: NodesBody = call.body
    call.visit.targets.extend(asked.nodes)
    done = await api.nodes.control(action, asked, call.submitter)
    call.visit.targets[:0] = refusals_of(done.results)
    return done


_ACTIONS: Final[tuple[tuple[NodeAction, type[NodesBody], str, str, dict[str, Any]], ...]] = (
    (NodeAction.CORDON, NodesBody, "Close nodes to new work", "Running work continues.", {"reason": "new disk"}),
    (NodeAction.UNCORDON, NodesBody, "Open closed nodes to new work", "Failing checks keep a node closed.", {}),
    (
        NodeAction.DRAIN,
        DrainBody,
        "Close nodes to new work until they are empty, then cordon them",
        "Running work continues; with `evict`, what is left after `within` is evicted in that mode.",
        {"evict": "requeue", "within": "2h", "reason": "new disk"},
    ),
    (
        NodeAction.TAINT,
        TaintBody,
        "Give nodes taints",
        "Work that does not tolerate them starts there no more; what runs there continues.",
        {"taints": {"team": "bio"}},
    ),
    (
        NodeAction.UNTAINT,
        UntaintBody,
        "Take taints from nodes",
        "A key that a node has no taint of changes nothing.",
        {"keys": ["team"]},
    ),
    (
        NodeAction.REMOVE,
        NodesBody,
        "Remove nodes that are gone, or cordoned, and hold nothing",
        "A removed node that dials again is a new node.",
        {},
    ),
)

NODES: Final = (
    Endpoint(
        method="GET",
        path="/v1/nodes",
        handler=list_nodes,
        right=EVERYBODY,
        name="listNodes",
        tag="nodes",
        summary="List all nodes",
        text="By name; with `limit` a page of them.",
        params=(LIMIT, Param(name="cursor", text="as the page before called it", schema=TEXT)),
        result=NodesList,
    ),
    Endpoint(
        method="GET",
        path="/v1/nodes/{name}",
        handler=get_node,
        right=EVERYBODY,
        name="getNode",
        tag="nodes",
        summary="Show one node",
        params=(NODE,),
        result=NodeView,
        problems=("404",),
    ),
    Endpoint(
        method="GET",
        path="/v1/topology",
        handler=get_topology,
        right=EVERYBODY,
        name="getTopology",
        tag="nodes",
        summary="Show the topology and the use of each domain",
        text="Counted at most once a second. Without a topology in hal.toml, it has no levels and no domains.",
        result=TopologyView,
    ),
    Endpoint(
        method="GET",
        path="/v1/node-use",
        handler=get_node_use,
        right=EVERYBODY,
        name="getNodeUse",
        tag="nodes",
        summary="Show what all nodes offer, hold and are, in columns",
        text=(
            "For programs that show many nodes every second: it costs a tenth of `GET /v1/nodes`. Counted at most "
            "once a second. With `If-None-Match` the answer is 304 where nothing has changed."
        ),
        params=(Param(name="If-None-Match", where="header", text="`ETag` of an earlier answer", schema=TEXT),),
        result=NodeUseView,
        headers={"ETag": "version of the columns"},
        or_status={304: "Nothing has changed since that version"},
    ),
    Endpoint(
        method="POST",
        path="/v1/nodes/{name}/fence",
        handler=fence_node,
        right=OPERATORS,
        name="fenceNode",
        tag="nodes",
        summary="Declare a node gone for good",
        text="Its attempts end as lost and their tasks wait again, at once. Do this only if nothing can be running "
        "there. A node that is not unreachable is refused, unless its machine no longer exists (`machine_gone`).",
        params=(NODE,),
        body=body_of(
            FenceBody,
            {"nothing runs there": {}, "deleted": {"machine_gone": True, "reason": "spot reclaim"}},
            required=False,
        ),
        result=NodeView,
        problems=("400", "404", "409", "413", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/nodes/{name}/wait",
        handler=wait_for_node,
        right=EVERYBODY,
        name="waitForNode",
        tag="nodes",
        summary="Wait until a draining node is empty",
        text="Responds as soon as the node is empty or no longer drains, or after `timeout_s` with its current state.",
        params=(NODE, TIMEOUT),
        result=NodeView,
        problems=("400", "404", "503"),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/v1/nodes/{action}",
            handler=partial(control_nodes, action),
            right=OPERATORS,
            name=f"{action}Nodes",
            tag="nodes",
            summary=summary,
            text=f"{text} One outcome for each; a refused one does not affect the others.",
            body=body_of(body, {"two nodes": {"nodes": ["n1", "n2"], **more}}),
            result=Outcomes,
            problems=("400", "413", "503"),
        )
        for action, body, summary, text, more in _ACTIONS
    ),
)
