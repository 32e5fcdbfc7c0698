"""A stream to the input and output of an interactive step: passed on to the process that holds them."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Iterable

from hal.daemons.agent.keeper.program_streams import MAX_BACKLOG_BYTES
from hal.daemons.agent.keeper.step_holder import holder_address
from hal.daemons.agent.keeper.stream_process.inside import Inside
from hal.daemons.agent.keeper.stream_process.order import Order, Refusal
from hal.daemons.agent.keeper.stream_process.session import Greeted, hear_client
from hal.runtime.stream_link import Link, Watched
from hal.wire.step_streams import Backlog, message

HOLDER_S = 5.0
"""How long a step that has just begun may take to await those who attach."""
PAUSE_S = 0.01


def dial_holder(order: Order, inside: Inside) -> socket.socket:
    """Connect to the process that holds a step's input and output.

    Raises:
        Refusal: the step is not interactive, or its first process is not that one.
    """
    if not order.interactive:
        raise Refusal(
            "conflict", f"job {order.job} is not interactive: it was not begun with hal run -it; hal exec enters it"
        )
    address = holder_address(inside.environment)
    deadline_s = time.monotonic() + HOLDER_S
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.connect(address)
            pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if pid == order.pid:
                return sock
            why = "another process is in the place of its holder"
        except OSError as error:
            why = os.strerror(error.errno or 0)
        sock.close()
        if time.monotonic() >= deadline_s:
            raise Refusal("conflict", f"{order.step} cannot be attached to: {why}")
        time.sleep(PAUSE_S)


class AttachSession:
    """Passes messages between a client and the holder, as they are."""

    def __init__(self, link: Link, client: Greeted, inside: Inside, holder: socket.socket) -> None:
        self._link = link
        self._reader = client.reader
        self._far = Link(holder)
        self._inside = inside
        self.backlog, self._to_far = Backlog(), Backlog()
        """What the client has not read yet; what the holder has not."""
        self._hear(client.early)

    def run(self) -> bytes:
        """Serve until one of them ends; returns b"": the last words are the holder's."""
        watched = Watched()
        client, far = self._link.fileno(), self._far.fileno()
        while True:
            room = self._to_far.bytes < MAX_BACKLOG_BYTES
            watched.want(client, read=room, write=bool(self.backlog.bytes), gone=True)
            watched.want(far, read=self.backlog.bytes < MAX_BACKLOG_BYTES, write=bool(self._to_far.bytes))
            ready = watched.wait(0 if self._link.pending and room else None)
            if hear_client(self._link, self._reader, ready, self._hear, room=room):
                self._far.close()
                return b""
            self._to_far.flush(self._far.write)
            if ready.get(far, 0) & ~select.POLLOUT:
                data = self._far.read()
                if data == b"":
                    return b""
                if data:
                    self.backlog.put(data)
            self.backlog.flush(self._link.write)
            if self._link.broken:
                self._far.close()
                return b""

    def _hear(self, messages: Iterable[tuple[int, bytes | memoryview]]) -> None:
        for kind, body in messages:
            self._to_far.put(message(kind, bytes(body)))
