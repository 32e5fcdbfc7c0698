"""The HTTP server: uvicorn's protocol on HAL's own sockets, in the daemon's loop.

A Unix socket (mode 0600 in a private directory) whose peers the kernel names: same user or root, checked when they
connect. Another one for other users of the machine, and TCP, only on request. uvicorn's own server class is not used:
signals and the loop belong to the runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvicorn
from litestar.types import ASGIApp
from msgspec import Struct
from uvicorn.server import ServerState

from hal.core.model import ConflictError, HALError
from hal.core.model.audit_chain import Head
from hal.rest.audit import AuditLog
from hal.rest.server.connections import Connections, Strangers
from hal.rest.server.http_connection import HttpConnection
from hal.rest.server.listeners import Listener
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import LINES, LINES_PER_S, Bucket
from hal.runtime.privacy import write_private
from hal.runtime.sockets import bind_public, bind_unix
from hal.runtime.tcp_sockets import bind_tcp
from hal.wire.address import format_address

TICK_S = 1.0
ANCHOR_MS = 60_000
"""Between two checkpoints of the audit log's hash chain."""
SHUTDOWN_S = 3.0
"""How long answers under way may take when the daemon stops."""


class Ports(Struct, frozen=True, kw_only=True):
    """Where a daemon is reached beside its private socket."""

    public: Path | None = None
    """A Unix socket for other users of the machine."""
    steps: Path | None = None
    """Another one, for steps that run as other users."""
    tcp: tuple[str, int] | None = None
    tls: ssl.SSLContext | None = None
    """For TCP; None: nothing is encrypted there."""
    tcp_file: Path | None = None
    """Gets the address at which TCP was bound, for as long as it is served."""
    how_to_change: str = "choose another port"
    """Hint where the port is taken."""


class HttpServer:
    """A guarded application on its sockets."""

    def __init__(
        self,
        guard: ASGIApp,
        runtime: Runtime,
        audit: AuditLog,
        ports: Ports,
        *,
        at_once: int,
        instance: Callable[[], str],
        anchored: Callable[[Head], Awaitable[None]] | None = None,
    ) -> None:
        """
        Args:
            guard: a `Guard`, or what a daemon has put around it.
            audit: closed with the server.
            anchored: keeps each head of the audit log elsewhere, too.
            at_once: requests that one user may have under way.
            instance: names this HAL, whose steps are to be recognised when they connect; gives '' while that is not
                known.
        """
        self.app = guard
        self._runtime = runtime
        self._audit = audit
        self._ports = ports
        self._instance = instance
        self._anchored = anchored
        self._anchoring: asyncio.Task[None] | None = None
        self._uvicorn = uvicorn.Config(
            self.app,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # nobody is before us: where a request comes from is what the kernel says
        )
        self._uvicorn.load()
        # Whoever sends no HTTP is answered; a line for each on the process's own output would have no bound.
        self._faults = _FaultBudget(runtime)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").addFilter(self._faults)
        self._state = ServerState()
        self._listeners: list[Listener] = []
        loop = asyncio.get_running_loop()
        self.connections = Connections(
            runtime.log,
            descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            at_once=at_once,
            now_s=loop.time,
        )
        self._clock: asyncio.TimerHandle | None = None

    async def start(self, path: Path) -> None:
        """Listen: on all sockets, or on none.

        Args:
            path: of the private socket.
        Raises:
            ConflictError: another process serves that socket or port.
            DeniedError, NotFoundError: the public socket cannot be where it is wanted.
        """
        ports = self._ports
        self._forget_tcp()
        bound: list[tuple[socket.socket, Strangers | None, ssl.SSLContext | None]] = []
        steps = Strangers()
        try:
            if ports.public is not None:
                bound.append((bind_public(ports.public), Strangers(), None))
            if ports.steps is not None:
                bound.append((bind_public(ports.steps), steps, None))
            if ports.tcp is not None:
                port = Strangers()
                at_port = await self._bind_tcp(*ports.tcp)
                bound += [(sock, port, ports.tls) for sock in at_port]
                if ports.tcp_file is not None:
                    where = format_address(ports.tcp[0], at_port[0].getsockname()[1])
                    write_private(ports.tcp_file, where + "\n")
            # The last, for whoever waits for this daemon looks here.
            bound.append((bind_unix(path), None, None))
        except BaseException:
            self._forget_tcp()
            for sock, _, _ in bound:
                sock.close()
            raise
        make = partial(HttpConnection, self._uvicorn, self._state, self.connections)
        for sock, strangers, tls in bound:
            listener = Listener(
                sock,
                make,
                self.connections,
                self._instance,
                strangers=strangers,
                tls=tls,
                for_steps=strangers is steps,
            )
            self._listeners.append(listener)
            listener.serve()
        if ports.tcp is not None:
            host, number = ports.tcp
            self._runtime.log.info("listening on TCP", host=host, port=number, tls=ports.tls is not None)
        self._tick()
        self._anchoring = self._runtime.spawn_task(self._anchor(), "audit-anchor")

    async def _anchor(self) -> None:
        """Close the chain of the audit log from time to time, so that nobody cuts off its end unnoticed."""
        known = self._audit.head
        while True:
            await self._runtime.sleep(ANCHOR_MS)
            try:
                head = await self._audit.anchor(self._runtime)
                if self._anchored is not None and head != known:
                    await self._anchored(head)
            except HALError as error:  # too much waits for the disk, or the store cannot take it now
                self._runtime.log.warning("the head of the audit log was not kept", reason=str(error))
            else:
                known = head

    async def _bind_tcp(self, host: str, port: int) -> list[socket.socket]:
        try:
            return await bind_tcp(host, port)
        except OSError as error:
            raise ConflictError(
                f"{host}:{port} cannot be listened on: {error.strerror or error}", hint=self._ports.how_to_change
            ) from error

    def _forget_tcp(self) -> None:
        if self._ports.tcp_file is not None:
            self._ports.tcp_file.unlink(missing_ok=True)

    def _tick(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.connections.tick()

    async def stop(self) -> None:
        """Accept nothing more; give answers under way a moment."""
        self._forget_tcp()
        for listener in self._listeners:
            listener.close()
        if self._clock is not None:
            self._clock.cancel()
        if self._anchoring is not None:
            self._anchoring.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                while self._state.tasks:
                    await asyncio.wait(list(self._state.tasks))
        for task in list(self._state.tasks):
            task.cancel()
        logging.getLogger("uvicorn.error").removeFilter(self._faults)
        self._audit.close()


class _FaultBudget(logging.Filter):
    """Lets so many faults of answers that had begun into the log, each with its trace."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._bucket = Bucket(runtime.monotonic_ms, LINES, LINES_PER_S)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether there is room for one more."""
        return self._bucket.take()
