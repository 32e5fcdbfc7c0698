"""Who serves the other end of a connection on this machine: the kernel knows, before anything is sent.

A port on the loopback address may be taken by any user while HAL is down, and so may the path of a socket in a
directory that others write to. What goes over such a connection (a token, the variables of a job) is for a server of
this user, of root, or of whom `hal login` found there.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from typing import TYPE_CHECKING, Final, Protocol

from hal.core.model.errors import DeniedError

if TYPE_CHECKING:
    from hal.client.addresses.endpoints import Endpoint
    from hal.runtime.home import Home

TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
LOOKS: Final = 3
"""How often the tables are read: a row that moves while they are read may be missed."""
ROOT_UID: Final = 0
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
_LOOPBACK_6: Final = b"\0" * 15 + b"\1"
_LISTENING: Final = b"0A"
_CREDENTIALS: Final = struct.Struct("3i")


class Trust(Protocol):
    """Which servers an address trusts."""

    @property
    def plain(self) -> bool:
        """Trust any machine, and whoever answers there."""

    @property
    def served_by(self) -> int | None:
        """User id of the server that `hal login` found."""

    @property
    def home(self) -> Home | None:
        """The home directory by which the HAL was named."""


def is_loopback(host: str) -> bool:
    """Whether that is written as an address that only this machine has; a name other than localhost is not."""
    packed = _packed(host)
    return host == "localhost" if packed is None else packed == _LOOPBACK_6 or (len(packed) == 4 and packed[0] == 127)


def refuse_plain(trust: Trust, endpoint: Endpoint) -> None:
    """Refuse to send plain text to another machine, unless that was asked for. A name is checked once it is connected.

    Raises:
        DeniedError: it would be sent to one.
    """
    if _packed(endpoint.host) is not None:
        _refuse_plain(trust, endpoint, endpoint.host)


def check_tcp(trust: Trust, endpoint: Endpoint, connection: socket.socket) -> None:
    """Whether a connection without TLS may be used; nothing was sent on it yet.

    Raises:
        DeniedError: it leads to another machine, or somebody else serves it.
    """
    if trust.plain:
        return
    uid = tcp_server_uid(trust, endpoint, connection)
    if uid not in _trusted(trust):
        raise DeniedError(
            f"{endpoint.url} is served by user id {uid}, not by you, root, or the user of your login; nothing was sent",
            hint=f"if it is the right HAL, trust that user: hal login {endpoint.url}",
        )


def check_unix(trust: Trust, connection: socket.socket) -> None:
    """Whether a connection to a Unix socket may be used; nothing was sent on it yet.

    Raises:
        DeniedError: somebody else serves it.
    """
    if trust.plain:
        return
    path = os.fsdecode(connection.getpeername())
    uid = unix_server_uid(connection)
    if uid in _trusted(trust) or uid == _keeper_of(os.path.dirname(path)):
        return
    raise DeniedError(
        f"{path} is served by user id {uid}, not by you, root, or the owner of its directory; nothing was sent",
        hint=f"if it is the right HAL, trust that user: hal login unix://{path}",
    )


def tcp_server_uid(trust: Trust, endpoint: Endpoint, connection: socket.socket) -> int:
    """User id of the server at the other end of a connection without TLS.

    Raises:
        DeniedError: it is on another machine, or its user cannot be determined.
    """
    _refuse_plain(trust, endpoint, str(connection.getpeername()[0]))
    uid = server_uid(connection)
    if uid is None:
        raise DeniedError(
            f"the user that serves {endpoint.url} cannot be determined; nothing was sent",
            hint="use https://, or to trust whoever answers: --plain, plain=True or HAL_PLAIN=1",
        )
    return uid


def unix_server_uid(connection: socket.socket) -> int:
    """User id of the process that listened when this was connected."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(data)[1]
    return uid


def server_uid(connection: socket.socket) -> int | None:
    """Whose the other end of a connection within this machine is; None: it is not seen here.

    Of a connection that nobody accepted yet, which the kernel shows without an owner, it is who listens: when the
    listener goes, so does the connection.
    """
    ours, theirs = _forms(connection.getsockname()), _forms(connection.getpeername())
    port = theirs[0].rpartition(b":")[2]
    listening = {*theirs, *(b"0" * digits + b":" + port for digits in (8, 32))}
    for _ in range(LOOKS):
        listeners: set[int] = set()
        accepted: int | None = None
        waits = False
        for table in TABLES:
            for local, remote, state, uid, inode in _rows(table, port):
                if state == _LISTENING and local in listening:
                    listeners.add(uid)
                elif local in theirs and remote in ours:
                    accepted, waits = (uid, waits) if inode else (accepted, True)
        if accepted is not None:
            return accepted
        if waits and len(listeners) == 1:
            return listeners.pop()
    return None


def _rows(table: str, port: bytes) -> list[tuple[bytes, bytes, bytes, int, int]]:
    """Local and remote address, state, user id and inode of the sockets with that local port."""
    try:
        with open(table, "rb") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 10 and fields[1].endswith(b":" + port):
            found.append((fields[1], fields[2], fields[3], int(fields[7]), int(fields[9])))
    return found


def _forms(name: tuple[object, ...]) -> tuple[bytes, ...]:
    """How the kernel's tables write an address and port: IPv4 also as mapped into IPv6."""
    packed = _packed(str(name[0])) or b""
    forms = (packed, _MAPPED + packed) if len(packed) == 4 else (packed,)
    return tuple(f"{_words(form)}:{name[1]:04X}".encode() for form in forms)


def _packed(host: str) -> bytes | None:
    """The bytes of an address, of one of IPv4 that is mapped into IPv6 its four; None: it is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):
            continue
        return packed.removeprefix(_MAPPED) if len(packed) == 16 else packed
    return None


def _words(packed: bytes) -> str:
    return "".join(f"{int.from_bytes(packed[at : at + 4], sys.byteorder):08X}" for at in range(0, len(packed), 4))


def _refuse_plain(trust: Trust, endpoint: Endpoint, host: str) -> None:
    if endpoint.tls or trust.plain or is_loopback(host):
        return
    raise DeniedError(
        f"{endpoint.url} is on another machine, and http:// would send tokens and jobs unencrypted",
        hint=f"write {endpoint._replace(tls=True).url}; or, on a trusted network: --plain, plain=True or HAL_PLAIN=1",
    )


def _trusted(trust: Trust) -> set[int]:
    trusted = {os.geteuid(), ROOT_UID}
    if trust.served_by is not None:
        trusted.add(trust.served_by)
    if trust.home is not None and os.geteuid() == ROOT_UID and (owner := trust.home.owner()) is not None:
        trusted.add(owner)  # root asked for that user's HAL by its home
    return trusted


def _keeper_of(directory: str) -> int | None:
    """Who alone can put a socket there; None: others can, too."""
    try:
        info = os.stat(directory)
    except OSError:
        return None
    return None if stat.S_IMODE(info.st_mode) & 0o022 else info.st_uid
