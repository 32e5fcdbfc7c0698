"""A daemon's HTTP put together: its own rows, callers whom the controller knows, limits, the audit log.

What every daemon answers beside its own rows: `GET /v1/openapi.json`, `GET /v1/whoami`, and `GET /v1/health` unless one
of its rows does.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from hal.core.model import HALError
from hal.rest.audit import AuditLog
from hal.rest.call import Call
from hal.rest.controller_callers import open_callers
from hal.rest.controller_client import ControllerClient
from hal.rest.dialling import UNIX
from hal.rest.endpoint import Endpoint
from hal.rest.enforcement import CheckPath
from hal.rest.limits import Limits
from hal.rest.openapi import About, describe, description_row
from hal.rest.rights import EVERYBODY
from hal.rest.routes import Routes
from hal.rest.server.guard import Guard
from hal.rest.server.http_server import HttpServer, Ports
from hal.rest.who import whoami_row
from hal.runtime.authority import authority_file
from hal.runtime.interface import Runtime

OpenPorts = Callable[[], Awaitable[Ports]]


class DaemonHealth(Struct, frozen=True, kw_only=True):
    """A daemon that answers."""

    status: str


async def get_health(api: object, call: Call) -> object:
    """It works as far as it answers; a daemon that knows more has a row of its own."""
    return DaemonHealth(status="ok")


HEALTH: Final = Endpoint(
    method="GET",
    path="/v1/health",
    handler=get_health,
    right=EVERYBODY,
    name="health",
    tag="service",
    summary="Show the daemon's health",
    result=DaemonHealth,
    for_job_tokens=True,
)


class Interface(Struct, frozen=True, kw_only=True):
    """All that a daemon answers, and what its document says of it; made by `interface_of`."""

    about: About
    rows: tuple[Endpoint, ...]

    def document(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return describe(self.about, self.rows)


def interface_of(about: About, rows: Sequence[Endpoint]) -> Interface:
    """These rows, and those that every daemon answers."""

    def made() -> Interface:
        return interface

    common = (
        HEALTH,
        whoami_row(lambda: made().rows, lambda _: ""),
        description_row(lambda: made().document()),
    )
    own = {row.operation for row in rows}
    interface = Interface(about=about, rows=(*rows, *(row for row in common if row.operation not in own)))
    return interface


async def serve(
    runtime: Runtime,
    interface: Interface,
    api: object,
    *,
    limits: Limits,
    ports: Ports | OpenPorts | None = None,
    controller: ControllerClient | None = None,
    check_path: CheckPath | None = None,
    unserved: Callable[[HALError], None] | None = None,
) -> HttpServer:
    """Serve on the socket `NAME.sock` beside the controller's, NAME being the process's. Waits until the controller
    answers; `stop` the server at the end.

    Args:
        api: what handlers are given to ask.
        ports: where else; a function is asked once the controller answers; None: nowhere.
        controller: says who callers are; None: the one of this home.
        check_path: as for `Rights.enforce`.
        unserved: is given the error if these ports cannot be served; then the private socket is served alone.
    Raises:
        ConflictError, DeniedError, NotFoundError: as `HttpServer.start`, and what `ports` raises.
    """
    home = runtime.paths
    if controller is None:
        controller = ControllerClient([f"{UNIX}{home.api_socket()}"], authority_file(home.authority))
    callers = await open_callers(runtime, controller, owner_uid=os.geteuid())
    audit = AuditLog(home.log_file(f"audit-{runtime.name}"))
    guard = Guard(
        Routes(interface.rows).serve(api, runtime, check_path=check_path),
        callers=callers,
        limits=limits,
        audit=audit,
        runtime=runtime,
        rows=interface.rows,
        versions=interface.about.versions,
    )
    instance = callers.instance
    path = home.socket_dir() / f"{runtime.name}.sock"

    def server_at(at: Ports) -> HttpServer:
        return HttpServer(guard, runtime, audit, at, at_once=limits.at_once, instance=lambda: instance)

    if ports is not None:
        try:
            server = server_at(ports if isinstance(ports, Ports) else await ports())
            await server.start(path)
            return server
        except HALError as error:
            if unserved is None:
                raise
            runtime.log.error("the network is not served", reason=str(error))
            unserved(error)
    server = server_at(Ports())
    await server.start(path)
    return server
