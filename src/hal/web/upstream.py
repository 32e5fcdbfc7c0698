"""The services that the page shows: the controller, and the collector where there is one, with each session's token."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import read_endpoints
from hal.client.transport.async_http import AsyncConnections
from hal.client.transport.async_stream import AsyncStream
from hal.client.transport.exchange import Answer, Request
from hal.core.model import NotFoundError
from hal.web.sessions import Session

CONTROLLER: Final = "controller"
COLLECTOR: Final = "collector"
COLLECTOR_SOCKET: Final = "observability.sock"


class Services:
    """Where they are."""

    def __init__(self, address: Address, collector_url: str = "") -> None:
        """
        Args:
            address: of the controller.
            collector_url: of the collector; empty: its socket beside the controller's, where there is one.
        """
        self._address = address
        self._collector_url = collector_url
        self._collectors: dict[str, tuple[str, AsyncConnections]] = {}
        """Connections by session, and where to."""

    async def get(self, session: Session, service: str, target: str) -> Answer:
        """
        Raises:
            HALError: what it says, or that it does not answer.
        """
        return await self._connections(session, service).send(Request("GET", target))

    async def change(self, session: Session, service: str, method: str, target: str, body: bytes) -> Answer:
        """
        Args:
            method: `POST` or `DELETE`.
        Raises:
            HALError: what it says, or that it does not answer: whether it was done is then not known.
        """
        return await self._connections(session, service).send(Request(method, target, body=body, repeatable=False))

    async def stream(self, session: Session, service: str, target: str) -> AsyncStream:
        """
        Raises:
            HALError: what it says, or that it does not answer.
        """
        headers = {"Accept": "*/*"}
        return await self._connections(session, service).stream(Request("GET", target, headers=headers))

    def collector(self) -> str:
        """Where the collector answers now; '' for nowhere."""
        if self._collector_url:
            return self._collector_url
        home = self._address.home
        if home is None or (directory := home.known_socket_dir()) is None:
            return ""
        path = directory / COLLECTOR_SOCKET
        return f"unix://{path}" if path.exists() else ""

    def forget(self, session: Session) -> AsyncConnections | None:
        """The connections of a session that has ended, for closing."""
        _, connections = self._collectors.pop(session.id, ("", None))
        return connections

    def _connections(self, session: Session, service: str) -> AsyncConnections:
        """
        Raises:
            NotFoundError: there is no collector.
        """
        if service == CONTROLLER:
            return session.controller
        where = self.collector()
        if not where:
            raise NotFoundError("this HAL has no collector", hint="start one: hal up --with observability")
        at, connections = self._collectors.get(session.id, ("", None))
        if connections is None or at != where:
            connections = AsyncConnections(_address_of(session.address, where), reconnect_s=0.0)
            self._collectors[session.id] = (where, connections)
        return connections


def _address_of(controller: Address, where: str) -> Address:
    """The collector's address, with the token that the session shows the controller."""
    if where.startswith("unix://"):
        path = where.removeprefix("unix://")
        return replace(controller, home=None, socket_path=path, endpoints=(), by_token=bool(controller.token))
    return replace(controller, home=None, socket_path="", endpoints=read_endpoints(where), by_token=False)
