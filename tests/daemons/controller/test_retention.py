"""Removing ended jobs: by hand and by retention, at the controller and at nodes that are there or away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from hal.core.model import StepId
from hal.core.model.policy import Policy, Queue
from hal.daemons.controller.config import Config
from hal.daemons.controller.cycle import retention
from hal.daemons.controller.nodes import forgetting
from hal.daemons.controller.service.jobs import removal
from hal.runtime.interface import UnixAddress
from hal.store import (
    DAY_MS,
    Committed,
    ForgetRow,
    Group,
    Kept,
    MarkRemoved,
    PutForgets,
    Removed,
    Retention,
    Store,
)
from hal.store.operations import EACH_NODE
from hal.wire.agree import FORGET
from hal.wire.frames.agent_keeper import ForgetPiece, Forgotten
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller, running
from tests.daemons.controller.scripted_agent import ScriptedAgent
from tests.store.rows import Leader

TRUE = {"command": ["exit", "0"]}
SLEEP = {"command": ["sleep"]}
KNOWS: dict[str, Any] = {"features": (FORGET,)}


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention looks all the time."""
    monkeypatch.setattr(retention, "TRIM_EVERY_MS", 10)
    monkeypatch.setattr(retention, "EXPIRE_EVERY_MS", 10)
    monkeypatch.setattr(retention, "PAUSE_MS", 1)


def kept(*queues: str, **limits: int) -> Config:
    """A controller that keeps so much of each queue; it has these beside the default one."""
    policy = Policy(queues={"default": Queue(), **{queue: Queue() for queue in queues}})
    return Config(policy=policy, retention=Retention(jobs=Kept(**limits)))


async def remove(hal: Running, *ids: str, **body: Any) -> list[dict[str, Any]]:
    """Remove jobs over REST; the outcome of each."""
    answer = await hal.http.post("/v1/jobs/remove", json={**({"ids": ids} if ids else {}), **body})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


async def nothing_left(hal: Running) -> None:
    """Until no node has anything to delete."""
    store = hal.controller._committer.store
    await hal.until(lambda: not store.forget_counts())


async def gone(hal: Running, job: str) -> None:
    """Until that job is not there."""
    async with asyncio.timeout(30):
        while (await hal.http.get(f"/v1/jobs/{job}")).status_code != 404:
            await hal.runtime.sleep(5)


def test_a_removed_job_is_gone_for_every_reader_and_at_its_node(hal_home: Path) -> None:
    """Its neighbour is not; what its node has deleted is not asked for again."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        first, second = await hal.submit(TRUE, {**TRUE, "array": 2})
        for job in (first, second):
            await hal.ended(job)
        assert await remove(hal, first) == [{"id": first, "ok": True, "state": "removed"}]
        assert [(await hal.http.get(f"/v1/jobs/{job}")).status_code for job in (first, second)] == [404, 200]
        assert [job["id"] for job in (await hal.http.get("/v1/jobs")).json()["jobs"]] == [second]
        await nothing_left(hal)
        assert [frame.pieces for frame in agent.forgets] == [(ForgetPiece(int(first)),)]
        (again,) = await remove(hal, first)
        assert (again["ok"], again["code"]) == (False, "not-found")

    on_controller(hal_home, body)


def counts_of(view: dict[str, Any]) -> dict[str, int]:
    """How many tasks ended how; without states that no task is in."""
    return {state: count for state, count in view["counts"].items() if count}


def test_removed_tasks_are_gone_for_every_reader_and_at_their_node(hal_home: Path) -> None:
    """Two of four; the job stays with the other two and as it ended. Its last tasks take it with them."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        (job,) = await hal.submit({**TRUE, "array": 4})
        await hal.ended(job)
        some, none, unknown = await remove(hal, f"{job}.1-2", f"{job}[1]", f"{job}.4")
        assert some == {"id": f"{job}.1-2", "ok": True, "state": "removed", "tasks": 2, "detail": "2 tasks"}
        assert (none["ok"], none["code"]) == (False, "conflict")
        assert (unknown["code"], unknown["hint"]) == ("not-found", "its tasks are 0 to 3")
        view = (await hal.http.get(f"/v1/jobs/{job}")).json()
        assert (view["state"], view["tasks"], view["tasks_removed"], counts_of(view)) == (
            "succeeded",
            4,
            2,
            {"succeeded": 2},
        )
        tasks = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
        assert [task["task"] for task in tasks] == [0, 3]
        for path in (f"/v1/jobs/{job}/tasks/1", f"/v1/jobs/{job}/logs?task=1"):
            answer = await hal.http.get(path)
            assert (answer.status_code, answer.json()["detail"]) == (404, f"task {job}.1 was removed"), path
        # What nodes must delete of tasks is listed when their rows are, which is after the answer.
        await hal.until(lambda: bool(agent.forgets))
        await nothing_left(hal)
        assert [frame.pieces for frame in agent.forgets] == [(ForgetPiece(int(job), 1, 1, 2),)]
        again = (await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})).json()["results"][0]
        assert (again["ok"], "2 tasks of it were removed" in again["detail"]) == (False, True)
        assert all(one["ok"] for one in await remove(hal, f"{job}.0", f"{job}.3", f"{job}.0"))
        await gone(hal, job)

    on_controller(hal_home, body)


def test_tasks_of_live_jobs_and_of_jobs_that_others_wait_for_are_not_removed(hal_home: Path) -> None:
    """Nothing is; each error says what to do."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        done, live = await hal.submit({**TRUE, "array": 2}, {**SLEEP, "array": 2})
        await hal.ended(done)
        await hal.submit({**TRUE, "dependencies": [f"afterok:{done}", f"afterany:{live}"]})
        waited, runs, missing = await remove(hal, f"{done}.0", f"{live}.0", "99.1")
        assert (waited["detail"], runs["code"]) == (f"job {done} cannot be removed: a job waits for it", "conflict")
        assert "its tasks can be removed when all have ended" in runs["hint"]
        assert missing["code"] == "not-found"
        view = (await hal.http.get(f"/v1/jobs/{done}")).json()
        assert ("tasks_removed" in view, counts_of(view)) == (False, {"succeeded": 2})

    on_controller(hal_home, body)


def test_a_job_that_is_named_twice_has_two_outcomes(hal_home: Path) -> None:
    """Also for a user who may only remove their own."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        async with person(hal, "user") as http:
            job = (await http.post("/v1/jobs", json=TRUE)).json()["ids"][0]
            await hal.ended(job)
            answer = await http.post("/v1/jobs/remove", json={"ids": [job, job]})
            assert [one["ok"] for one in answer.json()["results"]] == [True, True]

    on_controller(hal_home, body)


def test_safety_nobody_removes_tasks_of_others(hal_home: Path) -> None:
    """To a user they are not there, whichever way they are named; nothing of them is lost."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        (job,) = await hal.submit({**TRUE, "array": 3})
        await hal.ended(job)
        async with person(hal, "user") as http:
            for asked in ({"ids": [f"{job}.0", f"{job}[1]"]}, {"ids": [job], "states": "succeeded"}):
                results = (await http.post("/v1/jobs/remove", json=asked)).json()["results"]
                assert {one["code"] for one in results} == {"not-found"}
        view = (await hal.http.get(f"/v1/jobs/{job}")).json()
        assert ("tasks_removed" in view, counts_of(view)) == (False, {"succeeded": 3})

    on_controller(hal_home, body)


def test_two_removals_at_once_count_each_task_once(hal_home: Path) -> None:
    """Of the same tasks: one removes them, the other finds none."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        (job,) = await hal.submit({**TRUE, "array": 4})
        await hal.ended(job)
        both = await asyncio.gather(*(remove(hal, f"{job}.0-1") for _ in range(2)))
        assert sorted(one["ok"] for (one,) in both) == [False, True]
        view = (await hal.http.get(f"/v1/jobs/{job}")).json()
        assert (view["tasks_removed"], counts_of(view)) == (2, {"succeeded": 2})

    on_controller(hal_home, body)


class CountingStore(Store):
    """Counts what nodes must delete in each group."""

    named: ClassVar[list[int]] = []

    def commit(self, group: Group, *, epoch: int, flush: bool = True) -> Committed:
        """See `Store`."""
        self.named += [len(one.rows) for one in group.operations if isinstance(one, PutForgets)]
        return super().commit(group, epoch=epoch, flush=flush)


def test_safety_many_removals_are_many_groups(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two rows each: of a gang of three the first says that its nodes follow; then two of them, and one."""

    async def body() -> None:
        async with running(hal_home, Config(), store=CountingStore) as hal:
            for name in ("n1", "n2", "n3"):
                await hal.agent(name, **KNOWS)
            jobs = await hal.submit(*[TRUE] * 3, {**TRUE, "nodes": 3})
            for job in jobs:
                await hal.ended(job)
            CountingStore.named.clear()
            assert all(one["ok"] for one in await remove(hal, *jobs))
            await hal.until(lambda: sum(CountingStore.named) >= 7)
            await nothing_left(hal)
            assert CountingStore.named == [2, 2, 2, 1]

    monkeypatch.setattr(removal, "FORGETS_A_GROUP", 2)
    asyncio.run(body())


@pytest.mark.usefixtures("often")
def test_nodes_that_were_not_named_before_the_controller_died_are_named_by_the_next(hal_home: Path) -> None:
    """The job is marked; each of its nodes is told to delete it before its rows go."""

    async def body() -> None:
        async with running(hal_home) as hal:
            agents = [await hal.agent(name, **KNOWS) for name in ("n1", "n2")]
            job, _ = await hal.submit({**TRUE, "nodes": 2}, TRUE)
            await hal.ended(job)
            for agent in agents:
                await agent.leave()
        store = Store.open(hal_home / "db" / "hal.sqlite")
        leader = Leader(store)
        leader.commit(MarkRemoved([int(job)], Removed.JOB), PutForgets([ForgetRow(EACH_NODE, int(job))]))
        store.close()
        async with running(hal_home) as hal:
            for agent in agents:
                agent.moved_to(hal.runtime)
                await agent.join()
            await hal.until(lambda: all(agent.forgets for agent in agents))
            await nothing_left(hal)
        assert [frame.pieces for agent in agents for frame in agent.forgets] == [(ForgetPiece(int(job)),)] * 2

    asyncio.run(body())


def test_safety_many_nodes_are_not_begun_with_at_once(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of three that has ended, and no more than two in one turn of the loop: the third follows."""
    monkeypatch.setattr(forgetting, "BEGUN_AT_ONCE", 2)

    async def body(hal: Running) -> None:
        names = ["n1", "n2", "n3"]
        agents = [await hal.agent(name, **KNOWS) for name in names]
        (job,) = await hal.submit({**TRUE, "nodes": 3})
        await hal.ended(job)
        everywhere = hal.controller._agents.forgetting
        everywhere._kept = dict.fromkeys(names, 1)
        everywhere.wake(names)
        assert [len(everywhere._under_way), len(everywhere._ready)] == [2, 1]
        await remove(hal, job)
        await nothing_left(hal)
        assert [len(agent.forgets) for agent in agents] == [1, 1, 1]

    on_controller(hal_home, body)


def test_what_cannot_be_removed_says_why_and_the_rest_is(hal_home: Path) -> None:
    """A live one, one that another waits for, one that never was; each has its own outcome."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        live, over, needed = await hal.submit(SLEEP, TRUE, TRUE)
        for job in (over, needed):
            await hal.ended(job)
        waits = {**TRUE, "dependencies": [f"afternotok:{needed}"], "on_dependency_failed": "hold"}
        await hal.submit(waits)
        outcomes = await remove(hal, live, over, needed, "999")
        assert [(one["ok"], one.get("code", "")) for one in outcomes] == [
            (False, "conflict"), (True, ""), (False, "conflict"), (False, "not-found")
        ]  # fmt: skip
        assert "has not ended" in outcomes[0]["detail"]
        assert "waits for it" in outcomes[2]["detail"]
        agent.end(next(iter(agent.running)))

    on_controller(hal_home, body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "no job is named"),
        ({"filter": {}}, "no condition"),
        ({"ids": ["1.2-"]}, "is not a range"),
        ({"ids": ["1"], "states": "running"}, "only ended jobs"),
        ({"states": "failed"}, "goes with ids"),
        ({"filter": {"state": "running"}}, "only ended jobs"),
        ({"filter": {"usr": "x"}}, "not a filter"),
        ({"ids": ["1"], "ended_before_ms": 5}, "not with ids"),
    ],
)
def test_a_removal_that_makes_no_sense_is_refused_as_a_whole(hal_home: Path, body: dict[str, Any], says: str) -> None:
    """One error that names the mistake."""

    async def act(hal: Running) -> None:
        answer = await hal.http.post("/v1/jobs/remove", json=body)
        assert (answer.status_code, says in answer.text) == (400, True), answer.text

    on_controller(hal_home, act)


def test_jobs_are_removed_by_filter_and_end(hal_home: Path) -> None:
    """Live ones, and those that ended later, are not selected."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        old, other, live = await hal.submit({**TRUE, "name": "x"}, {**TRUE, "name": "y"}, {**SLEEP, "name": "x"})
        ends = [(await hal.ended(job))["end_ms"] for job in (old, other)]
        assert await remove(hal, filter={"name": "x"}, ended_before_ms=ends[0]) == []
        assert [one["id"] for one in await remove(hal, filter={"name": "x"})] == [old]
        assert [one["id"] for one in await remove(hal, ended_before_ms=max(ends) + 1)] == [other]
        assert (await hal.http.get(f"/v1/jobs/{live}")).status_code == 200
        agent.end(next(iter(agent.running)))

    on_controller(hal_home, body)


def test_a_user_removes_their_own_jobs_and_an_operator_anybodys(hal_home: Path) -> None:
    """Another user's job looks as if it were not there; a filter selects one's own."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        async with person(hal, "alice") as alice, person(hal, "bob") as bob:
            ids = []
            for user in (alice, alice, bob):
                ids.append((await user.post("/v1/jobs", json=TRUE)).json()["ids"][0])
                await hal.ended(ids[-1])
            refused = (await bob.post("/v1/jobs/remove", json={"ids": ids[:1]})).json()["results"]
            assert [(one["ok"], one["code"]) for one in refused] == [(False, "not-found")]
            everything = {"filter": {"state": "ended"}}
            assert [one["id"] for one in (await bob.post("/v1/jobs/remove", json=everything)).json()["results"]] == [
                ids[2]
            ]
            mine = (await alice.post("/v1/jobs/remove", json={"ids": ids[:1]})).json()["results"]
            assert [one["ok"] for one in mine] == [True]
        assert [one["id"] for one in await remove(hal, filter={"state": "ended"})] == [ids[1]]

    on_controller(hal_home, body)


def test_a_node_that_is_away_deletes_when_it_is_back_also_after_a_restart(hal_home: Path) -> None:
    """It does not answer before it leaves; the controller starts again; then it is asked again."""

    async def body() -> None:
        async with running(hal_home) as hal:
            agent = await hal.agent(**KNOWS)
            agent.answers_forgets = False
            (job,) = await hal.submit(TRUE)
            await hal.ended(job)
            await remove(hal, job)
            await hal.until(lambda: bool(agent.forgets))
            await agent.leave()
        async with running(hal_home) as hal:
            assert hal.controller._committer.store.forget_counts() == {"n1": 1}
            agent.moved_to(hal.runtime)
            agent.answers_forgets = True
            await agent.join()
            await nothing_left(hal)
        asked = [frame.pieces for frame in agent.forgets]
        assert asked == [(ForgetPiece(int(job)),)] * 2
        assert len({frame.request for frame in agent.forgets}) == 2

    asyncio.run(body())


def test_a_node_that_is_there_and_does_not_answer_is_asked_again(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has; each time under another number."""
    monkeypatch.setattr(forgetting, "ANSWER_MS", 20)
    monkeypatch.setattr(forgetting, "RETRY_MS", 1)

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        agent.answers_forgets = False
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        await remove(hal, job)
        await hal.until(lambda: len(agent.forgets) >= 3)
        assert len({frame.request for frame in agent.forgets}) == len(agent.forgets)
        monkeypatch.setattr(forgetting, "ANSWER_MS", 30_000)
        agent.answers_forgets = True
        await nothing_left(hal)

    on_controller(hal_home, body)


def test_a_node_that_knows_nothing_of_it_is_not_asked_and_forgotten_with_the_node(hal_home: Path) -> None:
    """An older agent; what it was to delete goes with it."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        await remove(hal, job)
        store = hal.controller._committer.store
        assert store.forget_counts() == {"n1": 1}
        await hal.http.post("/v1/nodes/cordon", json={"nodes": ["n1"], "reason": "old"})
        (removed,) = (await hal.http.post("/v1/nodes/remove", json={"nodes": ["n1"]})).json()["results"]
        assert removed["ok"]
        assert store.forget_counts() == {}
        assert agent.forgets == []

    on_controller(hal_home, body)


def test_an_older_agent_in_the_place_of_one_that_was_asked_is_not_asked(hal_home: Path) -> None:
    """It dials while the connection of the other is still there; a third one that knows what is meant is asked."""

    async def body(hal: Running) -> None:
        first = await hal.agent(**KNOWS)
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        older = await hal.agent()
        await first.until(lambda agent: agent._connection is None)
        await remove(hal, job)
        assert (await hal.http.get("/v1/jobs")).json()["jobs"] == []
        await hal.agent(**KNOWS)
        await nothing_left(hal)
        assert (first.forgets, older.forgets) == ([], [])

    on_controller(hal_home, body)


@pytest.mark.usefixtures("often")
def test_jobs_beyond_the_count_of_their_queue_go_oldest_end_first(hal_home: Path) -> None:
    """One is kept; another queue counts for itself; the feed says that it was retention."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        ids = []
        for queue in ("short", "default", "default", "default"):
            ids += await hal.submit({**TRUE, "queue": queue})
            await hal.ended(ids[-1])
        for job in ids[1:3]:
            await gone(hal, job)
        await hal.until(lambda: set(hal.controller._committer.store.forget_counts()) == set())
        assert {job["id"] for job in (await hal.http.get("/v1/jobs")).json()["jobs"]} == {ids[0], ids[3]}
        events = (await hal.http.get("/v1/events", params={"limit": 1000})).json()["events"]
        removed = [one for one in events if one["kind"] == "jobs-removed"]
        assert {(one["cause"], one["payload"]["removed"]) for one in removed} == {("retention", "job")}

    on_controller(hal_home, body, kept("short", jobs_count=1))


@pytest.mark.usefixtures("often")
def test_a_queue_may_keep_its_jobs_longer_than_the_others(hal_home: Path) -> None:
    """The others' go as soon as they have ended."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        long, short = await hal.submit({**TRUE, "queue": "long"}, TRUE)
        await gone(hal, short)
        assert (await hal.ended(long))["state"] == "succeeded"

    config = kept("long", jobs_ms=0)
    own = Retention(jobs=config.retention.jobs, queues={"long": Kept(jobs_ms=DAY_MS)})
    on_controller(hal_home, body, replace(config, retention=own))


@pytest.mark.usefixtures("often")
def test_outputs_go_before_the_job_and_it_may_run_again(hal_home: Path) -> None:
    """Reading them says what became of them; the new attempt's output is there, until that job has ended again."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        (job,) = await hal.submit({"command": ["echo", "one"]})
        await hal.ended(job)
        await hal.until(lambda: bool(agent.forgets))
        assert agent.forgets[0].pieces == (ForgetPiece(int(job), 1, 0, 1),)
        read = await hal.http.get(f"/v1/jobs/{job}/logs")
        says = f"the outputs of job {job} were deleted at 20"
        assert (read.status_code, says in read.text, "(outputs_days = 0, queue default)" in read.text) == (
            404,
            True,
            True,
        )
        assert (await hal.http.get(f"/v1/jobs/{job}")).json()["removed"] == "outputs"
        agent.outputs.clear()
        (outcome,) = (await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})).json()["results"]
        assert outcome["ok"]
        assert (await hal.ended(job))["restarts"] == 1
        first = await hal.http.get(f"/v1/jobs/{job}/logs", params={"attempt": 1})
        assert (first.status_code, says in first.text) == (404, True)
        await hal.until(lambda: len(agent.forgets) == 2)
        assert agent.forgets[1].pieces == (ForgetPiece(int(job), 1, 0, 1), ForgetPiece(int(job), 2, 0, 1))

    on_controller(hal_home, body, kept(outputs_ms=0))


def test_an_output_that_its_node_has_deleted_is_not_shown_as_an_empty_one(hal_home: Path) -> None:
    """Reading it says when and by which bound; what began later is there, also if it is empty."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        agent.outputs.clear()
        agent.deleted_ms = hal.runtime.now_ms()
        read = await hal.http.get(f"/v1/jobs/{job}/logs")
        assert (read.status_code, "node 'n1' keeps no more (outputs_days = 5)" in read.text) == (404, True), read.text
        agent.deleted_ms = 1
        assert (await hal.http.get(f"/v1/jobs/{job}/logs")).status_code == 200

    on_controller(hal_home, body)


@pytest.mark.usefixtures("often")
def test_a_job_whose_attempts_are_removed_says_so_and_cannot_run_again(hal_home: Path) -> None:
    """What it was and how it ended stays."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        (job,) = await hal.submit({**TRUE, "array": 3})
        await hal.ended(job)
        store = hal.controller._committer.store
        await hal.until(lambda: not store.attempts(int(job)))
        view = (await hal.http.get(f"/v1/jobs/{job}")).json()
        assert (view["removed"], view["counts"]["succeeded"]) == ("attempts", 3)
        (outcome,) = (await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})).json()["results"]
        assert (outcome["code"], "its attempts were removed" in outcome["detail"]) == ("conflict", True)

    on_controller(hal_home, body, kept(attempts_count=0))


@pytest.mark.usefixtures("often")
def test_a_task_that_runs_again_and_again_keeps_its_newest_attempts(hal_home: Path) -> None:
    """While its job lives: 14 attempts, of which 10 are kept; the others' outputs go, and asking for one says why."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        (job,) = await hal.submit(SLEEP)
        for number in range(1, 15):
            await hal.until(lambda number=number: StepId(int(job), 0, number, 0) in agent.running)  # type: ignore[misc]
            if number < 14:
                (outcome,) = (await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})).json()["results"]
                assert outcome["ok"], outcome
        store = hal.controller._committer.store
        await hal.until(lambda: [one.attempt for one in store.attempts(int(job))] == list(range(5, 15)))
        await nothing_left(hal)
        assert {piece for frame in agent.forgets for piece in frame.pieces} == {
            ForgetPiece(int(job), number, 0, 1) for number in range(1, 5)
        }
        read = await hal.http.get(f"/v1/jobs/{job}/logs", params={"attempt": 4})
        assert (read.status_code, f"attempt 4 of task {job}.0 is not kept any more" in read.text) == (404, True)
        assert (await hal.http.get(f"/v1/jobs/{job}/logs", params={"attempt": 5})).status_code == 200
        view = (await hal.http.get(f"/v1/jobs/{job}")).json()
        assert (view["state"], view["restarts"]) == ("running", 13)
        agent.end(next(iter(agent.running)))

    on_controller(hal_home, body, Config(retention=Retention(attempts_per_task=10)))


def test_a_removed_job_is_nothing_to_wait_for(hal_home: Path) -> None:
    """As if it had never been."""

    async def body(hal: Running) -> None:
        await hal.agent(**KNOWS)
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        await remove(hal, job)
        answer = await hal.http.post("/v1/jobs", json={**TRUE, "dependencies": [f"afterok:{job}"]})
        assert (answer.status_code, f"there is no job {job}" in answer.text) == (400, True)

    on_controller(hal_home, body)


def test_job_ids_continue_after_everything_was_removed_and_the_controller_was_started_again(hal_home: Path) -> None:
    """No id is given twice, also where the mark beside the store is lost."""

    async def body() -> None:
        async with running(hal_home) as hal:
            await hal.agent(**KNOWS)
            ids = await hal.submit(TRUE, TRUE)
            for job in ids:
                await hal.ended(job)
            await remove(hal, *ids)
        async with running(hal_home) as hal:
            (next_id,) = await hal.submit(TRUE)
        assert int(next_id) == int(ids[-1]) + 1

    asyncio.run(body())


def test_a_store_that_lost_its_nodes_answer_is_not_fooled_by_an_old_one(hal_home: Path) -> None:
    """An answer to a request that nobody has under way changes nothing."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(**KNOWS)
        agent.answers_forgets = False
        (job,) = await hal.submit(TRUE)
        await hal.ended(job)
        await remove(hal, job)
        await hal.until(lambda: bool(agent.forgets))
        agent._send(Forgotten(request=agent.forgets[0].request + 1))
        other = ScriptedAgent(hal.runtime, UnixAddress(hal.runtime.paths.wire_socket()), "n2", **KNOWS)
        await other.join()
        assert hal.controller._committer.store.forget_counts() == {"n1": 1}
        agent._send(Forgotten(request=agent.forgets[0].request))
        await nothing_left(hal)

    on_controller(hal_home, body)
