"""Answers of the controller and the collector, shared by all sessions that are shown the same.

Ten people who look at one list once a second cost one request a second. What is shared is keyed by what the controller
says of the caller (`Session.rights`): user, role and the scope of the token.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final

from msgspec import Struct

from hal.client.transport.exchange import Answer
from hal.core.model import OverloadedError
from hal.runtime.interface import Runtime
from hal.web.sessions import Session
from hal.web.upstream import Services

FRESH_MS: Final = 900
MAX_KEPT: Final = 1_000
MAX_KEPT_BYTES: Final = 128 << 20
MAX_ASKING: Final = 200
"""Requests under way for all."""


class Shared(Struct, frozen=True):
    """One answer."""

    body: bytes
    etag: str
    media: str
    at_ms: int


_Key = tuple[str, str, str]


class SharedAnswers:
    """Of this process."""

    def __init__(self, runtime: Runtime, services: Services) -> None:
        self._runtime = runtime
        self._services = services
        self.kept: OrderedDict[_Key, Shared] = OrderedDict()
        """By whom they are shown to, service and target; those asked for last at the end."""
        self._bytes = 0
        self._asking: dict[_Key, asyncio.Task[Shared]] = {}

    async def get(self, session: Session, service: str, target: str) -> Shared:
        """The answer to a GET, at most `FRESH_MS` old.

        Args:
            service: `controller` or `collector`.
            target: path and query.
        Raises:
            HALError: what the service says, or that it does not answer.
        """
        key = (session.rights, service, target)
        kept = self.kept.get(key)
        if kept is not None and self._runtime.monotonic_ms() - kept.at_ms < FRESH_MS:
            return kept
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= MAX_ASKING:
                raise OverloadedError(f"{MAX_ASKING} requests are under way", hint="try again in a second")
            asking = asyncio.ensure_future(self._ask(session, key))
            self._asking[key] = asking
            asking.add_done_callback(lambda task: self._asked(key, task))
        return await asyncio.shield(asking)

    def forget(self, session: Session) -> None:
        """Forget what those who are shown the same as this session were shown: one of them has changed something."""
        for key in [key for key in self.kept if key[0] == session.rights]:
            self._drop(key)

    def _asked(self, key: _Key, task: asyncio.Task[Shared]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may wait any more

    async def _ask(self, session: Session, key: _Key) -> Shared:
        asked_ms = self._runtime.monotonic_ms()
        answer: Answer = await self._services.get(session, key[1], key[2])
        etag = hashlib.blake2b(answer.body, digest_size=12).hexdigest()
        media = answer.headers.get("content-type", "application/json")
        found = Shared(answer.body, etag, media, asked_ms)
        self._drop(key)
        self.kept[key] = found
        self._bytes += len(found.body)
        while len(self.kept) > MAX_KEPT or (self._bytes > MAX_KEPT_BYTES and len(self.kept) > 1):
            self._drop(next(iter(self.kept)))
        return found

    def _drop(self, key: _Key) -> None:
        if (old := self.kept.pop(key, None)) is not None:
            self._bytes -= len(old.body)
