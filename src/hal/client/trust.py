"""Whom a client believes over TLS: the authorities of this machine, or one HAL's own authority, known by fingerprint.

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

from hal.client.places import Place
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
"""Certificates by fingerprint, which no other certificate has; as many as this process was told fingerprints."""


def read_fingerprint(text: str) -> str:
    """`sha256:` and hex digits, with or without colons between, as one text.

    Raises:
        SpecError: it is none.
    """
    digits = text.strip().lower().removeprefix(KIND).replace(":", "")
    if len(digits) != DIGITS or any(digit not in "0123456789abcdef" for digit in digits):
        raise SpecError(
            f"'{shown(text)}' is no fingerprint",
            hint="`hal status` on the controller's machine tells it: sha256: and 64 hex digits",
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
        raise SpecError(f"no certificate: {error}") from error


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


def server_name(place: Place, authority: str) -> str:
    """The name that its certificate must have."""
    return CONTROLLER_HOST if authority else place.host


def pinned(place: Place, fingerprint: str) -> str:
    """The certificate of the authority with that fingerprint, asked for there once. Blocking.

    Raises:
        DeniedError: another HAL answers there.
        UnreachableError: nobody does.
    """
    if fingerprint not in _PINNED:
        certificate = fetch_authority(place)
        if fingerprint_of(certificate) != fingerprint:
            raise DeniedError(
                f"{place.url} is of another HAL: its authority has the fingerprint {fingerprint_of(certificate)}, "
                f"not {fingerprint}",
                hint="check URL and fingerprint; or somebody sits between",
            )
        _PINNED[fingerprint] = certificate
    return _PINNED[fingerprint]


def fetch_authority(place: Place) -> str:
    """The certificate of the authority that whoever answers there names: compare it before you believe it. Blocking.

    Raises:
        UnreachableError: nobody answers.
        NotFoundError: it has none, or is no HAL.
    """
    connection = http.client.HTTPConnection(place.host, place.port, timeout=TIMEOUT_S)
    try:
        plain = socket.create_connection((place.host, place.port), TIMEOUT_S)
        connection.sock = _anybody().wrap_socket(plain, server_hostname=CONTROLLER_HOST)
        connection.request("GET", AUTHORITY_PATH, headers={"Host": place.name})
        answer = connection.getresponse()
        body = answer.read(MAX_ANSWER_BYTES)
        certificate = json.loads(body)["certificate"] if answer.status == 200 else ""
    except ssl.SSLError as error:
        raise tls_error(place, error, "") from error
    except OSError as error:
        raise UnreachableError(f"no HAL answers at {place.url}: {error.strerror or error}") from error
    except (http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise NotFoundError(f"{place.url} is no HAL: it names no authority", hint="check the URL") from error
    finally:
        connection.close()
    if not isinstance(certificate, str) or not certificate:
        raise NotFoundError(f"{place.url} names no authority of its own", hint="leave --fingerprint out")
    return certificate


def refuse_plain(place: Place) -> None:
    """After a connection without TLS broke: is that why?

    Raises:
        SpecError: TLS is spoken there.
    """
    try:
        with socket.create_connection((place.host, place.port), TIMEOUT_S) as plain, _anybody().wrap_socket(plain):
            told = place._replace(tls=True).url
    except OSError:  # ssl.SSLError is one
        return
    raise SpecError(f"{place.url} speaks TLS", hint=f"write {told}")


def _anybody() -> ssl.SSLContext:
    """Whoever answers, as long as it is over TLS 1.3."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def tls_error(place: Place, error: ssl.SSLError, authority: str) -> HALError:
    """Why there is no TLS, and what to do."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return UnreachableError(
            f"{place.url} does not speak TLS 1.3: {error.reason or error}", hint="is it http:// that is meant?"
        )
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        when = "not valid yet" if error.verify_code == _NOT_YET_VALID else "not valid any more"
        return DeniedError(
            f"the certificate of {place.url} is {when} by this machine's clock", hint="set the clocks right"
        )
    if authority:
        return DeniedError(
            f"{place.url} is no controller of the HAL that is meant: {error.verify_message}",
            hint="check the URL; log in anew if that HAL was set up anew",
        )
    return DeniedError(
        f"{place.url} shows a certificate that no authority of this machine has signed: {error.verify_message}",
        hint=f"hal login {place.url} --fingerprint sha256:…; `hal status` on the controller's machine tells it",
    )
