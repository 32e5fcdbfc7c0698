"""What `hal security check` looks at on this machine, and what it finds: modes and owners, listeners, certificates,
settings, tokens, and who may become whom.

Changes nothing, and prints no secret: of files with keys only the certificates are read, of the home's token not even
the text. What may not be looked at is listed as not seen.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from hal.core.model.printable import printable
from hal.core.model.units import format_duration
from hal.runtime.home import Home
from hal.runtime.listening import listening_at
from hal.runtime.privacy import others_may_write

if TYPE_CHECKING:
    from hal.client.rest.access_calls import TokenInfo
    from hal.core.model.config_sections import Effective

MAX_FILES: Final = 10_000
"""Files of one directory that are looked at."""
MAX_CERTIFICATE_BYTES: Final = 1 << 20
NEAR_END_MS: Final = 14 * 86_400_000
"""A certificate that ends so soon should have been renewed."""
UNUSED_MS: Final = 30 * 86_400_000
"""A token that was not used for so long since it was created is not needed."""
NEW_MS: Final = 86_400_000
"""For so long nobody wonders why a token was not used yet."""
LONG_MS: Final = 365 * 86_400_000
"""A token that is valid for longer outlives most reasons for it."""
ROOT: Final = 0


Settings = Mapping[tuple[str, str], Any]
"""As they hold, by section and key."""


class Severity(StrEnum):
    """How much a finding matters."""

    SERIOUS = "serious"
    """Somebody gets rights that they should not have."""
    WARNING = "warning"
    """Something protects less than it could, or soon will not work."""
    NOTE = "note"
    """Worth knowing."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing to mend."""

    severity: Severity
    what: str
    risk: str
    """What could happen."""
    mend: str
    """The command that mends it, or the setting to change."""


class Person(Struct, frozen=True, kw_only=True):
    """Somebody who has a role on this HAL."""

    who: str
    """A login name, or `everybody on this machine`."""
    role: str
    rule: str
    """Which rule says so."""


class Report(Struct, frozen=True, kw_only=True):
    """All that was found."""

    home: str
    running: bool
    findings: list[Finding]
    people: list[Person]
    unseen: list[str]
    """What could not be looked at, and why."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """In the order in which to mend them."""
    return sorted(findings, key=lambda one: list(Severity).index(one.severity))


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Files:
    """Looks at the files of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._owner = home.owner()
        self.unseen: list[str] = []

    def check(self) -> Iterator[Finding]:
        """All that belongs to HAL."""
        home = self._home
        yield from self._above(home.root)
        for path in (home.root, home.run_dir, home.database.parent, home.log_dir, home.nodes_dir, home.authority):
            yield from self._private(path, "read or change what HAL keeps there")
        secret = "act as this HAL, or as its owner"
        for path in (home.token, home.authority / "authority.key", *self._in(home.authority, ".key", ".pem")):
            if path.name != "authority.pem":
                yield from self._private(path, secret)
        for node in self._names(home.nodes_dir):
            identity = home.nodes_dir / node / "identity"
            for path in (identity, *self._in(identity, ".pem", ".key")):
                if path.name != "authority.pem":
                    yield from self._private(path, f"act as node {node}")
        for suffix in ("", "-wal", "-shm"):
            database = home.database.with_name(home.database.name + suffix)
            yield from self._private(database, "read all jobs and become anybody")
        for path in (home.store_mark, *self._in(home.log_dir / "audit", ".log")):
            yield from self._private(path, "read who did what, or change it")
        yield from self._shared(home.config, "they decide who is an admin, and what runs on nodes as prolog and epilog")
        yield from self._shared(home.gates, "they answer for the services that gate jobs")

    def sockets(self, public: str) -> Iterator[Finding]:
        """
        Args:
            public: the socket for other users; '': none.
        """
        named = self._read_socket_dir()
        if named and os.path.isdir(named) and self._home.known_socket_dir() is None:
            yield Finding(
                severity=Severity.SERIOUS,
                what=f"{named}, the directory of HAL's sockets, is not private to its owner",
                risk="others may take the place of HAL's sockets, or connect to them",
                mend="hal down && hal up",
            )
        if public:
            yield from self._public(Path(public))

    def _public(self, socket: Path) -> Iterator[Finding]:
        for directory in (socket.parent, *socket.parent.parents):
            info = self._stat(directory)
            if info is None:
                continue
            sticky = bool(info.st_mode & stat.S_ISVTX) and directory != socket.parent
            if info.st_uid not in (ROOT, self._owner) or (others_may_write(info) and not sticky):
                yield Finding(
                    severity=Severity.SERIOUS,
                    what=f"{directory}, in which the socket for other users is, can be changed by others",
                    risk="a program of theirs takes the socket's place, and gets what users send to HAL",
                    mend=f"chown root {directory} && chmod go-w {directory}",
                )

    def _read_socket_dir(self) -> str:
        try:
            return (self._home.run_dir / "socket-dir").read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _above(self, root: Path) -> Iterator[Finding]:
        """Whoever may rename a directory above may put another home in its place."""
        for directory in root.parents if self._owner is not None else ():
            info = self._stat(directory)
            if info is None:
                continue
            if info.st_uid not in (ROOT, self._owner):
                yield Finding(
                    severity=Severity.SERIOUS,
                    what=f"{directory}, above HAL_HOME, belongs to {_user(info.st_uid)}",
                    risk="they may put another home in its place, with settings and tokens of their own",
                    mend=f"move HAL_HOME to a directory of its owner, or: chown root {directory}",
                )
            elif others_may_write(info) and not info.st_mode & stat.S_ISVTX:
                yield Finding(
                    severity=Severity.SERIOUS,
                    what=f"others may write to {directory}, above HAL_HOME",
                    risk="they may put another home in its place, with settings and tokens of their own",
                    mend=f"chmod go-w {directory}",
                )

    def _private(self, path: Path, could: str) -> Iterator[Finding]:
        """Nobody but the owner may read or write it."""
        info = self._stat(path)
        if info is None:
            return
        if stat.S_ISLNK(info.st_mode):
            yield Finding(
                severity=Severity.SERIOUS,
                what=f"{path} is a symbolic link",
                risk="HAL reads and writes where somebody else has pointed it",
                mend=f"ls -l {path}; remove it if nobody of you has made it",
            )
            return
        if info.st_uid not in (ROOT, self._owner):
            yield Finding(
                severity=Severity.SERIOUS,
                what=f"{path} belongs to {_user(info.st_uid)}",
                risk=f"they may {could}",
                mend=f"chown {_user(self._owner)} {path}",
            )
        elif mode := stat.S_IMODE(info.st_mode) & 0o077:
            known = "" if stat.S_ISDIR(info.st_mode) or not mode & 0o044 else " (who has read it, may do so still)"
            right = "700" if stat.S_ISDIR(info.st_mode) else "600"
            yield Finding(
                severity=Severity.SERIOUS,
                what=f"{path} is open to others: mode {stat.S_IMODE(info.st_mode):04o}",
                risk=f"they may {could}{known}",
                mend=f"chmod {right} {path}",
            )

    def _shared(self, path: Path, risk: str) -> Iterator[Finding]:
        """What others may read, also through a link, and not change."""
        try:
            info = path.stat()
        except OSError as error:
            self._note(path, error)
            return
        if info.st_uid not in (ROOT, self._owner) or others_may_write(info):
            yield Finding(
                severity=Severity.SERIOUS,
                what=f"others may write to {path}",
                risk=risk,
                mend=f"chown {_user(self._owner)} {path} && chmod go-w {path}",
            )

    def _stat(self, path: Path) -> os.stat_result | None:
        try:
            return os.lstat(path)
        except OSError as error:
            self._note(path, error)
            return None

    def _note(self, path: Path, error: OSError) -> None:
        if isinstance(error, PermissionError):
            text = f"{path}: you may not look there"
            if text not in self.unseen:
                self.unseen.append(text)

    def _names(self, directory: Path) -> list[str]:
        try:
            return sorted(islice(os.listdir(directory), MAX_FILES))
        except OSError as error:
            self._note(directory, error)
            return []

    def _in(self, directory: Path, *suffixes: str) -> list[Path]:
        return [directory / name for name in self._names(directory) if name.endswith(suffixes)]


def check_login(path: Path) -> Iterator[Finding]:
    """The caller's own login, with a token."""
    try:
        info = path.stat()
    except OSError:
        return
    if info.st_mode & 0o077:
        yield Finding(
            severity=Severity.SERIOUS,
            what=f"{path} is open to others: mode {stat.S_IMODE(info.st_mode):04o}",
            risk="they have your token, and act as you",
            mend="hal logout; have the token revoked: hal api-token revoke ID",
        )


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def check_settings(settings: Settings, config: Path, *, raw_url: str, as_root: bool) -> Iterator[Finding]:
    """
    Args:
        settings: by section and key, as they hold.
        raw_url: of the store, as it is in the file.
        as_root: HAL belongs to root.
    """

    def on(section: str, key: str) -> Any:
        return settings.get((section, key))

    if on("access", "run_as_owner"):
        yield Finding(
            severity=Severity.SERIOUS,
            what="access.run_as_owner is on: all steps run as the account of whoever started HAL",
            risk="whoever may submit is root" if as_root else "whoever may submit has all rights of that account",
            mend=f"set run_as_owner = false under [access] in {config}, then: hal down && hal up",
        )
    tcp = str(on("server", "tcp") or "")
    if tcp and on("server", "plain_tcp"):
        beyond = not is_loopback_text(tcp)
        yield Finding(
            severity=Severity.SERIOUS if beyond else Severity.NOTE,
            what=f"REST at {tcp} is not encrypted (server.plain_tcp)",
            risk="whoever sees the network reads tokens, and acts with them"
            if beyond
            else "nothing while the port is on this machine only",
            mend=f"remove plain_tcp under [server] in {config}, then: hal down && hal up",
        )
    if not on("audit", "syslog"):
        yield Finding(
            severity=Severity.NOTE,
            what="audit.syslog is off: the audit log and its heads are in HAL's own files and store only",
            risk="whoever has HAL's account may rewrite the log, and the heads that would show it",
            mend=f"set syslog = true under [audit] in {config}; or keep what `hal audit head` prints elsewhere",
        )
    if int(on("access", "max_token_days") or 0) * 86_400_000 > LONG_MS:
        yield Finding(
            severity=Severity.NOTE,
            what=f"tokens may be valid for {on('access', 'max_token_days')} days (access.max_token_days)",
            risk="a token that was lost or copied is good for years",
            mend=f"set max_token_days = 365 under [access] in {config}",
        )
    yield from _password(config, raw_url)
    if on("access", "socket"):
        for field in ("users", "operators", "admins"):
            for name in on("access", field) or ():
                if name != "*" and not _exists(name):
                    yield Finding(
                        severity=Severity.WARNING,
                        what=f"access.{field} names {printable(name)}, who is no user of this machine",
                        risk="whoever gets that login name later has the role",
                        mend=f"remove it from {field} under [access] in {config}",
                    )


def _password(config: Path, url: str) -> Iterator[Finding]:
    try:
        if not urlsplit(url).password:
            return
        mode = stat.S_IMODE(config.stat().st_mode)
    except (ValueError, OSError):
        return
    if mode & 0o044:
        yield Finding(
            severity=Severity.SERIOUS,
            what=f"{config} has the password of the database, and others may read it: mode {mode:04o}",
            risk="whoever reads it may change the store, and so become anybody",
            mend=f"chmod 600 {config}; then change the password",
        )
    else:
        yield Finding(
            severity=Severity.NOTE,
            what=f"{config} has the password of the database",
            risk="it is in each copy and backup of the file",
            mend="put it into ~/.pgpass (mode 600) of HAL's account, and leave it out of store.url",
        )


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def is_loopback_text(address: str) -> bool:
    """Whether `HOST:PORT`, or a port alone, is on this machine only."""
    from hal.wire.address import is_loopback

    host, _, _ = address.rpartition(":")
    return not host or is_loopback(host.strip("[]"))


# ── listeners and certificates ────────────────────────────────────────────────────────────────────────────────────


def check_listeners(pids: Mapping[str, int], settings: Settings, unseen: list[str]) -> Iterator[Finding]:
    """What HAL's processes listen on beyond this machine, and is not encrypted or not in hal.toml.

    Args:
        pids: by process.
        unseen: gets what may not be looked at.
    """
    encrypted = {
        _port(str(settings.get(("server", key)) or ""))
        for key in ("tcp", "wire")
        if key == "wire" or not settings.get(("server", "plain_tcp"))
    }
    for process, pid in pids.items():
        found = listening_at(pid)
        if found is None:
            unseen.append(f"sockets of {process} (process {pid}): you may not look there")
            continue
        for host, port in found:
            if not is_loopback_text(f"[{host}]:{port}") and port not in encrypted:
                yield Finding(
                    severity=Severity.SERIOUS,
                    what=f"{process} listens at {host} port {port}, beyond this machine, without TLS",
                    risk="whoever sees the network reads tokens, and acts with them",
                    mend="leave out --tcp with another address than 127.0.0.1, or plain_tcp; then: hal down && hal up",
                )


def _port(address: str) -> int:
    _, _, port = address.rpartition(":")
    return int(port) if port.isdecimal() else 0


def check_certificates(places: Sequence[Path], now_ms: int, unseen: list[str]) -> Iterator[Finding]:
    """Certificates that have ended, or will soon: HAL renews its own in time while it runs."""
    from cryptography import x509

    for place in places:
        try:
            with place.open("rb") as file:
                text = file.read(MAX_CERTIFICATE_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            unseen.append(f"{place}: {error.strerror or 'cannot be read'}")
            continue
        try:
            found = x509.load_pem_x509_certificates(text)
            ends_ms = min(int(one.not_valid_after_utc.timestamp() * 1000) for one in found)
        except ValueError:
            continue
        if ends_ms - now_ms > NEAR_END_MS:
            continue
        left_ms = ends_ms - now_ms
        when = f"has ended {format_duration(-left_ms)} ago" if left_ms <= 0 else f"ends in {format_duration(left_ms)}"
        yield Finding(
            severity=Severity.SERIOUS if left_ms <= 0 else Severity.WARNING,
            what=f"the certificate {place} {when}",
            risk="clients and nodes refuse to connect",
            mend="put a new one there (HAL reads it within an hour); HAL's own are renewed while it runs: hal up",
        )


# ── tokens and people ─────────────────────────────────────────────────────────────────────────────────────────────


def check_tokens(tokens: Iterable[TokenInfo], now_ms: int) -> Iterator[Finding]:
    """Live ones that are not needed, or live too long."""
    for token in tokens:
        if token.state != "live":
            continue
        named = f"token {token.id} of {token.user} (role {token.role})"
        idle_ms = now_ms - (token.used_ms if token.used_ms is not None else token.created_ms)
        strong = token.role != "user"
        if token.used_ms is None and token.role == "admin" and idle_ms > NEW_MS:
            yield Finding(
                severity=Severity.WARNING,
                what=f"{named} was never used",
                risk="an admin's token that nobody misses can be used by whoever finds it",
                mend=f"hal api-token revoke {token.id}",
            )
        elif idle_ms > UNUSED_MS:
            yield Finding(
                severity=Severity.WARNING if strong else Severity.NOTE,
                what=f"{named} was not used for {format_duration(idle_ms // 86_400_000 * 86_400_000)}",
                risk="a token that nobody misses can be used by whoever finds it",
                mend=f"hal api-token revoke {token.id}",
            )
        if token.expires_ms - token.created_ms > LONG_MS:
            yield Finding(
                severity=Severity.NOTE,
                what=f"{named} is valid for more than a year",
                risk="if it is copied, it is good for as long",
                mend=f"hal api-token create {token.user} --expires-in 90d && hal api-token revoke {token.id}",
            )


def people_of(owner: str, settings: Settings, tokens: Iterable[TokenInfo]) -> list[Person]:
    """Who may become whom: whoever has a role, and by which rule."""
    people = [Person(who=owner, role="admin", rule="started HAL")]
    if owner != "root":
        people.append(Person(who="root", role="admin", rule="root of this machine"))
    if settings.get(("access", "socket")):
        for role, field in (("admin", "admins"), ("operator", "operators"), ("user", "users")):
            for name in settings.get(("access", field)) or ():
                who = "everybody on this machine" if name == "*" else printable(name)
                people.append(Person(who=who, role=role, rule=f"hal.toml: access.{field}"))
    for token in tokens:
        if token.state == "live":
            people.append(Person(who=token.user, role=token.role, rule=f"token {token.id}"))
    return people


def by_name(settings: Iterable[Effective]) -> Settings:
    """Settings by section and key."""
    return {(one.section, one.key): one.value for one in settings}


def _user(uid: int | None) -> str:
    if uid is None:
        return "nobody known"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def owner_name(home: Home) -> str:
    """Who started HAL."""
    return _user(home.owner())
