"""The kinds of process on the wire, and which may dial which: one table, consulted at both ends. Pure.

Over TCP the kind is in the certificate. The dialler asks for a listener of one role and accepts no other; a listener
serves the roles in its row and refuses the others before it reads anything from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Role(StrEnum):
    """The kind of process at one end."""

    CONTROLLER = "controller"
    AGENT = "agent"
    KEEPER = "keeper"
    BROKER = "broker"
    """It hands the tasks of sessions to workers."""
    WORKER = "worker"
    """It executes tasks for a broker."""
    CLIENT = "client"
    """A program of a user."""
    SERVICE = "service"
    """A process of a plane that serves others: a cache, a registry."""


MAY_DIAL: Final[Mapping[Role, frozenset[Role]]] = MappingProxyType(
    {
        Role.CONTROLLER: frozenset({Role.AGENT}),
        Role.KEEPER: frozenset({Role.AGENT}),
        Role.BROKER: frozenset({Role.CLIENT, Role.WORKER}),
        Role.SERVICE: frozenset({Role.AGENT, Role.BROKER, Role.CLIENT, Role.SERVICE, Role.WORKER}),
    }
)
"""Listener to the roles that may dial it. A role that has no row listens to nobody."""
ON_REQUEST: Final = (Role.AGENT, Role.BROKER, Role.WORKER, Role.CLIENT, Role.SERVICE)
"""Roles that are given certificates on request, with a join token; a controller certifies itself."""
UNCERTIFIED: Final = frozenset({Role.KEEPER})
"""Roles that are reached over Unix sockets only: no certificate is issued to them."""
SERVES_STRANGERS: Final = frozenset({Role.CONTROLLER})
"""Listeners that serve a side without a certificate, briefly: it may join (`hal.wire.frames.joining`). One whose
certificate is of a role that may not dial it is served like that, too: it may renew its certificate."""


def listens(role: Role) -> bool:
    """Whether anybody may dial this role."""
    return role in MAY_DIAL


def dials(role: Role) -> bool:
    """Whether this role may dial anybody."""
    return any(role in diallers for diallers in MAY_DIAL.values())


def host_name(role: Role) -> str:
    """The DNS name in the certificates of listeners of this role; the dialler asks for it, whatever host it dials."""
    return f"{role}.hal"


def is_stranger(listener: Role, dialler: str | None) -> bool:
    """Whether a listener serves a dialler briefly, and only so that it joins or renews its certificate.

    Args:
        dialler: as in `dialler_refusal`.
    """
    if listener not in SERVES_STRANGERS or dialler in MAY_DIAL.get(listener, frozenset()):
        return False
    return dialler is None or dialler in ON_REQUEST


def dialler_refusal(listener: Role, dialler: str | None, *, joins: bool) -> str:
    """Why a listener refuses a dialler, for people; '' if it does not.

    Args:
        joins: it serves frames, among them those of joining; who serves byte streams serves no strangers.
        dialler: the role in its certificate, as the certificate has it; None: it presented none.
    """
    if joins and is_stranger(listener, dialler):
        return ""
    if dialler is None:
        return f"a {listener} serves nobody without a certificate"
    if dialler in MAY_DIAL.get(listener, frozenset()):
        return ""
    return f"a {listener} does not serve a certificate of the role '{dialler}'"


def listener_refusal(expected: Role, listener: str | None) -> str:
    """Why a dialler refuses who answered, for people; '' if it does not.

    Args:
        listener: the role in the certificate of whoever answered; None: it presented none.
    """
    if listener == expected:
        return ""
    return f"a {expected} was expected there, and the certificate is of the role '{listener or 'none'}'"
