"""The HTTP server: uvicorn's protocol on HAL's own sockets, in the controller's loop.

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
from functools import partial
from pathlib import Path

import uvicorn
from litestar.types import ASGIApp
from uvicorn.server import ServerState

from hal.core.model import ConflictError
from hal.daemons.controller.access.audit import AuditLog
from hal.daemons.controller.access.authentication import Authenticator, LocalPeer
from hal.daemons.controller.access.forwarded_identity import ForwardedIdentity
from hal.daemons.controller.access.limiter import Limiter
from hal.daemons.controller.api.follower.follower_app import FollowerApp
from hal.daemons.controller.api.routes import litestar
from hal.daemons.controller.api.server.connections import Connections, Strangers
from hal.daemons.controller.api.server.guard import Guard
from hal.daemons.controller.api.server.http_connection import HttpConnection
from hal.daemons.controller.api.server.listeners import Listener, user_name
from hal.daemons.controller.api.table import ENDPOINTS
from hal.daemons.controller.config import Config
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import LINES, LINES_PER_S, Bucket
from hal.runtime.privacy import write_private
from hal.runtime.sockets import bind_public, bind_unix
from hal.runtime.syslog import Syslog
from hal.runtime.tcp_sockets import bind_tcp
from hal.wire.address import format_address

TICK_S = 1.0
SHUTDOWN_S = 3.0
"""How long answers under way may take when the controller stops."""


def guarded(
    app: ASGIApp,
    runtime: Runtime,
    authenticator: Authenticator,
    audit: AuditLog,
    config: Config,
    forwarded: ForwardedIdentity | None,
) -> Guard:
    """The application behind its guard; `forwarded`: as for `Guard`."""
    access = config.access
    return Guard(
        app,
        authenticator=authenticator,
        limits=Limiter(per_s=access.requests_per_s, burst=access.burst, at_once=access.at_once),
        audit=audit,
        runtime=runtime,
        max_request_bytes=config.max_request_bytes,
        max_user_request_bytes=config.max_user_request_bytes,
        forwarded=forwarded,
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
        authenticator = Authenticator(
            config.access,
            api.tokens.book,
            owner=LocalPeer(owner_uid, user_name(owner_uid), True),
            home_token=runtime.paths.token_text() if config.tcp else "",
            now_ms=runtime.now_ms,
            used=api.tokens.note_use,
            steps=api.tokens.step_credentials,
        )
        self._steps = api.tokens.step_credentials
        self._audit = AuditLog(
            runtime.paths.log_file("audit"),
            max_bytes=config.audit.max_bytes,
            days=config.audit.days,
            syslog=Syslog("hal-audit") if config.audit.syslog else None,
        )
        app: ASGIApp
        forwarded: ForwardedIdentity | None = None
        if isinstance(api, FollowerApp):
            app = api
        else:
            app = litestar(ENDPOINTS, api, api.jobs, runtime)
            api.nodes.report_lies_to(self._node_lied)
            forwarded = ForwardedIdentity(
                api.status.follower_hashes,
                book=api.tokens.book,
                used=api.tokens.note_use,
                now_ms=runtime.now_ms,
                monotonic_ms=runtime.monotonic_ms,
                steps=api.tokens.step_credentials,
            )
        self.app = guarded(app, runtime, authenticator, self._audit, config, forwarded)
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
            at_once=config.access.at_once,
            now_s=loop.time,
        )
        self._clock: asyncio.TimerHandle | None = None

    def _node_lied(self, node: str, reason: str) -> None:
        """What a node was closed for."""
        self._audit.write(
            at_ms=self._runtime.now_ms(),
            user=f"node:{node}",
            role="node",
            peer="",
            token="",
            method="QUARANTINE",
            path=f"/v1/nodes/{node}",
            status=403,
            refused="lied",
            targets=[reason],
        )

    async def start(self, path: Path) -> None:
        """Listen: on all sockets, or on none.

        Raises:
            ConflictError: another process serves that socket or port.
            DeniedError, NotFoundError: the public socket cannot be where it is wanted.
        """
        self._runtime.paths.tcp_file.unlink(missing_ok=True)
        bound: list[tuple[socket.socket, Strangers | None, ssl.SSLContext | None]] = []
        try:
            if self._config.access.socket:
                bound.append((bind_public(Path(self._config.access.socket)), Strangers(), None))
            if self._config.tcp is not None:
                port = Strangers()
                at_port = await self._bind_tcp(*self._config.tcp)
                bound += [(sock, port, self._tls) for sock in at_port]
                where = format_address(self._config.tcp[0], at_port[0].getsockname()[1])
                write_private(self._runtime.paths.tcp_file, where + "\n")
            # The last, for whoever waits for this controller looks here.
            bound.append((bind_unix(path), None, None))
        except BaseException:
            self._runtime.paths.tcp_file.unlink(missing_ok=True)
            for sock, _, _ in bound:
                sock.close()
            raise
        make = partial(HttpConnection, self._uvicorn, self._state, self.connections)
        for sock, strangers, tls in bound:
            listener = Listener(sock, make, self.connections, self._steps, strangers=strangers, tls=tls)
            self._listeners.append(listener)
            listener.serve()
        if self._config.tcp is not None:
            host, number = self._config.tcp
            self._runtime.log.info("listening on TCP", host=host, port=number, tls=self._tls is not None)
        self._tick()

    async def _bind_tcp(self, host: str, port: int) -> list[socket.socket]:
        try:
            return await bind_tcp(host, port)
        except OSError as error:
            raise ConflictError(
                f"{host}:{port} cannot be listened on: {error.strerror or error}",
                hint="choose another port in hal.toml (server.tcp) or with --listen",
            ) from error

    def _tick(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.connections.tick()

    async def stop(self) -> None:
        """Accept nothing more; give answers under way a moment."""
        self._runtime.paths.tcp_file.unlink(missing_ok=True)
        for listener in self._listeners:
            listener.close()
        if self._clock is not None:
            self._clock.cancel()
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
