"""The controller with real sockets, a real store and agents that speak the wire: what becomes of jobs and nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hal.core.model import Duration, StepId
from hal.core.model.facts import Facts
from hal.core.model.lease_times import LeaseTimes
from hal.core.model.policy import Policy, Queue
from hal.daemons.controller.config import Config
from hal.runtime.interface import UnixAddress
from hal.wire.frames.agent_keeper import ExitCause
from hal.wire.frames.hello import STOPPED, Goodbye
from tests.daemons.controller.running import LIMIT_S, Running, on_controller, running
from tests.daemons.controller.scripted_agent import ScriptedAgent

TRUE = {"command": ["exit", "0"]}
SLEEP = {"command": ["sleep"]}
SOON_SILENT = Config(leases=LeaseTimes(heartbeat_ms=200))
"""A node that has left is unreachable after 0.6 s, not 6."""


def test_a_job_starts_when_all_that_it_waits_for_has_succeeded(hal_home: Path) -> None:
    """An array of 3 and a fan-in job after it: the fan-in starts last, and only once."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        array, fan_in = await hal.submit(
            {**TRUE, "name": "a", "array": 3}, {**TRUE, "name": "b", "dependencies": ["afterok:a"]}
        )
        assert (await hal.ended(fan_in))["state"] == "succeeded"
        assert agent.started[-1] == StepId(int(fan_in), 0, 1, 0)
        assert sorted(agent.started[:3]) == [StepId(int(array), task, 1, 0) for task in range(3)]

    on_controller(hal_home, body)


def test_a_job_that_can_never_start_is_cancelled_and_says_which_dependency(hal_home: Path) -> None:
    """afterok of a failed job, and what waits for that one too; also when it is submitted afterwards."""

    async def body(hal: Running) -> None:
        await hal.agent()
        _, second, third = await hal.submit(
            {"command": ["exit", "4"], "name": "a"},
            {**TRUE, "name": "b", "dependencies": ["afterok:a"]},
            {**TRUE, "name": "c", "dependencies": ["afterok:b"]},
        )
        view = await hal.ended(third)
        assert (view["state"], "dependency" in view["reason"], f"job {second}" in view["reason"]) == (
            "cancelled",
            True,
            True,
        )
        (late,) = await hal.submit({**TRUE, "dependencies": ["1"]})
        assert "which failed" in (await hal.ended(late))["reason"]

    on_controller(hal_home, body)


def test_a_failed_task_is_tried_again_as_often_as_it_may(hal_home: Path) -> None:
    """Exit 1 with one retry: two attempts, then failed with exit code 1."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({"command": ["exit", "1"], "retries": {"max": 1, "backoff": "10ms"}})
        view = await hal.ended(job)
        assert (view["state"], view["exit_code"], view["restarts"]) == ("failed", 1, 1)
        assert [step.attempt for step in agent.started] == [1, 2]

    on_controller(hal_home, body)


def test_a_gang_ends_when_all_its_steps_have_and_the_worst_decides(hal_home: Path) -> None:
    """Rank 1 fails: rank 0 is stopped as its sibling, and the task failed with rank 1's exit code."""

    async def body(hal: Running) -> None:
        first, second = await hal.agent("n1"), await hal.agent("n2")
        (job,) = await hal.submit({**SLEEP, "nodes": 2})
        await first.until(lambda a: bool(a.running))
        await second.until(lambda a: bool(a.running))
        bad = next(agent for agent in (first, second) for step in agent.running if step.rank == 1)
        bad.end(StepId(int(job), 0, 1, 1), code=9)
        view = await hal.ended(job)
        assert (view["state"], view["exit_code"]) == ("failed", 9)
        assert not first.running
        assert not second.running

    on_controller(hal_home, body)


def test_cancel_stops_what_runs_and_ends_what_waits(hal_home: Path) -> None:
    """An array of 6 on 4 cores: 4 are stopped, 2 never start; all cancelled."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({**SLEEP, "array": 6})
        await agent.until(lambda a: len(a.running) == 4)
        answer = await hal.http.post("/v1/jobs/cancel", json={"ids": [job]})
        assert answer.json()["results"][0]["ok"]
        view = await hal.ended(job)
        assert (view["state"], view["counts"]["cancelled"], len(agent.started)) == ("cancelled", 6, 4)

    on_controller(hal_home, body)


def test_requeue_by_filter_takes_ended_jobs_when_the_filter_names_ends(hal_home: Path) -> None:
    """Two failed jobs and one that succeeded: the failed ones run again; a filter without a condition is refused."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        jobs = await hal.submit(*[SLEEP | {"name": "fit"}] * 3)
        await agent.until(lambda a: len(a.running) == 3)
        for job, code in zip(jobs, (3, 0, 4), strict=True):
            agent.end(StepId(int(job), 0, 1, 0), code=code)
        for job in jobs:
            await hal.ended(job)
        answer = await hal.http.post("/v1/jobs/requeue", json={"filter": {"state": "failed", "name": "fit"}})
        assert [(one["id"], one["ok"]) for one in answer.json()["results"]] == [(jobs[0], True), (jobs[2], True)]
        again = {StepId(int(job), 0, 2, 0) for job in (jobs[0], jobs[2])}
        await agent.until(lambda a: again <= set(a.running))
        answer = await hal.http.post("/v1/jobs/cancel", json={"filter": {}})
        assert (answer.status_code, answer.json()["detail"]) == (400, "filter: has no condition")

    on_controller(hal_home, body)


def test_requeue_runs_what_ended_and_what_runs_once_more(hal_home: Path) -> None:
    """A running task is stopped and started again as attempt 2; a failed job runs again when asked to."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        assert (await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})).json()["results"][0]["ok"]
        again = StepId(int(job), 0, 2, 0)
        await agent.until(lambda a: again in a.running)
        agent.end(again, code=3)
        assert (await hal.ended(job))["state"] == "failed"
        assert (await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})).json()["results"][0]["ok"]
        third = StepId(int(job), 0, 3, 0)
        await agent.until(lambda a: third in a.running)
        agent.end(third)
        view = await hal.ended(job)
        assert (view["state"], view["exit_code"]) == ("succeeded", 0)

    on_controller(hal_home, body)


def test_held_work_waits_and_why_says_so(hal_home: Path) -> None:
    """A held job does not start, `why` names the hold; released it runs."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({**TRUE, "hold": True})
        why = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
        assert (why["reason"], why["state"], agent.started) == ("held", "held", [])
        await hal.http.post("/v1/jobs/release", json={"ids": [job]})
        assert (await hal.ended(job))["state"] == "succeeded"
        (waiting,) = await hal.submit({**TRUE, "dependencies": [job], "hold": True})
        assert (await hal.http.get(f"/v1/jobs/{waiting}/why")).json()["reason"] == "held"

    on_controller(hal_home, body)


def test_a_changed_walltime_reaches_running_steps_and_limits_hold(hal_home: Path) -> None:
    """PATCH within the queue's limit is told to the node; beyond it is refused with the limit."""
    policy = Policy(queues={"default": Queue(max_walltime=Duration(7_200_000))})

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({**SLEEP, "walltime": "1h"})
        await agent.until(lambda a: bool(a.running))
        answer = await hal.http.patch(f"/v1/jobs/{job}", json={"walltime": "2h", "priority": 7, "name": "new"})
        assert (answer.json()["walltime"], answer.json()["priority"], answer.json()["name"]) == ("2h", 7, "new")
        await agent.until(lambda a: a.resized == [7_200_000])
        refused = await hal.http.patch(f"/v1/jobs/{job}", json={"walltime": "3h"})
        assert (refused.status_code, "2h" in refused.json()["hint"]) == (400, True)

    on_controller(hal_home, body, Config(policy=policy))


def test_a_restarted_controller_goes_on_where_it_was(hal_home: Path) -> None:
    """A step that ran through the restart is not started again, its exit counts; what nobody knows is stopped."""

    async def live() -> None:
        async with running(hal_home) as first:
            agent = await first.agent()
            (job,) = await first.submit(SLEEP)
            await agent.until(lambda a: bool(a.running))
            (step,) = agent.running
            await first.until(lambda: first.api.nodes.all()[0].running == 1)
        assert agent.goodbye is not None
        async with running(hal_home) as second:
            stranger = StepId(77, 0, 1, 0)
            agent.running[stranger] = agent.running[step]
            agent.moved_to(second.runtime)
            await agent.join()
            await agent.until(lambda a: stranger not in a.running)
            agent.end(step)
            view = await second.ended(job)
            assert (view["state"], agent.started) == ("succeeded", [step])

    asyncio.run(live())


def test_a_comment_reaches_the_node_after_a_restart(hal_home: Path) -> None:
    """The job waits while the controller is down; the first node joins afterwards."""

    async def live() -> None:
        async with running(hal_home) as first:
            (job,) = await first.submit({"command": ["exit", "0"], "hold": True, "comment": "für die Gruppe"})
        async with running(hal_home) as second:
            agent = await second.agent()
            await second.http.post("/v1/jobs/release", json={"ids": [job]})
            await second.ended(job)
            assert [template.env["HAL_JOB_COMMENT"] for template in agent.templates] == ["für die Gruppe"]

    asyncio.run(live())


def test_a_node_of_another_boot_has_lost_its_steps_and_they_run_again(hal_home: Path) -> None:
    """The attempt ends as lost, no retry is counted, attempt 2 runs."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        await agent.leave()
        agent.running.clear()
        agent.boot_id = "boot2"
        await agent.join()
        again = StepId(int(job), 0, 2, 0)
        await agent.until(lambda a: again in a.running)
        task = (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()
        assert (next(a["state"] for a in task["attempts"]), task["retries"]) == ("lost", 0)
        agent.end(again)
        assert (await hal.ended(job))["state"] == "succeeded"

    on_controller(hal_home, body)


def test_what_only_a_fenced_node_could_hold_is_refused(hal_home: Path) -> None:
    """The 8-core node is declared gone: 6 cores are refused with what the other has, after a restart too."""
    wide = {**TRUE, "request": {"cpu": 6}}

    async def refused(hal: Running) -> None:
        answer = await hal.http.post("/v1/jobs", json=wide)
        assert (answer.status_code, "the largest, n1, has 4" in answer.json()["detail"]) == (400, True), answer.text

    async def live() -> None:
        async with running(hal_home, SOON_SILENT) as first:
            await first.agent("n1")
            large = await first.agent("n2", cpu_milli=8_000)
            await large.leave()
            await first.until(lambda: first.api.nodes.get("n2").state == "unreachable")
            (waiting,) = await first.submit(wide)
            assert (await first.http.post("/v1/nodes/n2/fence")).json()["state"] == "down"
            await refused(first)
            assert (await first.http.get(f"/v1/jobs/{waiting}/why")).json()["reason"] == "impossible"
        async with running(hal_home, SOON_SILENT) as second:
            await second.agent("n1")
            await refused(second)
            large.moved_to(second.runtime)
            await large.join()
            assert (await second.ended(waiting))["state"] == "succeeded"

    asyncio.run(live())


def test_safety_another_node_of_the_same_name_is_refused(hal_home: Path) -> None:
    """What runs on the first would run again. The first comes back; once it is gone, the other has the name."""

    async def live() -> None:
        async with running(hal_home, SOON_SILENT) as hal:
            first = await hal.agent("n1", facts=Facts(node_id="one"), boot_id="b1")
            (job,) = await hal.submit(SLEEP)
            await hal.until(lambda: bool(first.running))
            await first.leave()
            other = ScriptedAgent(
                hal.runtime,
                UnixAddress(hal.runtime.paths.wire_socket()),
                "n1",
                facts=Facts(node_id="two"),
                boot_id="b2",
            )
            assert not await other.try_to_join()
            assert other.goodbye is not None
            assert (other.goodbye.code, "another HAL_HOME" in other.goodbye.reason) == ("conflict", True)
            first.facts = Facts()
            await first.join()
            assert not await other.try_to_join(), "one that does not say which it is was taken for another"
            assert first.started == [StepId(int(job), 0, 1, 0)]
            await first.leave()
            await hal.until(lambda: hal.api.nodes.get("n1").state == "unreachable")
            await hal.http.post("/v1/nodes/n1/fence")
            await other.join()
            await hal.until(lambda: bool(other.started))
            await other.leave()

    asyncio.run(live())


def test_a_node_whose_word_was_removed_is_known_by_its_home_within_one_boot(hal_home: Path) -> None:
    """Its job goes on (faults 8). The same directory after a boot, and another one in this boot, are refused."""

    async def live() -> None:
        async with running(hal_home) as hal:
            first = await hal.agent("n1", facts=Facts(node_id="one", home_id="here"), boot_id="b1")
            (job,) = await hal.submit(SLEEP)
            await hal.until(lambda: bool(first.running))
            await first.leave()
            for home, boot in (("here", "b2"), ("there", "b1"), ("", "b1")):
                first.facts, first.boot_id = Facts(node_id="two", home_id=home), boot
                assert not await first.try_to_join(), (home, boot)
            first.facts, first.boot_id = Facts(node_id="two", home_id="here"), "b1"
            await first.join()
            first.end(StepId(int(job), 0, 1, 0))
            assert (await hal.ended(job))["state"] == "succeeded"
            await first.leave()
            await first.join()

    asyncio.run(live())


def test_attempts_of_two_hals_never_have_the_same_token(hal_home: Path) -> None:
    """Both start the first attempt of job 1 in their first epoch; a restart stays the same HAL."""

    async def token(root: Path, job: str | None = None) -> str:
        async with running(root) as hal:
            await hal.agent()
            (new,) = await hal.submit(TRUE)
            await hal.ended(new)
            task = (await hal.http.get(f"/v1/jobs/{job or new}/tasks/0")).json()
            made: str = task["attempts"][0]["token"]
            again = (await hal.http.get(f"/v1/jobs/{new}/tasks/0")).json()["attempts"][0]["token"]
            assert made.partition("-")[0] == again.partition("-")[0]
            return made

    def parts(made: str) -> tuple[str, str, str]:
        hal, _, attempt = made.partition("-")
        number, _, term = attempt.rpartition(".")
        return hal, number, term

    async def live() -> None:
        first, second = await token(hal_home / "a"), await token(hal_home / "b")
        (hal, attempt, term), (other_hal, other_attempt, other_term) = map(parts, (first, second))
        assert attempt == other_attempt == "1.0.1-1"
        assert hal != other_hal
        assert term != other_term
        assert await token(hal_home / "a", "1") == first

    asyncio.run(live())


def test_every_job_named_has_an_outcome(hal_home: Path) -> None:
    """Of an ended job, an unknown one, and a task that the first does not have, in the order asked for."""

    async def body(hal: Running) -> None:
        await hal.agent()
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        for action, first in (("cancel", "conflict"), ("hold", "conflict"), ("release", "conflict"), ("requeue", "")):
            answer = await hal.http.post(f"/v1/jobs/{action}", json={"ids": [job, "99", f"{job}.5"]})
            codes = [(one["id"], one.get("code", "")) for one in answer.json()["results"]]
            assert codes == [(job, first), ("99", "not-found"), (f"{job}.5", "not-found")], action

    on_controller(hal_home, body)


def test_a_start_that_was_lost_on_the_way_is_repeated_when_the_node_returns(hal_home: Path) -> None:
    """The connection ends before the start was taken: the same attempt is started after the next hello."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        agent.deaf = True
        (job,) = await hal.submit(TRUE)
        await hal.until(lambda: hal.api.nodes.all()[0].running == 1)
        await agent.leave()
        agent.deaf = False
        await agent.join()
        assert (await hal.ended(job))["state"] == "succeeded"
        assert agent.started == [StepId(int(job), 0, 1, 0)]

    on_controller(hal_home, body)


def test_a_full_store_refuses_with_one_error_and_goes_on_reading(hal_home: Path) -> None:
    """What does not fit is refused as a whole (503, code store); what was there is still read, and small things fit."""

    async def body(hal: Running) -> None:
        (before,) = await hal.submit(TRUE)
        big = {"command": ["exit", "x" * 100_000]}
        refused: Any = None
        for _ in range(100):
            refused = await hal.http.post("/v1/jobs", json={"jobs": [{**big, "name": f"j{n}"} for n in range(8)]})
            if refused.status_code != 201:
                break
        assert (refused.status_code, refused.json()["code"]) == (503, "store")
        assert (await hal.http.get(f"/v1/jobs/{before}")).json()["state"] == "pending"
        assert (await hal.http.get("/v1/health")).json()["status"] == "degraded"
        newest = int((await hal.http.get("/v1/jobs", params={"limit": 1})).json()["jobs"][0]["id"])
        agent = await hal.agent()
        assert (await hal.ended(before))["state"] == "succeeded"
        assert agent.started[0].job == int(before)
        (small,) = await hal.submit(TRUE)
        assert int(small) == newest + 1
        assert (await hal.http.get("/v1/health")).json()["status"] == "ok"

    on_controller(hal_home, body, max_bytes=6 << 20)


def test_a_node_that_said_nothing_new_can_be_told_exits_twice(hal_home: Path) -> None:
    """An exit that is repeated is acknowledged again and changes nothing."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        (step,) = agent.running
        agent.end(step, 143, ExitCause.SIGNALLED)
        exit_ = agent.exits[step]
        view = await hal.ended(job)
        await agent.until(lambda a: not a.exits)
        agent.exits[step] = exit_
        await agent.leave()
        await agent.join()
        await agent.until(lambda a: not a.exits)
        assert (await hal.http.get(f"/v1/jobs/{job}")).json() == view | {"dependants": []}

    on_controller(hal_home, body)


def test_a_node_that_is_stopped_in_good_order_is_known_to_be(hal_home: Path) -> None:
    """At once, without waiting for heartbeats; it takes work again when it joins again."""

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1")
        agent._send(Goodbye(code=STOPPED, reason="with all its steps"))
        node: dict[str, Any] = {}
        async with asyncio.timeout(LIMIT_S):
            while node.get("state") != "stopped":
                node = (await hal.http.get("/v1/nodes/n1")).json()
        assert node["reason"] == "stopped in good order, with all its steps"
        await agent.join()
        await hal.until(lambda: any(one.state == "up" for one in hal.api.nodes.all()))

    on_controller(hal_home, body)
