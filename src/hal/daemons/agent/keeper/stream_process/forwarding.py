"""A connection to a TCP port that a step serves: made inside the step, passed on from outside."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from hal.daemons.agent.keeper.program_streams import MAX_BACKLOG_BYTES
from hal.daemons.agent.keeper.stream_process.inside import Inside
from hal.daemons.agent.keeper.stream_process.order import Order, Refusal
from hal.daemons.agent.keeper.stream_process.session import Greeted, hear_client
from hal.runtime.stream_link import Link, Watched
from hal.wire.step_streams import DATA, END, HEAD, OPENED, OUT, Backlog, message

MAX_REMAINS_BYTES = 16 << 20
"""Bytes that are taken from a connection whose step has ended: more than its buffers hold."""
LISTENING = "0A"
"""Of a socket in /proc/net/tcp."""
CONNECT_S = 5.0
MAX_TABLE_BYTES = 16 << 20
READ_BYTES = 1 << 16


class Place(NamedTuple):
    """Where a port is served."""

    family: int
    host: str


def dial_inside(order: Order, inside: Inside, timeout_s: float = CONNECT_S) -> socket.socket:
    """Connect to the port from inside the step.

    Raises:
        Refusal: nothing of the step's user serves it, or it does not accept.
    """
    place = _find_listener(order, inside)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    child = os.fork()
    if not child:
        _dial_and_pass(inside, place, order.port, theirs, timeout_s)
    theirs.close()
    ours.settimeout(timeout_s + 1)
    try:
        said, fds, _, _ = socket.recv_fds(ours, READ_BYTES, 1)
    except OSError as error:
        said, fds = str(error).encode(), []
    finally:
        ours.close()
        os.waitpid(child, 0)
    if not fds:
        raise Refusal("unreachable", f"port {order.port} of {order.step}: {said.decode(errors='replace')}")
    return socket.socket(fileno=fds[0])


def _dial_and_pass(inside: Inside, place: Place, port: int, to: socket.socket, timeout_s: float) -> None:
    """Never returns."""
    try:
        inside.enter()
        dialled = socket.socket(place.family, socket.SOCK_STREAM)
        dialled.settimeout(timeout_s)
        dialled.connect((place.host, port))
        socket.send_fds(to, [b"connected"], [dialled.fileno()])
    except OSError as error:
        to.send(str(error).encode()[:READ_BYTES])
    finally:
        os._exit(0)


def _find_listener(order: Order, inside: Inside) -> Place:
    """Find who serves the port in the step's network. On a network that steps of several users share, somebody else
    may: to them nobody is connected who meant their own job."""
    others = False
    for name, family, width in (("tcp", socket.AF_INET, 4), ("tcp6", socket.AF_INET6, 16)):
        for line in _table(inside.program, name):
            fields = line.split()
            if len(fields) < 8 or fields[3] != LISTENING:
                continue
            address, _, port = fields[1].partition(":")
            if int(port, 16) != order.port:
                continue
            if int(fields[7]) != inside.uid:
                others = True
                continue
            raw = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, 2 * width, 8))
            if not any(raw):
                raw = b"\x7f\0\0\1" if family == socket.AF_INET else bytes(15) + b"\1"
            return Place(family, socket.inet_ntop(family, raw))
    what = "somebody else's process serves" if others else "nothing serves"
    raise Refusal("not-found", f"{what} port {order.port} on the node of {order.step}")


def _table(pid: int, name: str) -> list[str]:
    try:
        with open(f"/proc/{pid}/net/{name}", "rb") as file:
            return file.read(MAX_TABLE_BYTES).decode(errors="replace").splitlines()[1:]
    except OSError:
        return []


class ForwardSession:
    """Passes bytes between a client and a TCP connection; each direction ends by itself."""

    def __init__(self, link: Link, client: Greeted, inside: Inside, dialled: socket.socket) -> None:
        self._link = link
        self._reader = client.reader
        self._inside = inside
        self._sock = dialled
        self._far = Link(dialled)
        self.backlog, self._to_far = Backlog(), Backlog()
        """What the client has not read yet; what the port has not."""
        self._ends_there = False
        """The client has ended its direction."""
        self._hear(client.early)
        self._ended_there = False
        self._ended_here = False

    def run(self) -> bytes:
        """Serve until both directions have ended, or the step or the client has; returns the last words."""
        watched = Watched()
        self.backlog.put(message(OPENED))
        while True:
            client, far = self._link.fileno(), self._far.fileno()
            room = self._to_far.bytes < MAX_BACKLOG_BYTES and not self._ends_there
            watched.want(client, read=room, write=bool(self.backlog.bytes), gone=True)
            read = self.backlog.bytes < MAX_BACKLOG_BYTES and not self._ended_here
            watched.want(far, read=read, write=bool(self._to_far.bytes))
            watched.want(self._inside.pidfd, read=True)
            ready = watched.wait(0 if self._link.pending and room else None)
            if self._inside.pidfd in ready:
                self._take_remains()
                return b""
            if hear_client(self._link, self._reader, ready, self._hear, room=room):
                return b""
            self._to_far.flush(self._far.write)
            if self._ends_there and not self._to_far.bytes and not self._ended_there:
                self._ended_there = True
                if not self._far.broken:
                    self._sock.shutdown(socket.SHUT_WR)
            if ready.get(far, 0) & ~select.POLLOUT:
                self._hear_far()
            self.backlog.flush(self._link.write)
            if self._far.broken or self._link.broken or (self._ended_here and self._ended_there):
                return b""

    def _hear(self, messages: Iterable[tuple[int, bytes | memoryview]]) -> None:
        for kind, body in messages:
            if kind == DATA:
                self._to_far.put(body)
            elif kind == END:
                self._ends_there = True

    def _take_remains(self) -> None:
        """Take what a program sent before it ended with its step: nobody else will."""
        while not self._ended_here and self.backlog.bytes < MAX_REMAINS_BYTES:
            before = self.backlog.bytes
            self._hear_far()
            if self.backlog.bytes == before:
                return

    def _hear_far(self) -> None:
        data = self._far.read()
        if data:
            self.backlog.put(HEAD.pack(OUT, len(data)), data)
        elif data is not None:
            self._ended_here = True
            self.backlog.put(message(END))
