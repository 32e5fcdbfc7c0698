"""What a job says of itself without asking anybody, and copies of it in other processes."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

import hal
from hal.client.addresses.address import Address
from hal.client.sync_client import Client
from hal.runtime.home import Home
from tests.client.conftest import Serve
from tests.client.flows.test_logs import part
from tests.client.scripted_server import Asked, Reply, as_json


def job_seven(asked: Asked) -> Reply:
    """A job that has failed with exit code 3, and its output."""
    if asked.path.endswith("/logs"):
        return part(asked, b"one\ntwo\n")
    return as_json({"id": "7", "state": "failed", "exit_code": 3, "request": {"cpu": 2000}, "walltime": "5m"})


def test_a_job_shows_its_id_and_its_state_when_last_read(serve: Serve, client: Client) -> None:
    """Nobody is asked for it."""
    server = serve(job_seven)
    job = hal.Job(client, "7")
    assert (repr(job), str(job), len(server.asked)) == ("Job('7')", "7", 0)
    job.refresh()
    assert (repr(job), len(server.asked)) == ("Job('7', state='failed')", 1)
    assert repr(client) == f"Client({client.address.named!r})"


def test_an_asyncio_job_shows_the_same(hal_home: Path) -> None:
    """Under its own name."""
    assert repr(hal.AsyncJob(hal.AsyncClient(Address(home=Home(hal_home))), "7")) == "AsyncJob('7')"


def test_jobs_are_equal_by_client_and_id(client: Client, hal_home: Path) -> None:
    """Two clients may talk to two HALs."""
    job, same, other = hal.Job(client, "7"), hal.Job(client, "7"), hal.Job(client, "8")
    assert (job == same, job == other, len({job, same, other})) == (True, False, 2)
    assert job != hal.Job(Client(Address(home=Home(hal_home))), "7")
    assert job != "7"


def test_a_pickled_job_is_the_same_job_with_a_client_of_its_own(serve: Serve, client: Client) -> None:
    """What was last read comes along; jobs of one pickle share a client, and it works."""
    server = serve(job_seven)
    job = client.job(7)
    copies = pickle.loads(pickle.dumps([job, hal.Job(client, "8")]))
    assert repr(copies) == "[Job('7', state='failed'), Job('8')]"
    assert copies[0].info == job.info
    assert copies[0].client is copies[1].client is not client
    assert copies[0].client.connections.reconnect_s == client.connections.reconnect_s
    asked = len(server.asked)
    assert copies[0].logs() == "one\ntwo\n"
    assert len(server.asked) > asked


def test_a_pickled_asyncio_job_works_in_another_loop(serve: Serve, hal_home: Path) -> None:
    """Its members are those of a sync job, to be awaited."""
    serve(job_seven)
    made = hal.AsyncJob(hal.AsyncClient(Address(home=Home(hal_home))), "7")

    async def work() -> tuple[object, ...]:
        job = pickle.loads(pickle.dumps(made))
        async with job.client:
            log = await job.log_part(offset=4)
            pieces = [piece async for piece in job.log_bytes(tail_bytes=4)]
            return await job.exit_code(), await job.state(), log.data, log.size, b"".join(pieces), job.info.exit_code

    assert asyncio.run(work()) == (3, "failed", b"two\n", 8, b"two\n", 3)


def test_an_exit_code_is_none_before_the_end(serve: Serve, client: Client) -> None:
    """Of a running job nothing is known, whatever the controller sends."""
    serve(lambda asked: as_json({"id": "7", "state": "running", "exit_code": 0}))
    assert hal.Job(client, "7").exit_code is None


def test_asyncio_jobs_are_given_as_they_end(serve: Serve, hal_home: Path) -> None:
    """Job 1 ends only when the caller has job 2, though it is named first, and twice."""
    given: list[str] = []

    def answer(asked: Asked) -> Reply:
        job = asked.path.split("/")[3]
        return as_json({"id": job, "state": "succeeded" if job == "2" or given else "running"})

    serve(answer)

    async def work() -> list[str]:
        async with hal.AsyncClient(Address(home=Home(hal_home))) as client:
            async for info in client.as_ended(["1", "2", "1"], timeout=60):
                given.append(info.id)
        return given

    assert asyncio.run(work()) == ["2", "1"]


@pytest.mark.parametrize("many", [False, True])
def test_jobs_that_do_not_end_in_time_are_an_error_that_counts_them(many: bool, serve: Serve, hal_home: Path) -> None:
    """In both clients; the jobs continue."""
    serve(lambda asked: as_json({"id": asked.path.split("/")[3], "state": "running"}))
    ids = ["1", "2"] if many else ["1"]
    text = "2 of 2 jobs have not ended after 0.2 s" if many else "job 1 has not ended after 0.2 s"

    async def work() -> None:
        async with hal.AsyncClient(Address(home=Home(hal_home))) as client:
            await client.wait_all(ids, timeout=0.2)

    with pytest.raises(hal.TimedOutError, match=text):
        asyncio.run(work())
    with Client(Address(home=Home(hal_home))) as client, pytest.raises(hal.TimedOutError, match=text):
        client.wait_all(ids, timeout=0.2)


def test_an_error_about_one_job_ends_the_wait_for_all(serve: Serve, hal_home: Path) -> None:
    """In both clients."""

    def answer(asked: Asked) -> Reply:
        if asked.path.split("/")[3] == "2":
            return as_json({"code": "not-found", "detail": "no job 2", "status": 404}, 404)
        return as_json({"id": "1", "state": "running"})

    serve(answer)

    async def work() -> None:
        async with hal.AsyncClient(Address(home=Home(hal_home))) as client:
            await client.wait_all(["1", "2"])

    with pytest.raises(hal.NotFoundError, match="no job 2"):
        asyncio.run(work())
    with Client(Address(home=Home(hal_home))) as client, pytest.raises(hal.NotFoundError, match="no job 2"):
        client.wait_all(["1", "2"])
