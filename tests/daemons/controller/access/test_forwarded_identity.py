"""Whom a leader believes that it passes requests of others on."""

from __future__ import annotations

import asyncio

import pytest

from hal.core.model import OverloadedError
from hal.daemons.controller.access.forwarded_identity import ASK_AGAIN_MS, RELY_MS, ForwardedIdentity, headers_of
from hal.daemons.controller.access.step_credentials import StepCredentials
from hal.daemons.controller.access.tokens import Token, TokenBook, digest_of
from hal.rest.identity import Identity, UnauthorizedError
from hal.rest.rights import Role

ANN = Identity(user="ann", role=Role.USER)


class Store:
    """Which controllers there are, and the clock."""

    def __init__(self) -> None:
        self.hashes: frozenset[str] = frozenset()
        self.asked = 0
        self.now_ms = 1_000_000

    async def read(self) -> frozenset[str]:
        self.asked += 1
        return self.hashes

    def forwarded(self) -> ForwardedIdentity:
        def used(token: Token) -> None:
            raise AssertionError(token)

        return ForwardedIdentity(
            self.read,
            book=TokenBook(),
            used=used,
            now_ms=lambda: self.now_ms,
            monotonic_ms=lambda: self.now_ms,
            steps=StepCredentials(lambda: "", lambda: "", None),
        )


def test_a_follower_that_is_new_is_asked_to_wait_and_a_stranger_is_refused() -> None:
    """The store is not asked for every stranger; who came in the moment since it was asked is not called one."""
    store = Store()
    forwarded = store.forwarded()
    headers = dict(headers_of("secret", ANN))

    async def body() -> None:
        with pytest.raises(UnauthorizedError, match="an unknown controller"):
            await forwarded.identity(headers)
        store.hashes = frozenset({digest_of("secret")})
        store.now_ms += ASK_AGAIN_MS - 1
        with pytest.raises(OverloadedError, match="not known yet"):
            await forwarded.identity(headers)
        store.now_ms += 1
        assert await forwarded.identity(headers) == ANN
        assert store.asked == 2

    asyncio.run(body())


def test_a_follower_that_is_gone_is_believed_for_seconds_only() -> None:
    """Those that are known are not asked for with every request, but again after a while."""
    store = Store()
    store.hashes = frozenset({digest_of("secret")})
    forwarded = store.forwarded()
    headers = dict(headers_of("secret", ANN))

    async def body() -> None:
        assert await forwarded.identity(headers) == ANN
        store.hashes = frozenset()
        store.now_ms += RELY_MS - 1
        assert await forwarded.identity(headers) == ANN
        store.now_ms += 1
        with pytest.raises(UnauthorizedError):
            await forwarded.identity(headers)

    asyncio.run(body())


def test_a_follower_that_does_not_say_who_asks_is_refused() -> None:
    """Nobody is let in as nobody, nor as something that is no identity."""
    store = Store()
    store.hashes = frozenset({digest_of("secret")})
    forwarded = store.forwarded()

    async def body() -> None:
        for said in (b"", b"%%%", b"bm90IGpzb24="):
            with pytest.raises(UnauthorizedError, match="does not identify the caller"):
                await forwarded.identity({**dict(headers_of("secret", ANN)), b"hal-asked-by": said})

    asyncio.run(body())
