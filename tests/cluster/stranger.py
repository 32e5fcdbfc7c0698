"""A program that speaks to one port as somebody who has no business there, and prints as JSON what it got.

python stranger.py HOST PORT FOREIGN_PEM
"""

from __future__ import annotations

import json
import socket
import ssl
import sys

from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.agent_keeper import Heartbeat
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.hello import Goodbye, Hello
from hal.wire.roles import Role

DEADLINE_S = 60.0
REQUESTS = {
    "http": b"GET /v1/jobs HTTP/1.1\r\nHost: hal\r\nConnection: close\r\n\r\n",
    "submit": (
        b'POST /v1/jobs HTTP/1.1\r\nHost: hal\r\nConnection: close\r\nContent-Length: 21\r\n\r\n{"command": ["true"]}'
    ),
    "bytes": b"\x00\xff" * 500,
    "frame": encode(Hello(role=Role.AGENT, versions=(1, 1), name="w1", boot_id="b")),
}


def read(sock: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    data = b""
    try:
        while piece := sock.recv(65_536):
            data += piece
    except (ConnectionError, ssl.SSLError):
        pass
    return data


def plain(place: tuple[str, int], said: bytes) -> str:
    """What is answered to plain bytes."""
    with socket.create_connection(place, DEADLINE_S) as sock:
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        return read(sock)[:2_000].decode("latin-1")


def secured(place: tuple[str, int], said: bytes) -> str:
    """What is answered to plain bytes over TLS, believing whoever answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(place, DEADLINE_S) as sock, context.wrap_socket(sock) as wrapped:
            wrapped.sendall(said)
            return read(wrapped)[:2_000].decode("latin-1")
    except (ConnectionError, ssl.SSLError):
        return ""


def over_tls(place: tuple[str, int], certificate: str) -> list[list[str]]:
    """What is answered to a node's first frames over TLS, believing whoever answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate)
    try:
        with socket.create_connection(place, DEADLINE_S) as sock, context.wrap_socket(sock) as wrapped:
            for frame in (Hello(role=Role.AGENT, versions=(1, 1), name="w1"), Heartbeat(stamp_boot_ms=1)):
                wrapped.sendall(encode(frame))
            data = read(wrapped)
            if data.startswith(b"HTTP/1.1 400 "):
                return []  # REST, to which frames mean nothing
            frames = FrameDecoder(CONTROLLER_AGENT).feed(data)
    except (ConnectionError, ssl.SSLError):
        return []
    return [[type(frame).__name__, frame.code if isinstance(frame, Goodbye) else ""] for frame in frames]


def main() -> None:
    """Try everything."""
    place = (sys.argv[1], int(sys.argv[2]))
    got: dict[str, object] = {name: plain(place, said) for name, said in REQUESTS.items()}
    for name in ("http", "submit"):
        got[f"{name} over tls"] = secured(place, REQUESTS[name])
    got["tls"] = over_tls(place, "")
    got["foreign"] = over_tls(place, sys.argv[3])
    sys.stdout.write(json.dumps(got))


if __name__ == "__main__":
    main()
