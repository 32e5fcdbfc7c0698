"""REST over a real Unix socket: what is asked is done, every mistake is one problem document, nothing is half done."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import JobSpec, StepId, spec_from_plain
from hal.daemons.controller.api.table import ENDPOINTS, document
from hal.daemons.controller.config import Config, read_config
from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["exit", "0"]}


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer, checked."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["hal-api-version"] == "1"
    told: dict[str, Any] = answer.json()
    assert (told["status"], told["code"]) == (status, code)
    assert told["detail"]
    assert told["title"]
    return told


def test_a_job_runs_and_its_end_is_told_to_who_waits(hal_home: Path) -> None:
    """Submit, wait: the job has succeeded with exit code 0, its one task too, on the node that ran it."""

    async def body(hal: Running) -> None:
        await hal.agent()
        (job,) = await hal.submit({"command": ["exit", "0"], "name": "one"})
        view = await hal.ended(job)
        assert (view["state"], view["exit_code"], view["name"], view["counts"]["succeeded"]) == (
            "succeeded",
            0,
            "one",
            1,
        )
        task = (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()
        assert (task["state"], task["nodes"], [a["attempt"] for a in task["attempts"]]) == ("succeeded", ["n1"], [1])
        assert spec_from_plain(view["spec"]) == JobSpec(command=("exit", "0"), name="one", user=view["user"])

    on_controller(hal_home, body)


def test_every_mistake_is_one_problem_document_and_stores_nothing(hal_home: Path) -> None:
    """Unknown routes, methods, fields, parameters, jobs; bodies that are no JSON, too deep, too long, too many."""
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]

    async def body(hal: Running) -> None:
        post, get = hal.http.post, hal.http.get
        problem(await get("/v1/nothing"), 404, "not-found")
        problem(await hal.http.delete("/v1/jobs"), 405, "method-not-allowed")
        problem(await post("/v1/jobs", content=b"{nonsense"), 400, "invalid-spec")
        problem(await post("/v1/jobs", content=b"\xff\xfe"), 400, "invalid-spec")
        problem(await post("/v1/jobs", content=b""), 400, "invalid-spec")
        problem(await post("/v1/jobs", content=b"[" * 100_000), 400, "invalid-spec")
        problem(await post("/v1/jobs", json={"command": ["x"], "labels": deep}), 400, "invalid-spec")
        unknown = problem(await post("/v1/jobs", json={"comand": ["x"]}), 400, "invalid-spec")
        assert "did you mean 'command'" in unknown["detail"]
        second = problem(await post("/v1/jobs", json={"jobs": [TRUE, {"command": []}]}), 400, "invalid-spec")
        assert second["detail"].startswith("job 2 of 2: ")
        problem(await post("/v1/jobs", json={"jobs": []}), 400, "invalid-spec")
        problem(await post("/v1/jobs", content=b"x" * 300_000), 413, "too-large")
        problem(await get("/v1/jobs", params={"stat": "failed"}), 400, "invalid-spec")
        problem(await get("/v1/jobs", params={"state": "sleeping"}), 400, "invalid-spec")
        problem(await get("/v1/jobs", params={"limit": "0"}), 400, "invalid-spec")
        problem(await get("/v1/jobs/17"), 404, "not-found")
        problem(await get("/v1/jobs/x"), 400, "invalid-spec")
        problem(await get("/v1/jobs/17/logs"), 404, "not-found")
        problem(await get("/v1/nodes/n9"), 404, "not-found")
        problem(await get("/v1/health", headers={"HAL-API-Version": "7"}), 400, "invalid-spec")
        cycle = [{**TRUE, "name": "a", "dependencies": ["b"]}, {**TRUE, "name": "b", "dependencies": ["a"]}]
        assert "a → b → a" in problem(await post("/v1/jobs", json={"jobs": cycle}), 400, "invalid-spec")["detail"]
        unknown_queue = problem(await post("/v1/jobs", json={**TRUE, "queue": "defualt"}), 400, "invalid-spec")
        assert "default" in unknown_queue["hint"]
        assert (await get("/v1/jobs")).json() == {"jobs": [], "cursor": None}

    on_controller(hal_home, body, Config(max_request_bytes=200_000))


def test_an_impossible_request_is_refused_with_what_the_largest_node_could_give(hal_home: Path) -> None:
    """8 cores where the largest node has 4 are refused, and 4 is in the message; nothing is stored."""

    async def body(hal: Running) -> None:
        await hal.agent(cpu_milli=4_000)
        told = problem(await hal.http.post("/v1/jobs", json={**TRUE, "request": {"cpu": 8}}), 400, "invalid-spec")
        assert "4" in told["detail"]
        assert "n1" in told["detail"]
        assert (await hal.http.get("/v1/jobs")).json()["jobs"] == []

    on_controller(hal_home, body)


def test_the_same_idempotency_key_submits_once(hal_home: Path) -> None:
    """Twice at the same time and once later: one job. Another request with that key is a conflict."""

    async def body(hal: Running) -> None:
        send = lambda what: hal.http.post("/v1/jobs", json=what, headers={"Idempotency-Key": "k1"})  # noqa: E731
        first, second = await asyncio.gather(send(TRUE), send(TRUE))
        third = await send(TRUE)
        assert first.json()["ids"] == second.json()["ids"] == third.json()["ids"] == ["1"]
        problem(await send({"command": ["exit", "1"]}), 409, "conflict")
        assert len((await hal.http.get("/v1/jobs")).json()["jobs"]) == 1

    on_controller(hal_home, body)


def test_a_dry_run_checks_and_keeps_nothing(hal_home: Path) -> None:
    """The answer shows the job as it would be; no job exists afterwards."""

    async def body(hal: Running) -> None:
        answer = await hal.http.post("/v1/jobs", params={"dry_run": "1"}, json=TRUE)
        assert (answer.status_code, answer.json()["ids"], answer.json()["jobs"][0]["state"]) == (200, [], "pending")
        assert (await hal.http.get("/v1/jobs")).json()["jobs"] == []

    on_controller(hal_home, body)


def test_pages_follow_one_another_without_gap_or_overlap(hal_home: Path) -> None:
    """Five jobs in pages of two: 5 4, 3 2, 1; the tasks of an array in pages too."""

    async def body(hal: Running) -> None:
        await hal.submit(*[TRUE] * 4, {**TRUE, "array": 5})
        pages, cursor = [], ""
        while True:
            page = (await hal.http.get("/v1/jobs", params={"limit": 2, "cursor": cursor})).json()
            pages.append([job["id"] for job in page["jobs"]])
            cursor = page["cursor"]
            if cursor is None:
                break
        assert pages == [["5", "4"], ["3", "2"], ["1"]]
        tasks = (await hal.http.get("/v1/jobs/5/tasks", params={"limit": 3, "cursor": "1"})).json()
        assert [task["task"] for task in tasks["tasks"]] == [2, 3, 4]

    on_controller(hal_home, body)


def test_one_outcome_for_each_id_and_a_refused_one_keeps_no_other_back(hal_home: Path) -> None:
    """Cancelling a waiting job, an ended one and one that never was: ok, conflict, not found."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE, TRUE)
        results = (await hal.http.post("/v1/jobs/cancel", json={"ids": ["1"]})).json()["results"]
        assert results == [{"id": "1", "ok": True, "state": "cancelled", "tasks": 1}]
        answer = await hal.http.post("/v1/jobs/cancel", json={"ids": ["2", "1", "99", "2.7"]})
        assert [(r["id"], r["ok"], r.get("code")) for r in answer.json()["results"]] == [
            ("2", True, None),
            ("1", False, "conflict"),
            ("99", False, "not-found"),
            ("2.7", False, "not-found"),
        ]
        problem(await hal.http.post("/v1/jobs/cancel", json={}), 400, "invalid-spec")
        problem(await hal.http.post("/v1/jobs/cancel", json={"filter": {"colour": "red"}}), 400, "invalid-spec")

    on_controller(hal_home, body)


def test_an_output_that_cannot_be_followed_on_is_no_fault_of_the_controller(hal_home: Path) -> None:
    """A step puts a FIFO in the place of its output while somebody follows it: the answer breaks off, and no trace of
    it is logged, as often as its user likes; whoever asks again is told why."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({"command": ["sleep"]})
        await hal.until(lambda: len(agent.running) == 1)
        agent.outputs[StepId(int(job), 0, 1, 0)] = b"first"

        async def follow() -> None:
            agent.output_error = ""
            async with hal.http.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": "1"}) as stream:
                async for piece in stream.aiter_raw():
                    assert piece == b"first"
                    agent.output_error = "a FIFO is in the place of the file"

        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                await follow()
        assert "a FIFO is in the place of" in (await hal.http.get(f"/v1/jobs/{job}/logs")).json()["detail"]
        assert "ASGI" not in hal.runtime.paths.log_file("controller").read_text()

    on_controller(hal_home, body)


def test_output_is_read_and_followed_to_its_end(hal_home: Path) -> None:
    """All of it, a part from an offset, the last bytes, and a follower that waits for a step that still runs."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({"command": ["echo", "hello"]})
        await hal.ended(job)
        whole = await hal.http.get(f"/v1/jobs/{job}/logs")
        assert (whole.content, whole.headers["hal-log-size"], whole.headers["hal-log-ended"]) == (b"hello\n", "6", "1")
        part = await hal.http.get(f"/v1/jobs/{job}/logs", params={"offset": -3, "limit": 2})
        assert (part.content, part.headers["hal-log-offset"]) == (b"lo", "3")
        (slow,) = await hal.submit({"command": ["sleep"]})
        await agent.until(lambda a: bool(a.running))
        (step,) = agent.running
        agent.outputs[step] = b"first "

        async def follow() -> bytes:
            async with hal.http.stream("GET", f"/v1/jobs/{slow}/logs", params={"follow": "1"}) as stream:
                parts = []
                async for data in stream.aiter_raw():
                    parts.append(data)
                    if len(parts) == 1:
                        agent.outputs[step] = b"first second"
                        agent.end(step)
                return b"".join(parts)

        assert await asyncio.wait_for(follow(), 20) == b"first second"

    on_controller(hal_home, body)


def test_events_are_streamed_and_resumed_where_they_stopped(hal_home: Path) -> None:
    """A stream from sequence 0 tells of the submission; one that resumes after it tells only what is later."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        seen = await read_events(hal, {"after": "0"}, 3)
        kinds = [event["kind"] for event in seen]
        assert "jobs-submitted" in kinds
        last = str(seen[-1]["sequence"])
        later = asyncio.ensure_future(read_events(hal, {}, 1, {"Last-Event-ID": last}))
        await hal.http.post("/v1/jobs/cancel", json={"ids": ["1"]})
        assert (await later)[0]["sequence"] == int(last) + 1
        page = (await hal.http.get("/v1/events", params={"after": last, "job": "1"})).json()
        assert page["events"][0]["kind"] == "jobs-cancelled"

    on_controller(hal_home, body)


async def read_events(
    hal: Running, params: dict[str, str], count: int, headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The first `count` events of a stream."""
    accept = {"Accept": "text/event-stream", **(headers or {})}
    found: list[dict[str, Any]] = []
    async with (
        asyncio.timeout(20),
        hal.http.stream("GET", "/v1/events", params=params, headers=accept) as stream,
    ):
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                if len(found) == count:
                    return found
    return found


def test_over_tcp_only_the_token_opens(hal_home: Path) -> None:
    """Without a token, and with a wrong one: 401; with that of the file: the answer."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def body(hal: Running) -> None:
        import httpx

        token = (hal_home / "token").read_text().strip()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            problem(await client.get("/v1/health"), 401, "unauthorized")
            problem(await client.get("/v1/health", headers={"Authorization": "Bearer no"}), 401, "unauthorized")
            good = await client.get("/v1/health", headers={"Authorization": f"Bearer {token}"})
            assert good.json()["status"] == "ok"

    on_controller(hal_home, body, read_config(f'[server]\ntcp = "127.0.0.1:{port}"'))


def test_the_openapi_document_names_what_is_served_with_valid_schemas(hal_home: Path) -> None:
    """Every schema is valid JSON Schema, every reference resolves, every operation id is unique, the routes agree."""
    told = document()
    text = json.dumps(told)
    names = set(told["components"]["schemas"])
    for schema in told["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for part in text.split('"#/components/')[1:]:
        kind, name = part.split('"', 1)[0].split("/")
        assert name in told["components"][kind], (kind, name)
    assert {"JobSpec", "JobView", "Problem"} <= names
    ids = [e.name for e in ENDPOINTS]
    assert len(ids) == len(set(ids))

    async def body(hal: Running) -> None:
        assert (await hal.http.get("/v1/openapi.json")).json() == told
        for endpoint in ENDPOINTS:
            path = endpoint.path.replace("{job}", "999").replace("{task}", "0").replace("{name}", "n9")
            path = path.replace("{version}", "1").replace("{token}", "none")
            if endpoint.name in ("listEvents", "readLog", "metrics"):  # no JSON
                continue
            answer = await hal.http.request(endpoint.method, path, json={} if endpoint.body else None)
            assert answer.status_code != 405, path
            assert answer.json().get("detail", "") != f"there is nothing at {endpoint.method.upper()} {path}"

    on_controller(hal_home, body)


paths = st.sampled_from([e.path for e in ENDPOINTS if e.name != "listEvents"]) | st.text(max_size=20).map(
    lambda t: f"/v1/{t}"
)
values = st.sampled_from(["1", "0", "-1", "1.5", "x", "", "999999999999999999999", "é", "1.0", "%00"]) | st.text(
    max_size=8
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    ["jobs", "command", "script", "array", "request", "ids", "filter", "walltime", "hold", "nodes"]
)
bodies = (
    st.dictionaries(fields, json_values, max_size=4).map(lambda v: json.dumps(v).encode())
    | json_values.map(lambda v: json.dumps(v).encode())
    | st.binary(max_size=30)
)


def test_no_garbage_is_answered_with_a_fault(hal_home: Path) -> None:
    """Any method, path, parameter and body of nonsense gives an answer below 500, and 4xx are problem documents."""

    async def body(hal: Running) -> None:
        @settings(max_examples=150, deadline=None)
        @given(st.data())
        def throw(data: st.DataObject) -> None:
            plan.append(
                (
                    data.draw(st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"])),
                    data.draw(paths),
                    data.draw(values),
                    data.draw(
                        st.dictionaries(st.sampled_from(["limit", "cursor", "state", "task", "x"]), values, max_size=2)
                    ),
                    data.draw(bodies),
                )
            )

        plan: list[tuple[str, str, str, dict[str, str], bytes]] = []
        throw()
        for method, path, value, params, content in plan:
            for name in ("{job}", "{task}", "{name}"):
                path = path.replace(name, value.replace("/", "").replace("?", "").replace("#", "") or "1")
            if path.endswith("/wait"):
                params = {**params, "timeout_s": "0"}
            try:
                answer = await hal.http.request(method, path, params=params, content=content)
            except httpx_refusals:
                continue
            assert answer.status_code < 500, (method, path, params, content, answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", (method, path, answer.text)
        assert (await hal.http.get("/v1/health")).json()["status"] == "ok"

    import httpx

    httpx_refusals = (httpx.InvalidURL, UnicodeEncodeError)
    on_controller(hal_home, body)
