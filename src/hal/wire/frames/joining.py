"""Joining: how a machine without a certificate becomes a node, how a process of another role gets its certificate,
and how both get the next one.

Values only. `ReadAuthority` and `Join` are the only frames that a side without a certificate may send; `Renew` is the
only one that a side of another role than agent may.
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


JoiningFrame = ReadAuthority | Authority | Join | Joined | Renew | Goodbye
"""What the controller and a side that joins, or renews its certificate, may send each other."""
JOINING: Final[Conversation[JoiningFrame]] = Conversation("joining", Role.CONTROLLER, JoiningFrame)
