"""A follower's own doors: its TCP port for holders of tokens, its TLS port for agents; and one authority for all."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hal.runtime.authority import NodeIdentity, open_authority
from hal.runtime.home import Home
from hal.runtime.interface import Credentials, TcpAddress
from hal.runtime.joining import join_any
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.store import Store
from hal.wire.agree import SPOKEN
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Hello
from hal.wire.join_token import read_join_token
from hal.wire.roles import Role
from tests.daemons.controller.controller_process import LIMIT_S, ControllerProcess
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

TRUE = {"command": ["exit", "0"]}


def free_ports(number: int) -> list[int]:
    """Ports of this machine's loopback address that nobody uses."""
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Served(ControllerProcess):
    """A controller with both ports."""

    def __init__(self, root: Path, name: str, url: str) -> None:
        self.url = url
        self.rest_port, self.wire_port = free_ports(2)
        super().__init__(
            root, name, url, f'[server]\ntcp = "127.0.0.1:{self.rest_port}"\nwire = "127.0.0.1:{self.wire_port}"\n'
        )

    @property
    def wire(self) -> TcpAddress:
        return TcpAddress("127.0.0.1", self.wire_port)

    def person(self, secret: str, **headers: str) -> httpx.AsyncClient:
        """Somebody who comes over TCP with that token."""
        told = {"Authorization": f"Bearer {secret}", **headers}
        base = f"http://127.0.0.1:{self.rest_port}"
        return httpx.AsyncClient(base_url=base, headers=told, timeout=LIMIT_S, verify=False)

    async def answers(self, secret: str, status: int) -> None:
        """Once whoever holds that token gets that status."""
        async with self.person(secret) as http, asyncio.timeout(LIMIT_S):
            while True:
                if (await http.get("/v1/whoami")).status_code == status:
                    return
                await asyncio.sleep(0.02)


@asynccontextmanager
async def served_pair(root: Path, url: str) -> AsyncIterator[tuple[Served, Served]]:
    """The first leads, the second follows; both have the authority of the first."""
    first, second = Served(root, "a", url), Served(root, "b", url)
    try:
        first.start()
        await first.leads()
        shutil.copytree(first.home.authority, second.home.authority)
        second.start()
        await second.follows()
        yield first, second
    finally:
        first.remove()
        second.remove()


async def made_token(at: ControllerProcess, user: str) -> dict[str, Any]:
    made: dict[str, Any] = (await at.ask("POST", "/v1/api-tokens", json={"user": user})).json()
    return made


def test_a_follower_answers_over_tcp_as_the_leader_does(hal_home: Path, postgres: PostgresServer) -> None:
    """A token made at the leader opens the follower, as its user and no more; what is passed on is that user's at the
    leader, in its audit log too, and what is delegated to them holds; nobody names themselves somebody else; a token
    that was revoked opens neither."""

    async def body() -> None:
        async with served_pair(hal_home, postgres.fresh()) as (leader, follower):
            bob, eve = await made_token(leader, "bob"), await made_token(leader, "eve")
            await follower.answers(bob["secret"], 200)
            await follower.answers(eve["secret"], 200)
            async with follower.person(bob["secret"]) as http:
                who = (await http.get("/v1/whoami")).json()
                assert (who["user"], who["role"], who["peer"]) == ("bob", "user", "127.0.0.1")
                (job,) = (await http.post("/v1/jobs", json={"jobs": [TRUE]})).json()["ids"]
                assert [one["id"] for one in (await http.get("/v1/jobs")).json()["jobs"]] == [job]
                assert (await http.get(f"/v1/jobs/{job}/tasks/0")).status_code == 200
                assert (await http.get(f"/v1/jobs/{job}")).json()["user"] == "bob"
                assert (await http.put("/v1/policy", json={})).status_code == 403
                async with http.stream("GET", f"/v1/events?job={job}", headers={"Accept": "text/event-stream"}) as feed:
                    assert ": the feed begins" in await anext(feed.aiter_text())
            # Who asks is what the token says, whatever else is said.
            forged = {"HAL-Follower": "x", "HAL-Asked-By": "eyJ1c2VyIjoicm9vdCIsInJvbGUiOiJhZG1pbiJ9"}
            async with follower.person(eve["secret"]) as http:
                assert (await http.get("/v1/jobs")).json()["jobs"] == []
                assert (await http.get(f"/v1/jobs/{job}/tasks")).status_code == 404
                assert (await http.get(f"/v1/jobs/{job}")).status_code == 404
            async with follower.person(eve["secret"], **forged) as http:
                assert (await http.get("/v1/api-tokens")).status_code == 503
            # What is delegated to her, the leader knows.
            operation = {"op": "set", "kind": "queue", "name": "default", "entry": {"operators": ["eve"]}}
            await leader.ask("PATCH", "/v1/policy", json={"operations": [operation]})
            async with follower.person(eve["secret"]) as http:
                assert [one["id"] for one in (await http.get("/v1/jobs?queue=default")).json()["jobs"]] == [job]
                assert (await http.get(f"/v1/jobs/{job}/tasks")).status_code == 200
                assert (await http.get(f"/v1/jobs/{job}/tasks/0")).status_code == 404
            async with leader.person(eve["secret"], **forged) as http:
                # Where the store was asked for the followers a moment ago, it is not asked again yet.
                answer = await http.get("/v1/api-tokens")
                while "not known yet" in answer.text:
                    await asyncio.sleep(0.02)
                    answer = await http.get("/v1/api-tokens")
                assert answer.status_code == 401
            entries = (await leader.ask("GET", "/v1/audit?user=bob")).json()["entries"]
            submitted = [(one["method"], one["peer"], one["token"]) for one in entries if one["path"] == "/v1/jobs"]
            assert submitted == [("POST", "127.0.0.1", bob["token"]["id"])]
            await leader.ask("POST", f"/v1/api-tokens/{bob['token']['id']}/revoke")
            await follower.answers(bob["secret"], 401)

    asyncio.run(body())


async def drained(parts: AsyncIterator[str]) -> None:
    """All of a stream that has no end was read."""
    async for _ in parts:
        pass


@pytest.mark.parametrize("revoked_at", ["leader", "follower"])
def test_what_is_read_through_a_follower_ends_with_its_token(
    hal_home: Path, postgres: PostgresServer, revoked_at: str
) -> None:
    """(M3) A feed and a wait that it passes on, when the token is revoked, at the leader or through the follower."""

    async def body() -> None:
        async with served_pair(hal_home, postgres.fresh()) as (leader, follower):
            bob = await made_token(leader, "bob")
            await follower.answers(bob["secret"], 200)
            async with follower.person(bob["secret"]) as http, follower.person(bob["secret"]) as other:
                (job,) = (await http.post("/v1/jobs", json={"jobs": [TRUE | {"hold": True}]})).json()["ids"]
                waits = asyncio.ensure_future(other.get(f"/v1/jobs/{job}/wait?timeout_s=600"))
                async with http.stream("GET", f"/v1/events?job={job}", headers={"Accept": "text/event-stream"}) as feed:
                    parts = feed.aiter_text()
                    assert ": the feed begins" in await anext(parts)
                    at = leader if revoked_at == "leader" else follower
                    revoked = await at.ask("POST", f"/v1/api-tokens/{bob['token']['id']}/revoke")
                    assert revoked.status_code == 200, revoked.text
                    with pytest.raises(httpx.RemoteProtocolError):
                        await asyncio.wait_for(drained(parts), LIMIT_S)
                assert (await waits).status_code == 401

    asyncio.run(body())


def test_all_controllers_are_told_and_one_that_is_gone_is_missed(hal_home: Path, postgres: PostgresServer) -> None:
    """Leader and follower name both, with address and since when; when the leader was killed the other leads, and one
    that stops in good order is told of no more."""

    async def body() -> None:
        async with served_pair(hal_home, postgres.fresh()) as (leader, follower):

            def states(told: dict[str, Any]) -> dict[str, str]:
                return {one["rest"].split()[-1]: one["state"] for one in told["controllers"]}

            urls = [f"http://127.0.0.1:{one.rest_port}" for one in (leader, follower)]
            for one in (leader, follower):
                wanted = dict(zip(urls, ("leads", "follows"), strict=True))
                told = await one.until("/v1/controllers", lambda told, wanted=wanted: states(told) == wanted)
                assert all(view["since_ms"] > 0 and view["version"] for view in told["controllers"])
                assert told["warnings"] == []
            leader.kill()
            wanted = dict(zip(urls, ("silent", "leads"), strict=True))
            await follower.until("/v1/controllers", lambda told: states(told) == wanted)
            assert follower.end() == 0
            store = Store.open(follower.url, create=False)
            assert [row.rest.split()[-1] for row in store.controllers()] == urls[:1]
            store.close()

    asyncio.run(body())


def test_a_follower_sends_agents_and_whoever_joins_to_the_leader(hal_home: Path, postgres: PostgresServer) -> None:
    """Over its own TLS port: a machine joins through it, an agent hears where the leader is, a stranger does not."""

    async def body() -> None:
        home = Home(hal_home)
        home.create()
        file = LogFile(home.log_file("test"))
        runtime = RealRuntime("test", home, open_log(file, "test"), seed=1)
        async with served_pair(hal_home, postgres.fresh()) as (leader, follower):
            try:
                token = (await leader.ask("POST", "/v1/tokens", json={})).json()["token"]
                identity = NodeIdentity(hal_home / "far" / "identity")
                await join_any(runtime, identity, "far", read_join_token(token), [follower.wire])
                told = await greeted(runtime, follower.wire, identity.credentials)
                assert (told.code, told.reason) == ("not-leader", f"127.0.0.1:{leader.wire_port}")
                told = await greeted(runtime, follower.wire, Credentials())
                assert told.code == "denied"
                assert str(leader.wire_port) not in told.reason
            finally:
                await runtime.close()
                file.close()

    asyncio.run(body())


async def greeted(runtime: RealRuntime, at: TcpAddress, credentials: Credentials) -> Goodbye:
    """What is answered to a hello."""
    connection = await runtime.connect(at, credentials=credentials)
    await connection.send(Hello(role=Role.AGENT, versions=SPOKEN, name="far", boot_id="b1", capacity={"cpu": 1_000}))
    answer: Frame | None = await connection.receive(30_000)
    assert isinstance(answer, Goodbye), answer
    connection.close()
    return answer


def test_a_controller_with_another_authority_or_none_is_refused_at_start(
    hal_home: Path, postgres: PostgresServer
) -> None:
    """One clear error, nothing made: the database knows the authority's fingerprint, and nothing that is private."""
    url = postgres.fresh()
    first, none, other = Served(hal_home, "a", url), Served(hal_home, "b", url), Served(hal_home, "c", url)

    async def body() -> None:
        first.start()
        await first.leads()
        open_authority(other.home.authority, 1_700_000_000_000)
        for one in (none, other):
            one.start()
        for one, words in ((none, "and this one has none in"), (other, "have another authority")):
            assert one.ended() != 0
            assert words in one.out()
            assert "copy HAL_HOME/authority" in one.out()
        assert not list(none.home.authority.glob("authority.*"))

    try:
        asyncio.run(body())
        store = Store.open(url, create=False)
        known = store.meta("authority")
        store.close()
        assert known == open_authority(first.home.authority, 0).public_fingerprint
        assert known in none.out()
    finally:
        for one in (first, none, other):
            one.remove()
