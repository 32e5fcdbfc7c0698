"""(H5) The worst requests of a user take long, but no turn of the loop does: no follower takes over because of one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons.controller.following.test_failover import Pair, on_pair
from tests.postgres_server import PostgresServer

BODY = 7 << 20
TASKS = 1_000_000
LIMIT_S = 240.0


async def ask(both: Pair, path: str, body: Any) -> httpx.Response:
    """At the leader; what is asked may take long."""
    transport = httpx.AsyncHTTPTransport(uds=str(both.first.home.api_socket()))
    text = body if isinstance(body, bytes) else None
    json = None if isinstance(body, bytes) else body
    async with httpx.AsyncClient(transport=transport, base_url="http://hal", timeout=LIMIT_S) as http:
        return await http.post(path, content=text, json=json)


@pytest.mark.long
def test_safety_no_request_makes_a_follower_take_over(hal_home: Path, postgres: PostgresServer) -> None:
    """(H5, attempts 52 to 54) Two controllers on one database: a dry run of 40,000 jobs each after the one before, an
    env of a million entries, brackets without end, 10,000 scattered cancels of a million tasks and a job that 10,000
    wait for: afterwards the same controller leads in the same epoch. The first alone made the follower take over."""

    async def body(both: Pair) -> None:
        before = await both.first.leads()
        chain = ['{"command":["a"],"name":"j0"}']
        chain += [f'{{"command":["a"],"name":"j{n}","dependencies":["afterok:j{n - 1}"]}}' for n in range(1, 40_000)]
        dry = await ask(both, "/v1/jobs?dry_run=1", f'{{"jobs":[{",".join(chain)}]}}'.encode())
        assert dry.status_code == 200, dry.text[:500]
        env = b",".join(b'"A%d":""' % n for n in range(500_000))
        for refused in (b'{"command":["a"],"env":{' + env + b"}}", b"[" * BODY, b'{"jobs":[' + b"{}," * (BODY // 3)):
            assert (await ask(both, "/v1/jobs", refused)).status_code == 400

        array = {"command": ["true"], "array": TASKS, "hold": True}
        (job,) = (await ask(both, "/v1/jobs", array)).json()["ids"]
        for part in range(1):
            ids = [f"{job}.{task}" for task in random.Random(part).sample(range(TASKS), 10_000)]
            done = (await ask(both, "/v1/jobs/cancel", {"ids": ids})).json()["results"]
            assert len(done) == 10_000
        waiting = [{"command": ["a"], "name": "first", "hold": True}]
        waiting += [{"command": ["a"], "dependencies": ["afterok:first"]} for _ in range(10_000)]
        first, *_, last = (await ask(both, "/v1/jobs", {"jobs": waiting})).json()["ids"]
        ended = (await ask(both, "/v1/jobs/cancel", {"ids": [job, first]})).json()["results"]
        assert [one["state"] for one in ended] == ["cancelled", "cancelled"]
        assert (await both.first.ask("GET", f"/v1/jobs/{last}")).json()["state"] == "cancelled"
        after = await both.first.leads()
        assert after["epoch"] == before["epoch"]
        await both.second.follows()

    on_pair(hal_home, postgres, body)


ROUNDS = 2
"""With three requests under way at once, the leader works without a pause for more than a lease."""


@pytest.mark.long
def test_safety_the_worst_requests_again_and_again_leave_the_lease_alone(
    hal_home: Path, postgres: PostgresServer
) -> None:
    """(H5) Three clients send the worst requests at the same time, each again and again: dry runs of chains, jobs that
    one is waited for by and cancels by a filter, scattered cancels of an array. The follower asks all the time who
    leads, and finds the same controller in the same epoch."""

    async def body(both: Pair) -> None:
        before, following = await both.first.leads(), await both.second.follows()

        async def chains() -> None:
            jobs = ['{"command":["a"],"name":"j0"}']
            jobs += [f'{{"command":["a"],"name":"j{n}","dependencies":["afterok:j{n - 1}"]}}' for n in range(1, 10_000)]
            for _ in range(ROUNDS):
                done = await ask(both, "/v1/jobs?dry_run=1", f'{{"jobs":[{",".join(jobs)}]}}'.encode())
                assert done.status_code == 200, done.text[:500]

        async def dependants() -> None:
            jobs: list[dict[str, Any]] = [{"command": ["a"], "name": "first", "hold": True}]
            jobs += [{"command": ["a"], "dependencies": ["afterok:first"]} for _ in range(5_000)]
            for _ in range(ROUNDS):
                assert (await ask(both, "/v1/jobs", {"jobs": jobs})).status_code == 201
                ended = await ask(both, "/v1/jobs/cancel", {"filter": {"name": "first"}})
                assert [one["state"] for one in ended.json()["results"]] == ["cancelled"]

        async def scattered() -> None:
            (job,) = (await ask(both, "/v1/jobs", {"command": ["a"], "array": TASKS, "hold": True})).json()["ids"]
            for part in range(ROUNDS):
                ids = [f"{job}.{task}" for task in random.Random(part).sample(range(TASKS), 5_000)]
                done = (await ask(both, "/v1/jobs/cancel", {"ids": ids})).json()["results"]
                assert len(done) == len(ids)

        epochs: set[int] = set()

        async def watch() -> None:
            while True:
                epochs.add((await both.second.follows())["epoch"])

        watching = asyncio.ensure_future(watch())
        try:
            await asyncio.gather(chains(), dependants(), scattered())
        finally:
            watching.cancel()
        assert epochs <= {following["epoch"]}
        assert (await both.first.leads())["epoch"] == before["epoch"]
        await both.second.follows()

    on_pair(hal_home, postgres, body)
