"""`hal history` and `hal efficiency`: sums over what has ended, and a log of it that the simulation replays."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal.daemons.twin.machine import Machine
from hal.daemons.twin.replay import replay
from hal.daemons.twin.swf import Workload
from hal.daemons.twin.workload import WorkloadSpec, generate
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]
T0_MS = 1_900_000_000_000
MIB = 1 << 20


def attempt(sequence: int, job: int, task: int = 0, number: int = 1, **fields: Any) -> dict[str, Any]:
    """An attempt of 10 s that used 4 s of CPU and 100 MiB."""
    return {
        "sequence": sequence, "job": str(job), "task": task, "attempt": number, "state": "succeeded", "name": "fit",
        "queue": "default", "account": "ml", "user": "ada", "nodes": ["n1"], "allocated_ms": T0_MS,
        "start_ms": T0_MS, "end_ms": T0_MS + 10_000, "recorded_ms": T0_MS + 10_000, "cause": "exited", "exit_code": 0,
        "usage": {"user_ms": 3_000, "system_ms": 1_000, "max_rss_bytes": 100 * MIB, "cgroup": 7},
    } | fields  # fmt: skip


ENDED = [
    attempt(1, 7, state="failed", exit_code=3, number=1),
    attempt(2, 7, number=2, nodes=["n2"], start_ms=T0_MS + 20_000, end_ms=T0_MS + 30_000),
    attempt(3, 8, task=0, user="bob", account="bio"),
    attempt(4, 8, task=1, user="bob", account="bio", state="failed", exit_code=1, nodes=["n3"]),
]


def serving(attempts: list[dict[str, Any]], jobs: list[dict[str, Any]], procs: int = 8) -> Callable[[Asked], Reply]:
    """A controller that has these."""

    def answer(asked: Asked) -> Reply:
        if asked.path == "/v1/attempts":
            wanted = [one for one in attempts if asked.query.get("job", one["job"]) == one["job"]]
            begin = int(asked.query.get("ended_after") or 0)
            page = [one for one in wanted if one["sequence"] > begin][: int(asked.query["limit"])]
            cursor = page[-1]["sequence"] if page else max(begin, attempts[-1]["sequence"])
            return as_json({"attempts": page, "cursor": str(cursor), "more": False, "lost": []})
        if asked.path == "/v1/nodes":
            return as_json({"nodes": [{"name": "n1", "state": "up", "capacity": {"cpu": procs * 1000}}]})
        if asked.path == "/v1/jobs":
            return as_json({"jobs": sorted(jobs, key=lambda job: -int(job["id"])), "cursor": None})
        return as_json(next(job for job in jobs if asked.path == f"/v1/jobs/{job['id']}"))

    return answer


def test_a_row_of_history_is_a_job_with_the_sums_of_its_attempts(serve: Serve, hal: Hal) -> None:
    """Job 7 failed once and then succeeded on another node; of the array 8 one of two tasks failed."""
    serve(serving(ENDED, []))
    eight, seven = json.loads(hal("history", "--json").out)
    assert (seven["group"], seven["state"], seven["tasks"], seven["attempts"]) == ("7", "succeeded", 1, 2)
    assert (seven["exit_code"], eight["exit_code"]) == (0, 1)  # what failed before job 7 succeeded counts no more
    assert (seven["ran_ms"], seven["cpu_ms"], seven["nodes"]) == (20_000, 8_000, ["n1", "n2"])
    assert (eight["state"], eight["tasks"], eight["states"]) == ("failed", 2, {"succeeded": 1, "failed": 1})


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("user", {"ada": (1, 2), "bob": (1, 2)}),
        ("account", {"ml": (1, 2), "bio": (1, 2)}),
        ("state", {"failed": (2, 2), "succeeded": (2, 2)}),
        ("node", {"n1": (2, 2), "n2": (1, 1), "n3": (1, 1)}),
        ("queue", {"default": (2, 4)}),
    ],
)
def test_history_is_summed_by_what_attempts_share(
    by: str, rows: dict[str, tuple[int, int]], serve: Serve, hal: Hal
) -> None:
    """Jobs and attempts of each."""
    serve(serving(ENDED, []))
    found = json.loads(hal("history", "--by", by, "--json").out)
    assert {row["group"]: (row["jobs"], row["attempts"]) for row in found} == rows


def test_history_is_filtered_where_it_is_kept_and_here(serve: Serve, hal: Hal) -> None:
    """State, user, node and times by the controller; account and name here."""
    server = serve(serving(ENDED, []))
    ran = hal("history", "-s", "failed", "--since", "2h", "-A", "bio", "-n", "f?t", "--json")
    assert [row["group"] for row in json.loads(ran.out)] == ["8"]
    assert server.asked[0].query["state"] == "failed"
    assert "since_ms" in server.asked[0].query


@pytest.mark.parametrize(("since", "said"), [("2000-01-01T00:00", True), ("2050-01-01T00:00", False)])
def test_history_says_what_is_no_longer_kept_only_of_the_time_that_is_asked_for(
    since: str, said: bool, serve: Serve, hal: Hal
) -> None:
    """The oldest that is kept ended in 2030."""

    def answer(asked: Asked) -> Reply:
        page = {"attempts": ENDED if "since_ms" in asked.query and "ended_after" not in asked.query else [],
                "cursor": "9", "more": False, "lost": [[1, 5]]}  # fmt: skip
        return as_json(page if "since_ms" in asked.query else page | {"attempts": ENDED[:1]})

    serve(answer)
    assert ("no longer kept" in hal("history", "--since", since).err) == said


def test_history_as_csv_has_every_field(serve: Serve, hal: Hal) -> None:
    """The first column is what rows are about."""
    serve(serving(ENDED, []))
    rows = list(csv.DictReader(io.StringIO(hal("history", "--by", "user", "--csv").out)))
    assert [(row["user"], row["tasks"], row["cpu_ms"]) for row in rows] == [("bob", "2", "8000"), ("ada", "1", "8000")]


def test_history_as_csv_has_as_many_rows_as_asked_for(serve: Serve, hal: Hal) -> None:
    """All of them, if no number is given."""
    serve(serving(ENDED, []))
    assert len(hal("history", "--csv", "--limit", "1").out.splitlines()) == 2


def test_the_table_of_history_has_the_columns_that_are_asked_for(serve: Serve, hal: Hal) -> None:
    """An unknown one is refused with the nearest."""
    serve(serving(ENDED, []))
    assert hal("history", "--columns", "id,ran,memory").out.splitlines()[1].split() == ["8", "0:20", "100MiB"]
    assert "did you mean 'nodes'?" in hal("history", "--columns", "node").err


def test_an_exported_history_replays_with_the_waits_that_jobs_had(serve: Serve, hal: Hal, tmp_path: Path) -> None:
    """150 jobs that EASY scheduled, told as a controller tells them; the same policy starts each at the same second."""
    made = generate(WorkloadSpec(jobs=150, cpus=32, load=0.9, seed=3, users=4))
    load = Workload(np.arange(1, 151), made.submit_s, made.run_s, made.limit_s, made.procs, made.user, {})
    ran = replay(load, Machine.pool(32), "easy")
    columns = (ran.id, ran.submit_s, ran.start_s, ran.end_s, ran.procs, made.limit_s, made.user)
    jobs, ends = [], []
    for number, submit, start, end, procs, limit, user in zip(*(column.tolist() for column in columns), strict=True):
        submit_ms = T0_MS + submit * 1000
        jobs.append({"id": str(number), "state": "succeeded", "submit_ms": submit_ms, "eligible_ms": submit_ms,
                     "request": {"cpu": procs}, "walltime": f"{limit}s"})  # fmt: skip
        times = {"start_ms": T0_MS + start * 1000, "end_ms": T0_MS + end * 1000}
        ends.append(attempt(0, number, user=f"u{user}", **times))
    ends.sort(key=lambda one: int(one["end_ms"]))
    for sequence, one in enumerate(ends, 1):
        one["sequence"] = sequence
    serve(serving(ends, jobs, procs=32))
    log, table = tmp_path / "own.swf", tmp_path / "jobs.csv"
    assert hal("history", "--swf", log).code == 0
    assert hal("simulate", log, "--policy", "easy", "--out-jobs", table).code == 0
    replayed = list(csv.DictReader(table.open()))
    begin = int(made.submit_s[0])
    assert [int(row["start"]) + begin for row in replayed] == ran.start_s.tolist()


def test_each_attempt_is_a_line_of_the_log_and_waits_for_the_one_before(serve: Serve, hal: Hal, tmp_path: Path) -> None:
    """The second begins 10 s after the first has ended; half a processor counts as one, no walltime as the run time."""
    jobs = [{"id": "7", "state": "succeeded", "submit_ms": T0_MS - 5_000, "request": {"cpu": "0.5"}}]
    serve(serving(ENDED[:2], jobs))
    ran = hal("history", "--swf", tmp_path / "own.swf")
    lines = [line.split() for line in (tmp_path / "own.swf").read_text().splitlines() if not line.startswith(";")]
    assert [line[1:5] for line in lines] == [["0", "5", "10", "1"], ["15", "10", "10", "1"]]
    assert [line[8] for line in lines] == ["10", "10"]
    assert [line[10] for line in lines] == ["0", "1"]
    assert "2 attempts had no walltime" in ran.err
    assert "2 attempts asked for a part of a processor" in ran.err


# ── efficiency ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_efficiency_names_what_was_used_and_what_would_be_enough(serve: Serve, hal: Hal) -> None:
    """4 s of CPU in 10 s on 4 cores are a tenth; 100 MiB of 1 GiB; 10 s of an hour."""
    job = {"id": "9", "state": "succeeded", "request": {"cpu": 4, "memory": "1GiB"}, "walltime": "1h"}
    serve(serving([attempt(1, 9)], [job]))
    lines = hal("efficiency", "9").out.splitlines()
    assert "cpu     10% of 4: 4.0s of CPU time in 0:10" in lines
    assert "memory  10% of 1GiB: 100MiB" in lines
    assert "time    0% of 1h: 0:10" in lines
    assert [line.split(":")[0:2] for line in lines if line.startswith("advice")] == [
        ["advice", " it used 10% of its CPU"],
        ["advice", " it used 10% of its memory"],
        ["advice", " it ran 10s of 1h"],
    ]
    assert "-c 1 instead of 4" in lines[-3]
    assert "-m 128MiB" in lines[-2]
    assert "-t 1m" in lines[-1]


def test_efficiency_of_an_array_names_its_extreme_tasks(serve: Serve, hal: Hal) -> None:
    """Task 1 used the most memory and time, task 0 the least CPU; one failed, and counts."""
    job = {"id": "9", "state": "failed", "tasks": 2, "request": {"cpu": 1, "memory": "100MiB"}}
    heavy = {"user_ms": 19_000, "system_ms": 0, "max_rss_bytes": 99 * MIB, "cgroup": 7}
    light = {"user_ms": 1_000, "system_ms": 0, "max_rss_bytes": 10 * MIB, "cgroup": 7}
    rows = [attempt(1, 9, 0, usage=light), attempt(2, 9, 1, usage=heavy, end_ms=T0_MS + 20_000, state="failed")]
    serve(serving(rows, [job]))
    found = json.loads(hal("efficiency", "9", "--json").out)
    assert found["cpu_part"] == pytest.approx(20 / 30)
    assert (found["least_cpu_part"], found["least_cpu_task"]) == (0.1, 0)
    assert (found["max_memory_task"], found["longest_task"], found["attempts"]) == (1, 1, 2)
    assert any("memory came close to the limit" in sentence for sentence in found["advice"])
    assert any("has no walltime" in sentence for sentence in found["advice"])


def test_what_failed_at_once_is_no_reason_to_ask_for_less(serve: Serve, hal: Hal) -> None:
    """What came close to a limit is one to ask for more."""
    job = {"id": "9", "state": "failed", "request": {"cpu": 4, "memory": "1GiB"}, "walltime": "1h"}
    serve(serving([attempt(1, 9, state="failed")], [job]))
    assert "advice" not in hal("efficiency", "9").out
    serve(serving([attempt(1, 9, state="timed-out")], [{**job, "walltime": "10s"}]))
    assert [line for line in hal("efficiency", "9").out.splitlines() if line.startswith("advice")] == [
        "advice: it came close to its walltime: ask for more, for example -t 1m"
    ]


def test_efficiency_of_a_job_that_has_not_run_says_so(serve: Serve, hal: Hal) -> None:
    """No figures, no advice."""
    serve(serving([attempt(1, 3)], [{"id": "9", "state": "pending", "request": {"cpu": 1}}]))
    ran = hal("efficiency", "9")
    assert "no attempt of it has run and ended yet" in ran.err
    assert "advice" not in ran.out
