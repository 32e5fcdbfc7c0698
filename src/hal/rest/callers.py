"""Who sends a request: what the server knows of a connection, and what a daemon must be able to say of its callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from msgspec import Struct

from hal.rest.identity import Identity

IDENTIFY_BY: Final = b"hal-identify-by"
"""Header: `token`. See `identifies_by_token`."""


class LocalPeer(Struct, frozen=True):
    """Who connected to a Unix socket."""

    uid: int
    user: str
    private: bool
    """It is the socket in HAL's own directory, which only the owner and root reach."""
    attempt: str = ""
    """Token of the attempt in which a process of the owner's or of root's runs, as far as can be seen."""
    for_steps: bool = False
    """It is the socket for steps that run as other users, where nobody else has a role."""


class Callers(Protocol):
    """Turns what a connection and its headers say into an identity; the daemon's own part of the guard."""

    async def identify(self, state: Mapping[str, Any], headers: Mapping[bytes, bytes], client: Any) -> Identity:
        """Who sends a request.

        Args:
            state: what the connection knows: `peer`, a `LocalPeer`, on a Unix socket.
            client: host and port of the other end, over TCP.
        Raises:
            UnauthorizedError: no token, or one that opens nothing; says which.
            DeniedError: they have no role here.
            HALError: it cannot be said at present.
        """
        ...

    def stranger(self, state: Mapping[str, Any], client: Any) -> Identity:
        """Whoever asks, without a token, for what is open to all."""
        ...

    def is_relay(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request that was let in was passed on by one of our own, whose connections carry many callers."""
        ...

    def still_opens(self, identity: Identity) -> bool:
        """Whether the credentials that were shown are still valid."""
        ...

    def watching(self, identity: Identity, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Within this context `changed` is called whenever the token may have become invalid before its end."""
        ...


def identifies_by_token(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the caller wants to be known by the token that is shown, and not by what the kernel says of the peer: so
    other daemons ask over the private socket who a token is."""
    return headers.get(IDENTIFY_BY) == b"token"


def bearer(headers: Mapping[bytes, bytes]) -> str:
    """The bearer token that is shown; '' for none."""
    scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def address_of(client: Any) -> str:
    """The host of a TCP peer."""
    return str(client[0]) if client else "unknown"


def origin(state: Mapping[str, Any], client: Any) -> str:
    """Where a request comes from, whoever sends it."""
    peer: LocalPeer | None = state.get("peer")
    return f"uid {peer.uid}" if peer is not None else address_of(client)
