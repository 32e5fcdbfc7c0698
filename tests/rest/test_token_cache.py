"""Who a token is, as the controller said a moment ago: for seconds, within bounds, and no longer than it is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hal.core.model import HALError, OverloadedError, UnreachableError
from hal.rest import token_cache
from hal.rest.identity import UnauthorizedError
from hal.rest.rights import Role
from hal.rest.token_cache import KEEP_MS, RELY_MS, TokenCache
from hal.rest.who import WhoView
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualWorld


class Book:
    """What a controller says, and how often it was asked."""

    def __init__(self) -> None:
        self.ids = {"alices": "a1", "bobs": "b1"}
        self.expires_ms: int | None = None
        self.asked: list[str] = []
        self.fails: HALError | None = None
        self.waits: asyncio.Event | None = None

    async def who(self, token: str) -> WhoView:
        self.asked.append(token)
        if self.waits is not None:
            await self.waits.wait()
        if self.fails is not None:
            raise self.fails
        if token not in self.ids:
            raise UnauthorizedError("the bearer token is wrong")
        return WhoView(
            user=token, role=Role.USER, peer="", token=self.ids[token], expires_ms=self.expires_ms, accounts=(),
            queues=(), read_only=False,
        )  # fmt: skip


def on_cache(test: Callable[[Runtime, TokenCache, Book], Awaitable[None]]) -> None:
    """Run it under virtual time."""
    world = VirtualWorld(seed=1)
    ended: list[bool] = []

    async def main(runtime: Runtime) -> None:
        book = Book()
        await test(runtime, TokenCache(runtime, book.who), book)
        ended.append(True)

    world.start(world.host("h"), "daemon", main)
    world.run_for(10 * RELY_MS)
    assert ended


def test_a_token_is_asked_about_once_in_five_seconds() -> None:
    """Each request is told where it comes from itself."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        for peer in ("x", "y"):
            identity = await cache.identity("alices", peer)
            assert (identity.user, identity.token, identity.peer) == ("alices", "a1", peer)
        assert book.asked == ["alices"]
        await runtime.sleep(KEEP_MS)
        await cache.identity("alices", "x")
        assert len(book.asked) == 2

    on_cache(body)


def test_safety_a_revoked_token_opens_nothing_after_five_seconds() -> None:
    """And a wrong one is not asked about again and again."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        await cache.identity("alices", "x")
        del book.ids["alices"]
        await runtime.sleep(KEEP_MS)
        for _ in range(3):
            with pytest.raises(UnauthorizedError):
                await cache.identity("alices", "x")
        assert len(book.asked) == 2

    on_cache(body)


def test_a_token_that_expires_opens_nothing_from_that_instant() -> None:
    """Within the seconds for which the answer is kept, too."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        book.expires_ms = runtime.now_ms() + 1_000
        identity = await cache.identity("alices", "x")
        await runtime.sleep(1_000)
        assert not cache.still_opens(identity)
        with pytest.raises(UnauthorizedError, match="has expired"):
            await cache.identity("alices", "x")

    on_cache(body)


def test_while_the_controller_is_away_its_last_word_counts_for_thirty_seconds() -> None:
    """Whom it did not know before nobody lets in; when it is back it is asked again."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        await cache.identity("alices", "x")
        book.fails = UnreachableError("away")
        await runtime.sleep(RELY_MS - 1)
        await cache.identity("alices", "x")
        with pytest.raises(UnreachableError):
            await cache.identity("bobs", "x")
        await runtime.sleep(1)
        with pytest.raises(UnreachableError):
            await cache.identity("alices", "x")
        book.fails = None
        await cache.identity("alices", "x")

    on_cache(body)


def test_a_request_under_way_ends_within_five_seconds_of_its_tokens_end() -> None:
    """It is asked about in the background; another token's request goes on."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        alice, bob = await cache.identity("alices", "x"), await cache.identity("bobs", "x")
        ended: list[str] = []
        with (
            cache.watching(alice, lambda: ended.append("alice")),
            cache.watching(bob, lambda: ended.append("bob")),
        ):
            await runtime.sleep(10 * KEEP_MS)
            assert (cache.still_opens(alice), ended) == (True, [])
            del book.ids["alices"]
            await runtime.sleep(KEEP_MS)
            assert (cache.still_opens(alice), cache.still_opens(bob), ended) == (False, True, ["alice"])

    on_cache(body)


def test_nobody_is_asked_about_who_asks_no_more() -> None:
    """When the last request has been answered, the asking ends."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        identity = await cache.identity("alices", "x")
        with cache.watching(identity, lambda: None):
            await runtime.sleep(2 * KEEP_MS)
        asked = len(book.asked)
        await runtime.sleep(10 * KEEP_MS)
        assert len(book.asked) <= asked + 1

    on_cache(body)


def test_many_who_show_the_same_token_are_one_question() -> None:
    """Also when whoever asked first has gone."""

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        book.waits = asyncio.Event()
        asking = [asyncio.ensure_future(cache.identity("alices", "x")) for _ in range(5)]
        await runtime.sleep(1)
        asking[0].cancel()
        book.waits.set()
        assert [(await one).user for one in asking[1:]] == ["alices"] * 4
        assert book.asked == ["alices"]

    on_cache(body)


def test_safety_guesses_displace_no_token_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 guesses 5 are remembered; Alice is not asked about again."""
    monkeypatch.setattr(token_cache, "MAX_REFUSED", 5)

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        await cache.identity("alices", "x")
        for number in range(20):
            with pytest.raises(UnauthorizedError):
                await cache.identity(f"guess{number}", "x")
        await cache.identity("alices", "x")
        assert (len(cache), book.asked.count("alices")) == (6, 1)

    on_cache(body)


def test_the_token_used_longest_ago_makes_room_and_none_whose_request_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three tokens two are kept: the oldest is in use, so the next one goes."""
    monkeypatch.setattr(token_cache, "MAX_KEPT", 2)

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        book.ids["eves"] = "e1"
        alice = await cache.identity("alices", "x")
        with cache.watching(alice, lambda: None):
            bob = await cache.identity("bobs", "x")
            eve = await cache.identity("eves", "x")
            assert [cache.still_opens(one) for one in (alice, bob, eve)] == [True, False, True]

    on_cache(body)


def test_so_many_are_asked_about_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is told to come again."""
    monkeypatch.setattr(token_cache, "MAX_ASKING", 1)

    async def body(runtime: Runtime, cache: TokenCache, book: Book) -> None:
        book.waits = asyncio.Event()
        first = asyncio.ensure_future(cache.identity("alices", "x"))
        await runtime.sleep(1)
        with pytest.raises(OverloadedError):
            await cache.identity("bobs", "x")
        book.waits.set()
        assert (await first).user == "alices"

    on_cache(body)
