"""A request that reads on and on ends when what was shown opens nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.step_credentials import StepCredentials
from hal.daemons.controller.access.tokens import Token, TokenBook, digest_of
from hal.rest.callers import LocalPeer
from hal.rest.identity import Identity
from hal.rest.rights import Role
from hal.rest.server import token_lapse
from hal.rest.server.token_lapse import until_lapsed
from hal.runtime.real_runtime import RealRuntime
from tests.runtime.real_runtime import run_real

HOUR_MS = 3_600_000


class Reader:
    """Bob, who reads with a token that is good for an hour."""

    def __init__(self, runtime: RealRuntime) -> None:
        now_ms = runtime.now_ms()
        self.runtime = runtime
        self.book = TokenBook()
        self.token = Token(
            id="t1",
            digest=digest_of("secret"),
            user="bob",
            role=Role.USER,
            created_ms=now_ms,
            expires_ms=now_ms + HOUR_MS,
            created_by="ada",
        )
        self.book.put(self.token)
        self.began = asyncio.Event()
        self._authenticator = Authenticator(
            AccessSection(),
            self.book,
            owner=LocalPeer(1000, "ada", True),
            home_token="",
            now_ms=runtime.now_ms,
            used=lambda token: None,
            steps=StepCredentials(lambda: "", lambda: "", None),
        )

    async def read(self, work: Callable[[], Awaitable[None]], expires_ms: int | None = None) -> bool:
        identity = Identity(user="bob", role=Role.USER, token="t1", expires_ms=expires_ms)
        whole = await until_lapsed(self.runtime, self._authenticator, identity, work)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling(), "what is done for the request afterwards is not cancelled"
        return whole

    async def for_ever(self) -> None:
        self.began.set()
        await asyncio.Event().wait()

    def revoke(self) -> None:
        self.book.put(replace(self.token, revoked_ms=self.runtime.now_ms()))


def on_reader(tmp_path: Path, test: Callable[[Reader], Awaitable[None]]) -> None:
    async def main(runtime: RealRuntime) -> None:
        await test(Reader(runtime))

    run_real(tmp_path, main)


def test_work_that_ends_by_itself_is_whole(tmp_path: Path) -> None:
    """Nothing lapsed."""

    async def body(bob: Reader) -> None:
        async def work() -> None:
            await asyncio.sleep(0)

        assert await bob.read(work) is True

    on_reader(tmp_path, body)


def test_a_revoked_token_ends_the_work_at_once(tmp_path: Path) -> None:
    """Not at the next look: the book tells of it."""

    async def body(bob: Reader) -> None:
        reading = asyncio.ensure_future(bob.read(bob.for_ever))
        await bob.began.wait()
        bob.revoke()
        assert await reading is False

    on_reader(tmp_path, body)


def test_a_token_that_expires_ends_the_work_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at when it is due, not at the next look, which is an hour away here."""
    monkeypatch.setattr(token_lapse, "LOOK_EVERY_MS", HOUR_MS)

    async def body(bob: Reader) -> None:
        until_ms = bob.runtime.now_ms() + 50
        bob.book.put(replace(bob.token, expires_ms=until_ms))
        assert await bob.read(bob.for_ever, expires_ms=until_ms) is False
        assert bob.runtime.now_ms() >= until_ms

    on_reader(tmp_path, body)


def test_whoever_gives_the_request_up_is_not_told_that_it_lapsed(tmp_path: Path) -> None:
    """A cancellation from outside stays one."""

    async def body(bob: Reader) -> None:
        reading = asyncio.ensure_future(bob.read(bob.for_ever))
        await bob.began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    on_reader(tmp_path, body)


def test_a_change_of_another_token_ends_nothing(tmp_path: Path) -> None:
    """Everybody's changes are seen; only one's own token counts."""

    async def body(bob: Reader) -> None:
        reading = asyncio.ensure_future(bob.read(bob.for_ever))
        await bob.began.wait()
        other = replace(bob.token, id="t2")
        bob.book.put(replace(other, revoked_ms=bob.runtime.now_ms()))
        await asyncio.sleep(0)
        assert not reading.done()
        bob.revoke()
        assert await reading is False

    on_reader(tmp_path, body)
