"""Joining: how a machine without a certificate becomes a node, and how a node gets its next certificate.

Values only. `ReadAuthority` and `Join` are the only frames that a side without a certificate may send.
"""

from __future__ import annotations

from typing import Final

from hal.wire.bounds import Count, Name, Pem, Version
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.roles import Role


class ReadAuthority(Frame, frozen=True, kw_only=True):
    """Ask for the authority of the other side's certificates, on a separate connection, before trusting anything."""


class Authority(Frame, frozen=True, kw_only=True):
    """The answer to `ReadAuthority`. The receiver compares the SHA-256 of its DER form with the fingerprint in the
    join token, closes, and dials again, now trusting this authority only."""

    certificate: Pem
    """The authority's certificate, in PEM."""


class Join(Frame, frozen=True, kw_only=True):
    """A machine asks to become a node: the first frame of a connection whose other end was verified."""

    versions: tuple[Version, Version]
    """Lowest and highest wire version that it supports."""
    name: Name
    """The node's requested name."""
    token: Name
    """ID and secret of the join token (`ID.SECRET`), without its fingerprint."""
    request: Pem
    """A certificate signing request (PKCS #10) in PEM; only its public key is used."""


class Joined(Frame, frozen=True, kw_only=True):
    """The answer to `Join` and to `Renew`: the agent presents this certificate from now on when it dials."""

    name: Name
    """The only name that it may use."""
    certificate: Pem
    """The node's certificate, in PEM."""
    authority: Pem
    """Certificate of the authority, in PEM."""
    expires_ms: Count
    """When the certificate expires. It is renewed after two thirds of its lifetime."""


class Renew(Frame, frozen=True, kw_only=True):
    """An agent asks for its next certificate, over its live connection; the answer is `Joined`. The former one stays
    valid until it expires."""

    request: Pem
    """As in `Join`, with a fresh key."""


JoiningFrame = ReadAuthority | Authority | Join | Joined | Goodbye
"""What the machine that joins and the controller may send each other before the machine is a node."""
JOINING: Final[Conversation[JoiningFrame]] = Conversation("joining", Role.CONTROLLER, JoiningFrame)
