"""A blocking connection that carries frames over TLS 1.3, for the processes of sessions on several machines.

Each side shows a certificate of the session's own authority: the broker's says that it is the broker, so that no other
process of the session can stand in for it, and a stranger is refused before it has said anything. Standard library.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Any, Final

from hal.core.model.errors import DeniedError, SpecError, UnreachableError
from hal.runtime.frame_link import READ_BYTES, AwayError, FrameLink
from hal.runtime.memory_file import in_memory
from hal.runtime.session_file import SessionFile
from hal.runtime.stream_link import keep_alive
from hal.wire.frames.conversation import Conversation, F
from hal.wire.roles import Role, host_name

RECORD_BYTES: Final = 16_384
"""Plain text of one record of TLS: what one read returns at most."""
WRITE_BYTES: Final = 1 << 18
"""Handed to TLS at once."""


def dial_tls_link(
    host: str, port: int, session: SessionFile, conversation: Conversation[Any], timeout_s: float
) -> FrameLink[Any]:
    """Connect to a session's broker over TLS.

    Raises:
        UnreachableError: nobody answers there.
        DeniedError: whoever does is not the broker of this session.
        SpecError: the session's certificates cannot be used.
    """
    try:
        context = _context(session)
    except OSError as error:
        raise SpecError(f"the certificates of the session's file cannot be used: {error}") from error
    try:
        plain = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        kind = UnreachableError if isinstance(error, ConnectionRefusedError) else AwayError
        raise kind(f"nobody serves {host}:{port}: {error.strerror or error}") from error
    try:
        keep_alive(plain)
        sock = context.wrap_socket(plain, server_hostname=host_name(Role.BROKER))
    except OSError as error:
        plain.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise DeniedError(f"{host}:{port} is not the broker of this session: {error.verify_message}") from error
        raise UnreachableError(f"{host}:{port} does not answer as a broker: {error.strerror or error}") from error
    return TlsFrameLink(sock, conversation)


def _context(session: SessionFile) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=session.authority)
    with in_memory(session.certificate) as path:
        context.load_cert_chain(path)
    return context


class TlsFrameLink(FrameLink[F]):
    """Frames over one connection of TLS.

    OpenSSL's connection takes one call at a time, and a thread that waits must not keep the others away: so the socket
    does not block, and who waits holds no lock.
    """

    def __init__(self, sock: ssl.SSLSocket, conversation: Conversation[F]) -> None:
        """Take over a socket whose handshake is over."""
        super().__init__(sock, conversation)
        sock.setblocking(False)
        self._tls = threading.Lock()
        """Held during a call of OpenSSL."""
        self._room = select.poll()
        self._room.register(sock, select.POLLOUT)

    def _tune(self, sock: socket.socket) -> None:
        """The kernel finds the sizes of buffers for the way to the other machine."""

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                with self._tls:
                    sent = self._sock.send(view[:WRITE_BYTES])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._room.poll()
                continue
            view = view[sent:]

    def _read(self) -> bytes:
        while True:
            parts, size = [], 0
            with self._tls:
                try:
                    while size < READ_BYTES:
                        part = self._sock.recv(RECORD_BYTES)
                        parts.append(part)
                        size += len(part)
                        if not part:
                            break
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
                except OSError:
                    if not size:
                        raise
            if parts:
                return b"".join(parts)
            self._poll.poll()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # SSLSocket's own would take TLS away from a reader
        with self._tls:
            self._sock.close()
