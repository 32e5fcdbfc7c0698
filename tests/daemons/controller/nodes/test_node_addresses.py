"""Where a node is reached: as the controller sees it, unless it may state something else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model.facts import Facts
from hal.daemons.controller.config import Config
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.daemons.controller.nodes.test_joining import address_of, joined
from tests.daemons.controller.running import Running, running

SEEN = "127.0.0.1"
ALLOWED = ("10.1.0.0/16", "*.ib")


def run(root: Path, play: Callable[[Running], Awaitable[None]], allowed: tuple[str, ...] = ALLOWED) -> None:
    async def live() -> None:
        async with running(root / "home", Config(wire=("127.0.0.1", 0), node_addresses=allowed)) as hal:
            await play(hal)

    asyncio.run(live())


async def arrive(hal: Running, root: Path, name: str, stated: str) -> tuple[str, str]:
    """A node joins and states an address; the one that holds, and the remark that is shown."""
    identity = await joined(hal, root, name)
    connection = await hal.runtime.connect(address_of(hal), credentials=identity.credentials)
    facts = Facts(host="liar", address=stated)
    await connection.send(
        Hello(role=Role.AGENT, versions=SPOKEN, name=name, boot_id="b1", capacity={"cpu": 1_000}, facts=facts)
    )
    assert isinstance(await connection.receive(30_000), Welcome)
    await hal.until(lambda: name in {node.name for node in hal.api.nodes.all()})
    node = (await hal.http.get(f"/v1/nodes/{name}")).json()
    return node["facts"].get("address", ""), " ".join(node["notes"])


@pytest.mark.parametrize(
    ("stated", "holds", "remark"),
    [
        ("", SEEN, ""),
        (SEEN, SEEN, ""),
        ("10.1.2.3", "10.1.2.3", ""),
        ("far.ib", "far.ib", ""),
        ("10.2.0.1", SEEN, "server.node_addresses of the controller's hal.toml does not allow it"),
        ("head.example.org", SEEN, "server.node_addresses"),
        ("10.1.2.3,evil", SEEN, "address 10.1.2.3,evil is not used, but 127.0.0.1"),
    ],
)
def test_a_node_that_joined_states_only_what_the_operator_allows(
    tmp_path: Path, stated: str, holds: str, remark: str
) -> None:
    """Whatever its host name says; what is not allowed is remarked upon, and the node works."""

    async def play(hal: Running) -> None:
        address, remarks = await arrive(hal, tmp_path, "far", stated)
        assert address == holds
        assert remark in remarks
        assert bool(remarks) is bool(remark)

    run(tmp_path, play)


def test_a_node_does_not_state_the_address_of_another(tmp_path: Path) -> None:
    """Not even within what is allowed; the node that had it first keeps it."""

    async def play(hal: Running) -> None:
        assert await arrive(hal, tmp_path, "a", "10.1.0.1") == ("10.1.0.1", "")
        address, remarks = await arrive(hal, tmp_path, "b", "10.1.0.1")
        assert (address, "it is the address of node 'a'" in remarks) == (SEEN, True)

    run(tmp_path, play)


def test_two_nodes_of_one_machine_share_its_address(tmp_path: Path) -> None:
    """Seen, not stated."""

    async def play(hal: Running) -> None:
        assert await arrive(hal, tmp_path, "a", "") == (SEEN, "")
        assert await arrive(hal, tmp_path, "b", SEEN) == (SEEN, "")

    run(tmp_path, play, allowed=())
