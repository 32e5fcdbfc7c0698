"""Jobs with several groups of nodes on a real HAL: they start together, know their group, and end together."""

from __future__ import annotations

import sys

import pytest

from hal.client.sync_client import Client
from hal.core.model import HALError
from tests.e2e.conftest import DEADLINE_S, LiveHal, until

GROUPS = [{"name": "driver", "cpus": 0.5}, {"name": "worker", "nodes": 2, "cpus": 1}]
SHOW = 'echo "$HAL_GROUP $RANK of $WORLD_SIZE $HAL_CPUS of $HAL_GROUPS"'


def hal(body: str) -> list[str]:
    """A job's command that finds this `hal`."""
    return ["bash", "-c", f'hal() {{ "{sys.executable}" -m hal.cli.main "$@"; }}\n{body}']


def test_each_node_of_a_job_knows_its_group_and_ranks_go_through_groups_in_order(client: Client) -> None:
    """Three nodes: the driver is rank 0, workers are 1 and 2, each with the cores of its group."""
    made = client.submit(["sh", "-c", SHOW], groups=GROUPS)
    made.wait(DEADLINE_S)
    assert sorted(line for rank in range(3) for line in made.logs(rank=rank).splitlines()) == [
        "driver 0 of 3 0.5 of driver:1,worker:2",
        "worker 1 of 3 1 of driver:1,worker:2",
        "worker 2 of 3 1 of driver:1,worker:2",
    ]
    assert len(set(made.task(0).nodes)) == 3


def test_a_group_may_run_a_command_of_its_own(client: Client) -> None:
    """The workers run theirs, the driver the job's."""
    groups = [GROUPS[0], {**GROUPS[1], "command": ["sh", "-c", "echo work"]}]
    made = client.submit(["sh", "-c", "echo drive"], groups=groups)
    made.wait(DEADLINE_S)
    assert sorted(line for rank in range(3) for line in made.logs(rank=rank).splitlines()) == ["drive", "work", "work"]


def test_launch_begins_ranks_on_one_group_and_a_hostfile_lists_all(client: Client) -> None:
    """The command runs on the driver; it launches on the workers alone, and lists all nodes with their cores."""
    body = f"hal launch --group worker sh -c '{SHOW}' | cut -d' ' -f1-4; hal hostfile | cut -d' ' -f2"
    made = client.submit(hal(body), groups=[GROUPS[0], {**GROUPS[1], "cpus": 2}], first_node=True)
    made.wait(DEADLINE_S)
    assert made.info.state == "succeeded", made.logs(stream="stderr")
    lines = made.logs().splitlines()
    assert sorted(lines[:2]) == ["worker 0 of 2", "worker 1 of 2"]
    assert lines[2:] == ["slots=1", "slots=2", "slots=2"]


def test_if_a_rank_of_one_group_fails_all_groups_end(client: Client) -> None:
    """The driver sleeps, a worker fails: the job fails with its exit code, and nothing of it holds a node."""
    groups = [GROUPS[0], {**GROUPS[1], "command": ["sh", "-c", "exit 7"]}]
    made = client.submit(["sleep", "1000"], groups=groups)
    made.wait(DEADLINE_S)
    assert (made.info.state, made.info.exit_code) == ("failed", 7)


def test_groups_on_the_command_line_are_shown_and_why_says_which_one_waits(shared_hal: LiveHal) -> None:
    """`hal submit --group`, `hal show`, and `hal why` of a job that needs what another one has."""
    given = ("--group", "name=driver,cpus=0.5", "--group", "name=worker,nodes=2,cpus=3")
    first, second = (shared_hal.run("submit", *given, "--", "sleep", "1000").out.split()[0] for _ in range(2))
    with shared_hal.client() as client:
        try:
            until(lambda: client.job(first).info.state == "running", "it did not run")
            shown, why = shared_hal.run("show", first).out, shared_hal.run("why", second).out
        finally:
            client.cancel(first)
            client.cancel(second)
    assert "driver: cpu 0.5 on 1 node; worker: cpu 3 on 2 nodes" in shown
    assert "starts when all its groups fit at once: group worker lacks 1 of 2 nodes with 3 cpu" in why


def test_a_job_with_groups_refuses_what_it_cannot_be(client: Client) -> None:
    """Arrays, extensions and services have no groups; groups that ask for more nodes than there are never start."""
    for more in ({"array": 2}, {"exclusive": True}, {"nodes": 2}):
        with pytest.raises(HALError, match=r"groups|nodes"):
            client.submit(["true"], groups=GROUPS, **more)
    with pytest.raises(HALError, match="asked for"):
        client.submit(["true"], groups=[GROUPS[0], {**GROUPS[1], "nodes": 1_000}])
