"""What a follower passes on goes to the leader only: with it goes the secret that opens everything."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from hal.daemons.controller.api.follower.forwarding import NoLeaderError, forward
from hal.rest.identity import Identity
from hal.rest.rights import Role

DEADLINE_S = 30.0
NOBODY_UID = 65_534


class Listening:
    """Somebody on the follower's own host where the leader has its socket, or its port, on another one."""

    def __init__(self) -> None:
        self.heard = b""
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.read()
        writer.close()
        self.over.set()


async def passed_on(*places: str) -> str:
    """Why nothing was passed on."""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope: Any = {"method": "GET", "raw_path": b"/v1/nodes", "query_string": b"", "headers": []}
    identity = Identity(user="bob", role=Role.USER)
    with pytest.raises(NoLeaderError) as caught:
        async with asyncio.timeout(DEADLINE_S):
            await forward(places, "secret", Path("/none"), identity, asyncio.Event(), scope, receive, send)
    return caught.value.message


def test_safety_plain_http_on_a_loopback_address_is_not_the_leader() -> None:
    """Its socket is not on this host, so that address is another's than the leader's."""

    async def body() -> None:
        other = Listening()
        async with await asyncio.start_server(other.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            assert "loopback address of its own host" in await passed_on("unix:/none", f"http://127.0.0.1:{port}")
            assert "loopback" in await passed_on("unix:/none", f"http://localhost:{port}")
        assert not other.over.is_set()

    asyncio.run(body())


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to listen as another user")
def test_safety_a_socket_that_another_user_serves_is_not_the_leader(tmp_path: Path) -> None:
    """The kernel says who listens."""

    async def body() -> None:
        other = Listening()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(tmp_path / "api.sock"))
        os.seteuid(NOBODY_UID)
        try:
            server = await asyncio.start_unix_server(other.serve, sock=listener)
        finally:
            os.seteuid(0)
        async with server:
            await passed_on(f"unix:{tmp_path}/api.sock")
            async with asyncio.timeout(DEADLINE_S):
                await other.over.wait()
        assert other.heard == b""

    asyncio.run(body())
