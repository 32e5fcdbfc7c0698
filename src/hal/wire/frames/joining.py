"""Joining: how a machine without a certificate becomes a node, how a process of another role gets its certificate,
how both get the next one, and how a process learns which certificates of others are still good.

Values only. `ReadAuthority` and `Join` are the only frames that a side without a certificate may send; `Renew` and
`CheckCertificates` are the only ones that a side of another role than agent may.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from hal.wire.bounds import Count, Name, Pem, Version
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.roles import Role

MAX_SERIALS: Final = 1_000
"""Certificates in one frame."""


class ReadAuthority(Frame, frozen=True, kw_only=True):
    """Ask for the authority of the other side's certificates, on a separate connection, before trusting anything."""


class Authority(Frame, frozen=True, kw_only=True):
    """The answer to `ReadAuthority`. The receiver compares the SHA-256 of its DER form with the fingerprint in the
    join token, closes, and dials again, now trusting this authority only."""

    certificate: Pem
    """The authority's certificate, in PEM."""


class Join(Frame, frozen=True, kw_only=True):
    """A machine asks to become a node, or a process of another role for its certificate: the first frame of a
    connection whose other end was verified."""

    versions: tuple[Version, Version]
    """Lowest and highest wire version that it supports."""
    name: Name
    """The requested name, of the node or of the process."""
    token: Name
    """ID and secret of the join token (`ID.SECRET`), without its fingerprint."""
    request: Pem
    """A certificate signing request (PKCS #10) in PEM; only its public key is used."""
    role: Role = Role.AGENT
    """The role in the certificate; a token gives one only."""


class Joined(Frame, frozen=True, kw_only=True):
    """The answer to `Join` and to `Renew`: the receiver presents this certificate from now on."""

    name: Name
    """The only name that it may use."""
    certificate: Pem
    """Its certificate, in PEM."""
    authority: Pem
    """Certificate of the authority, in PEM."""
    expires_ms: Count
    """When the certificate expires. It is renewed after two thirds of its lifetime."""
    role: Role = Role.AGENT
    """The role in it."""


class Renew(Frame, frozen=True, kw_only=True):
    """The next certificate is asked for: by an agent over its live connection, by any other role as the first frame of
    a connection that was dialled with the present certificate. The answer is `Joined`; the former one stays valid until
    it expires."""

    request: Pem
    """As in `Join`, with a fresh key."""


class CheckCertificates(Frame, frozen=True, kw_only=True):
    """A process of another role than agent asks which certificates of its peers are still good, as the first frame of a
    connection that was dialled with its own. The answer is `CertificatesRefused`."""

    serials: Annotated[tuple[Name, ...], Meta(max_length=MAX_SERIALS)]
    """Their serial numbers, in lower-case hex."""


class CertificatesRefused(Frame, frozen=True, kw_only=True):
    """The answer: peers with these are not to be served."""

    serials: Annotated[tuple[Name, ...], Meta(max_length=MAX_SERIALS)]
    """Those that were revoked, have expired, or were not issued by this HAL."""


JoiningFrame = ReadAuthority | Authority | Join | Joined | Renew | CheckCertificates | CertificatesRefused | Goodbye
"""What the controller and a side that joins, or renews its certificate, may send each other."""
JOINING: Final[Conversation[JoiningFrame]] = Conversation("joining", Role.CONTROLLER, JoiningFrame)
