"""The HTTP server: uvicorn's protocol on HAL's own sockets, in the controller's loop.

A Unix socket (mode 0600 in a private directory) whose peers the kernel names: same user or root, checked when they
connect. TCP only on request. uvicorn's own server class is not used: signals and the loop belong to the runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import socket
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar
from litestar.config.response_cache import ResponseCacheConfig
from litestar.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hal.core.model import ConflictError, DeniedError, HALError
from hal.daemons.controller.api.guard import Guard
from hal.daemons.controller.api.policy_routes import policy_routes
from hal.daemons.controller.api.problems import OnFault, on_hal_error, on_http_error, problem_of
from hal.daemons.controller.api.routes import job_routes, other_routes
from hal.daemons.controller.api.streams import stream_routes
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import ControllerApi
from hal.runtime.interface import Runtime
from hal.runtime.sockets import bind_unix, may_speak, peer_of

BACKLOG = 1_024
KEEP_ALIVE_S = 75
MAX_CONCURRENT = 20_000
"""Connections of REST."""
SHUTDOWN_S = 3.0
"""How long answers under way may take when the controller stops."""


def create_app(api: ControllerApi, runtime: Runtime, *, owner: str, token: str, max_request_bytes: int) -> Guard:
    """The whole ASGI application."""
    app = Litestar(
        route_handlers=[
            *job_routes(api, runtime),
            *other_routes(api, runtime),
            *policy_routes(api, runtime),
            *stream_routes(api),
        ],
        exception_handlers={
            HALError: on_hal_error,
            HTTPException: on_http_error,
            Exception: OnFault(runtime.log),
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
        response_cache_config=ResponseCacheConfig(),
    )
    return Guard(app, owner=owner, token=token, max_request_bytes=max_request_bytes)


class RestServer:
    """REST on its sockets."""

    def __init__(self, api: ControllerApi, runtime: Runtime, config: Config, *, owner_uid: int) -> None:
        self._runtime = runtime
        self._config = config
        self._owner = user_name(owner_uid)
        token = runtime.paths.token_text() if config.tcp else ""
        app = create_app(api, runtime, owner=self._owner, token=token, max_request_bytes=config.max_request_bytes)
        self._uvicorn = uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=MAX_CONCURRENT,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._uvicorn.load()
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def start(self, path: Path) -> None:
        """Listen.

        Raises:
            ConflictError: another process serves that socket or port.
        """
        loop = asyncio.get_running_loop()
        unix = bind_unix(path)
        self._servers.append(
            await loop.create_unix_server(partial(_Local, self._uvicorn, self._state), sock=unix, backlog=BACKLOG)
        )
        if self._config.tcp is not None:
            host, port = self._config.tcp
            try:
                server = await loop.create_server(
                    partial(HttpToolsProtocol, self._uvicorn, self._state, {}), host, port, backlog=BACKLOG
                )
            except (OSError, socket.gaierror) as error:
                raise ConflictError(
                    f"{host}:{port} cannot be listened on: {error.strerror or error}",
                    hint="choose another port in hal.toml (server.tcp) or with --listen",
                ) from error
            self._servers.append(server)
            self._runtime.log.info("listening on TCP", host=host, port=port)

    async def stop(self) -> None:
        """Accept nothing more; give answers under way a moment."""
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                while self._state.tasks:
                    await asyncio.wait(list(self._state.tasks))
        for task in list(self._state.tasks):
            task.cancel()


class _Local(HttpToolsProtocol):
    """A connection on the Unix socket: its peer is asked of the kernel before a byte is read."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket").fileno())
        if not may_speak(peer):
            problem = problem_of(
                DeniedError(f"user id {peer.uid} may not speak to this HAL", hint="it belongs to another user")
            )
            body = msgspec.json.encode(problem)
            head = (
                f"HTTP/1.1 {problem.status} Forbidden\r\nContent-Type: application/problem+json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            transport.write(head.encode() + body)
            transport.close()
            return
        self.app_state: dict[str, Any] = {"peer_user": user_name(peer.uid)}


def user_name(uid: int) -> str:
    """The name of a user id; the number itself where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
