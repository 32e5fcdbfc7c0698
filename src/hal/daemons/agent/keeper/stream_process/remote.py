"""A stream whose client is on another host: a TCP port of its own, TLS 1.3 with the node's certificate.

The client knows the certificate's fingerprint from the controller and accepts no other; who the client is, its ticket
says, as at a Unix socket.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable

from hal.daemons.agent.keeper.stream_process.order import Order, Refusal
from hal.wire.step_streams import NODE, meet

BACKLOG = 64
RELAY_S = 4.0
"""How long a relay may take to accept a connection; the agent waits for the answer meanwhile."""
MAX_PEM_BYTES = 1 << 16


def listen_tls() -> socket.socket:
    """Listen on any free port of all addresses."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=BACKLOG)


def dial_relay(order: Order) -> socket.socket:
    """Come to the relay at which the other end is met.

    Raises:
        Refusal: it cannot be reached.
    """
    try:
        sock = socket.create_connection((order.relay_host, order.relay), RELAY_S)
        sock.sendall(meet(NODE, order.meeting))
    except OSError as error:
        where = f"{order.relay_host}:{order.relay}"
        raise Refusal("unreachable", f"the relay at {where} cannot be reached from the node: {error}") from None
    sock.setblocking(False)
    return sock


def tls_of(order: Order) -> Callable[[socket.socket], socket.socket | None]:
    """Return what makes TLS of an accepted connection; the handshake is made as it is read.

    Raises:
        Refusal: the node's certificate cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_cert_chain(order.certificate)
    except (OSError, ssl.SSLError) as error:
        raise Refusal("conflict", f"the node's certificate cannot be used: {error}") from None

    def welcome(accepted: socket.socket) -> socket.socket | None:
        return context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

    return welcome


def fingerprint_of(path: str) -> str:
    """SHA-256 of the first certificate in a file, in hex."""
    with open(path, "rb") as file:
        text = file.read(MAX_PEM_BYTES).decode(errors="replace")
    first = text[: text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[first.index(ssl.PEM_HEADER) :])).hexdigest()
