"""TLS 1.3 contexts of both sides, what a verified certificate says, and a failed handshake in words.

Every certificate comes from HAL's own authority (`hal.runtime.authority`); the machine's own list of authorities is
never asked. Sessions are not resumed: each connection is verified anew.
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

CONTROLLER_HOST: Final = "controller.hal"
"""DNS name in every controller's certificate; what is dialled does not matter."""
URI_PREFIX: Final = "hal://"
_PEM_HINT: Final = "certificate and key as PEM, the key without a password"
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """For a listener. A dialler may show no certificate; one that it shows must come from the authority.

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
    """For REST: HAL's own certificate; where the site has one, that for whoever does not ask for `CONTROLLER_HOST`, as
    controllers do among themselves, and clients that believe HAL's authority."""

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
        """Read the files again; what cannot be used leaves all as it was.

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
    """For a key that wants one: without this OpenSSL asks on the terminal, and waits."""
    return ""


def _plain_server_context() -> ssl.SSLContext:
    """It asks for no certificate: who is there, a token says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """For a dialler.

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
    """Read the files into the context; again, when they were renewed: connections made from then on use them.

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
    except OSError as error:  # ssl.SSLError is one
        raise DeniedError(f"{path} cannot be used: {error.strerror or error}") from error


def certified_name(certificate: dict[str, Any] | None) -> CertifiedName | None:
    """What a verified certificate says, as `SSLSocket.getpeercert` gives it; None when none was shown."""
    if not certificate:
        return None
    for kind, text in certificate.get("subjectAltName", ()):
        role, slash, name = text.removeprefix(URI_PREFIX).partition("/")
        if kind == "URI" and text.startswith(URI_PREFIX) and slash:
            return CertifiedName(role, unquote(name), certificate.get("serialNumber", "").lower().lstrip("0"))
    return None


def dial_error(address: TcpAddress, error: OSError, now_ms: int) -> HALError:
    """Why a dial failed, and what to do.

    Args:
        now_ms: this machine's clock.
    """
    where = str(address)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
            valid = "not valid yet" if error.verify_code == _NOT_YET_VALID else "not valid any more"
            clock = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds")
            return DeniedError(
                f"the certificate of {where} is {valid} by this machine's clock, which says {clock}",
                hint="set the clocks of both machines right (chrony, ntpd)",
            )
        return DeniedError(
            f"{where} is no controller of this HAL: {error.verify_message}",
            hint="check --controller; join with a token of that HAL",
        )
    if isinstance(error, ssl.SSLError):
        return UnreachableError(
            f"{where} does not speak HAL's TLS 1.3: {error.reason or error}",
            hint="the port of `hal up --wire` is meant, not that of REST",
        )
    return UnreachableError(
        f"nobody serves {where}: {error.strerror or error}",
        hint="is the controller up (`hal up --wire 0.0.0.0`), and no firewall between?",
    )
