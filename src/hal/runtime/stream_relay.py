"""The relay of a controller's host: passes bytes between clients and nodes that cannot reach each other.

Run as a script with `python -I -S`, when the first stream needs it: `stream_relay.py SOCKET HOST PORT`. At its Unix
socket the controller announces a meeting, and is told the TCP port; the two who come there and name that meeting are
joined, in a process of their own. What they say is TLS between them: nothing of it is read here. It serves on while
the controller is gone, and ends when it has been idle for a while.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 2)))

from hal.runtime.order_socket import OrderSocket
from hal.runtime.stream_link import Watched, keep_alive
from hal.wire.step_streams import CLIENT, MEET, MEETING_BYTES, NODE

BACKLOG = 128
MAX_ORDER_BYTES = 1 << 12
MEET_S = 20.0
"""How long the two may take to come."""
MAX_MEETINGS = 1_024
"""Announced, and not begun."""
MAX_COMING = 256
"""Connections that have not said for which meeting they come; one more replaces the oldest."""
SAY_S = 5.0
"""How long they may take for that."""
MAX_PAIRS = 512
MAX_OF_USER = 128
"""Pairs that one user has asked for."""
LOOK_MS = 1_000
IDLE_S = 60.0
PIPE_BYTES = 1 << 20
"""That wait in one direction."""
HELLO_BYTES = len(MEET) + 1 + MEETING_BYTES
OTHER = {NODE: CLIENT, CLIENT: NODE}


class RefusedError(Exception):
    """A meeting is not arranged; says why."""


class Meeting:
    """Two who were announced."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.due_s = time.monotonic() + MEET_S
        self.come: dict[bytes, socket.socket] = {}
        """By role."""


class Coming(NamedTuple):
    """Somebody who has not said for which meeting."""

    sock: socket.socket
    due_s: float
    said: bytearray


class Relay:
    """Arranges meetings."""

    def __init__(self, path: str, host: str, port: int) -> None:
        """Args:
        host: at which it listens; empty: at all addresses.
        port: 0: any.
        Raises:
            OSError: as `OrderSocket`.
        """
        self._host, self._port = host, port
        self._orders = OrderSocket(path)
        self._listener: socket.socket | None = None
        self._meetings: dict[str, Meeting] = {}
        self._coming: dict[int, Coming] = {}
        self._pairs: dict[int, str] = {}
        """Who has asked for it, by the pid of the process that serves it."""
        self._watched = Watched()

    def serve(self) -> None:
        """Until it was idle for long, or its socket is gone and nothing is open."""
        self._watched.want(self._orders.fileno(), read=True)
        idle_s = time.monotonic()
        while True:
            for fd in self._watched.wait(LOOK_MS):
                if fd == self._orders.fileno():
                    self._order()
                elif self._listener is not None and fd == self._listener.fileno():
                    self._accept(self._listener)
                elif fd in self._coming:
                    self._hear(fd)
            self._look()
            if self._pairs or self._meetings:
                idle_s = time.monotonic()
            elif time.monotonic() - idle_s > IDLE_S or not self._orders.served:
                break
        self._orders.remove()

    def _look(self) -> None:
        """Reap pairs that have ended, and forget who is late."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._pairs.pop(ended, None)
        now_s = time.monotonic()
        for name in [name for name, one in self._meetings.items() if now_s >= one.due_s]:
            for sock in self._meetings.pop(name).come.values():
                sock.close()
        for fd in [fd for fd, one in self._coming.items() if now_s >= one.due_s]:
            self._drop(fd)

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _order(self) -> None:
        accepted = self._orders.accept()
        if accepted is None:
            return
        with accepted, contextlib.suppress(OSError):
            try:
                order = json.loads(accepted.recv(MAX_ORDER_BYTES))
                answer: dict[str, int | str] = {"port": self._announce(str(order["meeting"]), str(order["by"]))}
            except (ValueError, KeyError, TypeError) as error:
                answer = {"error": f"this is no order: {error}"}
            except RefusedError as error:
                answer = {"error": str(error)}
            accepted.sendall(json.dumps(answer).encode() + b"\n")

    def _announce(self, name: str, by: str) -> int:
        """Await the two of a meeting; returns the port to which they come.

        Raises:
            RefusedError: there is no room, or no port.
        """
        if len(name) != MEETING_BYTES:
            raise RefusedError(f"the name of a meeting has {MEETING_BYTES} digits")
        under_way = [*self._pairs.values(), *(one.by for one in self._meetings.values())]
        if len(self._pairs) >= MAX_PAIRS or len(self._meetings) >= MAX_MEETINGS:
            raise RefusedError(f"{len(self._pairs)} streams are relayed, which is the most")
        if under_way.count(by) >= MAX_OF_USER:
            raise RefusedError(f"user '{by}' has {MAX_OF_USER} relayed streams, which is the most")
        if self._listener is None:
            self._listener = self._listen()
            self._watched.want(self._listener.fileno(), read=True)
        self._meetings[name] = Meeting(by)
        return int(self._listener.getsockname()[1])

    def _listen(self) -> socket.socket:
        try:
            if not self._host and socket.has_dualstack_ipv6():
                at = ("", self._port)
                made = socket.create_server(at, family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
            else:
                family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
                made = socket.create_server((self._host, self._port), family=family, backlog=BACKLOG)
        except OSError as error:
            where = f"port {self._port}" if self._port else "a port"
            raise RefusedError(f"{where} of the controller's machine cannot be used: {error.strerror}") from None
        made.setblocking(False)
        return made

    # ── who comes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:  # it is gone again, or this process has no room for it
            return
        if len(self._coming) >= MAX_COMING:
            self._drop(next(iter(self._coming)))
        accepted.setblocking(False)
        self._coming[accepted.fileno()] = Coming(accepted, time.monotonic() + SAY_S, bytearray())
        self._watched.want(accepted.fileno(), read=True)

    def _drop(self, fd: int) -> None:
        self._watched.want(fd)
        self._coming.pop(fd).sock.close()

    def _hear(self, fd: int) -> None:
        """Read for which meeting somebody comes, and nothing behind that."""
        sock, _, said = self._coming[fd]
        try:
            piece = sock.recv(HELLO_BYTES - len(said))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        said += piece
        if piece and len(said) < HELLO_BYTES and said.startswith(MEET[: len(said)]):
            return
        role, name = bytes(said[len(MEET) : len(MEET) + 1]), said[len(MEET) + 1 :].decode(errors="replace")
        meeting = self._meetings.get(name) if said.startswith(MEET) and role in OTHER else None
        if meeting is None or role in meeting.come:
            self._drop(fd)
            return
        self._watched.want(fd)
        del self._coming[fd]
        meeting.come[role] = sock
        if OTHER[role] in meeting.come:
            del self._meetings[name]
            self._join(meeting)

    def _join(self, meeting: Meeting) -> None:
        node, client = meeting.come[NODE], meeting.come[CLIENT]
        try:
            pid = os.fork()
        except OSError:  # no more processes: both see it closed
            pid = -1
        if not pid:
            status = 1
            try:
                self._close_all()
                pass_on(node, client)
                status = 0
            finally:
                os._exit(status)
        node.close()
        client.close()
        if pid > 0:
            self._pairs[pid] = meeting.by

    def _close_all(self) -> None:
        """In the process of a pair: what is the relay's."""
        self._orders.close()
        if self._listener is not None:
            self._listener.close()
        for one in self._coming.values():
            one.sock.close()
        for meeting in self._meetings.values():
            for sock in meeting.come.values():
                sock.close()


class _Direction:
    """Bytes on their way from one socket to another, in a pipe of the kernel's."""

    def __init__(self, source: socket.socket, to: socket.socket) -> None:
        self.source, self.to = source, to
        self.out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a user's pipes have a bound
            fcntl.fcntl(self.into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.held = 0
        """Bytes in the pipe."""
        self.full = False
        """It takes no more until some of them have left."""
        self.ended = self.shut = False
        """Nothing more comes; that was passed on."""

    def move(self, *, readable: bool, writable: bool) -> None:
        """Take what is there, and give what is taken.

        Raises:
            OSError: one of the two is gone.
        """
        if readable and not self.ended and not self.full:
            try:
                moved = os.splice(self.source.fileno(), self.into, PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK)
                self.held += moved
                self.ended = not moved
            except BlockingIOError:
                self.full = self.held > 0
        if self.held and (writable or readable):
            with contextlib.suppress(BlockingIOError):
                self.held -= os.splice(self.out, self.to.fileno(), self.held, flags=os.SPLICE_F_NONBLOCK)
                self.full = False
        if self.ended and not self.held and not self.shut:
            self.shut = True
            self.to.shutdown(socket.SHUT_WR)


def pass_on(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes between two connections until both have ended, or one is gone."""
    for sock in (one, other):
        keep_alive(sock)
    ways = (_Direction(one, other), _Direction(other, one))
    watched = Watched()
    with contextlib.suppress(OSError):
        while not all(way.shut for way in ways):
            for sock, out, back in ((one, ways[0], ways[1]), (other, ways[1], ways[0])):
                watched.want(sock.fileno(), read=not out.ended and not out.full, write=back.held > 0)
            ready = watched.wait()
            for way in ways:
                readable = bool(ready.get(way.source.fileno(), 0) & ~select.POLLOUT)
                way.move(readable=readable, writable=bool(ready.get(way.to.fileno(), 0) & select.POLLOUT))


def main(argv: list[str]) -> None:
    """Serve the socket that is named."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    try:
        relay = Relay(argv[1], argv[2], int(argv[3]))
    except FileExistsError:
        return  # the controller has started two
    relay.serve()


if __name__ == "__main__":
    main(sys.argv)
