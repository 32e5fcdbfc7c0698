"""Who goes first on a real HAL: each order of a queue, each factor of priority, hours, node pools, and shares."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Any

import pytest

from hal.client.job import Job
from hal.core.model import ConflictError, SpecError
from tests.e2e.conftest import DEADLINE_S, Gate, Ruled, until

HOUR_MS = 3_600_000
SOON_MS = time.time_ns() // 1_000_000 + HOUR_MS
BIG = {"nodes": 2, "request": {"cpu": 2}, "walltime": "10m"}
"""No two of these fit on three nodes of two cpus."""


def busy(ruled: Ruled, gate: Gate, **more: Any) -> Job:
    """Something of that size that runs until its gate is opened (twice)."""
    (job,) = ruled.jobs({**BIG, "command": gate.command(), "user": "operator", **more})
    for _ in range(more.get("nodes", 2)):
        gate.started()
    return job


def in_turn(ruled: Ruled, gate: Gate, directory: Path, *waiting: dict[str, Any]) -> list[str]:
    """Submit these, each a millisecond later, behind something that keeps the machine: their names as they ran."""
    busy(ruled, gate)
    ran = directory / "ran"
    jobs = []
    for number, fields in enumerate(waiting):
        note = f"test $HAL_NODE_RANK != 0 || echo {fields.get('name', 'abcdefgh'[number])} >> {ran}"
        (job,) = ruled.jobs({**BIG, "command": ["sh", "-c", note], **fields})
        until(lambda came=job.info.submit_ms: time.time_ns() // 1_000_000 > came, "the clock stands still")
        jobs.append(job)
    gate.open(2)
    ruled.client.wait_all(jobs, DEADLINE_S)
    return ran.read_text().split()


FACTORS = {
    "nice": ([{}, {"priority": 9}, {"priority": 3}], [], "b c a"),
    "qos": ([{}, {"qos": "high"}], ["qos add high --priority 2"], "b a"),
    "queue": ([{}, {"queue": "first"}], ["queue add first --priority 2"], "b a"),
    "size": ([{}, {"nodes": 3}], ["policy set weights.size=1000"], "b a"),
    "age": ([{}, {"priority": 9}], ["policy set weights.age=1e9 weights.priority=0.01"], "a b"),
    "no age": ([{}, {"priority": 9}], ["policy set weights.age=0 weights.priority=0.01"], "b a"),
    "fifo": ([{"queue": "q"}, {"queue": "q", "priority": 9}], ["queue add q --order fifo"], "a b"),
    "round-robin": (
        [{"queue": "q", "user": user, "name": f"{user}{n}"} for user, n in ("x1", "x2", "x3", "y1", "y2", "z1")],
        ["queue add q --order round-robin"],
        "x1 y1 z1 x2 y2 x3",
    ),
    "deadline": (
        [{"queue": "q"}, *({"queue": "q", "deadline_ms": SOON_MS + n * HOUR_MS} for n in (3, 1, 2))],
        ["queue add q --order deadline"],
        "c d b a",
    ),
    "weights of a queue": (
        [{"queue": "q"}, {"queue": "q", "priority": 9}],
        ["queue add q --weights priority=-1000,age=0"],
        "a b",
    ),
}


@pytest.mark.parametrize("what", FACTORS)
def test_jobs_run_in_the_order_that_the_policy_says(what: str, ruled: Ruled, gate: Gate, tmp_path: Path) -> None:
    """One at a time fits; whoever is first by this factor or this order of the queue runs first."""
    waiting, changes, order = FACTORS[what]
    for change in changes:
        ruled.run(*change.split())
    assert in_turn(ruled, gate, tmp_path, *waiting) == order.split()


def test_a_newcomer_goes_before_who_has_used_the_machine(ruled: Ruled, gate: Gate, tmp_path: Path) -> None:
    """Ada has run for long by her walltime; bob comes last and goes first. `hal shares` and `hal show` say why."""
    for account in ("lab", "ada-lab --parent lab", "bob-lab --parent lab --weight 3"):
        ruled.run("account", "add", *account.split())
    held = busy(ruled, gate, account="ada-lab", user="ada", walltime="2h")
    ran = tmp_path / "ran"
    jobs = []
    for user in ("ada", "bob"):
        note = f"test $HAL_NODE_RANK != 0 || echo {user} >> {ran}"
        jobs += ruled.jobs({**BIG, "command": ["sh", "-c", note], "user": user, "account": f"{user}-lab"})
    shares = {(*row["path"], row["user"]): row for row in json.loads(ruled.run("shares", "--json"))}
    ada = shares["lab", "ada-lab", "ada"]
    assert shares[(None,)]["used"] == 1.0
    assert ada["units"] == pytest.approx(4 * 2 * 3_600, rel=0.5)  # charged at the start; memory counts a little
    assert (shares["lab", "ada-lab", None]["target"], shares["lab", "bob-lab", None]["target"]) == (0.25, 0.75)
    parts = [json.loads(ruled.run("show", job.id, "--priority", "--json")) for job in jobs]
    assert parts[0]["fairshare"] < parts[1]["fairshare"] <= 100_000
    assert f"{parts[0]['fair_factor']:.3f}"[:4] in ruled.run("show", jobs[0].id, "--priority")
    gate.open(2)
    ruled.client.wait_all([held, *jobs], DEADLINE_S)
    assert ran.read_text().split() == ["bob", "ada"]


def test_nothing_overtakes_in_a_strict_queue(ruled: Ruled, gate: Gate) -> None:
    """A short job that fits beside the promise waits behind its strict queue's first; one of another queue runs."""
    ruled.run("queue", "add", "q", "--strict")
    held = busy(ruled, gate, walltime="1h")
    first, small = ruled.jobs(
        {**BIG, "nodes": 3, "command": ["true"], "queue": "q"}, {"command": ["true"], "queue": "q", "walltime": "1m"}
    )
    (other,) = ruled.jobs({"command": ["true"], "walltime": "1m"})
    assert other.wait(DEADLINE_S).state == "succeeded"
    assert (small.why().reason, small.refresh().state) == ("strict", "pending")
    gate.open(2)
    ends = ruled.client.wait_all([held, first, small], DEADLINE_S)
    assert ends[1].start_ms is not None
    assert ends[2].start_ms is not None
    assert ends[1].start_ms <= ends[2].start_ms


def test_a_queue_starts_jobs_in_its_hours(ruled: Ruled) -> None:
    """Open from today on; another one opens three days from now, and by a change of its hours at once."""
    today = datetime.datetime.now(datetime.UTC)
    days = [(today + datetime.timedelta(days=n)).strftime("%a").lower() for n in (0, 1, 3)]
    ruled.run("queue", "add", "now", "--hours", ",".join(days[:2]))
    ruled.run("queue", "add", "later", "--hours", days[2])
    now, later = ruled.jobs({"command": ["true"], "queue": "now"}, {"command": ["true"], "queue": "later"})
    assert now.wait(DEADLINE_S).state == "succeeded"
    why = later.why()
    assert why.reason == "hours"
    assert why.starts_at_ms is not None
    assert datetime.datetime.fromtimestamp(why.starts_at_ms / 1_000, datetime.UTC).strftime("%a").lower() == days[2]
    ruled.run("queue", "set", "later", "--hours", "none")
    assert later.wait(DEADLINE_S).state == "succeeded"


def test_a_queue_is_a_node_pool(ruled: Ruled) -> None:
    """All nodes are plain: a queue for those runs its jobs, one for others accepts none, and says so."""
    ruled.run("queue", "add", "plain", "--nodes", "kind=plain")
    ruled.run("queue", "add", "fancy", "--nodes", "kind=fancy")
    assert ruled.client.submit(["true"], queue="plain").wait(DEADLINE_S).state == "succeeded"
    with pytest.raises(SpecError, match="kind in fancy"):
        ruled.client.submit(["true"], queue="fancy")


def test_a_queue_fills_in_and_refuses(ruled: Ruled) -> None:
    """Walltimes, QOS, accounts, users, arrays, closed: what a job of it lacks, and what it may not be."""
    for change in (
        "qos add low",
        "qos add high",
        "account add lab",
        "account add group --parent lab",
        "account add others",
        "queue add q --default-walltime 5m --max-walltime 1h --max-tasks 3 --accounts lab --users ada"
        " --qos low,high --default-qos low --on-dependency-failed hold",
    ):
        ruled.run(*change.split())
    fine: dict[str, Any] = {"command": ["true"], "queue": "q", "account": "group", "user": "ada"}
    info = ruled.client.submit(fine).wait(DEADLINE_S, check=True)
    assert info.spec is not None
    assert (info.walltime, info.spec["qos"]) == (300_000, "low")
    for wrong, named in (
        ({"walltime": "2h"}, "walltime"),
        ({"array": 4}, "array"),
        ({"account": "others"}, "others"),
        ({"user": "bob"}, "bob"),
        ({"qos": "none-such"}, "none-such"),
    ):
        with pytest.raises(SpecError, match=named):
            ruled.client.submit({**fine, **wrong})
    bad = ruled.client.submit({**fine, "command": ["false"]})
    behind = ruled.client.submit({**fine, "dependencies": [bad.id]})
    until(lambda: behind.refresh().state == "held", "the queue's rule did not hold it")
    ruled.run("queue", "set", "q", "--no-open")
    with pytest.raises(ConflictError, match="closed"):
        ruled.client.submit(fine)


def test_work_of_a_queue_is_taken_back_for_another_queue(ruled: Ruled, gate: Gate) -> None:
    """Its gang on two nodes is asked to leave, the other queue's job runs, then it runs again."""
    ruled.run("queue", "add", "slow", "--preempt-mode", "requeue", "--grace", "1s")
    ruled.run("queue", "add", "fast", "--priority", "10", "--preempts", "slow")
    slow = busy(ruled, gate, queue="slow")
    (fast,) = ruled.jobs({**BIG, "command": ["true"], "queue": "fast"})
    assert fast.wait(DEADLINE_S).state == "succeeded", fast.refresh()
    gate.started()
    gate.started()
    gate.open(2)
    assert slow.wait(DEADLINE_S).state == "succeeded"
    assert [attempt.state for attempt in slow.task().attempts] == ["preempted", "succeeded"]


def test_a_pool_that_no_node_is_in_is_remarked_upon(ruled: Ruled) -> None:
    """A node may join that is, so the queue is made; the note is about what was given, not about the rest."""
    told = ruled.live.run("queue", "add", "fat", "--nodes", "kind=plan", check=True).err
    assert "note: no node has kind=plan at present, so its jobs wait; did you mean 'plain'?" in told
    assert "note: " not in ruled.live.run("queue", "set", "fat", "--priority", "1", check=True).err
    told = ruled.live.run("queue", "set", "fat", "--nodes", "kind,!kind", "--dry-run", check=True).err
    assert "note: no node has !kind at present" in told
    assert "note: " not in ruled.live.run("queue", "set", "fat", "--nodes", "kind=plain", check=True).err
