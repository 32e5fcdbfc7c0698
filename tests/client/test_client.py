"""What `Client` and `Job` ask for, and what they make of the answers."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

import hal
from hal.client.sync_client import Client
from hal.core.model import SpecError
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply, as_json, problem


def job(number: str = "1", state: str = "running", **more: object) -> dict[str, object]:
    return {"id": number, "state": state, **more}


def test_gpus_may_name_their_type(serve: Serve, client: Client) -> None:
    """It is a word of their model, which is a label; other constraints stay."""
    server = serve(lambda asked: as_json({"ids": ["42"]}, 201))
    client.submit(["true"], gpus="a100:2", constraints="ssd")
    spec = server.asked[0].json["jobs"][0]
    assert spec["request"]["gpu"] == "2"
    assert [one["label"] for one in spec["constraints"]] == ["ssd", "hal.gpu.a100"]
    with pytest.raises(SpecError, match="'A100' is not a type of GPUs"):
        client.submit(["true"], gpus="A100:2")


@pytest.mark.parametrize(
    ("gpus", "request_of_node", "labels"),
    [
        ("4@island", {"gpu": "4", "gpu-island": "4"}, []),
        ("a100:2@island", {"gpu": "2", "gpu-island": "2"}, ["hal.gpu.a100"]),
        ("1g.10gb:2", {"mig-1g.10gb": "2"}, []),
        ("a100-1c.3g.40gb:1", {"mig-1c.3g.40gb": "1"}, ["hal.gpu.a100"]),
        ("1g.10gb+me:1", {"mig-1g.10gb.me": "1"}, []),
    ],
)
def test_gpus_may_be_of_one_island_or_slices(
    serve: Serve, client: Client, gpus: str, request_of_node: dict[str, str], labels: list[str]
) -> None:
    server = serve(lambda asked: as_json({"ids": ["42"]}, 201))
    client.submit(["true"], cpus=1, gpus=gpus)
    spec = server.asked[0].json["jobs"][0]
    assert spec["request"] == {"cpu": "1", **request_of_node}
    assert [one["label"] for one in spec.get("constraints", ())] == labels


@pytest.mark.parametrize("gpus", ["4@rack", "0.5@island", "1g.10gb:2@island", "A100-1g.10gb:1", "1g.10gb:0.5"])
def test_gpus_that_cannot_be_are_refused(serve: Serve, client: Client, gpus: str) -> None:
    """Nothing is sent."""
    server = serve(lambda asked: as_json({"ids": ["42"]}, 201))
    with pytest.raises(SpecError):
        client.submit(["true"], gpus=gpus)
    assert not server.asked


def test_submit_sends_the_spec_that_the_keywords_mean(serve: Serve, client: Client) -> None:
    """Amounts, times and dependencies arrive in the canonical form of a spec."""
    server = serve(lambda asked: as_json({"ids": ["42"]}, 201))
    other = client.submit(["true"])
    client.submit(
        ["python", Path("train.py")],  # type: ignore[list-item]
        cpus=4,
        memory="8GiB",
        gpus=0.5,
        walltime=timedelta(minutes=90),
        array=range(0, 10, 2),
        after=[other, "afterany:7"],
        labels={"team": "vision"},
        constraints="gpu=a100|h100",
        retries=2,
        workdir="/tmp",
        comment="second try",
    )
    spec = server.asked[1].json["jobs"][0]
    assert spec["command"] == ["python", "train.py"]
    assert spec["request"] == {"cpu": "4", "gpu": "0.5", "memory": "8GiB"}
    assert spec["walltime"] == "1h30m"
    assert spec["array"] == {"count": 5, "step": 2}
    assert spec["dependencies"] == [{"job": "42"}, {"job": "7", "kind": "afterany"}]
    assert spec["retries"] == {"max": 2}
    assert spec["constraints"] == [{"label": "gpu", "values": ["a100", "h100"]}]
    assert (spec["workdir"], spec["comment"]) == ("/tmp", "second try")
    assert "PATH" in spec["env"]


def test_a_closed_client_sends_nothing(serve: Serve, client: Client) -> None:
    """It says so, and what to do."""
    server = serve(lambda asked: as_json({"ids": ["1"]}, 201))
    held = client.submit(["true"])
    client.close()
    for act in (lambda: client.submit(["true"]), held.refresh, lambda: next(client.events(follow=True))):
        with pytest.raises(hal.ConflictError, match=r"this client is closed \(make another one"):
            act()
    assert len(server.asked) == 1


def test_text_is_run_by_a_shell(serve: Serve, client: Client) -> None:
    """`submit('echo a | wc')` means what it says."""
    server = serve(lambda asked: as_json({"ids": ["1"]}, 201))
    client.submit("echo a | wc -l")
    assert server.asked[0].json["jobs"][0]["command"] == ["/bin/sh", "-c", "echo a | wc -l"]


def test_a_list_of_specs_is_one_request_and_gives_a_list_of_jobs(serve: Serve, client: Client) -> None:
    """Specs and plain data may be mixed; they are sent as they are."""
    server = serve(lambda asked: as_json({"ids": ["1", "2"]}, 201))
    jobs = client.submit([{"command": ["a"]}, hal.JobSpec(command=("b",))])
    assert [one.id for one in jobs] == ["1", "2"]
    assert server.asked[0].json == {"jobs": [{"command": ["a"]}, {"command": ["b"]}]}


def test_a_malformed_spec_in_a_list_is_named_by_its_place_and_nothing_is_sent(serve: Serve, client: Client) -> None:
    """All or none."""
    server = serve(lambda asked: as_json({"ids": []}, 201))
    with pytest.raises(hal.SpecError, match="job 2 of 2: unknown field 'comand'; did you mean 'command'"):
        client.submit([{"command": ["a"]}, {"comand": ["b"]}])
    assert server.asked == []


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"memroy": "1GiB"}, "submit has no keyword 'memroy' \\(did you mean 'memory'"),
        ({"memory": "lots"}, "memory: 'lots' is not a size"),
        ({"cpus": -1}, "cpus: '-1' is negative"),
        ({"cpus": 0}, "cpus: 0 requests nothing"),
        ({"env": {"A": object()}}, "env.A: expected text or a number, got <object"),
        ({"env": {"A": None}}, "env.A: expected text or a number, got None"),
        ({"cpus": 2, "request": {"cpu": 3}}, "cpus: `request` has 'cpu', too"),
        ({"walltime": "soon"}, "walltime: 'soon' is not a duration"),
        ({"array": range(5, 0)}, "has no task"),
        ({"after": "when:3"}, "is not KIND:JOB"),
        ({"begin": "soon"}, "begin: 'soon' is not an instant"),
        ({"begin": "now+60"}, "begin: '60' has no unit"),
        ({"walltime": "30"}, "walltime: '30' has no unit \\(did you mean 30s or 30m"),
        ({"memory": "500"}, "memory: '500' has no unit \\(did you mean 500MiB or 500B"),
        ({"env": ["A=1"]}, "env: expected a mapping.*such as {'SEED': 1}"),
        ({"labels": ["a"]}, "labels: expected a mapping.*such as {'project': 'fit'}"),
        ({"items": "a.dat"}, "items: expected a list.*such as .'a.dat', 'b.dat'"),
    ],
)
def test_a_bad_keyword_is_refused_here_with_what_to_write(
    keywords: dict[str, object], message: str, client: Client
) -> None:
    """No controller is needed for that."""
    with pytest.raises(hal.SpecError, match=message):
        client.submit(["true"], **keywords)  # type: ignore[call-overload]


def test_nothing_to_submit_is_an_error(client: Client) -> None:
    """An empty list is a mistake, not a job; and so is what is no command at all."""
    with pytest.raises(hal.SpecError, match="nothing to submit"):
        client.submit([])
    with pytest.raises(hal.SpecError, match=r"expected a command.*got int"):
        client.submit(5)  # type: ignore[call-overload]


def test_keywords_beside_a_whole_spec_are_refused(client: Client) -> None:
    """They would silently be lost."""
    with pytest.raises(hal.SpecError, match="cannot be combined with a spec"):
        client.submit(hal.JobSpec(command=("a",)), cpus=2)


def test_jobs_are_read_page_by_page_as_they_are_consumed(serve: Serve, client: Client) -> None:
    """The second page is asked for only when the first is used up."""

    def answer(asked: Asked) -> Reply:
        if asked.query.get("cursor") == "b":
            return as_json({"jobs": [job("3")]})
        return as_json({"jobs": [job("1"), job("2")], "cursor": "b"})

    server = serve(answer)
    found = client.jobs(state=["running", "held"], user="alice")
    assert next(found).id == "1"
    assert len(server.asked) == 1
    assert [info.id for info in found] == ["2", "3"]
    assert server.asked[1].query == {"state": "running,held", "user": "alice", "limit": "500", "cursor": "b"}


def test_a_limit_ends_the_listing(serve: Serve, client: Client) -> None:
    """No page is asked for that nobody wants."""
    server = serve(lambda asked: as_json({"jobs": [job("1"), job("2")], "cursor": "b"}))
    assert [info.id for info in client.jobs(limit=2)] == ["1", "2"]
    assert server.asked[0].query["limit"] == "2"
    assert len(server.asked) == 1


def test_a_filter_that_does_not_exist_is_refused(client: Client) -> None:
    """Ignoring it would list, or cancel, far too much."""
    with pytest.raises(hal.SpecError, match="'usr' is not a filter"):
        client.cancel(usr="alice")


def test_wait_asks_again_until_the_job_has_ended(serve: Serve, client: Client) -> None:
    """A long poll that ends before the job is repeated."""
    server = serve(lambda asked: as_json(job(state="running" if len(server.asked) < 3 else "succeeded")))
    assert hal.Job(client, "1").wait().state == "succeeded"
    assert server.paths() == ["GET /v1/jobs/1/wait"] * 3


def test_wait_with_a_timeout_says_what_the_job_does_instead(serve: Serve, client: Client) -> None:
    """The job goes on."""
    serve(lambda asked: as_json(job(state="pending")))
    with pytest.raises(hal.TimedOutError, match="job 1 is still pending after 0 s"):
        hal.Job(client, "1").wait(0)


def test_wait_with_check_raises_for_a_failure(serve: Serve, client: Client) -> None:
    """As subprocess.run(check=True) does."""
    serve(lambda asked: as_json(job(state="failed", exit_code=3, reason="no such file")))
    with pytest.raises(hal.JobFailedError, match="job 1 failed with exit code 3: no such file"):
        hal.Job(client, "1").wait(check=True)


def test_wait_all_keeps_the_order_and_asks_once_for_a_job_named_twice(serve: Serve, client: Client) -> None:
    """Job 2 ends first; the answer is in the order of the question."""
    first_may_end = threading.Event()

    def answer(asked: Asked) -> Reply:
        number = asked.path.split("/")[3]
        if number == "2":
            first_may_end.set()
            return as_json(job("2", "failed"))
        return Reply(as_json(job("1", "succeeded")).body, before=first_may_end)

    serve(answer)
    ends = client.wait_all(["1", "2", "1"], timeout=20)
    assert [(info.id, info.state) for info in ends] == [("1", "succeeded"), ("2", "failed"), ("1", "succeeded")]


def test_as_ended_gives_jobs_in_the_order_in_which_they_end(serve: Serve, client: Client) -> None:
    """Forty jobs over fewer threads: the last one ends first."""
    ended = {"40"}
    lock = threading.Lock()

    def answer(asked: Asked) -> Reply:
        number = asked.path.split("/")[3]
        with lock:
            return as_json(job(number, "succeeded" if number in ended else "running"))

    serve(answer)
    order = []
    for info in client.as_ended([str(n) for n in range(1, 41)], timeout=20):
        order.append(info.id)
        with lock:
            ended.update(str(n) for n in range(1, 41))
    assert order[0] == "40"
    assert sorted(order, key=int) == [str(n) for n in range(1, 41)]


def test_as_ended_raises_what_asking_raised(serve: Serve, client: Client) -> None:
    """An id that does not exist is not waited for for ever."""
    serve(lambda asked: problem(404, "not-found", "there is no job 9"))
    with pytest.raises(hal.NotFoundError, match="no job 9"):
        client.wait_all(["9"])


def test_cancel_of_one_job_raises_what_its_outcome_says(serve: Serve, client: Client) -> None:
    """A conflict inside a bulk answer is the error of the single job's method."""
    outcome = {"id": "1", "ok": False, "code": "conflict", "detail": "job 1 has ended", "hint": "requeue it"}
    server = serve(lambda asked: as_json({"results": [outcome]}))
    with pytest.raises(hal.ConflictError, match="job 1 has ended"):
        hal.Job(client, "1").cancel()
    assert server.asked[0].json == {"ids": ["1"]}


def test_ended_jobs_are_removed_by_id_or_by_filter(serve: Serve, client: Client) -> None:
    """The filter is asked again as long as it selects as many as one request removes."""
    server = serve(lambda asked: as_json({"results": [{"id": "1", "ok": True, "state": "removed"}]}))
    assert client.remove(1)[0].state == "removed"
    client.remove(ended_before="2030-01-01T00:00Z", user="alice")
    assert server.paths() == ["POST /v1/jobs/remove"] * 2
    assert [asked.json for asked in server.asked] == [
        {"ids": ["1"]},
        {"filter": {"user": "alice"}, "ended_before_ms": 1_893_456_000_000},
    ]
    with pytest.raises(hal.SpecError, match="cannot be combined"):
        client.remove(1, user="alice")


def test_state_is_asked_for_until_the_job_has_ended(serve: Serve, client: Client) -> None:
    """An ended job does not change, so nothing is asked."""
    server = serve(lambda asked: as_json(job(state="running" if len(server.asked) < 2 else "cancelled")))
    handle = hal.Job(client, "1")
    assert [handle.state, handle.state, handle.state] == ["running", "cancelled", "cancelled"]
    assert len(server.asked) == 2


def test_an_id_cannot_reach_another_resource(serve: Serve, client: Client) -> None:
    """What is put into a path is quoted."""
    server = serve(lambda asked: problem(404, "not-found", "none"))
    with pytest.raises(hal.NotFoundError):
        client.job("1/../../nodes?x")
    assert server.asked[0].path == "/v1/jobs/1%2F..%2F..%2Fnodes%3Fx"
