"""A real HTTP/1.1 server on a Unix or TCP socket that answers from a script and keeps what it was asked.

It is the other side of the client's tests: real sockets, real cuts, answers recorded from the REST contract.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """One answer; `chunks` are sent one by one, `cut` breaks the connection behind them."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes] | None = None
    cut: bool = False
    close: bool = False
    """Close the connection after a whole answer, without saying so."""
    before: threading.Event | None = None
    """Answer only once this is set."""


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(json.dumps(value).encode(), status, {"Content-Type": "application/json", **headers})


def problem(status: int, code: str, detail: str, hint: str = "") -> Reply:
    plain = {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code, "hint": hint}
    headers = {"Content-Type": "application/problem+json"}
    if status == 429:
        headers["Retry-After"] = "3600"  # longer than any client waits
    return Reply(json.dumps(plain).encode(), status, headers)


Script = Callable[[Asked], Reply]


class ScriptedServer:
    """Started when made; `script` may be replaced at any time."""

    def __init__(self, script: Script, *, path: Path | None = None) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.hung_up = threading.Event()
        """Set once a connection was closed from this side."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with outer._lock:
                    outer.connections += 1
                    outer._open.add(self.connection)

            def finish(self) -> None:
                with outer._lock:
                    outer._open.discard(self.connection)
                try:
                    super().finish()
                    self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return
                finally:
                    outer.hung_up.set()

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def answer(self) -> None:
                outer._answer(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

            def address_string(self) -> str:
                return "local"

            def log_message(self, format: str, *args: Any) -> None:
                return

        class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

        class Tcp(socketserver.ThreadingMixIn, socketserver.TCPServer):
            daemon_threads = True
            block_on_close = False
            allow_reuse_address = True

        self._server: socketserver.BaseServer = Unix(str(path), Handler) if path else Tcp(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def paths(self) -> list[str]:
        """`GET /v1/jobs/1` of every request so far."""
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    def stop(self) -> None:
        """As a killed controller: nothing listens, connections break."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        parts = urlsplit(handler.path)
        headers = {name.lower(): text for name, text in handler.headers.items()}
        asked = Asked(handler.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
        with self._lock:
            self.asked.append(asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        reply = self.script(asked)
        if reply.before is not None:
            reply.before.wait(20)
        with self._lock:
            self.at_once -= 1
        _send(handler, reply)


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    if reply.cut and reply.chunks is None:
        handler.close_connection = True
        return
    handler.send_response(reply.status)
    for name, text in reply.headers.items():
        handler.send_header(name, text)
    if reply.chunks is None:
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)
    else:
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for chunk in reply.chunks:
            handler.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        if not reply.cut:
            handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = reply.cut or reply.close
