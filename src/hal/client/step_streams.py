"""Opening a stream to a running step of a job: asks the controller, and connects to where it says.

Imports little: the first byte of `hal exec` waits for it.
"""

from __future__ import annotations

import json
import socket
from typing import Any, Final, NamedTuple

from hal.client.addresses.address import Address
from hal.client.transport.exchange import Request
from hal.client.transport.http import Connections
from hal.core.model.errors import (
    ConflictError,
    DeniedError,
    HALError,
    InternalError,
    SpecError,
    UnreachableError,
    error_from_code,
)
from hal.runtime.stream_link import Link
from hal.wire.step_streams import CLIENT, FAIL, HELLO, OPENED, MalformedStreamError, MessageReader, meet, message

CONNECT_S: Final = 15.0
DIRECT_S: Final = 3.0
"""How long a node may take to accept a connection, before the relay is tried."""
MEET_S: Final = 5.0
"""The same of a relay."""
LOOPBACK: Final = "127.0.0.1"
OPENED_S: Final = 30.0
"""How long a node may take to begin what was asked for."""
READ_BYTES: Final = 1 << 18


class StepStream(NamedTuple):
    """An open stream."""

    link: Link
    reader: MessageReader
    early: list[tuple[int, bytes]]
    """What has arrived with the word that it is open."""
    step: str
    """`JOB.TASK.ATTEMPT.RANK`"""
    node: str


class Where(NamedTuple):
    """Where an opened stream is reached; fields as in the answer of `POST /v1/jobs/ID/streams`."""

    step: str
    node: str
    ticket: str
    socket: str
    address: str
    fingerprint: str
    relay: str = ""
    meeting: str = ""


class StreamDialler:
    """Opens streams to running steps: to their nodes, or where these cannot be reached through the controller's relay,
    which it remembers."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._relayed: set[str] = set()
        """Nodes that could not be reached."""

    def open(self, job: int, *, setup: bytes = b"", **asked: Any) -> StepStream:
        """Open a stream to a running step.

        Args:
            setup: messages that go with the ticket.
            asked: fields of the request: kind, task, rank, node; argv, terminal, term, rows, columns; port; ranks,
                first_rank, size.
        Raises:
            HALError: as the controller, or the node, says.
        """
        where = self._ask(job, asked)
        if where.address and where.node in self._relayed:
            where = self._ask(job, {**asked, "relay": True})
        try:
            sock = connect(where)
        except UnreachableError as error:
            if not where.address:
                raise
            where = self._ask_relay(job, asked, error)
            sock = connect(where)
            self._relayed.add(where.node)
        try:
            sock.sendall(message(HELLO, where.ticket.encode()) + setup)
            sock.settimeout(OPENED_S)
            return _opened(sock, where)
        except OSError as error:
            sock.close()
            raise UnreachableError(f"the stream to {where.step} on node {where.node} broke: {error}") from error
        except MalformedStreamError as error:
            sock.close()
            raise InternalError(f"what node {where.node} answers is no stream to a step: {error}") from error
        except HALError:
            sock.close()
            raise

    def _ask(self, job: int, asked: dict[str, Any]) -> Where:
        address = self._connections.address
        named = {name: value for name, value in asked.items() if value != ""}
        body = json.dumps({"here": not address.endpoints, **named}).encode()
        request = Request("POST", f"/v1/jobs/{job}/streams", body=body, repeatable=False)
        found = _read(self._connections.send(request).body)
        host = address.endpoints[0].host if address.endpoints else LOOPBACK
        return found._replace(
            **{name: _with_host(text, host) for name in ("address", "relay") if (text := getattr(found, name))}
        )

    def _ask_relay(self, job: int, asked: dict[str, Any], unreached: UnreachableError) -> Where:
        """
        Raises:
            UnreachableError: nor is there a relay.
        """
        try:
            return self._ask(job, {**asked, "relay": True})
        except (ConflictError, UnreachableError, SpecError) as error:
            raise UnreachableError(
                f"{unreached.message}; nor through the controller: {error.message}", hint=unreached.hint
            ) from error


def open_stream(connections: Connections, job: int, *, setup: bytes = b"", **asked: Any) -> StepStream:
    """Open one stream: see `StreamDialler.open`."""
    return StreamDialler(connections).open(job, setup=setup, **asked)


def failure_of(body: bytes) -> HALError:
    """The error that ends a stream."""
    code, _, text = body.decode(errors="replace").partition("\0")
    return error_from_code(code, text)


def _read(body: bytes) -> Where:
    try:
        fields = json.loads(body)
        return Where(
            *(str(fields.get(name, "") if name in Where._field_defaults else fields[name]) for name in Where._fields)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InternalError(f"the controller's answer is not understood: {error}") from error


def _with_host(text: str, host: str) -> str:
    """`HOST:PORT`; without a host with this one."""
    return f"[{host}]{text}" if text.startswith(":") and ":" in host else f"{host}{text}" if text[0] == ":" else text


def connect(where: Where) -> socket.socket:
    """Connect to a node, and to nobody else.

    Raises:
        UnreachableError: it cannot be reached.
        DeniedError: somebody else answers there.
    """
    if where.relay:
        return _connect_tls(where, where.relay, f"the controller's relay at {where.relay}", MEET_S)
    if where.address:
        return _connect_tls(where, where.address, f"node {where.node}", DIRECT_S)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(CONNECT_S)
    try:
        sock.connect(where.socket)
    except (OSError, ValueError) as error:  # ValueError: no path could be that
        sock.close()
        raise UnreachableError(f"the stream to {where.step} on node {where.node} cannot be reached: {error}") from error
    return sock


def _connect_tls(where: Where, at: str, what: str, connect_s: float) -> socket.socket:
    """The controller has said which certificate the node has; at a relay, too, it is the node that shows it."""
    import hashlib
    import hmac
    import ssl

    host, _, port = at.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # its fingerprint is compared instead
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), connect_s)
        plain.settimeout(CONNECT_S)
        if where.meeting:
            plain.sendall(meet(CLIENT, where.meeting))
        sock = context.wrap_socket(plain)
    except (OSError, ValueError) as error:  # ValueError: no address could be that
        hint = "does a firewall keep its ports from 1024 up closed to this machine?"
        hint = "server.relay_port and server.address say where it is reached" if where.meeting else hint
        raise UnreachableError(f"{what} cannot be reached at {at}: {error}", hint=hint) from error
    shown = hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
    if not hmac.compare_digest(shown.encode(), where.fingerprint.encode()):
        sock.close()
        raise DeniedError(f"who answers at {at} is not node {where.node}: its certificate is another one")
    return sock


def _opened(sock: socket.socket, where: Where) -> StepStream:
    reader = MessageReader()
    while True:
        data = sock.recv(READ_BYTES)
        if not data:
            raise UnreachableError(f"node {where.node} closed the stream to {where.step} before it was open")
        said = [(kind, bytes(body)) for kind, body in reader.feed(data)]
        if said and said[0][0] == FAIL:
            raise failure_of(said[0][1])
        if said and said[0][0] == OPENED:
            return StepStream(Link(sock), reader, said[1:], where.step, where.node)
        if said:
            raise InternalError("the node's first message is not understood")


def connections_of(address: Address) -> Connections:
    """The transport to the HAL at an address, without the rest of a client."""
    return Connections(address)
