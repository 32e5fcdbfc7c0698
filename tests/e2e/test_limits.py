"""Limits on a real HAL: what is over one waits, says so, and runs when room comes free; borrowing in a cohort."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hal.core.model import ConflictError, HALError
from tests.e2e.conftest import DEADLINE_S, Gate, Ruled, until

SCOPES = "user:ada", "user:*", "account:lab", "account:*", "queue:q", "qos:low", "account:lab user:*"
AMOUNTS = {
    "running": ("--running 1", 1, "may use 1 task at once; 1 in use"),
    "resources": ("--resources cpu=1", 1_000, "may use 1 cpu; 1 in use"),
    "hours": ("--hours cpu=1.5 --period 10d", 3_600_000, "has 0.5 cpu-hours left of 1.5; this asks for 1"),
}


def rules(ruled: Ruled) -> None:
    """An organisation with a group, a QOS and a queue."""
    for change in ("account add lab", "account add group --parent lab", "qos add low", "queue add q"):
        ruled.run(*change.split())


MINE = {"user": "ada", "account": "group", "queue": "q", "qos": "low", "walltime": "1h"}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("amount", AMOUNTS)
def test_what_is_over_a_limit_waits_and_runs_when_room_comes_free(
    amount: str, scope: str, ruled: Ruled, gate: Gate
) -> None:
    """One of two tasks runs where six would fit, somebody else's is not concerned, and `hal shares` counts it."""
    rules(ruled)
    options, used, told = AMOUNTS[amount]
    parts = [word for part in scope.split() for word in ("--" + part.partition(":")[0], part.partition(":")[2])]
    name = f"{amount}-{SCOPES.index(scope)}"  # what was used of hours is remembered by name, also of a limit that went
    ruled.run("limit", "add", name, *parts, *options.split())
    (array,) = ruled.jobs({**MINE, "command": gate.command(), "array": 2})
    assert gate.started() == f"{array.id}.0.1.0"
    assert ruled.client.submit(["true"], user="bob", walltime="5m").wait(DEADLINE_S).state == "succeeded"
    why = array.why()
    assert (why.reason, told in why.message) == ("limit", True), why.message
    assert "cpu 0" not in ruled.run("why", array.id)
    ledger = max((one for one in ruled.client.ledgers() if one.limit == name), key=lambda one: one.used)
    assert (ledger.what, ledger.used) == (amount, used)
    assert name in ruled.run("shares", "--limits")
    gate.open()
    assert gate.started() == f"{array.id}.1.1.0"
    gate.open()
    assert array.wait(DEADLINE_S).state == "succeeded"


@pytest.mark.parametrize(
    ("options", "wrong", "named"),
    [
        ("--pending 1", {"array": 2, "hold": True}, "1"),
        ("--max-job cpu=2", {"nodes": 2, "request": {"cpu": 2}}, "cpu"),
        ("--max-nodes 1", {"nodes": 2}, "node"),
        ("--max-walltime 30m", {"walltime": "1h"}, "30m"),
    ],
)
def test_what_a_limit_would_never_let_run_is_refused(
    options: str, wrong: dict[str, object], named: str, ruled: Ruled
) -> None:
    """At submission, with the amount; a job within it runs, and so does the same job of somebody else."""
    rules(ruled)
    ruled.run("limit", "add", "l", "--account", "lab", *options.split())
    fine = {**MINE, "walltime": "10m", "command": ["true"]}
    with pytest.raises(HALError, match=named):
        ruled.client.submit({**fine, **wrong})
    ruled.client.submit({**fine, **wrong, "account": "", "hold": True}).cancel()
    assert ruled.client.submit(fine).wait(DEADLINE_S).state == "succeeded"


def test_a_cohort_lends_what_is_not_used_and_it_comes_back(ruled: Ruled, gate: Gate) -> None:
    """Two cpus each: red takes three of the four, not four; blue's second waits until red's third has ended."""
    for change in (
        "account add red",
        "account add blue",
        "limit add red --account red --resources cpu=2 --cohort colours --borrow cpu=1",
        "limit add blue --account blue --resources cpu=2 --cohort colours",
    ):
        ruled.run(*change.split())
    (red,) = ruled.jobs({"command": gate.command(), "account": "red", "array": 4})
    assert sorted(gate.started() for _ in range(3)) == [f"{red.id}.{task}.1.0" for task in range(3)]
    assert red.why().reason == "limit"
    (blue,) = ruled.jobs({"command": gate.command(), "account": "blue", "array": 2})
    assert gate.started() == f"{blue.id}.0.1.0"
    assert blue.why().reason == "limit"
    used = {row["limit"] or row["cohort"]: row["used"] for row in json.loads(ruled.run("shares", "--limits", "--json"))}
    assert used == {"red": 3_000, "blue": 1_000, "colours": 4_000}
    gate.open()
    assert gate.started().split(".")[0] in (red.id, blue.id)
    gate.open(5)
    assert {info.state for info in ruled.client.wait_all([red, blue], DEADLINE_S)} == {"succeeded"}


def test_who_lent_takes_back_from_running_processes(ruled: Ruled, gate: Gate, tmp_path: Path) -> None:
    """Two cpus each; red's four tasks use all four. Blue has work: the two of red's that began last are ended and wait
    again, blue runs, and both are told why; what red holds of its own goes on."""
    for change in (
        "account add red",
        "account add blue",
        "limit add red --account red --resources cpu=2 --cohort colours --reclaim preempt",
        "limit add blue --account blue --resources cpu=2 --cohort colours --reclaim preempt",
    ):
        ruled.run(*change.split())
    one = {"command": gate.command(), "account": "red"}
    red = [*ruled.jobs(one, one), *ruled.jobs(one, one)]
    assert sorted(gate.started() for _ in red) == sorted(f"{job.id}.0.1.0" for job in red)
    until(lambda: all(job.refresh().state == "running" for job in red), "red's jobs do not run")
    blue_gate = Gate(tmp_path, "blue")
    try:
        (blue,) = ruled.jobs({"command": blue_gate.command(), "account": "blue", "request": {"cpu": 2}})
        assert blue_gate.started() == f"{blue.id}.0.1.0"
        until(lambda: [job.refresh().state for job in red].count("pending") == 2, "red's jobs do not wait again")
        waiting = [job for job in red if job.refresh().state == "pending"]
        told = f"preempted by job {blue.id}: blue reclaims its quota"
        (attempt,) = waiting[0].task(0).attempts
        assert (attempt.state, attempt.message) == ("preempted", told)
        assert all(told in ruled.run("show", job.id, "--json") for job in waiting)
        limits = json.loads(ruled.run("shares", "--limits", "--json"))
        assert {row["limit"] or row["cohort"]: row["used"] for row in limits} == {
            "red": 2_000, "blue": 2_000, "colours": 4_000,
        }  # fmt: skip
        blue_gate.open()
        assert blue.wait(DEADLINE_S).state == "succeeded"
        assert sorted(gate.started() for _ in waiting) == sorted(f"{job.id}.0.2.0" for job in waiting)
        gate.open(4)
        assert {info.state for info in ruled.client.wait_all(red, DEADLINE_S)} == {"succeeded"}
    finally:
        blue_gate.close()


def test_a_dry_run_says_what_a_limit_would_mean_and_a_rollback_takes_it_back(ruled: Ruled, gate: Gate) -> None:
    """Two run where one would be allowed; nothing was changed. Then it is, and taken back: the next starts at once."""
    (array,) = ruled.jobs({"command": gate.command(), "array": 2, "user": "ada"})
    gate.started()
    gate.started()
    before = ruled.client.policy().version
    told = json.loads(ruled.run("limit", "add", "l", "--user", "ada", "--running", "1", "--dry-run", "--json"))
    assert (told["dry_run"], told["effects"]["over"][0]["now"]) == (True, "2")
    assert ruled.client.policy().version == before
    ruled.run("limit", "add", "l", "--user", "ada", "--running", "1")
    (third,) = ruled.jobs({"command": gate.command(), "user": "ada"})
    assert third.why().reason == "limit"
    with pytest.raises(ConflictError):
        ruled.client.put_policy(ruled.client.policy(1).policy, version=before)
    ruled.run("policy", "rollback", before)
    assert gate.started() == f"{third.id}.0.1.0"
    gate.open(3)
    ruled.client.wait_all([array, third], DEADLINE_S)


@pytest.mark.parametrize("setting", ["weights.age=nan", "fairshare.charge.gpu=inf", "weights.nothing=1", "nothing=1"])
def test_a_setting_that_is_none_changes_nothing(setting: str, ruled: Ruled) -> None:
    """Exit code 2, and no version."""
    before = ruled.client.policy().version
    assert ruled.live.run("policy", "set", setting).code == 2
    assert ruled.client.policy().version == before


def test_a_limit_on_what_no_node_has_is_remarked_upon(ruled: Ruled) -> None:
    """A node that has it may join, so the limit is made; the note names it and the nearest there is."""
    made = ("limit", "add", "--user", "*", "--resources")
    assert (
        "no node has memry at present; did you mean 'memory'?" in ruled.live.run(*made, "memry=1", "a", check=True).err
    )
    assert "no node has" not in ruled.live.run(*made, "cpus=1,gpu=1", "b", check=True).err
    ruled.run("limit", "remove", "a", "b")
    assert "no running job counts towards a limit" in ruled.live.run("shares", "--limits", check=True).err
