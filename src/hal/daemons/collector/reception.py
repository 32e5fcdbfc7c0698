"""Where the collector listens for telemetry, and how it lets itself be found: two parts, this host's and the network's.

Connections and counts outlive a failure to listen: a part is run again, as any other. The certificate for the network
is asked of the controller with a join token that the collector makes itself, at each start; it is renewed in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hal.core.model import HALError
from hal.planes.observability.telemetry import Callback, Telemetry
from hal.rest.controller_client import ControllerClient
from hal.rest.dialling import UNIX
from hal.runtime.authority import Identity
from hal.runtime.interface import Connection, Listener, Runtime, TcpAddress, UnixAddress
from hal.runtime.joining import join_any
from hal.runtime.line_budget import BudgetedLog
from hal.runtime.machine import host_name
from hal.runtime.role_certificate import RoleCertificate
from hal.wire.address import format_address, parse_address
from hal.wire.frames.telemetry import TELEMETRY
from hal.wire.join_token import read_join_token
from hal.wire.roles import Role

PLANE: Final = "observability"
WIRE_SOCKET: Final = "observability-wire.sock"
REST_SOCKET: Final = "observability.sock"
ANNOUNCE_MS: Final = 20_000
"""How often it announces itself; the controller keeps it for a minute."""
RETRY_MS: Final = 2_000
ANY_HOSTS: Final = ("0.0.0.0", "::")


class NewToken(msgspec.Struct, frozen=True):
    """What is read of a new join token."""

    token: str
    wire: str


class Reception:
    """Listens on this host while it runs, and announces the collector at the controller."""

    name: Final = "telemetry"

    def __init__(self, runtime: Runtime, controller: ControllerClient | None = None) -> None:
        """
        Args:
            controller: where it announces itself, as an operator; None: nowhere.
        """
        self._runtime, self._controller = runtime, controller
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        self.telemetry = Telemetry(runtime)
        self.network_address = ""
        """`HOST:PORT` where other machines reach it now."""
        self._rest_url = ""
        """Where people of other machines reach its REST; empty: nowhere."""
        self.version = ""
        self._announced = False

    def received(self, kind: str, callback: Callback) -> None:
        """See `Telemetry.received`."""
        self.telemetry.received(kind, callback)

    async def run(self) -> None:
        """See `Part`."""
        path = self._runtime.paths.socket_dir() / WIRE_SOCKET
        listener = await self._runtime.listen(UnixAddress(path), self.telemetry.serve, conversation=TELEMETRY)
        try:
            while not self._runtime.stopping.is_set():
                await self._runtime.sleep(await self._announce())
        finally:
            await listener.close()

    def serve_rest_at(self, url: str) -> None:
        """Announce, from now on, that REST is served there."""
        self._rest_url = url
        self._runtime.spawn_task(self._announce(), "announce")

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            **self.telemetry.health(),
            "announced": int(self._announced),
            "network": self.network_address,
            "rest": self._rest_url,
        }

    async def close(self) -> None:
        """See `Part`: agents are told that nobody is here any more."""
        if self._controller is not None and self._announced:
            try:
                await self._controller.ask("DELETE", f"/v1/planes/{PLANE}")
            except HALError:
                return  # it expires

    async def _announce(self) -> int:
        """Announce it; returns how long the next time may wait."""
        if self._controller is None:
            return ANNOUNCE_MS
        sockets = self._runtime.paths.socket_dir()
        wire = [f"{UNIX}{sockets / WIRE_SOCKET}", *([self.network_address] if self.network_address else [])]
        rest = [f"{UNIX}{sockets / REST_SOCKET}", *([self._rest_url] if self._rest_url else [])]
        body = {"rest": rest, "wire": wire, "version": self.version}
        try:
            await self._controller.ask("PUT", f"/v1/planes/{PLANE}", body=msgspec.json.encode(body))
        except HALError as error:
            self._announced = False
            self._log.warning("the collector could not announce itself", reason=str(error))
            return RETRY_MS
        self._announced = True
        return ANNOUNCE_MS


class NetworkReception:
    """Listens for agents of other machines while it runs: TLS, with certificates of this HAL."""

    name: Final = "telemetry-network"

    def __init__(
        self, runtime: Runtime, controller: ControllerClient, reception: Reception, listen: str, address: str
    ) -> None:
        """
        Args:
            listen: `HOST:PORT`.
            address: name under which other machines reach this one; '': its host name.
        """
        self._runtime, self._controller, self._reception = runtime, controller, reception
        self._listen, self._address = listen, address

    async def run(self) -> None:
        """See `Part`."""
        runtime = self._runtime
        identity = Identity(runtime.paths.root / PLANE / "identity")
        controller = await self._join(identity)
        host, port = parse_address(self._listen, "observability.wire")
        held = RoleCertificate(runtime, identity, [controller])

        async def serve(connection: Connection) -> None:
            held.watch(connection)
            await self._reception.telemetry.serve(connection)

        listener: Listener | None = None
        try:
            listener = await runtime.listen(TcpAddress(host, port), serve, identity.credentials, conversation=TELEMETRY)
            held.serve_with(listener)
            reached = self._address or (host_name() if host in ANY_HOSTS else host)
            self._reception.network_address = format_address(reached, port)
            runtime.log.info("listening for telemetry", address=self._reception.network_address)
            await runtime.stopping.wait()
        finally:
            self._reception.network_address = ""
            held.stop()
            if listener is not None:
                await listener.close()

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {"address": self._reception.network_address}

    async def close(self) -> None:
        """See `Part`: it keeps nothing open."""

    async def _join(self, identity: Identity) -> TcpAddress:
        """Get a certificate; returns where the controller is asked about others.

        Raises:
            HALError: the controller does not serve other machines, or does not answer.
        """
        asked = {"role": Role.SERVICE.value, "name": PLANE, "expires_in": "5m"}
        answer = await self._controller.ask("POST", "/v1/tokens", body=msgspec.json.encode(asked))
        made = msgspec.json.decode(answer, type=NewToken)
        host, port = parse_address(made.wire)
        controller = TcpAddress("127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host, port)
        await join_any(self._runtime, identity, PLANE, read_join_token(made.token), [controller], Role.SERVICE)
        return controller
