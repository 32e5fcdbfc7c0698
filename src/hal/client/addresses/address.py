"""The address of a HAL: the Unix socket named in its HAL_HOME, or URLs of its controllers with a bearer token.

The socket's directory is read again for every connection, because a restart may choose another one.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hal.client.addresses.endpoints import Endpoint, read_endpoints
from hal.client.addresses.login import Login, read_login
from hal.client.addresses.server_identity import (
    check_tcp,
    check_unix,
    is_loopback,
    refuse_plain,
    tcp_server_uid,
    unix_server_uid,
)
from hal.core.model.errors import ConflictError, DeniedError, SpecError, UnreachableError
from hal.runtime.home import Home, find_home
from hal.runtime.identity import running
from hal.runtime.regular_files import NotRegularError, read_regular
from hal.runtime.startup import comes_back, read_stage

URL_VARIABLE = "HAL_URL"
HOME_VARIABLE = "HAL_HOME"
TOKEN_VARIABLE = "HAL_TOKEN"
FINGERPRINT_VARIABLE = "HAL_FINGERPRINT"
PLAIN_VARIABLE = "HAL_PLAIN"
MAX_FILE_BYTES: Final = 1 << 20
NODE_VARIABLE = "HAL_NODE"
STEP_TOKEN_VARIABLE = "HAL_STEP_TOKEN"
"""In the environment of a step: with it, `hal` there acts for the job's submitter."""
STEP_URL_VARIABLE = "HAL_STEP_URL"
"""There, too: where HAL can be reached from other machines, if it can."""
STEP_FINGERPRINT_VARIABLE = "HAL_STEP_FINGERPRINT"
STEP_SOCKET_VARIABLE = "HAL_STEP_SOCKET"
"""There, too, where steps run as their users: the socket that they may reach, on the controller's machine."""
ROOT_UID: Final = 0
LOGIN_TIMEOUT_S = 10.0
"""How long a server may take to accept a connection at a login."""
DIAL_TIMEOUT_S = 3.0
"""How long one of several controllers may take to accept a connection."""
SOCKET_NAME = "api.sock"
ANY_HOSTS = ("0.0.0.0", "::")
"""The hosts of a controller that listens on all addresses."""


class StartingError(UnreachableError):
    """The controller of this machine is starting, or is started again: it will answer soon."""


@dataclass(frozen=True, slots=True)
class Address:
    """One HAL: by its home directory on this machine, by a socket, or by its controllers."""

    home: Home | None = None
    socket_path: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    token: str = ""
    authority: str = ""
    """Certificate (PEM) of the only authority that is trusted over TLS; '': trust those of this machine."""
    fingerprint: str = ""
    """The same, by its fingerprint, if the certificate was not kept."""
    plain: bool = False
    """Without TLS, trust any machine and whoever answers there."""
    away: bool = False
    """This is a step on a machine from which the HAL cannot be reached."""
    served_by: int | None = None
    """User id of the server that `hal login` found on this machine."""
    by_token: bool = False
    """On a Unix socket: the token says who this is, not the kernel."""

    @property
    def named(self) -> str:
        """For people."""
        if self.endpoints:
            return ",".join(endpoint.url for endpoint in self.endpoints)
        return str(self.home.root) if self.home is not None else self.socket_path

    def believed(self, endpoint: Endpoint) -> str:
        """The authority that verifies a connection, fetched from there if only its fingerprint is known. Blocking.

        Raises:
            as `trust.pinned`.
        """
        if self.authority or not self.fingerprint:
            return self.authority
        from hal.client.addresses.trust import pinned

        return pinned(endpoint, self.fingerprint)

    def path(self) -> str:
        """The Unix socket's path now.

        Raises:
            UnreachableError: nothing was started with this home.
            DeniedError: the home belongs to somebody else.
        """
        if self.home is None:
            return self.socket_path
        try:
            directory = self.home.known_socket_dir()
        except PermissionError as error:
            raise DeniedError(
                f"the HAL at {self.home.root} belongs to another user", hint="name your own with HAL_HOME or --home"
            ) from error
        if directory is None:
            raise self.unreachable("")
        return str(directory / SOCKET_NAME)

    def unreachable(self, why: str, endpoint: Endpoint | None = None) -> UnreachableError:
        """The error for a HAL that does not answer, with how to start it."""
        if self.away:
            return UnreachableError(
                "HAL cannot be reached from this job: its controller is on another machine and serves no port with TLS",
                hint="run the command where the job was submitted, or set server.tcp in the controller's hal.toml",
            )
        if self.endpoints:
            hint = "check the port, and that HAL was started with: hal up --tcp PORT"
            there = endpoint.url if endpoint is not None else self.named
            return UnreachableError(f"no HAL answers at {there}: {why}", hint=hint)
        if self.home is None:
            return UnreachableError(f"no HAL answers at {self.socket_path}: {why}", hint="start it with: hal up")
        if doing := read_stage(self.home):
            return StartingError(
                f"HAL at {self.home.root} is starting: {doing}",
                hint=f"try again in a moment, or wait for it with: {self.up_command}",
            )
        if running(self.home.controller_pid) is not None:  # a follower that begins to lead serves nobody for a moment
            return StartingError(
                f"HAL at {self.home.root} does not answer yet; its controller runs",
                hint="try again in a moment; `hal status` shows what it does",
            )
        if comes_back(self.home):
            return StartingError(
                f"HAL at {self.home.root} is not running{f': {why}' if why else ''}; its supervisor starts it again",
                hint="try again in a moment; `hal status` shows how it ended",
            )
        return UnreachableError(
            f"HAL at {self.home.root} is not running{f': {why}' if why else ''}",
            hint=f"start it with: {self.up_command}",
        )

    @property
    def up_command(self) -> str:
        """What to type to start this HAL."""
        return (
            "hal up" if self.home is None or self.home.root == find_home().root else f"hal up --home {self.home.root}"
        )

    def connect(self, timeout_s: float, endpoint: Endpoint | None = None) -> socket.socket:
        """A connected socket.

        Args:
            endpoint: which controller, where there are some.
        Raises:
            UnreachableError: nobody listens there.
            DeniedError: the socket may not be used by this user, or whoever answers is not believed.
        """
        if endpoint is not None:
            return self._connect(endpoint, timeout_s)
        path = self.path()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(path)
        except PermissionError as error:
            connection.close()
            raise DeniedError(
                f"you may not connect to the HAL at {path}: {error.strerror}",
                hint="it belongs to another user; name your own with HAL_HOME or --home",
            ) from error
        except OSError as error:
            connection.close()
            why = "its controller has stopped" if isinstance(error, FileNotFoundError | ConnectionRefusedError) else ""
            raise self.unreachable(why or error.strerror or str(error)) from error
        try:
            check_unix(self, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        refuse_plain(self, endpoint)
        dial_s = min(timeout_s, DIAL_TIMEOUT_S) if len(self.endpoints) > 1 else timeout_s
        try:
            connection = socket.create_connection((endpoint.host, endpoint.port), dial_s)
        except OSError as error:
            raise self.unreachable(error.strerror or str(error), endpoint) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not endpoint.tls:
            connection.settimeout(timeout_s)
            try:
                check_tcp(self, endpoint, connection)
            except BaseException:
                connection.close()
                raise
            return connection
        import ssl

        from hal.client.addresses.trust import context_for, server_name, tls_error

        authority = ""
        try:
            authority = self.believed(endpoint)
            secured = context_for(authority).wrap_socket(connection, server_hostname=server_name(endpoint, authority))
        except ssl.SSLError as error:
            connection.close()
            raise tls_error(endpoint, error, authority) from error
        except OSError as error:
            connection.close()
            raise self.unreachable(error.strerror or str(error), endpoint) from error
        except BaseException:
            connection.close()
            raise
        secured.settimeout(timeout_s)
        return secured


def find_server(address: Address, endpoint: Endpoint | None) -> int:
    """User id of whoever serves the address without TLS on this machine; nothing is sent. Blocking.

    Args:
        endpoint: None: the address is that of a socket.
    Raises:
        DeniedError: it is on another machine, or its user cannot be determined.
        UnreachableError: nobody serves it.
    """
    if endpoint is not None:
        refuse_plain(address, endpoint)
    connection = replace(address, plain=True).connect(LOGIN_TIMEOUT_S, endpoint)
    try:
        return unix_server_uid(connection) if endpoint is None else tcp_server_uid(address, endpoint, connection)
    finally:
        connection.close()


def find_address(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    *,
    plain: bool = False,
) -> Address:
    """Find the HAL to talk to: what is given, else $HAL_URL, else $HAL_HOME, else the login, else the default home.

    Args:
        home: its HAL_HOME on this machine.
        url: `https://host:port`, several of one HAL separated by commas, or `unix:///path/of/api.sock`.
        token: bearer token for URLs; default $HAL_TOKEN, else that of the login, else the `token` file in
            the home directory where the URLs are those of its own HAL. Without one, a Unix socket takes whom the kernel
            names.
        fingerprint: of the HAL's own authority, for https; default $HAL_FINGERPRINT, else what `hal login` kept for
            them, else the authority in the home directory; without any the authorities of this machine are asked.
        plain: send it without TLS to any machine and to whoever answers there; default $HAL_PLAIN, else what
            `hal login` kept for them.
    Raises:
        SpecError: home and URL are given, or what is given is malformed.
    """
    if home is not None and url is not None:
        raise SpecError("home and url cannot be combined", hint="give one of them")
    if home is None and url is None:
        url = os.environ.get(URL_VARIABLE) or None
        if url is None and not os.environ.get(HOME_VARIABLE) and (kept := read_login()) is not None:
            url = kept.url
    base = find_home(home)
    if url is None:
        return _of_home(base)
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path:
        given = token or os.environ.get(TOKEN_VARIABLE, "")
        return Address(socket_path=parts.path, token=given, served_by=_served_by(url), by_token=bool(given))
    endpoints = read_endpoints(url)
    login = _login_for(endpoints)
    if login is not None and login.refresh and not token and TOKEN_VARIABLE not in os.environ:
        from hal.client.login_renewal import renewed

        login = renewed(login)
    authority, fingerprint = _authority(base, endpoints, login, fingerprint)
    return Address(
        endpoints=endpoints,
        token=token or _token(base, login, endpoints, authority, fingerprint),
        authority=authority,
        fingerprint=fingerprint,
        plain=plain or _flag(PLAIN_VARIABLE) or (login is not None and login.plain),
        served_by=None if login is None else login.served_by,
    )


def _of_home(home: Home) -> Address:
    """The HAL of that home; inside a step of it, with the step's token, and from another machine over TLS."""
    token, named, node = (os.environ.get(name) for name in (STEP_TOKEN_VARIABLE, HOME_VARIABLE, NODE_VARIABLE))
    if not token or not named or find_home(named).root != home.root:
        return Address(home=home)
    url, reached = os.environ.get(STEP_URL_VARIABLE), os.environ.get(STEP_SOCKET_VARIABLE)
    try:
        if not node or not (home.nodes_dir / node).is_dir():
            return Address(home=home)  # a HAL of the job's own
        directory = home.known_socket_dir()
    except PermissionError:  # the step runs as its user, and HAL's directories are root's
        directory = None
        if reached and os.path.exists(reached):
            return Address(socket_path=reached, token=token, served_by=ROOT_UID)
    if (directory is not None and (directory / SOCKET_NAME).exists()) or _exists(home.controller_pid):
        return Address(home=home, token=token)
    if url and (endpoints := read_endpoints(url)) and all(endpoint.tls for endpoint in endpoints):
        return Address(endpoints=endpoints, token=token, fingerprint=os.environ.get(STEP_FINGERPRINT_VARIABLE, ""))
    return Address(home=home, token=token, away=True)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _served_by(url: str) -> int | None:
    """Who served that socket when it was logged in at."""
    try:
        kept = read_login()
    except (ConflictError, DeniedError):  # nothing of it is needed here
        return None
    return kept.served_by if kept is not None and kept.url == url else None


def _login_for(endpoints: tuple[Endpoint, ...]) -> Login | None:
    """What was kept for these controllers: it is shown to no other one."""
    kept = read_login()
    if kept is None or kept.url.startswith("unix:"):
        return None
    return kept if set(endpoints) <= set(read_endpoints(kept.url)) else None


def _token(home: Home, login: Login | None, endpoints: tuple[Endpoint, ...], authority: str, fingerprint: str) -> str:
    if TOKEN_VARIABLE in os.environ:
        return os.environ[TOKEN_VARIABLE]
    if login is not None and login.token:
        return login.token
    return _text(home.token) if _is_of(home, endpoints, authority, fingerprint) else ""


def _is_of(home: Home, endpoints: tuple[Endpoint, ...], authority: str, fingerprint: str) -> bool:
    """Whether only the HAL of this home can answer there: its token is for nobody else.

    Over TLS its authority says so, wherever that is; without it, the port that its controller serves on this machine.
    """
    if all(endpoint.tls for endpoint in endpoints):
        own = _text(home.authority / "authority.pem")
        if fingerprint and own:
            from hal.client.addresses.trust import fingerprint_of

            return fingerprint_of(own) == fingerprint
        return bool(own) and authority == own
    served = home.served_tcp()
    return served is not None and all(_serves(served, endpoint) for endpoint in endpoints)


def _serves(served: tuple[str, int], endpoint: Endpoint) -> bool:
    host, port = served
    if endpoint.port != port or not is_loopback(endpoint.host):
        return False
    return (
        endpoint.host in (host, "localhost")
        or host in ANY_HOSTS
        or (host == "localhost" and is_loopback(endpoint.host))
    )


def _authority(
    home: Home, endpoints: tuple[Endpoint, ...], login: Login | None, fingerprint: str | None
) -> tuple[str, str]:
    """Its certificate, and its fingerprint where that is all that is known; neither: those of this machine count."""
    if not any(endpoint.tls for endpoint in endpoints):
        return "", ""
    told = fingerprint or os.environ.get(FINGERPRINT_VARIABLE)
    if told:
        from hal.client.addresses.trust import read_fingerprint

        return "", read_fingerprint(told)
    if login is not None:
        return login.authority, ""
    return _text(home.authority / "authority.pem"), ""


def _text(file: Path) -> str:
    try:
        return read_regular(file, MAX_FILE_BYTES, follow=True).decode().strip()
    except (FileNotFoundError, PermissionError, NotADirectoryError, NotRegularError):
        return ""
