"""Moving work on a real HAL: small jobs make room for a large one, or for a machine that is given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from hal.core.model import TaskState
from tests.e2e.conftest import LiveHal, new_home, until

pytestmark = pytest.mark.slow

CONFIG = """
[engine]
placement = "first-fit"
compaction = 1.0
compaction_nodes = 2
"""
LONG = ["sleep", "1000"]


@pytest.fixture(scope="module")
def hal() -> Iterator[LiveHal]:
    """Three nodes of two cores, first-fit."""
    found = LiveHal(new_home())
    (found.root / "hal.toml").write_text(CONFIG)
    try:
        yield found.up("--nodes", "3", "--cpus", "2")
    finally:
        found.remove()


@pytest.fixture
def client(hal: LiveHal) -> Iterator[Client]:
    """Everything that a test leaves is cancelled."""
    with hal.client() as made:
        yield made
        left = [made.job(info.id) for info in made.jobs() if not info.ended]
        for job in left:
            job.cancel()
        for job in left:
            job.wait()


def started(client: Client, **options: Any) -> Job:
    job = client.submit(LONG, walltime="1h", **options)
    until(lambda: client.job(job.id).info.state is TaskState.RUNNING, f"job {job.id} did not start")
    return job


def node_of(client: Client, job: Job) -> str:
    """Where it runs."""
    (task,) = client.job(job.id).tasks()
    assert task.state is TaskState.RUNNING
    (node,) = task.nodes
    return node


def scattered(client: Client, **options: Any) -> tuple[Job, Job]:
    """Two jobs of one core on a node each; what filled these nodes has ended."""
    first = started(client, cpus=1, **options)
    one = started(client, cpus=1)
    second = started(client, cpus=1, **options)
    other = started(client, cpus=1)
    for filler in (one, other):
        filler.cancel()
        filler.wait()
    assert node_of(client, first) != node_of(client, second)
    return first, second


def test_a_small_job_is_moved_for_one_that_needs_whole_nodes(hal: LiveHal, client: Client) -> None:
    """One of two jobs ends, and begins again beside the other; the large job has the other two nodes."""
    first, second = scattered(client, movable=True)
    gang = client.submit(LONG, cpus=2, nodes=2, walltime="1h")
    until(lambda: client.job(gang.id).info.state is TaskState.RUNNING, "the large job did not start")
    until(lambda: [job.info.state for job in map(client.job, (first.id, second.id))] == [TaskState.RUNNING] * 2, "gone")
    attempts = {job.id: next(iter(job.tasks())).attempt for job in (first, second)}
    assert sorted(attempts.values()) == [1, 2]
    (moved,) = [number for number, attempt in attempts.items() if attempt == 2]
    assert f"moved to make room for job {gang.id} (its 2 nodes would have waited" in hal.run("show", f"{moved}.0").out
    (task,) = client.job(gang.id).tasks()
    assert node_of(client, first) == node_of(client, second) not in task.nodes


def test_what_may_not_move_keeps_a_large_job_waiting(client: Client) -> None:
    first, second = scattered(client)
    gang = client.submit(LONG, cpus=2, nodes=2, walltime="1h")
    assert "resources" in client.job(gang.id).why().reason
    assert client.job(gang.id).info.state is TaskState.PENDING
    assert [next(iter(job.tasks())).attempt for job in (first, second)] == [1, 1]


def test_a_rented_node_is_emptied_where_that_pays(hal: LiveHal, client: Client) -> None:
    """`hal plan` says what it costs; the drain moves the work at once, without counting a retry."""
    first, second = scattered(client, movable=True)
    node, other = node_of(client, first), node_of(client, second)
    client.put_advice("price", {node: 2.5, other: 0.5}, space="nodes")

    def offered() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(hal.run("plan", "-o", "json", check=True).out)["releasable"]
        return found

    until(lambda: [one["node"] for one in offered()] == [node, other], "they are not offered")
    assert [(one["price"], one["tasks"], one["pays"]) for one in offered()] == [(2.5, 1, True), (0.5, 1, True)]
    assert node in hal.run("plan", check=True).out
    drained = hal.run("node", "drain", node, "--move", "--timeout", "60s", check=True)
    assert node in drained.out
    until(lambda: client.job(first.id).info.state is TaskState.RUNNING, "it does not run again")
    assert node_of(client, first) != node
    (task,) = client.job(first.id).tasks()
    assert (task.attempt, task.retries) == (2, 0)
    hal.run("node", "resume", node, check=True)
    client.withdraw_advice("price")


def test_a_node_with_work_that_stays_is_not_drained(hal: LiveHal, client: Client) -> None:
    """The refusal says why, and the node stays open; nor is more than one drained so at once."""
    job = started(client, cpus=1)
    node = node_of(client, job)
    refused = hal.run("node", "drain", node, "--move")
    assert refused.code != 0
    assert "runs work that may not be moved now" in refused.out + refused.err
    assert not client.node(node).closures
    several = hal.run("node", "drain", *(one.name for one in client.nodes()), "--move")
    assert "one node at a time" in several.err
    assert node_of(client, job) == node
