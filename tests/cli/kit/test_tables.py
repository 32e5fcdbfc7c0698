"""What listings show, as tables, JSON and YAML."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from hal.cli.kit.tables import GAP, fitted
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json, problem

Hal = Callable[..., Ran]

JOBS = [
    {
        "id": "12",
        "name": "fit [bold]",
        "state": "running",
        "user": "ada",
        "queue": "default",
        "tasks": 10,
        "counts": {"running": 3, "succeeded": 4, "failed": 1, "pending": 2},
        "request": {"cpu": "2", "memory": "1.5GiB"},
        "walltime": "2h",
        "start_ms": 1_000,
        "submit_ms": 500,
    },
    {
        "id": "11",
        "name": "next",
        "state": "pending",
        "reason": "resources",
        "submit_ms": 1_000,
        "counts": {"pending": 1},
    },
]


def columns(line: str) -> list[str]:
    return line.split()


def test_jobs_shows_done_of_all_tasks_and_why_one_waits(serve: Serve, hal: Hal) -> None:
    """4 succeeded + 1 failed of 10 are done; names are never taken for markup."""
    serve(lambda asked: as_json({"jobs": JOBS}))
    lines = hal("jobs").out.splitlines()
    assert columns(lines[0]) == ["ID", "NAME", "USER", "QUEUE", "STATE", "TASKS", "NODES", "TIME", "LEFT", "REASON"]
    assert columns(lines[1])[:8] == ["12", "fit", "[bold]", "ada", "default", "running", "5/10", "-"]
    assert lines[2].endswith("resources")


def test_jobs_asks_for_live_jobs_unless_told_otherwise(serve: Serve, hal: Hal) -> None:
    """--all asks for all, --state for those."""
    server = serve(lambda asked: as_json({"jobs": []}))
    hal("jobs")
    hal("jobs", "--all")
    hal("jobs", "-s", "failed,timed_out", "-u", "ada", "--limit", "7")
    states = [asked.query.get("state") for asked in server.asked]
    assert states == ["pending,held,allocated,preparing,running,suspended,finalising", None, "failed,timed-out"]
    assert (server.asked[2].query["user"], server.asked[2].query["limit"]) == ("ada", "7")


def test_tasks_that_succeeded_have_no_message(serve: Serve, hal: Hal) -> None:
    """`exited` says nothing of them."""
    tasks = [
        {"job": "7", "task": 0, "state": "succeeded", "cause": "exited", "exit_code": 0},
        {"job": "7", "task": 1, "state": "failed", "cause": "node-lost"},
    ]
    job = {"id": "7", "state": "failed", "tasks": 2}
    serve(lambda asked: as_json({"tasks": tasks, "cursor": None} if asked.path.endswith("/tasks") else job))
    rows = [line.split() for line in hal("show", "7").out.splitlines()[-2:]]
    assert (rows[0][-1], rows[1][-1]) == ("0", "node-lost")


def test_groups_of_states_are_as_in_rest(serve: Serve, hal: Hal) -> None:
    """The controller knows what they stand for."""
    server = serve(lambda asked: as_json({"jobs": []}))
    assert hal("jobs", "-s", "ended,held").code == 0
    assert server.asked[0].query["state"] == "ended,held"


def test_an_unknown_state_names_the_nearest(hal: Hal) -> None:
    """Before anything is asked."""
    ran = hal("jobs", "-s", "runing")
    assert ran.code == 2
    assert "'runing' is not a job state; did you mean running?" in ran.err


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_jobs_for_programs(form: str, read: Callable[[str], list[dict[str, object]]], serve: Serve, hal: Hal) -> None:
    """All fields; amounts and times as people write them in specs."""
    serve(lambda asked: as_json({"jobs": JOBS}))
    first = read(hal("jobs", "-o", form).out)[0]
    assert (first["id"], first["state"], first["walltime"]) == ("12", "running", "2h")
    assert first["request"] == {"cpu": "2", "memory": "1.5GiB"}


def test_nodes_shows_used_of_total(serve: Serve, hal: Hal) -> None:
    """3 of 4 cores are free, 1 of 8 GiB is used."""
    gib = 1 << 30
    node = {
        "name": "n1",
        "state": "up",
        "capacity": {"cpu": 4000, "memory": 8 * gib},
        "free": {"cpu": 3000, "memory": 7 * gib},
        "labels": {"disk": "ssd"},
        "running": 1,
    }
    serve(lambda asked: as_json({"nodes": [node]}))
    assert columns(hal("nodes").out.splitlines()[1]) == ["n1", "up", "1/4", "1GiB/8GiB", "-", "1", "disk=ssd"]


def test_nodes_has_a_column_for_each_resource_that_a_node_offers(serve: Serve, hal: Hal) -> None:
    """One node has two licences of three left, the other none of that kind."""
    nodes = [
        {"name": "n1", "state": "up", "capacity": {"cpu": 1000, "matlab": 3}, "free": {"cpu": 1000, "matlab": 2}},
        {"name": "n2", "state": "up", "capacity": {"cpu": 1000}, "free": {"cpu": 1000}},
    ]
    serve(lambda asked: as_json({"nodes": nodes}))
    head, first, second = hal("nodes").out.splitlines()
    assert columns(head)[2:7] == ["CPU", "MEMORY", "GPU", "MATLAB", "RUNNING"]
    assert (columns(first)[2:6], columns(second)[2:6]) == (["0/1", "-", "-", "1/3"], ["0/1", "-", "-", "-"])


def test_why_shows_the_numbers_and_what_helps(serve: Serve, hal: Hal) -> None:
    """Amounts in the units of the resource."""
    verdict = {
        "job": "42",
        "reason": "resources",
        "message": "needs 4 cpu on one node; n1 has 1 free",
        "resource": "cpu",
        "asked": 4000,
        "available": 1000,
        "node": "n1",
        "helps": ["ask for 1 cpu"],
    }

    def answer(asked: Asked) -> Reply:
        return as_json(verdict if asked.path.endswith("/why") else {"id": "42", "state": "pending"})

    serve(answer)
    out = hal("why", "42").out
    assert out.splitlines()[0] == "needs 4 cpu on one node; n1 has 1 free"
    assert "requested  cpu 4" in out
    assert "free now   1 on n1" in out
    assert "would help: ask for 1 cpu" in out


def test_why_lists_the_best_nodes_with_each_score(serve: Serve, hal: Hal) -> None:
    """The one in force first, then those of others."""
    terms = {"best-fit": 0.25, "least-loaded": 0.75}
    scores = {"job": "42", "placement": "gpu-packing", "fits": 7, "nodes": [
        {"node": "n2", "score": 0.4375, "terms": terms}, {"node": "n5", "score": 0.4, "terms": terms},
    ]}  # fmt: skip
    serve(lambda asked: as_json(scores if "/scores" in asked.path else {"id": "42", "state": "pending"}))
    said, head, first, second = hal("why", "42", "--score").out.splitlines()
    assert said == "placement gpu-packing: 7 nodes have room now"
    assert columns(head) == ["NODE", "SCORE", "BEST-FIT", "LEAST-LOADED"]
    assert columns(first) == ["n2", "0.438", "0.250", "0.750"]
    assert columns(second)[:2] == ["n5", "0.400"]


def test_show_lists_attempts_of_a_single_task(serve: Serve, hal: Hal) -> None:
    """A retried task: the first try was ended by SIGKILL, the second succeeded."""
    attempts = [
        {
            "attempt": 1,
            "state": "failed",
            "nodes": ["n1"],
            "signal": 9,
            "exit_code": 137,
            "start_ms": 1,
            "end_ms": 2_001,
        },
        {"attempt": 2, "state": "succeeded", "nodes": ["n2"], "exit_code": 0, "start_ms": 3_000, "end_ms": 3_400},
    ]

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "42", "task": 0, "state": "succeeded", "attempt": 2, "attempts": attempts})
        return as_json({"id": "42", "state": "succeeded", "spec": {"command": ["echo", "a b"]}, "exit_code": 0})

    serve(answer)
    lines = hal("show", "42").out.splitlines()
    assert any(line.split() == ["command", "echo", "'a", "b'"] for line in lines)
    assert "SIGKILL" in lines[-2]
    assert lines[-2].split()[:3] == ["1", "failed", "n1"]
    assert lines[-1].split()[:3] == ["2", "succeeded", "n2"]


def test_show_has_a_line_for_the_comment_of_a_job_that_has_one(serve: Serve, hal: Hal) -> None:
    """What acts on a terminal is escaped: another HAL may accept other comments."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "42", "task": 0, "state": "succeeded"})
        return as_json({"id": "42", "state": "succeeded", "spec": {"command": ["a"], "comment": "second\x1b try"}})

    serve(answer)
    assert [line.split() for line in hal("show", "42").out.splitlines() if line.startswith("comment")] == [
        ["comment", r"second\x1b", "try"]
    ]


@pytest.mark.parametrize(
    ("cgroup", "whose"),
    [
        (None, "of the first process and those it waited for"),
        (3, "cpu, memory of all its processes, the rest of the first process and those it waited for"),
        (7, "of all its processes"),
    ],
)
def test_show_says_of_which_processes_a_usage_is(serve: Serve, hal: Hal, cgroup: int | None, whose: str) -> None:
    """An older HAL does not say."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            usage = {"user_ms": 1_500, "max_rss_bytes": 1 << 20} | ({} if cgroup is None else {"cgroup": cgroup})
            return as_json({"job": "42", "task": 0, "state": "succeeded", "usage": usage})
        return as_json({"id": "42", "state": "succeeded", "spec": {"command": ["a"]}})

    serve(answer)
    (line,) = [line for line in hal("show", "42").out.splitlines() if line.startswith("used")]
    assert line.endswith(f"max rss 1MiB ({whose})")


def test_cancel_reports_each_and_returns_the_worst_error(serve: Serve, hal: Hal) -> None:
    """One that is gone does not keep the others from being cancelled."""
    outcomes = [
        {"id": "1", "ok": True, "state": "cancelled"},
        {"id": "9", "ok": False, "code": "not-found", "detail": "there is no job 9"},
        {"id": "7", "ok": False, "code": "conflict", "detail": "job 7 has ended", "hint": "see hal show 7"},
    ]
    server = serve(lambda asked: as_json({"results": outcomes}))
    said = "error: there is no job 9\nerror: job 7 has ended\nhint: see hal show 7\n"
    assert hal("cancel", "1", "9", "7") == (6, "1 cancelled\n", said)
    assert server.asked[0].json == {"ids": ["1", "9", "7"]}


def test_cancel_by_filter_asks_first(serve: Serve, hal: Hal) -> None:
    """Where nobody can be asked, --yes is needed; ended jobs are left out."""
    found = [{"id": "1", "state": "running", "tasks": 23}, {"id": "2", "state": "pending", "tasks": 1}]
    server = serve(lambda asked: as_json({"results": found}))
    ran = hal("cancel", "--user", "ada")
    assert (ran.code, "24 tasks of 2 jobs match; add --yes" in ran.err) == (2, True)
    assert server.asked[-1].query == {"dry_run": "1"}
    assert hal("cancel", "--user", "ada", "-y").code == 0
    filters = server.asked[-1].json["filter"]
    assert filters["user"] == "ada"
    assert "succeeded" not in filters["state"]


@pytest.mark.parametrize("args", [(), ("1", "--user", "ada")])
def test_cancel_wants_ids_or_filters(args: tuple[str, ...], hal: Hal) -> None:
    """Never all jobs by accident."""
    ran = hal("cancel", *args)
    assert ran.code == 2
    assert "; give ids, or filters" in ran.err


def test_update_sends_only_what_changes(serve: Serve, hal: Hal) -> None:
    """Times are canonical; amounts are those that are named, and none takes out; what changed is printed."""
    changes = [{"field": "priority", "before": 0, "after": -3}, {"field": "walltime", "before": None, "after": "1h30m"}]
    server = serve(lambda asked: as_json({"id": "42", "state": "pending", "changes": changes}))
    assert hal("update", "42", "--walltime", "90m", "--priority", "-3") == (
        0,
        "42 priority 0 → -3, walltime none → 1h30m\n",
        "",
    )
    assert server.asked[-1].json == {"priority": -3, "walltime": "1h30m"}
    assert hal("update", "42", "-c", "4", "-m", "none", "-d", "none", "-l", "a=b", "--begin", "none").code == 0
    assert server.asked[-1].json == {
        "request": {"cpu": "4", "memory": 0}, "dependencies": [], "labels": {"a": "b"}, "begin_at_ms": 0,
    }  # fmt: skip


def test_a_dry_run_says_what_would_change_and_whether_it_would_start(serve: Serve, hal: Hal) -> None:
    """The server is asked for no more than that."""
    change = {"field": "request", "before": {"cpu": "1"}, "after": {"cpu": "4", "memory": "1GiB"}}
    answer = {"id": "42", "state": "pending", "changes": [change], "dry_run": True, "starts_now": False}
    server = serve(lambda asked: as_json(answer))
    said = hal("update", "42", "--cpus", "4", "--memory", "1GiB", "--dry-run").out
    assert said == "42 request cpu=1 → cpu=4,memory=1GiB; would still wait\n"
    assert (server.asked[-1].path, server.asked[-1].query) == ("/v1/jobs/42", {"dry_run": "1"})


def test_update_reports_each_job(serve: Serve, hal: Hal) -> None:
    """An unknown one between two others: they are changed, it is told, and the exit code is its own."""

    def answer(asked: Asked) -> Reply:
        number = asked.path.rpartition("/")[2]
        return (
            problem(404, "not-found", "there is no job 9")
            if number == "9"
            else as_json({"id": number, "state": "held", "changes": [{"field": "priority", "before": 1, "after": 5}]})
        )

    serve(answer)
    assert hal("update", "1", "9", "2", "-p", "5") == (
        3, "1 priority 1 → 5\n2 priority 1 → 5\n", "error: there is no job 9\n"
    )  # fmt: skip
    outcomes = json.loads(hal("update", "1", "9", "-p", "5", "--json").out)
    assert [(one["id"], one["ok"], one["code"]) for one in outcomes] == [("1", True, ""), ("9", False, "not-found")]


def test_status_says_that_nothing_can_be_stored(serve: Serve, hal: Hal) -> None:
    """A full disk: the controller answers, and the exit code is 7."""
    health = {"status": "degraded", "version": "1", "warnings": ["nothing can be made durable: disk full"]}
    serve(lambda asked: as_json(health if asked.path.endswith("/health") else {"nodes": []}))
    ran = hal("status")
    assert ran.code == 7
    assert "degraded" in ran.out
    assert "! nothing can be made durable: disk full" in ran.out


@pytest.mark.parametrize(
    ("state", "exit_code", "code"),
    [("succeeded", 0, 0), ("failed", 3, 3), ("failed", None, 1), ("timed-out", 143, 124), ("cancelled", 143, 130)],
)
def test_wait_returns_the_worst_exit_code(state: str, exit_code: int | None, code: int, serve: Serve, hal: Hal) -> None:
    """Of a job that succeeded and another one."""

    def answer(asked: Asked) -> Reply:
        number = asked.path.split("/")[3]
        return as_json({"id": number, "state": "succeeded" if number == "1" else state, "exit_code": exit_code})

    serve(answer)
    assert hal("wait", "1", "2").code == code


def test_wait_gives_up_after_its_timeout(serve: Serve, hal: Hal) -> None:
    """Exit code 124; the job goes on."""
    serve(lambda asked: as_json({"id": "1", "state": "running"}))
    ran = hal("wait", "1", "--timeout", "0.2s")
    assert ran.code == 124
    assert "job 1 has not ended after 0.2 s" in ran.err


WIDE = ("ID", "NAME", "USER", "QUEUE", "STATE", "TASKS", "NODES", "TIME", "REASON")
LONG = ("12", "a-very-long-name-for-a-job", "ada", "default", "running", "0/1", "1", "0:56", "a reason as long as that")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, {*WIDE}),
        (80, {*WIDE}),
        (60, {"ID", "NAME", "USER", "QUEUE", "STATE", "TASKS", "TIME", "REASON"}),
        (40, {"ID", "NAME", "STATE", "TASKS", "TIME"}),
    ],
)
def test_a_narrow_window_shortens_texts_then_leaves_columns_out(width: int, shown: set[str]) -> None:
    """Never the id or the state of a job; a line is never longer than the window."""
    widths = fitted(WIDE, [LONG], width)
    assert {WIDE[at] for at in widths} == shown
    assert sum(widths.values()) + GAP * (len(widths) - 1) <= width
    assert widths[WIDE.index("STATE")] == len("running")
