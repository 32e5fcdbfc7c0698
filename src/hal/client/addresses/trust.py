"""Whom a client trusts over TLS: the authorities of this machine, or one HAL's own authority, known by fingerprint.

With a HAL's own authority its certificate is kept (`hal login`), and the controller's is verified against it and
nothing else, under the one name that all controllers have; where it listens does not matter.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
from functools import lru_cache
from typing import Final

from hal.client.addresses.endpoints import Endpoint
from hal.core.model.errors import DeniedError, HALError, NotFoundError, SpecError, UnreachableError, shown
from hal.runtime.tls import CONTROLLER_HOST

KIND: Final = "sha256:"
DIGITS: Final = 64
TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 64 << 10
AUTHORITY_PATH: Final = "/v1/authority"
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10

_PINNED: Final[dict[str, str]] = {}
"""Certificates by fingerprint, which no other certificate has; as many as fingerprints were given to this process."""


def read_fingerprint(text: str) -> str:
    """`sha256:` and hex digits, with or without colons between, as one text.

    Raises:
        SpecError: it is none.
    """
    digits = text.strip().lower().removeprefix(KIND).replace(":", "")
    if len(digits) != DIGITS or any(digit not in "0123456789abcdef" for digit in digits):
        raise SpecError(
            f"'{shown(text)}' is not a fingerprint",
            hint="write sha256: and 64 hex digits, as `hal status` shows it on the controller's machine",
        )
    return KIND + digits


def fingerprint_of(certificate: str) -> str:
    """Of a certificate (PEM).

    Raises:
        SpecError: it is none.
    """
    try:
        return KIND + hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
    except ValueError as error:
        raise SpecError(
            f"this is not a certificate: {error}", hint="one in PEM begins with -----BEGIN CERTIFICATE-----"
        ) from error


@lru_cache(maxsize=16)
def context_for(authority: str) -> ssl.SSLContext:
    """What a connection is verified by.

    Args:
        authority: certificate (PEM) of the only one that is believed; '': those of this machine.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if authority:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=authority)
    else:
        context.load_default_certs()
    return context


def server_name(endpoint: Endpoint, authority: str) -> str:
    """The name that its certificate must have."""
    return CONTROLLER_HOST if authority else endpoint.host


def pinned(endpoint: Endpoint, fingerprint: str) -> str:
    """The certificate of the authority with that fingerprint, asked for there once. Blocking.

    Raises:
        DeniedError: another HAL answers there.
        UnreachableError: nobody does.
    """
    if fingerprint not in _PINNED:
        certificate = fetch_authority(endpoint)
        if fingerprint_of(certificate) != fingerprint:
            raise DeniedError(
                f"{endpoint.url} belongs to another HAL: the fingerprint of its authority is "
                f"{fingerprint_of(certificate)}, not {fingerprint}",
                hint="check the URL and the fingerprint; if both are right, somebody intercepts the connection",
            )
        _PINNED[fingerprint] = certificate
    return _PINNED[fingerprint]


def fetch_authority(endpoint: Endpoint) -> str:
    """Fetch the certificate of the authority that the server names: compare it before you trust it. Blocking.

    Raises:
        UnreachableError: nobody answers.
        NotFoundError: it has none, or is no HAL.
    """
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=TIMEOUT_S)
    try:
        plain = socket.create_connection((endpoint.host, endpoint.port), TIMEOUT_S)
        connection.sock = _anybody().wrap_socket(plain, server_hostname=CONTROLLER_HOST)
        connection.request("GET", AUTHORITY_PATH, headers={"Host": endpoint.name})
        answer = connection.getresponse()
        body = answer.read(MAX_ANSWER_BYTES)
        certificate = json.loads(body)["certificate"] if answer.status == 200 else ""
    except ssl.SSLError as error:
        raise tls_error(endpoint, error, "") from error
    except OSError as error:
        raise UnreachableError(f"no HAL answers at {endpoint.url}: {error.strerror or error}") from error
    except (http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise NotFoundError(f"{endpoint.url} is not a HAL: it names no authority", hint="check the URL") from error
    finally:
        connection.close()
    if not isinstance(certificate, str) or not certificate:
        raise NotFoundError(f"{endpoint.url} has no authority of its own", hint="leave --fingerprint out")
    return certificate


def refuse_plain(endpoint: Endpoint) -> None:
    """After a connection without TLS broke: is that why?

    Raises:
        SpecError: TLS is spoken there.
    """
    try:
        with (
            socket.create_connection((endpoint.host, endpoint.port), TIMEOUT_S) as plain,
            _anybody().wrap_socket(plain),
        ):
            secured = endpoint._replace(tls=True).url
    except OSError:  # ssl.SSLError is one
        return
    raise SpecError(f"{endpoint.url} requires TLS", hint=f"write {secured}")


def _anybody() -> ssl.SSLContext:
    """Whoever answers, as long as it is over TLS 1.3."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def tls_error(endpoint: Endpoint, error: ssl.SSLError, authority: str) -> HALError:
    """Why there is no TLS, and what to do."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return UnreachableError(
            f"{endpoint.url} does not support TLS 1.3: {error.reason or error}",
            hint="if it has no TLS, write http://",
        )
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        when = "not valid yet" if error.verify_code == _NOT_YET_VALID else "no longer valid"
        return DeniedError(
            f"the certificate of {endpoint.url} is {when} according to this machine's clock", hint="check the clocks"
        )
    if authority:
        return DeniedError(
            f"{endpoint.url} is not a controller of the expected HAL: {error.verify_message}",
            hint="check the URL; if that HAL was set up again, log in again",
        )
    return DeniedError(
        f"the certificate of {endpoint.url} is signed by no authority that this machine trusts: {error.verify_message}",
        hint=f"hal login {endpoint.url} --fingerprint sha256:… (`hal status` shows it on the controller's machine)",
    )
