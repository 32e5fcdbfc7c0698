"""The real listener and client connections: frames over Unix sockets of an asyncio loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Generic

from hal.core.model.errors import DeniedError, HALError, UnreachableError
from hal.runtime.ends import E, MakeEnd
from hal.runtime.interface import MAX_CONNECTIONS, Logger, UnixAddress
from hal.runtime.line_budget import BudgetedLog, BudgetedLogs
from hal.runtime.sockets import bind_unix, is_trusted_peer, peer_of, unlink_unix
from hal.wire.transport_end import TransportEnd

SERVING_FAULT: Final = "a fault while a connection was served"
STRANGERS: Final = "strangers"
ServeTask = Callable[[E], None]
"""Starts the task that serves one accepted connection."""


class UnixListener(Generic[E]):
    """One served path; created by `listen_unix`."""

    def __init__(self, address: UnixAddress, serve: ServeTask[E], log: Logger, make: MakeEnd[E]) -> None:
        self._make = make
        self._address = address
        self._serve = serve
        self._logs = BudgetedLogs(log, monotonic_ms)
        self._open: dict[E, None] = {}
        self._accepted = 0
        self._inode = 0
        self._server: asyncio.AbstractServer | None = None

    @property
    def address(self) -> UnixAddress:
        return self._address

    @property
    def connections(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Start listening.

        Raises: as `bind_unix`.
        """
        path = self._address.path
        sock = bind_unix(path)
        self._inode = os.lstat(path).st_ino
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, sock=sock)

    def reload_credentials(self) -> None:
        """Do nothing: Unix sockets have no credentials."""

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            unlink_unix(self._address.path, self._inode)
        for connection in list(self._open):
            connection.close("this side stops serving")
        for connection in list(self._open):
            await connection.wait_closed()

    def _accept(self) -> E:
        self._accepted += 1
        return self._make(
            f"{self._address.path.name}#{self._accepted}",
            on_open=self._opened,
            on_closed=lambda connection: self._open.pop(connection, None),
            on_fault=lambda connection, reason: report_fault(self._logs.of(source_of(connection)), connection, reason),
        )

    def _opened(self, connection: E) -> None:
        connection.peer = peer_of(transport_fd(connection))
        log = self._logs.of(source_of(connection))
        if not is_trusted_peer(connection.peer):
            log.warning("refused a connection", connection=connection.label, peer=connection.peer._asdict())
            connection.refuse("denied", f"user id {connection.peer.uid} may not use this HAL")
        elif len(self._open) >= MAX_CONNECTIONS:
            log.warning("refused a connection", connection=connection.label, open=len(self._open))
            connection.refuse("overloaded", f"{len(self._open)} connections are already open")
        else:
            self._open[connection] = None
            self._serve(connection)


async def dial_unix(path: Path, timeout_ms: int, log: Logger, make: MakeEnd[E]) -> E:
    """Connect to a served path; see `Runtime.connect` and `Runtime.dial`."""
    loop = asyncio.get_running_loop()

    def made() -> E:
        return make(path.name, on_fault=lambda connection, reason: report_fault(log, connection, reason))

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await loop.create_unix_connection(made, str(path))
    except TimeoutError:
        raise UnreachableError(f"{path} did not accept for {timeout_ms} ms") from None
    except PermissionError as error:
        raise DeniedError(f"{path} cannot be opened: {error.strerror}") from error
    except OSError as error:
        raise UnreachableError(f"nobody serves {path}: {error.strerror or error}", hint="is HAL running?") from error
    connection.peer = peer_of(transport_fd(connection))
    if not is_trusted_peer(connection.peer):
        connection.abort("denied")
        raise DeniedError(f"{path} is served by user id {connection.peer.uid}, who is neither you nor root")
    return connection


async def serve_connection(
    connection: E, on_connect: Callable[[E], Awaitable[None]], log: Logger | BudgetedLog
) -> None:
    """Run the daemon's coroutine for one accepted connection and close it afterwards; see `OnConnect`."""
    try:
        await on_connect(connection)
    except HALError as error:
        if not connection.closed:
            log.warning("closed a connection", connection=connection.label, code=error.code, reason=error.message)
            connection.refuse(error.code, error.message, error.hint)
    except Exception as error:
        log.error(SERVING_FAULT, connection=connection.label, reason=f"{type(error).__name__}: {error}", exc_info=error)
        connection.refuse("internal", "this side hit a fault while it served the connection; see its log")
    finally:
        connection.close("served")


def report_fault(log: Logger | BudgetedLog, connection: TransportEnd, reason: str) -> None:
    """Log that a peer sent something that is not a frame, in one line."""
    log.warning(
        "closed a connection: malformed frame",
        connection=connection.label,
        reason=reason,
        peer=connection.peer or connection.certified,
    )


def source_of(connection: TransportEnd) -> str:
    """The source to whose budget log lines about this connection count: a node, a user, or all strangers."""
    if connection.certified is not None:
        return connection.certified.name
    return f"uid {connection.peer.uid}" if connection.peer is not None else STRANGERS


def monotonic_ms() -> int:
    """The clock for budgets of log lines."""
    return round(asyncio.get_running_loop().time() * 1000)


def transport_fd(connection: TransportEnd) -> int:
    """The descriptor of a connection's socket."""
    if connection.transport is None:
        raise RuntimeError(f"{connection.label} is not open")
    return int(connection.transport.get_extra_info("socket").fileno())
