"""TLS 1.3 contexts of both sides, the contents of a verified certificate, and explanations of failed handshakes.

Every certificate comes from HAL's own authority (`hal.runtime.authority`); the machine's own list of authorities is
never used. Sessions are not resumed: each connection is verified again.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from hal.core.model.errors import DeniedError, HALError, UnreachableError
from hal.runtime.interface import Credentials, TcpAddress
from hal.wire.peer import CertifiedName
from hal.wire.roles import Role, host_name

CONTROLLER_HOST: Final = host_name(Role.CONTROLLER)
"""DNS name in every controller's certificate; the address that was dialled does not matter."""
URI_PREFIX: Final = "hal://"
_PEM_HINT: Final = "certificate and key as PEM, the key without a password"
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Create the context of a listener. A client may present no certificate; one that it presents must come from the
    authority.

    Raises:
        DeniedError: a file cannot be read or used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.num_tickets = 0
    load(context, credentials)
    return context


class RestContext:
    """For REST: HAL's own certificate; if the site has one, that is for clients that do not ask for
    `CONTROLLER_HOST`, which other controllers and clients that trust HAL's authority do."""

    def __init__(self, own: Path, site: tuple[Path, Path] | None) -> None:
        """
        Args:
            own: PEM file with certificate and key.
            site: files of the site's certificate chain and key.
        Raises:
            DeniedError: a file cannot be read or used.
        """
        self._own_file = own
        self._site_files = site
        self._own = _plain_server_context()
        self.context = self._own if site is None else _plain_server_context()
        if site is not None:
            self.context.sni_callback = self._chosen
        self.reload()

    def reload(self) -> None:
        """Read the files again; if they cannot be used, nothing changes.

        Raises:
            DeniedError: a file cannot be read or used.
        """
        for file, key, context in self._files():
            files = str(file) if key is None else f"{file} with the key {key}"
            try:
                _plain_server_context().load_cert_chain(file, key, _no_password)
                context.load_cert_chain(file, key, _no_password)
            except OSError as error:
                raise DeniedError(f"{files} cannot be used: {error.strerror or error}", hint=_PEM_HINT) from error

    def _files(self) -> list[tuple[Path, Path | None, ssl.SSLContext]]:
        own: list[tuple[Path, Path | None, ssl.SSLContext]] = [(self._own_file, None, self._own)]
        return own if self._site_files is None else [*own, (*self._site_files, self.context)]

    def _chosen(self, connection: ssl.SSLObject, name: str, _: ssl.SSLContext) -> None:
        if name == CONTROLLER_HOST:
            connection.context = self._own


def _no_password() -> str:
    """Password callback: without it, OpenSSL would prompt on the terminal and wait."""
    return ""


def _plain_server_context() -> ssl.SSLContext:
    """A context that requests no certificate: clients are identified by a token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """Create the context of a client.

    Raises:
        DeniedError: a file cannot be read or used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if credentials.authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    load(context, credentials)
    return context


def load(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Read the files into the context; call it again when they are renewed, for later connections.

    Raises:
        DeniedError: a file cannot be read or used.
    """
    path = credentials.authority
    try:
        if path is not None:
            context.load_verify_locations(path)
        path = credentials.certificate
        if path is not None:
            context.load_cert_chain(path)
    except OSError as error:  # includes ssl.SSLError
        raise DeniedError(f"{path} cannot be used: {error.strerror or error}") from error


def certified_name(certificate: dict[str, Any] | None) -> CertifiedName | None:
    """The name in a verified certificate, as `SSLSocket.getpeercert` returns it; None if none was presented."""
    if not certificate:
        return None
    for kind, text in certificate.get("subjectAltName", ()):
        role, slash, name = text.removeprefix(URI_PREFIX).partition("/")
        if kind == "URI" and text.startswith(URI_PREFIX) and slash:
            return CertifiedName(role, unquote(name), certificate.get("serialNumber", "").lower().lstrip("0"))
    return None


def dial_error(address: TcpAddress, error: OSError, role: Role, now_ms: int) -> HALError:
    """Explain why a connection failed, and what to do.

    Args:
        role: the role of the listener that was expected there.
        now_ms: this machine's clock.
    """
    where = str(address)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
            valid = "not valid yet" if error.verify_code == _NOT_YET_VALID else "no longer valid"
            clock = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds")
            return DeniedError(
                f"the certificate of {where} is {valid} by this machine's clock, which says {clock}",
                hint="set the clocks of both machines right (chrony, ntpd)",
            )
        return DeniedError(
            f"{where} is not a {role} of this HAL: {error.verify_message}",
            hint="check --controller; join with a token of that HAL",
        )
    if isinstance(error, ssl.SSLError):
        return UnreachableError(
            f"{where} does not use HAL's TLS 1.3: {error.reason or error}",
            hint="give the port of `hal up --wire`, not that of REST",
        )
    return UnreachableError(
        f"nobody serves {where}: {error.strerror or error}",
        hint="is the controller up (`hal up --wire 0.0.0.0`), and is there no firewall in between?",
    )
