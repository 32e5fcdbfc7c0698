"""Several controllers of one HAL: any that answers will do, one that does not is passed over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

import hal
from hal.client.address_lookup import find_address
from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import MAX_ENDPOINTS, Endpoint, read_endpoints
from hal.client.async_client import AsyncClient
from hal.client.sync_client import Client
from hal.client.transport import rotation
from tests.client.scripted_server import Asked, Reply, Script, ScriptedServer, as_json, problem


def job(asked: Asked) -> Reply:
    return as_json({"id": "1", "state": "running"})


def nobody_leads(asked: Asked) -> Reply:
    return Reply(problem(503, "no-leader", "nobody leads at the moment").body, 503, {"Retry-After": "1"})


@contextmanager
def servers(*scripts: Script) -> Iterator[list[ScriptedServer]]:
    """One for each, stopped afterwards."""
    with ExitStack() as stack:
        made = [ScriptedServer(script) for script in scripts]
        for one in made:
            stack.callback(one.stop)
        yield made


def address_of(*some: ScriptedServer) -> Address:
    return Address(endpoints=tuple(Endpoint("127.0.0.1", one.port) for one in some))


def gone() -> Endpoint:
    """Where nobody listens."""
    server = ScriptedServer(job)
    server.stop()
    return Endpoint("127.0.0.1", server.port)


def test_one_that_does_not_answer_is_passed_over_and_the_one_that_does_is_remembered() -> None:
    """Also by another client of this process: it asks the second at once."""
    dead = gone()
    with servers(job) as (alive,):
        address = Address(endpoints=(dead, Endpoint("127.0.0.1", alive.port)))
        for _ in range(2):
            with Client(address) as client:
                assert client.job(1).state == "running"
        assert rotation._ANSWERED[address.endpoints] == 1


def test_a_follower_without_a_leader_is_asked_again_elsewhere() -> None:
    """Nothing was done: a requeue, too, goes to the next one."""
    with servers(nobody_leads, lambda asked: Reply(b'{"results": [{"id": "1"}]}')) as both:
        with Client(address_of(*both)) as client:
            client.requeue(1, 2)
        assert [len(one.asked) for one in both] == [1, 1]


def test_what_may_have_been_done_is_not_sent_to_another_one() -> None:
    """A requeue of several jobs has no key that makes it harmless; a submission has, and is sent again as it was."""
    with servers(lambda asked: Reply(cut=True), lambda asked: as_json({"ids": ["7"]}, 201)) as both:
        with Client(address_of(*both)) as client, pytest.raises(hal.UnreachableError, match="may or may not"):
            client.requeue(1, 2)
        assert [len(one.asked) for one in both] == [1, 0]
    with servers(lambda asked: Reply(cut=True), lambda asked: as_json({"ids": ["7"]}, 201)) as both:
        with Client(address_of(*both)) as client:
            assert client.submit(["true"]).id == "7"
        keys = {one.asked[0].headers["idempotency-key"] for one in both}
        assert len(keys) == 1


@pytest.mark.parametrize(("status", "code"), [(502, "broke-off"), (503, "ending")])
def test_a_leader_that_was_lost_before_it_answered_is_as_one_that_broke_off(status: int, code: str) -> None:
    """Told by a follower, or by itself as it ends: only what may be repeated is."""
    lost = Reply(problem(status, code, "may or may not have been done").body, status)
    with servers(lambda asked: lost, job) as both:
        with Client(address_of(*both)) as client, pytest.raises(hal.UnreachableError, match="may or may not"):
            client.requeue(1, 2)
        with Client(address_of(*both)) as client:
            assert client.job(1).state == "running"


def test_none_that_answers_is_told_for_each() -> None:
    """After so long as another one needs to take over (here: no time at all)."""
    two = (gone(), gone())
    with (
        closing(Client(Address(endpoints=two), reconnect_s=0.0)) as client,
        pytest.raises(hal.UnreachableError) as caught,
    ):
        client.version()
    assert "none of 2 controllers answers" in caught.value.message
    assert all(f"{endpoint.url}: " in caught.value.message for endpoint in two)


def test_the_client_for_asyncio_does_the_same() -> None:
    """Passed over, asked elsewhere, and told for each."""

    async def body() -> None:
        dead = gone()
        with servers(nobody_leads, job) as both:
            some = (dead, *(Endpoint("127.0.0.1", one.port) for one in both))
            async with AsyncClient(Address(endpoints=some)) as client:
                assert (await client.job(1)).info.state == "running"
        async with AsyncClient(Address(endpoints=(dead, gone())), reconnect_s=0.0) as client:
            with pytest.raises(hal.UnreachableError, match="none of 2 controllers answers"):
                await client.version()

    asyncio.run(body())


def test_urls_are_written_with_commas_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same is one; the port is 4250 where none is said; what is no URL, too many, and a mix with and without
    TLS, are refused."""
    monkeypatch.setenv("HAL_URL", "https://a, https://b:7421,https://a:4250")
    assert find_address(token="t").endpoints == (Endpoint("a", 4250, True), Endpoint("b", 7421, True))
    for wrong in ("", "ftp://a", "https://", "https://a/b", "http://a:0", "http://a,unix:///x", "https://u@a"):
        with pytest.raises(hal.SpecError):
            read_endpoints(wrong)
    with pytest.raises(hal.SpecError, match="17 URLs"):
        read_endpoints(",".join(["http://a"] * (MAX_ENDPOINTS + 1)))
    with pytest.raises(hal.SpecError, match="some do not"):
        read_endpoints("https://a,http://b")
