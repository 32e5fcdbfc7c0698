"""Advice over REST, on a running controller: the contract with planes, and what becomes of it in the engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.conformance.plane import advise
from hal.conformance.plane.rest import Rest
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import AdviceUpdated, ClockAdvanced, Event, KeySpace
from hal.core.engine.policies import register
from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request
from hal.core.model import SpecError
from hal.core.model.advice import MAX_KEYS_A_REQUEST
from hal.daemons.controller.config import Config, read_config
from hal.daemons.controller.cycle.engine import Engine
from hal.daemons.controller.service.advice import advice as service
from hal.daemons.controller.service.advice.views import AdviceBody, update_of
from hal.runtime.home import Home
from tests.daemons.controller.access.people import make_token
from tests.daemons.controller.running import Running, on_controller


class Quiet:
    """The node with the lowest load; one of which nothing is known comes last."""

    info = PolicyInfo("test-quiet", "score/2", reads_advice=("load",))

    def score(self, request: Request, view: NodeView) -> NDArray[np.float64]:
        return 1.0 - np.clip(np.nan_to_num(view.advice["load"], nan=1.0), 0.0, 1.0)


class Favoured:
    """Users by advice, then job id."""

    info = PolicyInfo("test-favoured", "order/3", reads_advice=("favour",))

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return np.zeros(jobs.job.shape, np.int64)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return (-100 * np.nan_to_num(buckets.advice["favour"])).astype(np.int64)


for _policy in (Quiet(), Favoured()):
    register(_policy)
TRUE = {"command": ["exit", "0"]}
SLEEP = {"command": ["sleep"], "request": {"cpu": 1}}


async def put(hal: Running, kind: str, values: dict[Any, float | None], **more: Any) -> dict[str, Any]:
    """What is held then."""
    body = {"space": "nodes", "keys": list(values), "values": list(values.values()), **more}
    answer = await hal.http.put(f"/v1/advice/{kind}", json=body)
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()["advice"]
    return view


def free_address() -> str:
    """Host and port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_the_controller_keeps_the_contract_of_advice(hal_home: Path) -> None:
    """As a plane sees it: over TCP, with an operator's token; and as a user who is none."""
    url = free_address()

    async def body(hal: Running) -> None:
        tokens = [(await make_token(hal, "plane", role=role))["secret"] for role in ("operator", "user")]
        operator, user = (Rest(f"http://{url}", token) for token in tokens)
        await asyncio.to_thread(advise.check, operator, user)

    on_controller(hal_home, body, read_config(f'[server]\ntcp = "{url}"'))


def test_the_command_checks_a_controller(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over its socket, where the kernel says who asks; or with a token, of which a user's is refused."""

    async def body(hal: Running) -> None:
        url = f"unix://{Home(hal_home).api_socket()}"
        assert await asyncio.to_thread(advise.main, [url]) == 0
        assert "conforms: 9 guarantees of advising" in capsys.readouterr().out
        monkeypatch.setenv("HAL_TOKEN", (await make_token(hal, "eve"))["secret"])
        assert await asyncio.to_thread(advise.main, [f"http://{tcp}"]) == 1
        assert "was refused with 403" in capsys.readouterr().err

    tcp = free_address()
    on_controller(hal_home, body, read_config(f'[server]\ntcp = "{tcp}"'))


def test_a_job_starts_where_advice_says(hal_home: Path) -> None:
    """Neither the first node nor the one that joined last, until the load moves."""

    async def body(hal: Running) -> None:
        for name in ("n1", "n2", "n3"):
            await hal.agent(name)
        view = await put(hal, "load", {"n1": 0.9, "n2": 0.1, "n3": 0.5, "n4": 0.0})
        assert (view["count"], view["known"], view["read_by"]) == (4, 3, ["test-quiet"])
        nodes = []
        for load in (0.1, 0.95):
            await put(hal, "load", {"n2": load}, delta=True)
            (job,) = await hal.submit(TRUE)
            await hal.ended(job)
            nodes += (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()["nodes"]
        assert nodes == ["n2", "n3"]

    on_controller(hal_home, body, Config(engine=EngineConfig(placement="test-quiet")))


def test_advice_that_puts_another_job_first_is_looked_at_without_other_events(hal_home: Path) -> None:
    """Bob's job waits behind alice's; the pass that advice asks for plans his first, before anything ends."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(cpu_milli=1_000)
        await hal.submit(SLEEP)
        await agent.until(lambda agent: len(agent.running) == 1)
        short = {**TRUE, "request": {"cpu": 1}}
        alices, bobs = [(await hal.submit({**short, "user": user}))[0] for user in ("alice", "bob")]
        state = hal.controller._engine.state
        await put(hal, "favour", {"bob": 1.0}, space="users")
        await hal.until(lambda: not state.advice.awaits_pass)
        await hal.http.post("/v1/jobs/cancel", json={"ids": ["1"]})
        ends = [await hal.ended(job) for job in (alices, bobs)]
        assert ends[0]["start_ms"] >= ends[1]["end_ms"]

    on_controller(hal_home, body, Config(engine=EngineConfig(order="test-favoured")))


def test_advice_that_nobody_reads_takes_no_step(hal_home: Path) -> None:
    """The loop sleeps on; what is put is held."""

    async def body(hal: Running) -> None:
        await hal.agent()
        steps: list[int] = []
        engine = hal.controller._engine
        step = engine.step
        await hal.until(lambda: not hal.controller._loop._more)
        engine.step = lambda now_ms: steps.append(now_ms) or step(now_ms)  # type: ignore[method-assign, func-returns-value]
        for version in range(1, 4):
            assert (await put(hal, "load", {"n1": 0.5}))["version"] == version
        assert not steps

    on_controller(hal_home, body)


def test_a_rebuilt_engine_is_told_again() -> None:
    """As after a commit that failed."""
    engine = Engine(EngineConfig())
    values = np.array([0.9, 0.1])
    engine.feed((AdviceUpdated("load", KeySpace.NODES, 7, ("n1", "n2"), values, 1 << 50),))
    before = engine.state
    engine.begin((), 1_000)
    assert engine.state is not before
    assert dict(engine.state.advice.items("load")) == {"n1": 0.9, "n2": 0.1}
    assert engine.state.advice.kinds["load"].version == 7


def test_an_update_whose_engine_is_rebuilt_between_its_parts_is_fed_again(hal_home: Path) -> None:
    """All keys are held, of which the first went to the engine that is no more."""

    async def body(hal: Running) -> None:
        engine, state = hal.controller._engine, hal.controller._engine.state
        keys = [f"n{number}" for number in range(3 * service.KEYS_A_PART)]
        feed = engine.feed

        def rebuild() -> None:
            engine.begin(hal.controller._plane.engine_events(), hal.controller._clock.now_ms())

        def feed_and_rebuild(events: Iterable[Event]) -> None:
            engine.feed = feed  # type: ignore[method-assign]
            feed(events)
            asyncio.get_running_loop().call_soon(rebuild)

        await hal.until(lambda: not hal.controller._loop._more)
        engine.feed = feed_and_rebuild  # type: ignore[method-assign]
        view = await put(hal, "load", dict.fromkeys(keys, 0.5))
        assert engine.state is not state
        assert view["count"] == len(keys)
        assert not engine.state.advice.staged

    on_controller(hal_home, body)


def test_an_update_during_which_what_was_held_expires_is_fed_again(hal_home: Path) -> None:
    """Whole: all of its keys are held. A delta: what it is based on is gone, and it is refused."""

    async def body(hal: Running) -> None:
        engine, real = hal.controller._engine, hal.controller._engine.feed

        def feed_and_expire(events: Iterable[Event]) -> None:
            """After the first part, let the clock pass the end of what is held."""
            real(events)
            engine.feed = real  # type: ignore[method-assign]
            at_ms = engine.state.advice.kinds["load"].expires_ms
            asyncio.get_running_loop().call_soon(real, (ClockAdvanced(at_ms),))

        keys: dict[Any, float | None] = {f"n{number}": 0.5 for number in range(2 * service.KEYS_A_PART)}
        await put(hal, "load", {"n1": 0.1}, version=4, expires_in="1s")
        engine.feed = feed_and_expire  # type: ignore[method-assign]
        assert (await put(hal, "load", keys, version=5))["count"] == len(keys)
        await put(hal, "load", {"n1": 0.1}, version=6, expires_in="1s")
        engine.feed = feed_and_expire  # type: ignore[method-assign]
        delta = {"space": "nodes", "keys": list(keys), "values": list(keys.values()), "delta": True, "base": 6}
        assert (await hal.http.put("/v1/advice/load", json=delta)).status_code == 409

    on_controller(hal_home, body)


def test_a_full_request_is_held_and_a_larger_one_is_refused(hal_home: Path) -> None:
    """50,000 keys and values are more entries than other bodies may have."""

    async def body(hal: Running) -> None:
        keys: dict[Any, float | None] = {f"n{number}": 0.5 for number in range(MAX_KEYS_A_REQUEST)}
        assert (await put(hal, "load", keys))["count"] == MAX_KEYS_A_REQUEST
        more = {"space": "nodes", "keys": [*keys, "one"], "values": [*keys.values(), 0.5]}
        answer = await hal.http.put("/v1/advice/load", json=more)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-spec")
        assert "at most 50000" in answer.json()["detail"]

    on_controller(hal_home, body)


def test_a_controller_that_was_started_again_has_none(hal_home: Path) -> None:
    """Nothing of it is in the store; a plane that put deltas is told to put it whole."""

    async def first(hal: Running) -> None:
        await put(hal, "load", {"n1": 0.5}, version=4)

    async def second(hal: Running) -> None:
        assert (await hal.http.get("/v1/advice")).json() == {"advice": []}
        body = {"space": "nodes", "keys": ["n1"], "values": [0.5], "delta": True, "base": 4}
        answer = await hal.http.put("/v1/advice/load", json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert answer.json()["hint"].startswith("put it whole")

    on_controller(hal_home, first)
    on_controller(hal_home, second)


@pytest.mark.parametrize("key", [0, -1, "", "x", "1.5", " 5", "٣", "1_0", 10**18, str(10**18)])
def test_a_key_of_a_job_is_an_id(key: str | int) -> None:
    """In decimal digits, as everywhere; the error says which key it is."""
    with pytest.raises(SpecError, match=r"keys\[1\]: a job id is expected"):
        update_of(AdviceBody(space=KeySpace.JOBS, keys=[1, key], values=[1, 2]))


def test_job_ids_are_read_as_numbers_and_as_text() -> None:
    """Both name the same job."""
    update = update_of(AdviceBody(space=KeySpace.JOBS, keys=[7, "8"], values=[1, None]))
    assert (update.keys, update.values.tolist()[0], np.isnan(update.values[1])) == ((7, 8), 1.0, True)
    with pytest.raises(SpecError, match="twice"):
        update_of(AdviceBody(space=KeySpace.JOBS, keys=[7, "7"], values=[1, 2]))


def test_a_value_beyond_64_bits_is_refused() -> None:
    """A number of 400 digits, as text of JSON may hold it."""
    with pytest.raises(SpecError, match="too large"):
        update_of(AdviceBody(space=KeySpace.NODES, keys=["n1"], values=[10**400]))
