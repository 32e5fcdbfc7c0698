"""Closing, emptying and forgetting nodes over REST, against a real controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hal.core.lifecycle import GateState
from hal.core.model.facts import CpuFacts, Facts, GpuFacts
from hal.planes.tasks import TaskPlane
from hal.store import NodeRow
from hal.wire.frames.controller_agent import Gates, StepGate
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller, running

SLEEP = {"command": ["sleep"]}


async def act(hal: Running, action: str, *nodes: str, **more: str) -> list[dict[str, Any]]:
    """One action; the outcomes."""
    answer = await hal.http.post(f"/v1/nodes/{action}", json={"nodes": list(nodes), **more})
    assert answer.status_code == 201 or answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


async def node(hal: Running, name: str) -> dict[str, Any]:
    view: dict[str, Any] = (await hal.http.get(f"/v1/nodes/{name}")).json()
    return view


def test_a_drain_is_waited_for_until_the_last_task_has_ended(hal_home: Path) -> None:
    """The waiting request is answered by the end of the task; meanwhile new work waits and is told why."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        (outcome,) = await act(hal, "drain", "n1", reason="new disk")
        assert (outcome["ok"], outcome["state"]) == (True, "draining")
        (waits,) = await hal.submit({"command": ["exit", "0"]})
        why = (await hal.http.get(f"/v1/jobs/{waits}/why")).json()
        assert (why["reason"], "n1 is draining (drained by" in why["message"]) == ("nodes-down", True)
        waiting = asyncio.ensure_future(hal.http.get("/v1/nodes/n1/wait", params={"timeout_s": 30}))
        await hal.until(lambda: bool(hal.api.nodes.waited_for("n1")))
        agent.end(next(iter(agent.running)))
        view = (await waiting).json()
        assert (view["state"], view["running"], view["closures"][0]["drain"]) == ("cordoned", 0, True)
        await act(hal, "uncordon", "n1")
        assert (await hal.ended(waits))["state"] == "succeeded"

    on_controller(hal_home, body)


def test_a_refused_node_keeps_no_other_back(hal_home: Path) -> None:
    """n9 does not exist, n1 is cordoned; a request that names none is refused whole."""

    async def body(hal: Running) -> None:
        await hal.agent()
        first, second = await act(hal, "cordon", "n9", "n1", "n9")
        assert (first["ok"], first["code"], second["ok"], second["state"]) == (False, "not-found", True, "cordoned")
        answer = await hal.http.post("/v1/nodes/cordon", json={"nodes": []})
        assert (answer.status_code, "between 1 and" in answer.json()["detail"]) == (400, True)
        answer = await hal.http.post("/v1/nodes/uncordon", json={"nodes": ["n1"], "reason": "x"})
        assert (answer.status_code, answer.json()["detail"]) == (400, "reason: not kept by uncordon")

    on_controller(hal_home, body)


def test_others_have_their_turn_between_the_nodes_of_one_request(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node that closes looks at all that runs: a rack of them at once would keep everybody waiting."""

    async def body(hal: Running) -> None:
        plane, turns, at = hal.controller._plane, [0], list[int]()

        def turn() -> None:
            turns[0] += 1
            if len(at) < 3:
                asyncio.get_running_loop().call_soon(turn)

        def cordoned(name: str, *args: Any, **more: Any) -> NodeRow:
            at.append(turns[0])
            return TaskPlane.cordon(plane, name, *args, **more)

        for name in ("n1", "n2", "n3"):
            await hal.agent(name)
        monkeypatch.setattr(plane, "cordon", cordoned)
        turn()
        await act(hal, "cordon", "n1", "n2", "n3")
        assert len(set(at)) == 3

    on_controller(hal_home, body)


def test_safety_a_user_is_not_told_for_whose_job_a_prolog_has_failed(hal_home: Path) -> None:
    """Neither by the node nor where `hal why` names nodes that accept no work; an operator is."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda agent: bool(agent.running))
        (step,) = agent.running
        agent._send(Gates(gates=(StepGate(step, "prolog", GateState.FAILED, "no scratch"),)))
        await hal.until(lambda: hal.api.nodes.get("n1").state == "draining")
        assert (await node(hal, "n1"))["reason"] == f"prolog: no scratch, for job {job}"
        async with person(hal, "bob", role="user") as bob:
            (own,) = (await bob.post("/v1/jobs", json=SLEEP)).json()["ids"]
            (listed,) = (await bob.get("/v1/nodes")).json()["nodes"]
            shown = (await bob.get("/v1/nodes/n1")).json()
            why = (await bob.get(f"/v1/jobs/{own}/why")).json()["message"]
        for view in (listed, shown):
            assert (view["reason"], ["by" in one for one in view["closures"]]) == ("prolog: no scratch", [False])
        assert "(prolog: no scratch)" in why

    on_controller(hal_home, body)


def test_a_cordon_outlives_the_controller(hal_home: Path) -> None:
    """A new controller on the same store: the node returns cordoned, with who and why."""

    async def live() -> None:
        async with running(hal_home) as first:
            agent = await first.agent()
            await act(first, "cordon", "n1", reason="new disk")
            before = await node(first, "n1")
        async with running(hal_home) as second:
            agent.moved_to(second.runtime)
            await agent.join()
            await second.until(lambda: second.api.nodes.get("n1").state == "cordoned")
            after = await node(second, "n1")
            assert (after["reason"], after["closures"]) == (before["reason"], before["closures"])
            assert before["closures"][0]["reason"] == "new disk"

    asyncio.run(live())


def test_a_removed_node_is_told_and_forgotten(hal_home: Path) -> None:
    """Its agent hears a goodbye with the code `removed`; a restart of the controller does not know it either."""

    async def live() -> None:
        async with running(hal_home) as first:
            agent = await first.agent()
            (refused,) = await act(first, "remove", "n1")
            assert (refused["ok"], refused["code"]) == (False, "conflict")
            await act(first, "drain", "n1")
            (done,) = await act(first, "remove", "n1")
            assert (done["ok"], done["state"]) == (True, "removed")
            await agent.until(lambda a: a.goodbye is not None)
            assert agent.goodbye is not None
            assert agent.goodbye.code == "removed"
            assert (await first.http.get("/v1/nodes/n1")).status_code == 404
            assert (await first.http.get("/v1/nodes/n1/wait")).status_code == 404
        async with running(hal_home) as second:
            assert (await second.http.get("/v1/nodes")).json()["nodes"] == []
            agent.moved_to(second.runtime)
            await agent.join()
            await second.until(lambda: second.api.nodes.get("n1").state == "up")

    asyncio.run(live())


def test_what_a_node_is_made_of_is_kept_and_told_of_one_node(hal_home: Path) -> None:
    """Also by a controller that was started again and has not heard of it yet; a list does not repeat it."""
    facts = Facts(system="Debian", cpu=CpuFacts(threads=8), gpus=(GpuFacts(index=0, model="NVIDIA H200"),))

    async def live() -> None:
        async with running(hal_home) as first:
            await first.agent(facts=facts)
            view = await node(first, "n1")
            assert "facts" not in (await first.http.get("/v1/nodes")).json()["nodes"][0]
        async with running(hal_home) as second:
            again = await node(second, "n1")
            assert msgspec.convert(again["facts"], Facts) == msgspec.convert(view["facts"], Facts) == facts

    asyncio.run(live())


def test_a_failing_check_closes_a_node_and_opens_it_again_over_the_wire(hal_home: Path) -> None:
    """Work waits meanwhile and is told why; a controller that is started again remembers until the agent speaks."""

    async def live() -> None:
        async with running(hal_home) as first:
            agent = await first.agent(features=("health",))
            agent.says_health("disk")
            await first.until(lambda: first.api.nodes.get("n1").state == "cordoned")
            (job,) = await first.submit({"command": ["exit", "0"]})
            why = (await first.http.get(f"/v1/jobs/{job}/why")).json()
            assert "n1 is cordoned (check disk: disk is bad)" in why["message"]
            (outcome,) = await act(first, "uncordon", "n1")
            assert (outcome["state"], outcome["detail"]) == ("cordoned", "check disk: disk is bad")
        async with running(hal_home) as second:
            agent.moved_to(second.runtime)
            await agent.join()
            await second.until(lambda: second.api.nodes.get("n1").state == "cordoned")
            agent.says_health()
            assert (await second.ended(job))["state"] == "succeeded"

    asyncio.run(live())


def test_what_ran_on_a_machine_that_is_gone_runs_elsewhere_at_once(hal_home: Path) -> None:
    """Its node was heard a moment before, and the job says `wait`. The node dials again with the same boot: nothing
    starts there, and what it holds is stopped."""

    async def body(hal: Running) -> None:
        gone = await hal.agent("n1", boot_id="b1")
        (job,) = await hal.submit({**SLEEP, "on_node_lost": "wait"})
        await gone.until(lambda a: bool(a.running))
        other = await hal.agent("n2")
        answer = await hal.http.post("/v1/nodes/n1/fence", json={})
        assert (answer.status_code, "--gone" in answer.json()["hint"]) == (409, True)
        answer = await hal.http.post("/v1/nodes/n1/fence", json={"machine_gone": True, "reason": "deleted"})
        assert (answer.json()["state"], answer.json()["running"]) == ("down", 0)
        await other.until(lambda a: bool(a.running))
        task = (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()
        assert ([one["nodes"] for one in task["attempts"]], task["retries"]) == ([["n1"], ["n2"]], 0)
        await gone.until(lambda a: a.goodbye is not None)
        await gone.join()
        await hal.until(lambda: hal.api.nodes.get("n1").state == "cordoned")
        assert "fenced: closed until its machine has started again" in (await node(hal, "n1"))["reason"]
        await gone.until(lambda a: not a.running)

    on_controller(hal_home, body)


def test_nodes_are_listed_in_pages_by_name(hal_home: Path) -> None:
    """Three nodes, two a page; without a limit all of them come at once."""

    async def body(hal: Running) -> None:
        for name in ("c", "a", "b"):
            await hal.agent(name)
        first = (await hal.http.get("/v1/nodes?limit=2")).json()
        rest = (await hal.http.get(f"/v1/nodes?limit=2&cursor={first['cursor']}")).json()
        every = (await hal.http.get("/v1/nodes")).json()
        assert [[node["name"] for node in page["nodes"]] for page in (first, rest, every)] == [
            ["a", "b"],
            ["c"],
            ["a", "b", "c"],
        ]
        assert (first["cursor"], rest["cursor"], every["cursor"]) == ("b", None, None)

    on_controller(hal_home, body)


def test_a_queue_says_since_when_its_oldest_job_waits(hal_home: Path) -> None:
    """Of the jobs of which nothing runs; a held one does not wait."""

    async def body(hal: Running) -> None:
        async def oldest() -> int | None:
            queues = (await hal.http.get("/v1/queues")).json()["queues"]
            found: int | None = queues[0]["oldest_ms"]
            return found

        assert await oldest() is None
        (first,) = await hal.submit({**SLEEP, "request": {"cpu": 4}, "wait_for_change": True})
        await hal.submit({**SLEEP, "request": {"cpu": 4}, "wait_for_change": True}, {**SLEEP, "hold": True})
        submitted_ms = (await hal.http.get(f"/v1/jobs/{first}")).json()["submit_ms"]
        assert await oldest() == submitted_ms

    on_controller(hal_home, body)
