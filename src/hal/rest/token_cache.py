"""Who shows a token, as the controller says: kept for seconds, so that a daemon's callers cost it few requests.

A token that was revoked opens nothing more after `KEEP_MS`. While the controller does not answer, what it said last
holds for up to `RELY_MS`, so that a restart of the controller is no failure of other daemons. Tokens are known by their
digest; a token itself is in memory only while it may be asked about again, and nowhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from hal.core.model import HALError, OverloadedError
from hal.rest.identity import Identity, UnauthorizedError
from hal.rest.who import WhoView, identity_of
from hal.runtime.interface import Runtime

KEEP_MS: Final = 5_000
"""How long an answer is kept."""
ASK_AGAIN_MS: Final = KEEP_MS // 2
"""How often tokens are asked about whose requests are under way."""
RELY_MS: Final = 30_000
"""How long the last answer is relied on while the controller does not answer."""
MAX_KEPT: Final = 10_000
"""Tokens that open something."""
MAX_REFUSED: Final = 1_000
"""Tokens that open nothing: kept apart, so that guesses displace no token."""
MAX_ASKING: Final = 64
"""Tokens asked about at once."""
MAX_LOOKS: Final = 16
"""How many of the oldest are looked at for one whose requests have all been answered."""


class _Known:
    """A token that opened something when it was last asked about."""

    __slots__ = ("asked_ms", "token", "watched", "who")

    def __init__(self, token: str, who: WhoView, asked_ms: int) -> None:
        self.token = token
        self.who = who
        self.asked_ms = asked_ms
        self.watched: dict[object, Callable[[], None]] = {}
        """Requests that are under way with it."""


class TokenCache:
    """Of one daemon."""

    def __init__(self, runtime: Runtime, ask: Callable[[str], Awaitable[WhoView]]) -> None:
        """
        Args:
            ask: asks the controller; raises UnauthorizedError for a token that opens nothing.
        """
        self._runtime = runtime
        self._ask = ask
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        """By digest, those used last behind."""
        self._refused: OrderedDict[bytes, tuple[int, UnauthorizedError]] = OrderedDict()
        """When, and why, by digest; oldest first."""
        self._by_id: dict[str, bytes] = {}
        self._asking: dict[bytes, asyncio.Future[WhoView]] = {}
        self._again: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._known) + len(self._refused)

    async def identity(self, token: str, peer: str) -> Identity:
        """Who shows it.

        Args:
            peer: where they come from.
        Raises:
            UnauthorizedError: it opens nothing.
            UnreachableError: the controller does not say so at present.
            OverloadedError: too many are asked about.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        now_ms = self._runtime.monotonic_ms()
        refused = self._refused.get(digest)
        if refused is not None and now_ms < refused[0] + KEEP_MS:
            raise UnauthorizedError(refused[1].message, hint=refused[1].hint)
        known = self._known.get(digest)
        if known is None or now_ms >= known.asked_ms + KEEP_MS:
            known = await self._asked(digest, token, known)
        if digest in self._known:  # it may have been displaced while it was asked about
            self._known.move_to_end(digest)
        if _expired(known, self._runtime.now_ms()):
            raise UnauthorizedError(f"token {known.who.token} has expired")
        return identity_of(known.who, peer)

    def still_opens(self, identity: Identity) -> bool:
        """Whether the token of a request under way is valid, as far as is known."""
        known = self._known.get(self._by_id.get(identity.token, b""))
        if known is None or _expired(known, self._runtime.now_ms()):
            return False
        return self._runtime.monotonic_ms() < known.asked_ms + RELY_MS

    @contextmanager
    def watching(self, identity: Identity, changed: Callable[[], None]) -> Iterator[None]:
        """Within this context the token is asked about again and again; `changed` is called when it opens no more."""
        known = self._known.get(self._by_id.get(identity.token, b""))
        if known is None:
            yield
            return
        key = object()
        known.watched[key] = changed
        if self._again is None:
            self._again = self._runtime.spawn_task(self._ask_again(), "ask-again-about-tokens")
        try:
            yield
        finally:
            del known.watched[key]

    async def _ask_again(self) -> None:
        """For as long as requests are under way with tokens."""
        while watched := [(digest, known) for digest, known in self._known.items() if known.watched]:
            await self._runtime.sleep(ASK_AGAIN_MS)
            for digest, known in watched:
                if not known.watched or self._runtime.monotonic_ms() < known.asked_ms + ASK_AGAIN_MS:
                    continue
                try:
                    self._keep(digest, known.token, await self._answer(digest, known.token))
                except UnauthorizedError as error:
                    self._refuse(digest, error)
                except HALError:
                    break  # nobody answers: the others need not be asked now; all are relied on until RELY_MS
        self._again = None

    async def _asked(self, digest: bytes, token: str, known: _Known | None) -> _Known:
        """What the controller says now; or what it said, while it does not answer."""
        try:
            who = await self._answer(digest, token)
        except UnauthorizedError as error:
            self._refuse(digest, error)
            raise
        except HALError:
            if known is None or self._runtime.monotonic_ms() >= known.asked_ms + RELY_MS:
                raise
            return known
        return self._keep(digest, token, who)

    async def _answer(self, digest: bytes, token: str) -> WhoView:
        """Ask once for all who show the same token at the moment."""
        asking = self._asking.get(digest)
        if asking is not None:
            return await asyncio.shield(asking)
        if len(self._asking) >= MAX_ASKING:
            raise OverloadedError(f"{MAX_ASKING} tokens are asked about", hint="try again in a second")
        asking = self._asking[digest] = asyncio.ensure_future(self._ask(token))
        asking.add_done_callback(lambda done: self._settle(digest, done))
        return await asyncio.shield(asking)

    def _settle(self, digest: bytes, done: asyncio.Future[WhoView]) -> None:
        del self._asking[digest]
        if not done.cancelled():
            done.exception()  # whoever waited for it may have gone

    def _keep(self, digest: bytes, token: str, who: WhoView) -> _Known:
        self._refused.pop(digest, None)
        now_ms = self._runtime.monotonic_ms()
        known = self._known.get(digest)
        if known is None:
            known = self._known[digest] = _Known(token, who, now_ms)
            if len(self._known) > MAX_KEPT:
                oldest = list(islice(self._known, MAX_LOOKS))
                self._forget(next((one for one in oldest if not self._known[one].watched), oldest[0]))
        known.who, known.asked_ms = who, now_ms
        self._by_id[who.token] = digest
        return known

    def _refuse(self, digest: bytes, error: UnauthorizedError) -> None:
        self._forget(digest)
        self._refused[digest] = (self._runtime.monotonic_ms(), error)
        self._refused.move_to_end(digest)
        while len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)

    def _forget(self, digest: bytes) -> None:
        known = self._known.pop(digest, None)
        if known is None:
            return
        if self._by_id.get(known.who.token) == digest:
            del self._by_id[known.who.token]
        for changed in list(known.watched.values()):
            changed()


def _expired(known: _Known, now_ms: int) -> bool:
    return known.who.expires_ms is not None and now_ms >= known.who.expires_ms
