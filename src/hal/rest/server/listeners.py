"""Accepting connections of REST one by one, so that each is counted from its first byte and can be turned away.

Nothing that goes wrong with one connection, or for want of descriptors, ends the listener or keeps the loop busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import pwd
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from hal.core.model import DeniedError, HALError
from hal.rest.callers import LocalPeer, address_of
from hal.rest.server.connections import MAX_EVICTED, Connections, Strangers
from hal.rest.server.http_connection import HttpConnection, refusal
from hal.runtime.ancestry import attempt_around
from hal.runtime.sockets import is_trusted_peer, peer_of_socket

MAX_ACCEPTED: Final = 16
"""Connections accepted in one turn of the loop."""
ACCEPT_PAUSE_S: Final = 0.2
"""Before the next one, where there was no descriptor."""
HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take."""
UNTLS_S: Final = 5.0
"""How long the end of a TLS connection may take."""
MAX_NAMES: Final = 1_024
"""Users' names that are remembered."""
NAME_S: Final = 60
"""For so long."""
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Make = Callable[..., HttpConnection]


class Listener:
    """One listening socket."""

    def __init__(
        self,
        sock: socket.socket,
        make: Make,
        connections: Connections,
        instance: Callable[[], str],
        *,
        strangers: Strangers | None,
        tls: ssl.SSLContext | None = None,
        for_steps: bool = False,
    ) -> None:
        """
        Args:
            make: a connection; takes `where`, `private`, `peer`.
            instance: names this HAL, whose steps are to be recognised; gives '' while that is not known.
            strangers: of this port, or of the public socket; None: the socket in HAL's own directory.
            for_steps: steps that run as other users come here, and nobody else.
        """
        self._for_steps = for_steps
        self._sock = sock
        self._make = make
        self._connections = connections
        self._instance = instance
        self._at_steps = Strangers()
        """Of the steps that came to the socket in HAL's own directory: they are no more welcome than others' users."""
        self._strangers = strangers
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        self._scarce = False
        self._ended = False
        self._opening: set[asyncio.Task[Any]] = set()

    def serve(self) -> None:
        """Begin to accept connections."""
        self._connections.freed.append(self._resume)
        self._resume()

    def close(self) -> None:
        """Accept nothing more."""
        self._ended = True
        if self._resume in self._connections.freed:
            self._connections.freed.remove(self._resume)
        self._pause()
        self._sock.close()
        for task in list(self._opening):
            task.cancel()

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._sock)

    def _resume(self) -> None:
        full = self._strangers is not None and not self._connections.room_for(self._strangers)
        if not (self._accepting or self._ended or self._scarce or full):
            self._accepting = True
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED):
            if self._strangers is not None and not self._connections.room_for(self._strangers):
                self._pause()  # until one of them goes, or has grown old enough
                return
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SCARCE:
                    continue  # the kernel reports a connection that was closed already
                self._connections.note("connections cannot be accepted", "", error.strerror or str(error))
                self._connections.evict(MAX_EVICTED)
                self._scarce = True
                self._pause()
                self._loop.call_later(ACCEPT_PAUSE_S, self._retry)
                return
            try:
                self._admit(sock, address)
            except HALError as error:
                self._turn_away(sock, error)
            except OSError as error:
                self._connections.note("closed a connection: it broke at once", "", str(error))
                if error.errno in _SCARCE:
                    self._connections.evict(MAX_EVICTED)
                sock.close()

    def _retry(self) -> None:
        self._scarce = False
        self._resume()

    def _admit(self, sock: socket.socket, address: Any) -> None:
        """
        Raises:
            DeniedError: another user is on the private socket.
            OverloadedError: there is no room for it.
            OSError: it was closed.
        """
        sock.setblocking(False)
        strangers, where, peer = self._strangers, address_of(address), None
        if sock.family == socket.AF_UNIX:
            peer = self._peer(sock)
            where = f"uid {peer.uid}"
            if peer.attempt and strangers is None:
                strangers, where = self._at_steps, f"attempt {peer.attempt}"
        connection = self._make(where=where, private=strangers is None, peer=peer)
        self._connections.enter(connection, strangers, sock.fileno())
        task = connection.opening = self._loop.create_task(self._open(connection, sock))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _peer(self, sock: socket.socket) -> LocalPeer:
        """
        Raises:
            DeniedError: another user is on the private socket.
            OSError: it was closed, or it cannot be checked whether it is a step's.
        """
        found = peer_of_socket(sock)
        private, ours = self._strangers is None, is_trusted_peer(found)
        if private and not ours:
            raise DeniedError(f"user id {found.uid} may not use this HAL", hint="it belongs to another user")
        instance = self._instance()
        # Others' processes could write whatever they like into their variables: their steps show a token.
        attempt = attempt_around(found.pid, instance) if instance and ours else ""
        name = _recent_name(found.uid, self._connections.second // NAME_S)
        return LocalPeer(found.uid, name, private, attempt, self._for_steps)

    async def _open(self, connection: HttpConnection, sock: socket.socket) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, sock)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    sock,
                    ssl=self._tls,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=UNTLS_S,
                )
        except (OSError, asyncio.CancelledError):  # of its handshake, or no longer wanted
            self._connections.leave(connection)
            sock.close()
        except Exception as error:
            self._connections.note("closed a connection: it could not be opened", connection.where, str(error))
            self._connections.leave(connection)
            sock.close()

    def _turn_away(self, sock: socket.socket, error: HALError) -> None:
        """Close it, after an answer that says why, as far as there is room for that."""
        if self._tls is None:
            with contextlib.suppress(OSError):
                sock.send(refusal(error))
        sock.close()


def user_name(uid: int) -> str:
    """The name of a user id; the number itself where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@functools.lru_cache(MAX_NAMES)
def _recent_name(uid: int, _minute: int) -> str:
    return user_name(uid)
