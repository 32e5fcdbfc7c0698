"""How much anybody may ask: buckets that fill up again, requests at once, bounded memory; and the client waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.client.transport.backoff import LONGEST_TURN_S, Turn
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.config import Config
from hal.rest.limiter import MAX_IDENTITIES, Limiter, TooManyError
from tests.daemons.controller.access.people import person, until_too_many, with_secret
from tests.daemons.controller.api.test_rest import problem
from tests.daemons.controller.running import LIMIT_S, Running, on_controller

ASKS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3_000)), max_size=200)


def passes(limiter: Limiter, who: str, now_ms: int) -> bool:
    """Whether one request gets through; it is answered at once."""
    try:
        limiter.enter(who, now_ms)
    except TooManyError:
        return False
    limiter.leave(who)
    return True


def test_a_bucket_of_three_that_fills_by_two_a_second() -> None:
    """At 0 s three pass and the fourth must wait 1 s; at 0.5 s one more passes; bob's bucket is another one."""
    limiter = Limiter(per_s=2, burst=3, at_once=9)
    assert [passes(limiter, "alice", 0) for _ in range(4)] == [True, True, True, False]
    with pytest.raises(TooManyError) as refused:
        limiter.enter("alice", 0)
    assert (refused.value.retry_after_s, refused.value.first) == (1, False)
    assert [passes(limiter, "alice", 500) for _ in range(2)] == [True, False]
    assert passes(limiter, "bob", 500)


@given(ASKS, st.integers(1, 5), st.integers(1, 9))
def test_safety_nobody_gets_more_than_burst_and_rate(asks: list[tuple[str, int]], per_s: int, burst: int) -> None:
    """In any order of any requests: what passes in a span is at most burst + rate x span."""
    limiter, now_ms, passed = Limiter(per_s=per_s, burst=burst, at_once=9), 0, {"a": 0, "b": 0}
    for who, wait_ms in asks:
        now_ms += wait_ms
        passed[who] += passes(limiter, who, now_ms)
    assert all(count <= burst + per_s * now_ms / 1_000 for count in passed.values())


def test_requests_under_way_are_bounded_and_come_back() -> None:
    """Of two at once the third is refused until one has ended."""
    limiter = Limiter(per_s=100, burst=100, at_once=2)
    limiter.enter("alice", 0)
    limiter.enter("alice", 0)
    assert not passes(limiter, "alice", 0)
    limiter.leave("alice")
    assert passes(limiter, "alice", 0)


def test_safety_memory_is_bounded_and_who_is_at_work_is_remembered() -> None:
    """After twice as many identities as are remembered, one with a request under way still has it."""
    limiter = Limiter(per_s=1, burst=1, at_once=1)
    limiter.enter("alice", 0)
    for number in range(2 * MAX_IDENTITIES):
        passes(limiter, str(number), 0)
    assert len(limiter) == MAX_IDENTITIES
    assert not passes(limiter, "alice", 10_000)


def test_too_many_requests_are_429_and_the_owner_is_not_limited(hal_home: Path) -> None:
    """Two in a burst, then 429 with Retry-After; another user and the owner go on."""
    config = Config(access=AccessSection(requests_per_s=1, burst=2))

    async def body(hal: Running) -> None:
        async with person(hal, "alice") as alice, person(hal, "bob") as bob:
            assert len(await until_too_many(alice)) > 2
            refused = await alice.get("/v1/version")
            if refused.status_code == 429:  # else a second has passed
                assert problem(refused, 429, "too-many")["hint"]
                assert int(refused.headers["retry-after"]) >= 1
            assert (await bob.get("/v1/version")).status_code == 200
        assert {(await hal.http.get("/v1/version")).status_code for _ in range(9)} == {200}

    on_controller(hal_home, body, config)


def test_whoever_guesses_tokens_is_slowed_down(hal_home: Path) -> None:
    """After fifty wrong tokens from one address it is 429; a good token from there still opens."""

    async def body(hal: Running) -> None:
        async with with_secret(hal, "hal_x_y") as thief, person(hal, "alice") as alice:
            statuses = await until_too_many(thief)
            assert set(statuses[:-1]) == {401}
            assert len(statuses) > 50
            assert (await alice.get("/v1/version")).status_code == 200

    on_controller(hal_home, body)


def test_where_a_request_comes_from_is_not_what_its_headers_say(hal_home: Path) -> None:
    """Whoever guesses tokens names another address in each request: slowed down and noted as the address it is."""

    async def body(hal: Running) -> None:
        url = f"http://{hal.runtime.paths.tcp_file.read_text().strip()}"
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer hal_x_y"}) as thief:
            statuses = []
            for number in range(70):
                named = f"10.0.0.{number}"
                headers = {"x-forwarded-for": named, "forwarded": f"for={named}", "x-real-ip": named}
                statuses.append((await thief.get("/v1/version", headers=headers)).status_code)
            assert 429 in statuses
        entries = (await hal.http.get("/v1/audit", params={"limit": 100})).json()["entries"]
        assert {entry["peer"] for entry in entries} == {"127.0.0.1"}

    on_controller(hal_home, body, Config(tcp=("127.0.0.1", 0)))


def test_too_many_headers_are_431(hal_home: Path) -> None:
    """A hundred are read, two hundred are not."""

    async def body(hal: Running) -> None:
        many = {f"x-{number}": "1" for number in range(200)}
        problem(await hal.http.get("/v1/version", headers=many), 431, "too-large")

    on_controller(hal_home, body)


def test_a_head_without_end_is_cut_off(hal_home: Path) -> None:
    """A header that goes on and on is answered 431 and the connection closed, long before a megabyte was gathered."""

    async def body(hal: Running) -> None:
        reader, writer = await asyncio.open_unix_connection(str(hal.runtime.paths.api_socket()))
        writer.write(b"GET /v1/version HTTP/1.1\r\nHost: hal\r\nX-Long: ")
        async with asyncio.timeout(LIMIT_S):
            try:
                for _ in range(64):
                    writer.write(b"x" * 16_384)
                    await writer.drain()
                answer = await reader.read()
            except ConnectionError:
                answer = b""  # closed while it was still being sent
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        writer.close()
        assert (await hal.http.get("/v1/version")).status_code == 200

    on_controller(hal_home, body)


def test_a_client_waits_as_long_as_it_is_told_and_not_for_ever() -> None:
    """Retry-After 2 is 2 s; what is no number is 1 s; more than a minute in all is given up."""
    turn = Turn()
    assert turn.refused("2") == 2.0
    assert turn.refused("soon") == 1.0
    assert turn.refused(str(int(LONGEST_TURN_S))) is None
