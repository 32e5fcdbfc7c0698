"""GET /v1/metrics of a real controller: what it counts, what the reference says, who sees what."""

from __future__ import annotations

import re
from pathlib import Path

from hal.core.model import AttemptState, NodeState, TaskState
from hal.daemons.controller.api.table import ENDPOINTS
from hal.daemons.controller.config import read_config
from hal.daemons.controller.metrics import declared
from hal.daemons.controller.metrics.declared import CONTROLLER
from hal.runtime.metrics.protobuf import PROTOBUF
from hal.runtime.metrics.text import TEXT
from tests.daemons.controller.api.test_nodes_rest import person
from tests.daemons.controller.running import Running, on_controller

SPEC = Path(__file__).parents[4] / "spec" / "metrics.md"
SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """By name and labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            found[match[1], tuple(LABEL.findall(match[2] or ""))] = float(match[3])
    return found


async def work(hal: Running) -> None:
    """An array of two that succeeds, a job that fails, one that runs and one that is held."""
    await hal.agent()
    done, failed, runs, _ = await hal.submit(
        {"command": ["exit", "0"], "array": 2},
        {"command": ["exit", "1"]},
        {"command": ["sleep"], "request": {"cpu": 3}},
        {"command": ["exit", "0"], "hold": True},
    )
    await hal.ended(done)
    await hal.ended(failed)
    plane = hal.controller.planes.lead
    await hal.until(lambda: plane.tally_states().get(TaskState.RUNNING) == 1)
    assert runs
    await hal.submit({"command": ["exit", "0"], "hold": True, "name": "committed-after-the-start"})


def test_the_numbers_are_those_of_what_was_done(tmp_path: Path) -> None:
    """Counts by queue, state and result, waits, resources, feeds, requests."""

    async def body(hal: Running) -> None:
        await work(hal)
        answer = await hal.http.get("/v1/metrics")
        assert answer.headers["content-type"] == f"{TEXT}; charset=utf-8"
        found = samples(answer.text)
        main = ("queue", "default")
        assert found["hal_jobs", (main, ("state", "running"))] == 1
        assert found["hal_jobs", (main, ("state", "held"))] == 2
        assert found["hal_tasks", (main, ("state", "running"))] == 1
        assert found["hal_jobs_submitted_total", (main,)] == 5
        assert found["hal_jobs_ended_total", (main, ("result", "succeeded"))] == 1
        assert found["hal_attempts_ended_total", (main, ("result", "succeeded"))] == 2
        assert found["hal_attempts_ended_total", (main, ("result", "failed"))] == 1
        assert found["hal_tasks_started_total", (main,)] == 4
        assert found["hal_submit_to_start_seconds_count", ()] == 4
        assert found["hal_queue_wait_seconds_count", (main,)] == 4
        assert found["hal_nodes", (("state", "up"),)] == 1
        assert found["hal_agents_connected", ()] == 1
        assert found["hal_resource_capacity", (("resource", "cpu"),)] == 4
        assert found["hal_resource_allocated", (("resource", "cpu"),)] == 3
        assert found["hal_resource_free", (("resource", "cpu"),)] == 1
        assert found["hal_feed_newest", (("feed", "attempts"),)] == 3
        assert found["hal_leader", ()] == 1
        assert found["hal_rest_requests_total", (("operation", "submit"), ("status", "201"))] == 2
        assert found["hal_commit_seconds_count", ()] > 0
        assert found["hal_slice_seconds_count", ()] > 0

    on_controller(tmp_path, body)


def test_the_reference_names_what_a_scrape_shows(tmp_path: Path) -> None:
    """Every metric of the page with its type and labels, and nothing that is not on it. Only what a lone controller in
    a test cannot have is not shown: certificates, limits, and the process, which `__main__` adds."""

    async def body(hal: Running) -> None:
        await work(hal)
        hal.controller._metrics.watch(hal.runtime, "1.0")
        await hal.submit({"command": ["exit", "0"], "request": {"cpu": 3}})  # it waits
        await hal.http.put("/v1/planes/prices", json={"wire": ["h:1"]})
        await hal.http.put("/v1/readers/plane", json={"feeds": ["attempts"]})
        await hal.http.put(
            "/v1/advice/price", json={"space": "nodes", "keys": ["n1"], "values": [1.0], "expires_in": "1m"}
        )
        await hal.http.get("/v1/metrics")
        await hal.api.slow_facts.looked()
        text = (await hal.http.get("/v1/metrics")).text
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| \w* \| ([^|]*) \|", SPEC.read_text(), re.M)
        controllers = {metric.name for metric in CONTROLLER}
        page = {
            name: (kind, tuple(re.findall("`(.+?)`", labels))) for name, kind, labels in rows if name in controllers
        }
        assert set(page) - set(types) == {"hal_certificate_expiry_timestamp_seconds", "hal_limit_used_ratio"}
        assert {name: kind for name, (kind, _) in page.items() if name in types} == types
        shown: dict[str, set[tuple[str, ...]]] = {}
        for name, labels in samples(text):
            base = re.sub("_(bucket|sum|count)$", "", name)
            shown.setdefault(base, set()).add(tuple(label for label, _ in labels if label != "le"))
        assert shown == {name: {page[name][1]} for name in types}

    on_controller(tmp_path, body)


def test_the_bounds_of_labels_hold_what_hal_itself_may_have() -> None:
    """No operation of REST counts under `(other)`, nor any state."""
    assert len(ENDPOINTS) < declared.OPERATION.most
    assert len(TaskState) <= declared.TASK_STATE.most
    assert len(NodeState) <= declared.NODE_STATE.most
    assert len(AttemptState) <= declared.ATTEMPTS_ENDED.labels[1].most


def test_users_see_no_names_of_readers_and_advice(tmp_path: Path) -> None:
    """Which they may not list either; counts of the whole HAL they see."""

    async def body(hal: Running) -> None:
        await hal.http.put("/v1/readers/plane", json={"feeds": ["attempts"]})
        hidden = {metric.name for metric in CONTROLLER if metric.for_operators}
        async with person(hal, "bob", role="user") as bob:
            seen = {name for name, _ in samples((await bob.get("/v1/metrics")).text)}
        assert "hal_feed_reader_lag" in {name for name, _ in samples((await hal.http.get("/v1/metrics")).text)}
        assert not seen & hidden
        assert "hal_feed_newest" in seen

    on_controller(tmp_path, body)


def test_prometheus_gets_messages_when_it_asks_for_them(tmp_path: Path) -> None:
    async def body(hal: Running) -> None:
        accept = PROTOBUF.replace(" ", "") + ",text/plain;version=0.0.4;q=0.5"
        answer = await hal.http.get("/v1/metrics", headers={"Accept": accept})
        assert answer.headers["content-type"] == PROTOBUF
        assert b"hal_slice_seconds" in answer.content

    on_controller(tmp_path, body)


def test_a_refused_request_is_counted(tmp_path: Path) -> None:
    """Also where no row was found."""

    async def body(hal: Running) -> None:
        await hal.http.get("/v1/nothing")
        await hal.http.get("/v1/jobs/77")
        found = samples((await hal.http.get("/v1/metrics")).text)
        assert found["hal_rest_requests_total", (("operation", "(none)"), ("status", "404"))] == 1
        assert found["hal_rest_requests_total", (("operation", "getJob"), ("status", "404"))] == 1

    on_controller(tmp_path, body)


def test_the_use_of_a_limit_is_the_largest_of_those_for_whom_it_counts_apart(hal_home: Path) -> None:
    """One user holds 3 of 4 cpus, another 1: three quarters; and the disk of HAL_HOME has some room."""
    limit = '[limits.cpus]\nuser = "*"\nresources = { cpu = 4 }\n'

    async def body(hal: Running) -> None:
        await hal.agent()
        await hal.submit(
            {"command": ["sleep"], "user": "ada", "request": {"cpu": 3}},
            {"command": ["sleep"], "user": "bob", "request": {"cpu": 1}},
        )
        plane = hal.controller.planes.lead
        await hal.until(lambda: plane.tally_states().get(TaskState.RUNNING) == 2)
        await hal.http.get("/v1/metrics")
        await hal.api.slow_facts.looked()
        found = samples((await hal.http.get("/v1/metrics")).text)
        assert found["hal_limit_used_ratio", (("limit", "cpus"),)] == 0.75
        assert 0 <= found["hal_home_free_ratio", ()] <= 1

    on_controller(hal_home, body, read_config(limit))


def test_the_oldest_wait_of_a_queue_is_that_of_what_could_have_started(tmp_path: Path) -> None:
    """Of a queue in which one job runs and one is held nothing is said, until a third waits for its turn."""

    async def body(hal: Running) -> None:
        await work(hal)

        async def waits() -> list[float]:
            found = samples((await hal.http.get("/v1/metrics")).text)
            return [value for (name, _), value in found.items() if name == "hal_queue_oldest_wait_seconds"]

        assert await waits() == []
        (job,) = await hal.submit({"command": ["exit", "0"], "request": {"cpu": 3}})
        (oldest,) = await waits()
        assert 0 <= oldest < 3_600
        await hal.http.post("/v1/jobs/cancel", json={"ids": [job]})
        await hal.ended(job)
        assert await waits() == []

    on_controller(tmp_path, body)


def test_a_plane_that_ceases_to_announce_itself_is_shown_as_such_and_one_that_goes_is_not(tmp_path: Path) -> None:
    async def body(hal: Running) -> None:
        for name, expires_in in (("dies", "20ms"), ("lives", "1m"), ("goes", "1m")):
            await hal.http.put(f"/v1/planes/{name}", json={"wire": ["h:1"], "expires_in": expires_in})
        await hal.http.delete("/v1/planes/goes")
        planes = hal.api.planes
        await hal.until(lambda: not planes.up()["dies"])
        found = samples((await hal.http.get("/v1/metrics")).text)
        up = {labels[0][1]: value for (name, labels), value in found.items() if name == "hal_announced_plane_up"}
        assert up == {"dies": 0, "lives": 1}

    on_controller(tmp_path, body)
