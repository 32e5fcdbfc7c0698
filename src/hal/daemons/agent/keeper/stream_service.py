"""The stream service of a node: opens streams to its running steps, and probes them, each in a process of its own.

Run as a script with `python -I -S` by the node's agent when the first stream is asked for: `stream_service.py SOCKET`.
It answers orders of the agent (`stream_process.order`) at that socket, with a child for each stream, and ends when it
has had none for a while. It serves streams on while agent, keeper and controller are gone: no byte passes through
them. What a stream begins has the rights of its step (`stream_process.inside`); this process has the agent's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from hal.daemons.agent.keeper.stream_process.attaching import AttachSession, dial_holder
from hal.daemons.agent.keeper.stream_process.forwarding import ForwardSession, dial_inside
from hal.daemons.agent.keeper.stream_process.inside import Inside, hide_process
from hal.daemons.agent.keeper.stream_process.launching import LaunchSession
from hal.daemons.agent.keeper.stream_process.order import (
    ATTACH,
    FORWARD,
    LAUNCH,
    MAX_ORDER_BYTES,
    PROBE,
    Order,
    Refusal,
    answer,
    read_order,
)
from hal.daemons.agent.keeper.stream_process.probing import probe
from hal.daemons.agent.keeper.stream_process.remote import dial_relay, fingerprint_of, listen_tls, tls_of
from hal.daemons.agent.keeper.stream_process.session import (
    Command,
    CommandSession,
    Greeted,
    last_words,
    wait_for_client,
    wake_on_children,
)
from hal.runtime.order_socket import OrderSocket, user_of
from hal.runtime.stream_link import Link
from hal.wire.step_streams import Backlog, failure

PR_SET_CHILD_SUBREAPER = 36
BACKLOG = 64
"""Orders of which the connection was not accepted yet."""
LOOK_MS = 1_000
IDLE_S = 60.0
"""It ends after this long without a stream."""
MAX_STREAMS = 256
"""Open at once on a node."""
MAX_OF_JOB = 64
"""Of one job on a node."""
MAX_OF_USER = 128
"""Opened by one user on a node."""
MAX_PROBES = 64
"""Probes at once on a node, beside its streams."""
READ_BYTES = 1 << 16
NAME_BYTES = 8


class Child(NamedTuple):
    """An open stream."""

    job: int
    by: str
    probes: bool = False


class StreamService:
    """Takes orders, and knows which streams are open."""

    def __init__(self, path: str) -> None:
        """Serve the socket.

        Raises:
            OSError: as `OrderSocket`.
        """
        self._orders = OrderSocket(path)
        self._children: dict[int, Child] = {}

    def serve(self) -> None:
        """Until it was idle for long, or its socket is gone and nothing is open."""
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        idle_s = time.monotonic()
        while True:
            if poll.poll(LOOK_MS):
                self._accept()
            self._reap()
            if self._children:
                idle_s = time.monotonic()
            elif time.monotonic() - idle_s > IDLE_S or not self._orders.served:
                break
        self._orders.remove()

    def _reap(self) -> None:
        while self._children:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._children.pop(pid, None)

    def _accept(self) -> None:
        accepted = self._orders.accept()
        if accepted is None:
            return
        with accepted:
            try:
                order = read_order(_line(accepted))
                self._reap()
                self._check_room(order)
            except Refusal as refusal:
                with contextlib.suppress(OSError):
                    accepted.sendall(answer(code=refusal.code, error=refusal.text))
                return
            except OSError:
                return
            try:
                pid = os.fork()
            except OSError as error:
                accepted.sendall(answer(code="overloaded", error=f"this node cannot create more processes: {error}"))
                return
            if pid:
                self._children[pid] = Child(order.job, order.by, order.kind == PROBE)
                return
            status = 1
            try:
                self._orders.close()
                if order.kind == PROBE:
                    make_probe(order, accepted)
                else:
                    open_stream(order, accepted)
                status = 0
            except KeyboardInterrupt:
                pass
            finally:
                if status:
                    sys.excepthook(*sys.exc_info())
                    sys.stderr.flush()
                os._exit(status)

    def _check_room(self, order: Order) -> None:
        """Raises:
        Refusal: too many are open.
        """
        if order.kind == PROBE:
            if sum(one.probes for one in self._children.values()) >= MAX_PROBES:
                raise Refusal("too-many", f"this node makes {MAX_PROBES} probes, which is the most at once")
            return
        open_ = [one for one in self._children.values() if not one.probes]
        for count, most, what in (
            (len(open_), MAX_STREAMS, "this node"),
            (sum(one.job == order.job for one in open_), MAX_OF_JOB, f"job {order.job} on this node"),
            (sum(one.by == order.by for one in open_), MAX_OF_USER, f"user '{order.by}' on this node"),
        ):
            if count >= most:
                raise Refusal("too-many", f"{what} has {count} open streams, which is the most")


def make_probe(order: Order, agent: socket.socket) -> None:
    """Probe a step and answer the agent; in a process of its own."""
    _lead_children()
    found = probe(order)
    with contextlib.suppress(OSError):  # the agent waits no longer
        agent.sendall(found)


def _lead_children() -> None:
    """Let this process adopt what the programs that it begins leave behind."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def open_stream(order: Order, agent: socket.socket) -> None:
    """Answer the agent, wait for the client, serve it; in a process of its own."""
    _lead_children()
    listener: socket.socket | None = None
    come: socket.socket | None = None
    path = ""
    try:
        try:
            inside = Inside(order)
            if order.relay:
                welcome = tls_of(order)
                come = welcome(dial_relay(order))
                opened = answer(fingerprint=fingerprint_of(order.certificate))
            elif order.listen:
                listener, welcome = listen_tls(), tls_of(order)
                opened = answer(port=listener.getsockname()[1], fingerprint=fingerprint_of(order.certificate))
            else:
                path = f"{order.directory}/stream-{os.urandom(NAME_BYTES).hex()}.sock"
                listener, welcome = _listen(path, shared=order.shared), _users(order)
                opened = answer(path=path)
        except Refusal as refusal:
            agent.sendall(answer(code=refusal.code, error=refusal.text))
            return
        except OSError as error:
            agent.sendall(answer(code="conflict", error=f"no socket could be created: {error}"))
            return
        agent.sendall(opened)
        agent.close()
        try:
            link, client = wait_for_client(listener, order.ticket, welcome, come)
        except Refusal:
            return
    finally:
        if listener is not None:
            listener.close()
            if path:
                with contextlib.suppress(OSError):
                    os.unlink(path)
    serve_client(order, inside, link, client)


def serve_client(order: Order, inside: Inside, link: Link, client: Greeted) -> None:
    """Serve who came with the ticket."""
    backlog = Backlog()
    wake = wake_on_children()
    try:
        if order.kind == FORWARD:
            forward = ForwardSession(link, client, inside, dial_inside(order, inside))
            backlog, words = forward.backlog, forward.run()
        elif order.kind == ATTACH:
            attached = AttachSession(link, client, inside, dial_holder(order, inside))
            backlog, words = attached.backlog, attached.run()
        elif order.kind == LAUNCH:
            launched = LaunchSession(link, client, inside, order)
            backlog, words = launched.backlog, launched.run(wake)
        else:
            command = Command(order, inside)
            inside.close()
            session = CommandSession(link, client, inside, command)
            session.watch(wake)
            backlog, words = session.backlog, session.run(wake)
    except Refusal as refusal:
        words = failure(refusal.code, refusal.text)
    last_words(link, backlog, words)


def _users(order: Order) -> Callable[[socket.socket], socket.socket | None]:
    """Who may come to a Unix socket: this process's user and root, and where clients are other users, anybody."""

    def welcome(accepted: socket.socket) -> socket.socket | None:
        return accepted if order.shared or user_of(accepted) in (0, os.geteuid()) else None

    return welcome


def _listen(path: str, *, shared: bool) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(path)
    os.chmod(path, 0o666 if shared else 0o600)
    listener.listen(BACKLOG)
    return listener


def _line(sock: socket.socket) -> bytes:
    """Raises:
    Refusal: it is too long, or it does not end.
    """
    data = b""
    while not data.endswith(b"\n"):
        piece = sock.recv(READ_BYTES)
        if not piece or len(data) > MAX_ORDER_BYTES:
            raise Refusal("invalid-request", "an order is one line, of at most 1 MiB")
        data += piece
    return data


def main(argv: list[str]) -> None:
    """Serve the socket that is named."""
    hide_process()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    try:
        service = StreamService(argv[1])
    except FileExistsError:
        return  # the agent has started two
    service.serve()


if __name__ == "__main__":
    main(sys.argv)
