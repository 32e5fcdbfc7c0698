"""The file that makes a process part of a session: its id, its token, where its broker listens.

Whoever opens a session writes it, mode 0600; broker, workers and other clients of the same user read it. The token is
the session's own and is never an argument or a variable of a process. On the network the broker's file and that of
the others differ: each has the certificate and the key of its own side.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hal.core.model.errors import NotFoundError, SpecError
from hal.runtime.privacy import check_secret, write_private
from hal.runtime.regular_files import read_regular

MAX_FILE_BYTES: Final = 1 << 16
TOKEN_BYTES: Final = 32
MAX_ADDRESSES: Final = 8
MAX_SHARDS: Final = 64
MAX_PORT: Final = 65_535
MAX_SOCKET_PATH: Final = 100
"""Of a Unix socket; the kernel allows 107 bytes."""
UNIX: Final = "unix:"
TCP: Final = "tcp:"
ANY_HOST: Final = "*"
"""In an address where a broker listens: all addresses of its machine, of IPv4 and of IPv6."""
SESSION_FILE: Final = "session.json"
"""Its name in a directory of the session's own."""
OTHERS_FILE: Final = "others.json"
"""There, of a durable session on the network: the file of all who dial the broker."""
PORT_FILE: Final = "port"
"""There, too, and in those of its shards: at which port the broker was reached first."""
IN_SECRETS: Final = "$HAL_SECRETS_DIR/"
"""How the name of a file begins that is a secret of its job."""

Word = Annotated[str, Meta(min_length=1, max_length=256)]
Path_ = Annotated[str, Meta(max_length=4_096)]
Pem = Annotated[str, Meta(max_length=16_384)]


class SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file, as JSON."""

    id: Word
    """Unique."""
    token: Annotated[str, Meta(min_length=32, max_length=256)]
    name: Annotated[str, Meta(max_length=256)] = ""
    """For people."""
    listen: Annotated[tuple[Path_, ...], Meta(max_length=MAX_ADDRESSES)]
    """Where the broker listens, each `unix:PATH` or `tcp:HOST:PORT`; `$NAME` stands for a variable of its
    environment."""
    dial: Annotated[tuple[Path_, ...], Meta(max_length=MAX_ADDRESSES)] = ()
    """Where clients and workers dial it, the first that answers; if empty, where it listens."""
    authority: Pem = ""
    """Of a session on the network: who has signed the certificates of both sides."""
    certificate: Pem = ""
    """Certificate and key of the side that this file is for: the broker, or all who dial it."""
    journal: Path_ = ""
    """A directory of this session alone; with one it is durable."""
    shapes: Annotated[tuple[Annotated[str, Meta(max_length=32, pattern="^[a-z0-9-]+$")], ...], Meta(max_length=15)] = ()
    """Shapes of its slots, beside that of the session itself."""
    collector: Path_ = ""
    """The socket of a collector, to which the broker sends what it counts if it is there; '': nowhere."""
    shards: Annotated[int, Meta(ge=0, le=MAX_SHARDS)] = 0
    """Brokers that share its tasks and slots; 0: there is one, and this file is its own. See `shard_of`."""
    shard_dials: Annotated[tuple[Path_, ...], Meta(max_length=MAX_SHARDS)] = ()
    """Where else the broker of each shard is reached."""
    linger_s: Annotated[int, Meta(ge=0, le=86_400 * 30)] = 0
    """The broker ends when it has had no client for so long; 0: only when it is stopped."""
    away_s: Annotated[int, Meta(ge=1, le=86_400 * 30)] = 3_600
    """Workers of a node from which the broker's machine was not reached for so long take the session for over."""
    passing: bool = False
    """The file's directory is the session's own: the broker takes it away when it ends."""

    @property
    def dialled(self) -> tuple[str, ...]:
        """Where clients and workers dial."""
        return self.dial or self.listen


def new_session_file(
    directory: Path, *, name: str = "", linger_s: int = 0, passing: bool = False, durable: bool = False
) -> SessionFile:
    """Make up a session whose broker listens on a socket in a private directory of this machine.

    Args:
        durable: its journal is there, too.
    """
    return SessionFile(
        id=secrets.token_hex(16),
        token=secrets.token_hex(TOKEN_BYTES),
        name=name,
        listen=(f"{UNIX}{directory / 'broker.sock'}",),
        journal=str(directory / "journal") if durable else "",
        linger_s=linger_s,
        passing=passing,
    )


def shard_of(session: SessionFile, number: int) -> SessionFile:
    """The file of one broker of a session that has several: they differ in their ids, sockets and journals.

    Raises:
        SpecError: there is no such shard.
    """
    if not 0 <= number < session.shards:
        raise SpecError(f"shard {number} of session '{session.name}'", hint=f"it has {session.shards}, from 0")
    name = f"{session.id}-{number}"

    def own(path: str) -> str:
        if session.id in path:
            return path.replace(session.id, name)
        parent, _, last = path.rpartition("/")
        return f"{parent}/{number}/{last}"

    def address(text: str) -> str:
        return own(text) if text.startswith(UNIX) else text

    found = msgspec.structs.replace(
        session,
        id=name,
        listen=tuple(map(address, session.listen)),
        dial=tuple(map(address, session.dial)),
        journal=own(session.journal) if session.journal else "",
        shards=0,
        shard_dials=(),
    )
    return reached_at(found, session.shard_dials[number]) if session.shard_dials else found


def shards_of(session: SessionFile) -> list[SessionFile]:
    """The file of each broker; that of the session itself, if there is one."""
    return [shard_of(session, number) for number in range(session.shards)] if session.shards else [session]


def shards_at(session: SessionFile, addresses: Sequence[str]) -> SessionFile:
    """As `reached_at`; of a session with several brokers one address of each, in order.

    Raises:
        SpecError: one is no address, or there are more or fewer.
    """
    if not session.shards:
        for address in addresses:
            session = reached_at(session, address)
        return session
    if addresses and len(addresses) != session.shards:
        raise SpecError(f"{len(addresses)} addresses of {session.shards} shards")
    for address in addresses:
        parse_address(address)
    found = msgspec.structs.replace(session, shard_dials=tuple(addresses))
    check_session(found)
    return found


def reached_at(session: SessionFile, address: str) -> SessionFile:
    """The same, for who reaches the broker at one more address, tried last; '': at no other.

    Raises:
        SpecError: it is no address.
    """
    if not address:
        return session
    parse_address(address)
    found = msgspec.structs.replace(session, dial=(*session.dialled, address))
    check_session(found)
    return found


def write_session_file(path: Path, session: SessionFile) -> None:
    """Write it for this user alone."""
    write_private(path, msgspec.json.encode(session).decode())


def read_session_file(path: Path) -> SessionFile:
    """Read it.

    Raises:
        NotFoundError: there is none.
        DeniedError: others may read it.
        SpecError: it is not one.
    """
    check_secret(path)
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise NotFoundError(f"there is no session file {path}") from None
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        session = msgspec.json.decode(data, type=SessionFile)
    except msgspec.DecodeError as error:
        raise SpecError(f"{path} is not a session file: {error}") from error
    check_session(session)
    return session


def check_session(session: SessionFile) -> None:
    """Check that nothing of a session crosses a network as plain text.

    Raises:
        SpecError: it names an address of TCP, and no certificates.
    """
    dialled = (*session.listen, *session.dial, *session.shard_dials)
    on_network = any(address.startswith(TCP) for address in dialled)
    if on_network and not (session.authority and session.certificate):
        raise SpecError(
            "a session with an address of TCP needs 'authority' and 'certificate'",
            hint="hal.runtime.session_certificates makes them",
        )


def parse_address(address: str) -> Path | tuple[str, int]:
    """The path of a Unix socket, or host and port; variables are filled in.

    Raises:
        SpecError: it is no address of a broker, or too long for the kernel.
    """
    text = os.path.expandvars(address)
    if text.startswith(TCP):
        host, _, port = text.removeprefix(TCP).rpartition(":")
        if not host.strip("[]") or not (port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT):
            raise SpecError(f"'{address}' is not an address of TCP", hint="write tcp:HOST:PORT")
        return host.strip("[]"), int(port)
    if not text.startswith(UNIX):
        raise SpecError(f"'{address}' is not the address of a broker", hint="write unix:PATH or tcp:HOST:PORT")
    path = Path(text.removeprefix(UNIX))
    if not path.is_absolute() or len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise SpecError(f"the socket {path} of a broker needs an absolute path of at most {MAX_SOCKET_PATH} bytes")
    return path


def durable_directory(hal: str, name: str) -> Path:
    """The directory of this user's durable session of that name: it outlives processes and restarts of the machine.

    Args:
        hal: whose session it is.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "hal-sessions" / hashlib.sha256(f"{hal}\n{name}".encode()).hexdigest()[:24]


def private_directory() -> Path:
    """Make a directory for a session of this machine: short, private, new."""
    return Path(tempfile.mkdtemp(prefix="hal-session-", dir=os.environ.get("XDG_RUNTIME_DIR") or None))
