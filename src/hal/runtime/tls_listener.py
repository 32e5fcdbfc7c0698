"""The real TLS listener and client connections: frames over TCP.

Connections are accepted one by one, so that those without a certificate are counted from their first byte: at most
`MAX_STRANGERS` at once, each for `STRANGER_MS`; the oldest is closed to make room. A failed handshake causes a log line
(one per minute and host) and nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from typing import Any, Final, Generic

from hal.core.model.errors import ConflictError, DeniedError, UnreachableError
from hal.runtime.ends import E, MakeEnd
from hal.runtime.interface import MAX_CONNECTIONS, Credentials, Logger, TcpAddress
from hal.runtime.line_budget import BudgetedLogs
from hal.runtime.tcp_sockets import bind_tcp
from hal.runtime.tls import certified_name, client_context, dial_error, load, server_context
from hal.runtime.unix_listener import STRANGERS, ServeTask, monotonic_ms, report_fault, source_of
from hal.wire.roles import Role, dialler_refusal, host_name, is_stranger, listener_refusal
from hal.wire.strangers import HANDSHAKE_MS, MAX_STRANGERS, STRANGER_GRACE_MS, STRANGER_MS
from hal.wire.transport_end import TransportEnd

ACCEPT_PAUSE_S: Final = 0.2
"""Pause before the next accept, after one failed for lack of descriptors."""
UNANSWERED_MS: Final = 30_000
"""What a broker has sent, and is not acknowledged for so long, ends the connection."""
COMPLAINT_S: Final = 60.0
"""Minimum time between two log lines about failed connections of one host."""
MAX_COMPLAINTS: Final = 1_000
"""Hosts that are remembered for that."""


class TlsListener(Generic[E]):
    """One served port; created by `RealRuntime.listen`."""

    def __init__(
        self,
        address: TcpAddress,
        credentials: Credentials,
        serve: ServeTask[E],
        log: Logger,
        make: MakeEnd[E],
        role: Role,
        *,
        joins: bool,
    ) -> None:
        """
        Args:
            role: of this process: it decides who is served.
            joins: as for `dialler_refusal`.
        """
        self._joins = joins
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._credentials = credentials
        self._context = server_context(credentials)
        self._serve = serve
        self._make = make
        self._role = role
        self._logs = BudgetedLogs(log, monotonic_ms)
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._accepted = 0
        self._open: dict[E, None] = {}
        self._strangers: dict[int, _Stranger] = {}
        self._freed = asyncio.Event()
        self._complaints: dict[str, float] = {}

    @property
    def address(self) -> TcpAddress:
        """The requested address; with the assigned port if the requested one was 0."""
        return self._address

    @property
    def connections(self) -> int:
        return len(self._open)

    @property
    def strangers(self) -> int:
        """Connections that have not presented a certificate."""
        return len(self._strangers)

    async def start(self) -> None:
        """Start listening.

        Raises:
            ConflictError: the port is taken, or the host is not an address of this machine.
        """
        host, port = self._address
        try:
            self._sockets = await bind_tcp(host, port)
        except OSError as error:
            raise ConflictError(
                f"{host}:{port} cannot be bound: {error.strerror or error}",
                hint="choose another address in hal.toml (server.wire)",
            ) from error
        self._address = TcpAddress(host, self._sockets[0].getsockname()[1])
        self._accepting = [self._loop.create_task(self._accept(sock)) for sock in self._sockets]

    def reload_credentials(self) -> None:
        """Read the credentials again."""
        load(self._context, self._credentials)

    async def close(self) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for sock in self._sockets:
            sock.close()
        for stranger in list(self._strangers.values()):
            stranger.drop("this side stops serving")
        for connection in list(self._open):
            connection.close("this side stops serving")
        for connection in list(self._open):
            await connection.wait_closed()

    # ── accepting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            await self._room()
            try:
                sock, remote = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                self._complain("", "a connection could not be accepted", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._accepted += 1
            number = self._accepted
            stranger = self._strangers[number] = _Stranger(self._loop.time())
            stranger.task = self._loop.create_task(self._handshake(sock, str(remote[0]), number, stranger))

    async def _room(self) -> None:
        """Wait until one more stranger may connect."""
        while len(self._strangers) >= MAX_STRANGERS:
            number, oldest = next(iter(self._strangers.items()))
            left_s = oldest.since_s + STRANGER_GRACE_MS / 1000 - self._loop.time()
            if left_s <= 0:
                self._forget(number)
                oldest.drop("others are connecting, and it has presented no certificate")
                return
            self._freed.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._freed.wait()
            except TimeoutError:
                continue

    async def _handshake(self, sock: socket.socket, host: str, number: int, stranger: _Stranger) -> None:
        def made() -> E:
            return self._make(
                f"{self._address.host}:{self._address.port}#{number} from {host}",
                on_open=lambda connection: self._opened(connection, host, number, stranger),
                on_closed=lambda connection: self._closed(connection, number),
                on_fault=lambda connection, reason: report_fault(
                    self._logs.of(source_of(connection)), connection, reason
                ),
            )

        try:
            keep_alive(sock)
            if self._role is Role.BROKER:
                end_unanswered(sock)
            await self._loop.connect_accepted_socket(
                made, sock, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_MS / 1000
            )
        except OSError as error:
            self._forget(number)
            sock.close()
            self._complain(host, "refused a connection: its TLS handshake failed", error)
        except asyncio.CancelledError:
            self._forget(number)
            sock.close()

    def _opened(self, connection: E, host: str, number: int, stranger: _Stranger) -> None:
        connection.remote = host.partition("%")[0]
        connection.certified = certified_name(peer_certificate(connection))
        role = None if connection.certified is None else connection.certified.role
        if connection.certified is None or (self._joins and is_stranger(self._role, role)):
            stranger.connection = connection
            left_s = stranger.since_s + STRANGER_MS / 1000 - self._loop.time()
            stranger.timer = self._loop.call_later(left_s, stranger.drop, "it did not join, or renew, in time")
        else:
            self._forget(number)
        log = self._logs.of(source_of(connection))
        refusal = dialler_refusal(self._role, role, joins=self._joins)
        if refusal:
            log.warning("refused a connection", connection=connection.label, reason=refusal)
            connection.refuse("denied", refusal)
        elif len(self._open) >= MAX_CONNECTIONS:
            log.warning("refused a connection", connection=connection.label, open=len(self._open))
            connection.refuse("overloaded", f"{len(self._open)} connections are already open")
        else:
            self._open[connection] = None
            self._serve(connection)

    def _closed(self, connection: E, number: int) -> None:
        self._open.pop(connection, None)
        self._forget(number)

    def _forget(self, number: int) -> None:
        stranger = self._strangers.pop(number, None)
        if stranger is not None:
            if stranger.timer is not None:
                stranger.timer.cancel()
            self._freed.set()

    def _complain(self, host: str, what: str, error: OSError) -> None:
        now_s = self._loop.time()
        if now_s < self._complaints.get(host, 0.0):
            return
        if len(self._complaints) >= MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints[host] = now_s + COMPLAINT_S
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        self._logs.of(STRANGERS).warning(what, peer=host, reason=reason or str(error) or type(error).__name__)


class _Stranger:
    """An accepted connection that has not presented a certificate."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.task: asyncio.Task[None] | None = None
        self.connection: TransportEnd | None = None
        self.timer: asyncio.TimerHandle | None = None

    def drop(self, reason: str) -> None:
        """Close it at once."""
        if self.connection is not None:
            self.connection.abort(reason)
        elif self.task is not None:
            self.task.cancel()


async def dial_tls(
    address: TcpAddress, credentials: Credentials, timeout_ms: int, log: Logger, make: MakeEnd[E], role: Role
) -> E:
    """Connect to a served port; see `Runtime.connect` and `Runtime.dial`.

    Args:
        role: of the listener; any other is refused.
    """
    loop = asyncio.get_running_loop()
    context = client_context(credentials)

    def made() -> E:
        return make(str(address), on_fault=lambda connection, reason: report_fault(log, connection, reason))

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await loop.create_connection(
                made,
                address.host,
                address.port,
                ssl=context,
                server_hostname=host_name(role),
                ssl_handshake_timeout=timeout_ms / 1000,
            )
    except TimeoutError:
        raise UnreachableError(
            f"{address} did not answer for {timeout_ms} ms",
            hint="is there a firewall in between, or does the machine not exist?",
        ) from None
    except OSError as error:
        raise dial_error(address, error, role, time.time_ns() // 1_000_000) from error
    sock = None if connection.transport is None else connection.transport.get_extra_info("socket")
    if sock is not None:
        keep_alive(sock)
    connection.certified = certified_name(peer_certificate(connection))
    found = None if connection.certified is None else connection.certified.role
    if credentials.authority is not None and (refusal := listener_refusal(role, found)):
        connection.abort(refusal)
        raise DeniedError(f"{address}: {refusal}", hint="check the address")
    return connection


def keep_alive(sock: Any) -> None:
    """Enable TCP keep-alive: the kernel notices in about half a minute that the other host is gone, even when
    nothing is sent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def end_unanswered(sock: Any) -> None:
    """Let a connection end when what was sent stays unacknowledged, which TCP alone accepts for a quarter of an hour:
    what a worker has that is gone is to run elsewhere."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)


def peer_certificate(connection: TransportEnd) -> dict[str, Any] | None:
    """The peer certificate that the TLS layer has verified."""
    if connection.transport is None:
        return None
    found: dict[str, Any] | None = connection.transport.get_extra_info("peercert")
    return found
