"""The HTTP server: uvicorn's protocol on HAL's own sockets, in the controller's loop.

A Unix socket (mode 0600 in a private directory) whose peers the kernel names: same user or root, checked when they
connect. Another one for other users of the machine, and TCP, only on request. uvicorn's own server class is not used:
signals and the loop belong to the runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar
from litestar.config.response_cache import ResponseCacheConfig
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp
from uvicorn.server import ServerState

from hal.core.model import ConflictError, DeniedError, HALError
from hal.daemons.controller.access.audit import AuditLog
from hal.daemons.controller.access.door import Door, LocalPeer
from hal.daemons.controller.access.limiter import Limiter
from hal.daemons.controller.access.passed_on import PassedOn
from hal.daemons.controller.access.steps import StepDoor
from hal.daemons.controller.api.access_routes import access_routes
from hal.daemons.controller.api.bounded_head import BoundedHead
from hal.daemons.controller.api.follower import FollowerApp
from hal.daemons.controller.api.guard import Guard
from hal.daemons.controller.api.joining_routes import joining_routes
from hal.daemons.controller.api.policy_routes import policy_routes
from hal.daemons.controller.api.problems import OnFault, on_hal_error, on_http_error, problem_of
from hal.daemons.controller.api.rights import Rights
from hal.daemons.controller.api.routes import job_routes, other_routes
from hal.daemons.controller.api.streams import stream_routes
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import ControllerApi
from hal.runtime.ancestry import attempt_around
from hal.runtime.interface import Runtime
from hal.runtime.privacy import write_private
from hal.runtime.sockets import bind_public, bind_unix, may_speak, peer_of
from hal.wire.address import written

BACKLOG = 1_024
KEEP_ALIVE_S = 75
MAX_CONCURRENT = 20_000
"""Connections of REST."""
HANDSHAKE_S = 10.0
"""How long a TLS handshake may take."""
SHUTDOWN_S = 3.0
"""How long answers under way may take when the controller stops."""


def application(api: ControllerApi, runtime: Runtime, audit: AuditLog) -> Litestar:
    """All routes; who may come in at all is the guard's matter."""
    return Litestar(
        route_handlers=[
            *job_routes(api),
            *other_routes(api),
            *policy_routes(api),
            *joining_routes(api),
            *stream_routes(api),
            *access_routes(api, audit, runtime),
        ],
        before_request=Rights(api).enforce,
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


def guarded(
    app: ASGIApp, runtime: Runtime, door: Door, audit: AuditLog, config: Config, passed_on: PassedOn | None
) -> Guard:
    """The application behind its guard; `passed_on`: as for `Guard`."""
    access = config.access
    return Guard(
        app,
        door=door,
        limits=Limiter(per_s=access.requests_per_s, burst=access.burst, at_once=access.at_once),
        audit=audit,
        runtime=runtime,
        max_request_bytes=config.max_request_bytes,
        passed_on=passed_on,
    )


class RestServer:
    """REST on its sockets."""

    def __init__(
        self,
        api: ControllerApi | FollowerApp,
        runtime: Runtime,
        config: Config,
        *,
        owner_uid: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """
        Args:
            tls: for TCP; None: nothing is encrypted there.
        """
        self._tls = tls
        self._runtime = runtime
        self._config = config
        door = Door(
            config.access,
            api.token_book,
            owner=LocalPeer(owner_uid, user_name(owner_uid), True),
            home_token=runtime.paths.token_text() if config.tcp else "",
            now_ms=runtime.now_ms,
            used=api.token_used,
            steps=api.step_door,
        )
        self._steps = api.step_door
        self._audit = AuditLog(runtime.paths.log_file("audit"))
        app: ASGIApp
        passed_on: PassedOn | None = None
        if isinstance(api, FollowerApp):
            app = api
        else:
            app = application(api, runtime, self._audit)
            passed_on = PassedOn(
                api.follower_hashes,
                book=api.token_book,
                used=api.token_used,
                now_ms=runtime.now_ms,
                monotonic_ms=runtime.monotonic_ms,
                steps=api.step_door,
            )
        self.app = guarded(app, runtime, door, self._audit, config, passed_on)
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
        self._runtime.paths.tcp_file.unlink(missing_ok=True)
        await self._serve_unix(bind_unix(path), private=True)
        if self._config.access.socket:
            await self._serve_unix(bind_public(Path(self._config.access.socket)), private=False)
        if self._config.tcp is not None:
            host, port = self._config.tcp
            try:
                server = await loop.create_server(
                    partial(BoundedHead, self._uvicorn, self._state, {}),
                    host,
                    port,
                    backlog=BACKLOG,
                    ssl=self._tls,
                    ssl_handshake_timeout=HANDSHAKE_S if self._tls is not None else None,
                )
            except (OSError, socket.gaierror) as error:
                raise ConflictError(
                    f"{host}:{port} cannot be listened on: {error.strerror or error}",
                    hint="choose another port in hal.toml (server.tcp) or with --listen",
                ) from error
            self._servers.append(server)
            write_private(self._runtime.paths.tcp_file, written(host, server.sockets[0].getsockname()[1]) + "\n")
            self._runtime.log.info("listening on TCP", host=host, port=port, tls=self._tls is not None)

    async def _serve_unix(self, unix: socket.socket, *, private: bool) -> None:
        make = partial(_Local, self._uvicorn, self._state, private=private, steps=self._steps)
        self._servers.append(await asyncio.get_running_loop().create_unix_server(make, sock=unix, backlog=BACKLOG))

    async def stop(self) -> None:
        """Accept nothing more; give answers under way a moment."""
        self._runtime.paths.tcp_file.unlink(missing_ok=True)
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
        self._audit.close()


class _Local(BoundedHead):
    """A connection on a Unix socket: its peer is asked of the kernel before a byte is read."""

    def __init__(self, config: uvicorn.Config, state: ServerState, *, private: bool, steps: StepDoor) -> None:
        super().__init__(config, state, {})
        self._steps = steps
        self._private = private

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket").fileno())
        if self._private and not may_speak(peer):
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
        instance = self._steps.instance
        # Steps run as this user, or were started by root: nobody else's processes can be any.
        attempt = attempt_around(peer.pid, instance) if instance and may_speak(peer) else ""
        self.app_state: dict[str, Any] = {"peer": LocalPeer(peer.uid, user_name(peer.uid), self._private, attempt)}


def user_name(uid: int) -> str:
    """The name of a user id; the number itself where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
