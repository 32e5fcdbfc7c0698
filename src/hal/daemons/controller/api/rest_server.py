"""REST of a controller, leading or following: its table of endpoints, its callers and its settings, on a server."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from litestar.types import ASGIApp

from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.forwarded_identity import ForwardedIdentity
from hal.daemons.controller.access.group_cache import GroupCache
from hal.daemons.controller.api.follower.follower_app import FollowerApp
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import PathOwnership
from hal.daemons.controller.api.table import DELEGATED, ENDPOINTS, FOR_NARROWED
from hal.daemons.controller.api.version import API_VERSION
from hal.daemons.controller.config import Config
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.audit import AuditLog
from hal.rest.callers import LocalPeer
from hal.rest.limits import Limits
from hal.rest.routes import Routes
from hal.rest.server.guard import Guard
from hal.rest.server.http_server import HttpServer, Ports
from hal.rest.server.listeners import user_name
from hal.runtime.interface import Runtime
from hal.runtime.step_users import Serving
from hal.runtime.syslog import Syslog
from hal.runtime.system_groups import groups_of

ROUTES: Final = Routes(ENDPOINTS, call_type=Call, for_narrowed=FOR_NARROWED)


class RestServer(HttpServer):
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
        steps = api.tokens.step_credentials
        audit = AuditLog(
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
            check_path = PathOwnership(api.jobs, api.delegations, DELEGATED).check
            app = ROUTES.serve(api, runtime, check_path=check_path)
            api.nodes.report_lies_to(self._node_lied)
            forwarded = ForwardedIdentity(
                api.status.follower_hashes,
                book=api.tokens.book,
                used=api.tokens.note_use,
                now_ms=runtime.now_ms,
                monotonic_ms=runtime.monotonic_ms,
                steps=steps,
            )
        groups = GroupCache(runtime, groups_of)
        authenticator = Authenticator(
            config.access,
            api.tokens.book,
            owner=LocalPeer(owner_uid, user_name(owner_uid), True),
            home_token=runtime.paths.token_text() if config.tcp else "",
            now_ms=runtime.now_ms,
            used=api.tokens.note_use,
            steps=steps,
            forwarded=forwarded,
            groups=groups,
        )
        api.metrics.name_operations(ENDPOINTS)
        guard = Guard(
            app,
            callers=authenticator,
            limits=limits_of(config),
            audit=audit,
            runtime=runtime,
            rows=ENDPOINTS,
            versions=(API_VERSION,),
            on_answer=api.metrics.count_answer,
        )
        ports = Ports(
            public=Path(config.access.socket) if config.access.socket else None,
            steps=runtime.paths.steps_socket() if config.serving is Serving.EACH_AS_ITSELF else None,
            tcp=config.tcp,
            tls=tls,
            tcp_file=runtime.paths.tcp_file,
            how_to_change="choose another port in hal.toml (server.tcp) or with --listen",
        )
        self._heads = api.audit_heads if isinstance(api, ControllerApi) else None
        super().__init__(
            guard,
            runtime,
            audit,
            ports,
            at_once=config.access.at_once,
            instance=lambda: steps.instance,
            anchored=self._heads.keep if self._heads is not None else None,
        )

    async def start(self, path: Path) -> None:
        """As `HttpServer.start`; the log of one that begins to lead says first where those of the others end.

        Raises: as `HttpServer.start`.
        """
        if self._heads is not None and (elsewhere := await self._heads.elsewhere()):
            await self._audit.anchor(self._runtime, elsewhere)
        await super().start(path)

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


def limits_of(config: Config) -> Limits:
    """How much anybody may ask of REST."""
    access = config.access
    return Limits(
        requests_per_s=access.requests_per_s,
        burst=access.burst,
        at_once=access.at_once,
        max_request_bytes=config.max_request_bytes,
        max_user_request_bytes=config.max_user_request_bytes,
        too_large_hint="submit fewer jobs at once, or alike ones as an array; "
        "hal.toml: server.max_request_bytes, server.max_user_request_bytes",
    )
