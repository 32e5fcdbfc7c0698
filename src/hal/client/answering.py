"""Who serves the other end of a connection on this machine: the kernel says, before anything is sent.

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
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hal.core.model.errors import DeniedError

if TYPE_CHECKING:
    from hal.client.address import Address
    from hal.client.places import Place

TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
DIAL_S: Final = 10.0
LOOKS: Final = 3
"""How often the tables are read: a row that moves while they are read may be missed."""
ROOT_UID: Final = 0
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
_LOOPBACK_6: Final = b"\0" * 15 + b"\1"
_LISTENING: Final = b"0A"
_CREDENTIALS: Final = struct.Struct("3i")


def is_loopback(host: str) -> bool:
    """Whether that is written as an address that only this machine has; a name other than localhost is not."""
    packed = _packed(host)
    return host == "localhost" if packed is None else packed == _LOOPBACK_6 or (len(packed) == 4 and packed[0] == 127)


def refuse_plain(address: Address, place: Place) -> None:
    """Nothing goes to another machine in plain text, unless that was asked for. What a name means is looked at when it
    was connected to.

    Raises:
        DeniedError: it would.
    """
    if _packed(place.host) is not None:
        _refuse_plain(address, place, place.host)


def find_server(address: Address, place: Place | None) -> int | None:
    """Whose it is who serves there without TLS on this machine, whoever that may be; nothing is sent. Blocking.

    Args:
        place: None: the address is a socket's.
    Raises:
        DeniedError: it is another machine, or who serves it cannot be seen.
        UnreachableError: nobody does.
    """
    if place is not None:
        refuse_plain(address, place)
    connection = replace(address, plain=True).connect(DIAL_S, place)
    try:
        if place is None:
            return unix_server_uid(connection)
        _refuse_plain(address, place, str(connection.getpeername()[0]))
        return _seen(place, connection)
    finally:
        connection.close()


def check_tcp(address: Address, place: Place, connection: socket.socket) -> None:
    """Whether a connection without TLS may be used; nothing was sent on it yet.

    Raises:
        DeniedError: it leads to another machine, or somebody else serves it.
    """
    if address.plain:
        return
    _refuse_plain(address, place, str(connection.getpeername()[0]))
    uid = _seen(place, connection)
    if uid not in _trusted(address):
        raise DeniedError(
            f"user id {uid} serves {place.url}, not you, root, or whom you logged in at; nothing was sent",
            hint=f"if that is the HAL that you mean: hal login {place.url}",
        )


def check_unix(address: Address, connection: socket.socket) -> None:
    """Whether a connection to a Unix socket may be used; nothing was sent on it yet.

    Raises:
        DeniedError: somebody else serves it.
    """
    if address.plain:
        return
    path = os.fsdecode(connection.getpeername())
    uid = unix_server_uid(connection)
    if uid in _trusted(address) or uid == _keeper_of(os.path.dirname(path)):
        return
    raise DeniedError(
        f"user id {uid} serves {path}, not you, root, or the owner of its directory; nothing was sent",
        hint=f"if that is the HAL that you mean: hal login unix://{path}",
    )


def unix_server_uid(connection: socket.socket) -> int:
    """Of whom listened when this was connected."""
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


def _seen(place: Place, connection: socket.socket) -> int:
    uid = server_uid(connection)
    if uid is None:
        raise DeniedError(
            f"who serves {place.url} cannot be seen, and nothing was sent",
            hint="use https://, or --plain (plain=True, HAL_PLAIN=1) for whoever answers there",
        )
    return uid


def _refuse_plain(address: Address, place: Place, host: str) -> None:
    if place.tls or address.plain or is_loopback(host):
        return
    raise DeniedError(
        f"{place.url} is another machine, and http:// would send tokens and jobs there in plain text",
        hint=f"write {place._replace(tls=True).url}; on a network that you trust: --plain, plain=True or HAL_PLAIN=1",
    )


def _trusted(address: Address) -> set[int]:
    trusted = {os.geteuid(), ROOT_UID}
    if address.served_by is not None:
        trusted.add(address.served_by)
    if address.home is not None and os.geteuid() == ROOT_UID and (owner := address.home.owner()) is not None:
        trusted.add(owner)  # root asked for that user's HAL by its home
    return trusted


def _keeper_of(directory: str) -> int | None:
    """Who alone can put a socket there; None: others can, too."""
    try:
        info = os.stat(directory)
    except OSError:
        return None
    return None if stat.S_IMODE(info.st_mode) & 0o022 else info.st_uid
