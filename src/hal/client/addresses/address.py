"""The address of a HAL: the Unix socket named in its HAL_HOME, or URLs of its controllers with a bearer token.

The socket's directory is read again for every connection, because a restart may choose another one.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace

from hal.client.addresses.endpoints import Endpoint
from hal.client.addresses.server_identity import (
    check_tcp,
    check_unix,
    refuse_plain,
    tcp_server_uid,
    unix_server_uid,
)
from hal.core.model.errors import DeniedError, UnreachableError
from hal.runtime.home import Home, find_home
from hal.runtime.identity import running
from hal.runtime.startup import comes_back, read_stage

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
