"""The call that looks services up, and what it answers; apart from `calls`: few programs need it."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import field

from hal.client.rest.calls import Call, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request


class EndpointInfo(View, frozen=True, kw_only=True):
    """A task of a service that is ready."""

    job: str
    task: int
    node: str = ""
    host: str = ""
    """Where its node is reached."""
    ports: dict[str, int] = field(default_factory=dict)
    """By name."""
    since_ms: int | None = None
    """Since when it is ready."""

    def address(self, port: str) -> str:
        """`HOST:PORT` of that port.

        Raises:
            KeyError: it has no port of that name.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.ports[port]}"


class ServiceInfo(View, frozen=True, kw_only=True):
    """The live jobs of one user and one name that are services."""

    name: str
    user: str = ""
    jobs: tuple[str, ...] = ()
    """By id; several while one replaces another."""
    tasks: int = 0
    ready: int = 0
    endpoints: tuple[EndpointInfo, ...] = ()
    """The first 1,000 that are ready, by job and task."""
    more: bool = False
    """There are more."""


def service(name: str, user: str = "") -> Call[ServiceInfo]:
    """GET /v1/services/{name}"""
    query = {"user": user} if user else {}
    return Call(Request("GET", f"/v1/services/{quote(name, safe='')}", query=query), reader(ServiceInfo))
