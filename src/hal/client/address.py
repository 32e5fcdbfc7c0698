"""Where a HAL answers: the Unix socket named in its HAL_HOME, or a URL with a bearer token.

The socket's directory is read again at every connection, because a restart may choose another one.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from hal.client.login import read_login
from hal.core.model.errors import DeniedError, SpecError, UnreachableError
from hal.runtime.home import Home, find_home
from hal.runtime.startup import stage

DEFAULT_PORT = 4250
"""Of `hal up --tcp` and of URLs that name none."""
URL_VARIABLE = "HAL_URL"
HOME_VARIABLE = "HAL_HOME"
TOKEN_VARIABLE = "HAL_TOKEN"
SOCKET_NAME = "api.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """One HAL: by its home directory on this machine, by a socket, or by host and port."""

    home: Home | None = None
    socket_path: str = ""
    host: str = ""
    port: int = 0
    token: str = ""

    @property
    def authority(self) -> str:
        """What goes into the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}" if self.host else "localhost"

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
                f"the HAL at {self.home.root} belongs to somebody else", hint="name your own with HAL_HOME or --home"
            ) from error
        if directory is None:
            raise self.unreachable("")
        return str(directory / SOCKET_NAME)

    def unreachable(self, why: str) -> UnreachableError:
        """The error that says which HAL does not answer, and how to start it."""
        if self.host:
            hint = "is it running with `hal up --tcp`, and is the port right?"
            return UnreachableError(f"no HAL answers at http://{self.authority}: {why}", hint=hint)
        if self.home is None:
            return UnreachableError(f"no HAL answers at {self.socket_path}: {why}", hint="start it with: hal up")
        if doing := stage(self.home):
            return UnreachableError(
                f"HAL at {self.home.root} is starting: {doing}",
                hint=f"try again in a moment, or let `{self.up_command}` wait for it",
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

    def connect(self, timeout_s: float) -> socket.socket:
        """A connected socket.

        Raises:
            UnreachableError: nobody listens there.
            DeniedError: the socket may not be used by this user.
        """
        if self.host:
            try:
                connection = socket.create_connection((self.host, self.port), timeout_s)
            except OSError as error:
                raise self.unreachable(error.strerror or str(error)) from error
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        path = self.path()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(path)
        except PermissionError as error:
            connection.close()
            raise DeniedError(
                f"may not speak to the HAL at {path}: {error.strerror}", hint="it belongs to somebody else"
            ) from error
        except OSError as error:
            connection.close()
            why = "its controller has stopped" if isinstance(error, FileNotFoundError | ConnectionRefusedError) else ""
            raise self.unreachable(why or error.strerror or str(error)) from error
        return connection


def find_address(
    home: str | os.PathLike[str] | None = None, url: str | None = None, token: str | None = None
) -> Address:
    """The HAL that is meant: what is given, else $HAL_URL, else $HAL_HOME, else what `hal login` kept, else the home
    directory's default.

    Args:
        home: its HAL_HOME on this machine.
        url: `http://host:port` or `unix:///path/of/api.sock`; wins over `home`.
        token: bearer token for http; default $HAL_TOKEN, else what `hal login` kept for this URL, else the `token` file
            in the home directory.
    Raises:
        SpecError: both are given, or the URL is not one.
    """
    if home is not None and url is not None:
        raise SpecError("home, url: both given", hint="give one of them")
    if home is None and url is None:
        url = os.environ.get(URL_VARIABLE) or None
        if url is None and not os.environ.get(HOME_VARIABLE) and (kept := read_login()) is not None:
            url = kept.url
    place = find_home(home)
    if url is None:
        return Address(home=place)
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path:
        return Address(socket_path=parts.path)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port or parts.path not in ("", "/"):
        raise SpecError(f"url: '{url}' is not the address of a HAL", hint="write http://HOST:PORT or unix:///PATH")
    return Address(host=parts.hostname, port=port, token=token or _token(place, url))


def _token(home: Home, url: str) -> str:
    if TOKEN_VARIABLE in os.environ:
        return os.environ[TOKEN_VARIABLE]
    kept = read_login()
    if kept is not None and kept.token and kept.url.rstrip("/") == url.rstrip("/"):
        return kept.token
    try:
        return home.token.read_text().strip()
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return ""
