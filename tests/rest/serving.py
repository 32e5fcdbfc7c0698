"""Two daemons with HTTP, for tests that hold for any: a controller, and the shelf of examples/shelf beside one."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from hal.rest.daemon import serve
from hal.rest.limits import Limits
from hal.rest.server.http_server import HttpServer, Ports
from hal.runtime.home import Home
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from tests.daemons.controller.running import LIMIT_S, Running, running

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "shelf" / "shelf.py"
SHELF: Final[dict[str, Any]] = runpy.run_path(str(EXAMPLE))
CONTROLLER: Final = "controller"
DAEMONS: Final = (CONTROLLER, "shelf")


class Served:
    """One of the two, and the controller that knows its callers."""

    def __init__(
        self, hal: Running, runtime: RealRuntime, server: HttpServer, socket: Path, http: httpx.AsyncClient
    ) -> None:
        self.hal = hal
        self.runtime = runtime
        self.server = server
        self.socket = socket
        self.http = http
        """The owner, over the private socket."""

    @property
    def upload(self) -> bytes:
        """Method and path of a request with a body."""
        return b"POST /v1/jobs" if self.runtime.name == CONTROLLER else b"PUT /v1/items/x"

    async def long_answer(self) -> bytes:
        """Method and path of a request with a long answer, some of them beyond what sockets buffer."""
        if self.runtime.name == CONTROLLER:
            return b"GET /v1/openapi.json"
        assert (await self.http.put("/v1/items/long", content=bytes(1 << 20))).status_code == 200
        return b"GET /v1/items/long"

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is true."""
        await self.hal.until(holds)

    def tick(self, seconds: int) -> None:
        """So many seconds go by for all connections."""
        for _ in range(seconds):
            self.server.connections.tick()

    def with_token(self, secret: str) -> httpx.AsyncClient:
        """Somebody who shows that token, as over TCP."""
        transport = httpx.ASGITransport(app=self.server.app, client=("192.0.2.7", 4711))  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx.AsyncClient(transport=transport, base_url="http://hal", headers=headers, timeout=LIMIT_S)

    @asynccontextmanager
    async def caller(self, first: bytes = b"") -> AsyncIterator[Caller]:
        """A connection to the private socket on which that was sent."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        try:
            writer.write(first)
            await writer.drain()
            yield Caller(reader, writer)
        finally:
            writer.close()


class Caller:
    """A connection to the private socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> bytes:
        """The next answer, which has a length."""
        async with asyncio.timeout(LIMIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            return head + await self.reader.readexactly(length)

    async def closed(self) -> bytes:
        """What comes until the other side closes."""
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@asynccontextmanager
async def shelf_beside(
    hal: Running, limits: Limits | None = None, ports: Ports | None = None, **section: Any
) -> AsyncIterator[Served]:
    """The example's daemon, in this process, beside a running controller."""
    home: Home = hal.runtime.paths
    file = LogFile(home.log_file("shelf"))
    runtime = RealRuntime("shelf", home, open_log(file, "shelf"), seed=2)
    api = SHELF["Shelf"](runtime, home.root / "shelf", SHELF["ShelfSection"](**section))
    server = await serve(runtime, SHELF["INTERFACE"], api, limits=limits or Limits(section="shelf"), ports=ports)
    socket = home.socket_dir() / "shelf.sock"
    transport = httpx.AsyncHTTPTransport(uds=str(socket), verify=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://hal", timeout=LIMIT_S) as http:
        try:
            yield Served(hal, runtime, server, socket, http)
        finally:
            await http.aclose()
            await server.stop()
            await runtime.close()
            file.close()


Run = Callable[[Callable[[Served], Awaitable[None]]], None]
"""Runs a test's body against a daemon that several tests share."""


@contextmanager
def shared(daemon: str) -> Iterator[Run]:
    """One of the two daemons for all tests of a module; they use names of their own."""
    root = Path(tempfile.mkdtemp(prefix="hal-s-"))
    try:
        with asyncio.Runner() as loop:
            stack = AsyncExitStack()
            hal = loop.run(stack.enter_async_context(running(root)))
            served = Served(hal, hal.runtime, hal.rest, hal.runtime.paths.api_socket(), hal.http)
            if daemon != CONTROLLER:
                served = loop.run(stack.enter_async_context(shelf_beside(hal)))
            try:
                yield lambda test: loop.run(test(served))  # type: ignore[arg-type]
            finally:
                loop.run(stack.aclose())
    finally:
        shutil.rmtree(root)


def on_shelf(root: Path, test: Callable[[Served], Awaitable[None]], **settings: Any) -> None:
    """Run a test's body against a shelf of its own."""

    async def body() -> None:
        async with running(root) as hal, shelf_beside(hal, **settings) as shelf:
            await test(shelf)

    asyncio.run(body())
