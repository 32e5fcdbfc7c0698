"""Who is signed in at the page: sessions in memory, each with the token that it acts by, and one-time sign-in keys.

The browser holds a random key in a cookie that no script can read; the token itself never reaches the browser again. A
session ends with its token: it is asked about at the controller every `ASK_EVERY_MS` while it is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import msgspec

from hal.client.addresses.address import Address
from hal.client.rest.access_calls import WhoInfo
from hal.client.transport.async_http import AsyncConnections
from hal.client.transport.exchange import Request
from hal.core.model import DeniedError, HALError, InternalError, OverloadedError
from hal.rest.identity import UnauthorizedError
from hal.rest.rights import Role
from hal.runtime.interface import Runtime

MAX_SESSIONS: Final = 1_000
MAX_SESSIONS_OF_ONE: Final = 50
"""Of one user: their oldest one ends for a new one."""
IDLE_MS: Final = 12 * 3_600_000
"""A session that is not used for so long ends."""
LONGEST_MS: Final = 7 * 24 * 3_600_000
"""A session ends after so long, however much it is used."""
ASK_EVERY_MS: Final = 5_000
"""A token that was revoked opens nothing here after that time."""
RELY_MS: Final = 30_000
"""How long the controller's last answer about a token holds while it does not answer."""
MAX_KEYS: Final = 20
"""One-time keys that wait to be used."""
KEY_MS: Final = 10 * 60_000
"""How long one may wait."""
MAX_TOKEN_CHARS: Final = 1_000
KEY_BYTES: Final = 32
_WHO: Final = msgspec.json.Decoder(WhoInfo)


class Session:
    """One browser that is signed in."""

    def __init__(self, runtime: Runtime, address: Address, who: WhoInfo, *, local: bool) -> None:
        """
        Args:
            address: of the controller, with the token.
            local: it acts as whoever started this process, without a token of its own.
        """
        self.id = secrets.token_hex(6)
        self.csrf = secrets.token_urlsafe(KEY_BYTES)
        """What a request that changes something carries beside the cookie."""
        self.address = address
        self.who = who
        self.local = local
        self.controller = AsyncConnections(address, reconnect_s=0.0)
        self.began_ms = self.used_ms = self.asked_ms = runtime.monotonic_ms()
        self.ended = False
        self.watched: dict[object, Callable[[], None]] = {}
        """Answers that are under way: called when it ends."""
        self.asking: asyncio.Lock = asyncio.Lock()

    @property
    def role(self) -> Role:
        """As the controller says; what this version does not know counts as the least."""
        return Role(self.who.role) if self.who.role in tuple(Role) else Role.USER

    @property
    def rights(self) -> str:
        """Equal for sessions that are shown the same."""
        who = self.who
        return "\n".join(map(str, (who.user, who.role, who.accounts, who.queues, who.read_only, who.job)))


class Sessions:
    """All of them."""

    def __init__(self, runtime: Runtime, address: Address) -> None:
        """
        Args:
            address: of the controller, as whoever started this process reaches it.
        """
        self._runtime = runtime
        self._address = address
        self._by_key: dict[bytes, Session] = {}
        """By the digest of the key in the cookie: a copy of this memory opens nothing."""
        self.by_ids: dict[str, Session] = {}
        self.on_end: Callable[[Session], AsyncConnections | None] = _keep_none
        """Returns further connections of a session that ends, which are closed."""
        self._keys: dict[bytes, int] = {}
        """Until when each one-time key is good, by its digest."""

    # ── signing in ────────────────────────────────────────────────────────────────────────────────────────────────

    def new_key(self) -> str:
        """A key that opens one session with the rights of whoever started this process; the oldest gives way."""
        now_ms = self._runtime.monotonic_ms()
        self._keys = {digest: until for digest, until in self._keys.items() if until > now_ms}
        while len(self._keys) >= MAX_KEYS:
            del self._keys[next(iter(self._keys))]
        key = secrets.token_urlsafe(KEY_BYTES)
        self._keys[_digest(key)] = now_ms + KEY_MS
        return key

    async def sign_in_by_key(self, key: str) -> tuple[str, Session]:
        """The cookie's value, and the session.

        Raises:
            UnauthorizedError: the key was used, is too old, or never was one.
            HALError: the controller does not answer.
        """
        until_ms = self._keys.pop(_digest(key), 0)
        if until_ms <= self._runtime.monotonic_ms():
            raise UnauthorizedError(
                "this sign-in link was used already, or is too old", hint="get a new one: run `hal web --link`"
            )
        return await self._begin(self._address, local=True)

    async def sign_in_by_token(self, token: str) -> tuple[str, Session]:
        """The cookie's value, and the session.

        Raises:
            UnauthorizedError: the token opens nothing.
            HALError: the controller does not answer.
        """
        token = token.strip()
        if not 0 < len(token) <= MAX_TOKEN_CHARS or not (token.isascii() and token.isprintable()) or " " in token:
            raise UnauthorizedError("this is no token of HAL", hint="an admin makes one: `hal api-token create`")
        address = replace(self._address, token=token, by_token=not self._address.endpoints)
        return await self._begin(address, local=False)

    async def _begin(self, address: Address, *, local: bool) -> tuple[str, Session]:
        asked = AsyncConnections(address, reconnect_s=0.0)
        try:
            who = await who_is(asked)
        except DeniedError as error:
            raise UnauthorizedError(error.message, hint=error.hint) from None
        finally:
            await asked.aclose()
        self._make_room(who.user)
        session = Session(self._runtime, address, who, local=local)
        key = secrets.token_urlsafe(KEY_BYTES)
        self._by_key[_digest(key)] = session
        self.by_ids[session.id] = session
        return key, session

    def _make_room(self, user: str) -> None:
        """
        Raises:
            OverloadedError: there are too many sessions of others.
        """
        self._end_old()
        own = [session for session in self.by_ids.values() if session.who.user == user]
        if len(own) >= MAX_SESSIONS_OF_ONE:
            self.end(min(own, key=lambda session: session.used_ms))
        if len(self.by_ids) >= MAX_SESSIONS:
            raise OverloadedError(f"{MAX_SESSIONS} people are signed in here", hint="try again later")

    # ── using one ─────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, key: str) -> Session | None:
        """The session of a cookie; None: there is none (any more)."""
        session = self._by_key.get(_digest(key)) if key else None
        if session is None or session.ended:
            return None
        if self._is_old(session):
            self.end(session)
            return None
        return session

    async def use(self, session: Session) -> None:
        """Note that it is used; ask about its token where that was some time ago.

        Raises:
            UnauthorizedError: its token opens nothing any more: the session is ended.
            HALError: nobody can say at present.
        """
        session.used_ms = self._runtime.monotonic_ms()
        if session.used_ms - session.asked_ms < ASK_EVERY_MS:
            return
        async with session.asking:
            if self._runtime.monotonic_ms() - session.asked_ms < ASK_EVERY_MS:
                return
            await self._ask(session)

    async def _ask(self, session: Session) -> None:
        try:
            session.who = await who_is(session.controller)
        except DeniedError as error:
            self.end(session)
            raise UnauthorizedError(error.message, hint=error.hint) from None
        except HALError:
            if self._runtime.monotonic_ms() - session.asked_ms >= RELY_MS:
                raise
        else:
            session.asked_ms = self._runtime.monotonic_ms()

    def by_id(self, session_id: str) -> Session | None:
        """The session of that id, if it has not ended."""
        return self.by_ids.get(session_id)

    def end(self, session: Session) -> None:
        """Sign out: answers that are under way with it are cut."""
        session.ended = True
        self.by_ids.pop(session.id, None)
        for digest in [digest for digest, one in self._by_key.items() if one is session]:
            del self._by_key[digest]
        for call in list(session.watched.values()):
            call()
        for connections in (session.controller, self.on_end(session)):
            if connections is not None:
                self._runtime.spawn_task(connections.aclose(), f"close-{session.id}")

    async def watch_tokens(self) -> None:
        """Ask about the tokens of sessions with answers under way, and end what is old, until cancelled."""
        while True:
            await self._runtime.sleep(ASK_EVERY_MS)
            self._end_old()
            for session in [one for one in self.by_ids.values() if one.watched]:
                session.used_ms = self._runtime.monotonic_ms()
                try:
                    await self.use(session)
                except UnauthorizedError:
                    continue
                except HALError:
                    # Nobody has vouched for this token for too long: what it has opened is cut, the session stays.
                    for call in list(session.watched.values()):
                        call()

    async def aclose(self) -> None:
        """End all."""
        for session in list(self.by_ids.values()):
            session.ended = True
            await session.controller.aclose()

    def _is_old(self, session: Session) -> bool:
        now_ms = self._runtime.monotonic_ms()
        return now_ms - session.used_ms >= IDLE_MS or now_ms - session.began_ms >= LONGEST_MS

    def _end_old(self) -> None:
        for session in [one for one in self.by_ids.values() if self._is_old(one)]:
            self.end(session)


@contextmanager
def watching(session: Session, changed: Callable[[], None]) -> Iterator[None]:
    """Within this context `changed` is called when the session ends."""
    mark = object()
    session.watched[mark] = changed
    try:
        yield
    finally:
        del session.watched[mark]


async def who_is(connections: AsyncConnections) -> WhoInfo:
    """Whom the controller takes the token of these connections for, with what they may do.

    Raises:
        DeniedError: for nobody.
        HALError: it does not answer.
    """
    answer = await connections.send(Request("GET", "/v1/whoami", {"rights": "1"}))
    try:
        return _WHO.decode(answer.body)
    except msgspec.DecodeError as error:
        raise InternalError(f"the controller's answer about a token is not understood: {error}") from None


def _keep_none(session: Session) -> None:
    return None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
