"""Requests with idempotency keys: a request repeated with the same key is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hal.core.model import ConflictError, HALError, OverloadedError, shown
from hal.daemons.controller.cycle.committer import Committer

MAX_KEYS_IN_FLIGHT = 10_000


class Key(Struct, frozen=True):
    """A caller's idempotency key, and a digest of what it asked for."""

    text: str
    fingerprint: str
    space: str = ""
    """Whose key: equal keys of different people have nothing to do with one another."""

    @property
    def name(self) -> str:
        """The name under which it is remembered; no key contains the separator."""
        return f"{self.space}\x1f{self.text}" if self.space else self.text


class Idempotency:
    """The keys of one controller: those in flight here, those answered in the store."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._in_flight: dict[str, tuple[str, asyncio.Future[bytes]]] = {}

    async def once(self, key: Key, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer to a request with this key: made now, being made, or remembered.

        Raises:
            ConflictError: the key was used for another request.
        """
        flying = self._in_flight.get(key.name)
        if flying is not None:
            _same(key, flying[0])
            return await asyncio.shield(flying[1])
        if len(self._in_flight) >= MAX_KEYS_IN_FLIGHT:
            raise OverloadedError("too many requests with idempotency keys are under way", hint="try again in a second")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._in_flight[key.name] = (key.fingerprint, answer)
        try:
            before = await self._committer.read(lambda store: store.idempotent(key.name))
            if before is not None:
                _same(key, before.fingerprint)
            made = before.response if before is not None else await make()
            answer.set_result(made)
            return made
        except BaseException as error:
            answer.set_exception(error if isinstance(error, HALError) else UnfinishedRequest())
            answer.exception()  # those who wait for it raise it themselves; nobody may
            raise
        finally:
            del self._in_flight[key.name]


class UnfinishedRequest(HALError):
    """The request of the same key was broken off before it had an answer."""

    code = "overloaded"

    def __init__(self) -> None:
        super().__init__("the request of the same key was broken off", hint="send it again")


def _same(key: Key, fingerprint: str) -> None:
    if key.fingerprint != fingerprint:
        raise ConflictError(
            f"the idempotency key '{shown(key.text)}' was used for another request",
            hint="use a fresh key for each request; the same key is for sending the same request again",
        )
