"""The page's callers: browsers by their cookie, and the owner over the private socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from hal.core.model import DeniedError
from hal.rest.callers import LocalPeer, origin
from hal.rest.identity import Identity, UnauthorizedError
from hal.rest.rights import Role
from hal.web.sessions import Session, Sessions, watching

ROOT_UID: Final = 0
MAX_COOKIE_CHARS: Final = 8_192


class WebCallers:
    """See `hal.rest.callers.Callers`. The `token` of an identity is the id of its session."""

    def __init__(self, sessions: Sessions, *, cookie: str, owner_uid: int) -> None:
        """
        Args:
            cookie: its name.
        """
        self._sessions = sessions
        self._cookie = cookie
        self._owner_uid = owner_uid

    async def identify(self, state: Mapping[str, Any], headers: Mapping[bytes, bytes], client: Any) -> Identity:
        """See `Callers`.

        Raises:
            UnauthorizedError: nobody is signed in.
            DeniedError: another user of this machine, or a step, is on the private socket.
        """
        peer: LocalPeer | None = state.get("peer")
        where = origin(state, client)
        if peer is not None:
            if peer.attempt or peer.uid not in (ROOT_UID, self._owner_uid):
                raise DeniedError(f"user '{peer.user}' may not ask here", hint="open the page in a browser")
            return Identity(user=peer.user, role=Role.ADMIN, peer=where, inside=True)
        session = self._sessions.find(cookie_of(headers, self._cookie))
        if session is None:
            raise UnauthorizedError("nobody is signed in", hint="sign in again")
        await self._sessions.use(session)
        return identity_of(session, where)

    def stranger(self, state: Mapping[str, Any], client: Any) -> Identity:
        """See `Callers`."""
        return Identity(user="", role=Role.USER, peer=origin(state, client))

    def is_relay(self, headers: Mapping[bytes, bytes]) -> bool:
        """See `Callers`: nobody passes requests on."""
        return False

    def still_opens(self, identity: Identity) -> bool:
        """See `Callers`."""
        return not identity.token or self._sessions.by_id(identity.token) is not None

    def watching(self, identity: Identity, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """See `Callers`."""
        session = self._sessions.by_id(identity.token)
        return nullcontext() if session is None else watching(session, changed)


def identity_of(session: Session, where: str) -> Identity:
    """Who a session is to this process; what it may do the controller decides."""
    return Identity(user=session.who.user, role=session.role, peer=where, token=session.id)


def cookie_of(headers: Mapping[bytes, bytes], name: str) -> str:
    """The value of a cookie; '' for none. Those of other servers on this host come with it, whatever is in them: the
    one that is asked for is found beside them (RFC 6265, 5.4)."""
    text = headers.get(b"cookie", b"")[:MAX_COOKIE_CHARS].decode("latin-1")
    for pair in text.split(";"):
        key, equals, value = pair.partition("=")
        if equals and key.strip() == name:
            return value.strip()
    return ""
