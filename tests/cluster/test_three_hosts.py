"""Three hosts: jobs run over all of them, and a partition neither loses nor doubles one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hal.client.sync_client import Client
from tests.cluster.hosts import DEADLINE_S, cluster_of, until

TASKS = 24


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def test_an_array_and_a_gang_outlive_a_partition_once_each(tmp_path: Path) -> None:
    """An array over three hosts and a gang over two; one host is cut off until it counts as unreachable, and healed:
    every task ran exactly once, under its first attempt, on all hosts together."""
    ran = tmp_path / "ran"
    ganged = tmp_path / "ganged"
    with cluster_of(2) as cluster, cluster.head.client() as client:
        gang = client.submit(["sh", "-c", f"echo $HAL_NODE >> {ganged}"], nodes=2, cpus=1, name="gang", walltime="10m")
        gang.wait(DEADLINE_S)
        assert len(set(lines(ganged))) == 2

        work = f"echo $HAL_ARRAY_INDEX.$HAL_ATTEMPT.$HAL_NODE >> {ran}; sleep 1"
        array = client.submit(["sh", "-c", work], array=f"0-{TASKS - 1}", cpus=1, walltime="10m")
        parted = cluster.workers[0]
        until(lambda: any(line.endswith(f".{parted.name}") for line in lines(ran)), "a task runs on the first worker")
        parted.part()
        cluster.until_node(parted, "unreachable")
        parted.heal()
        cluster.until_node(parted, "up")
        array.wait(DEADLINE_S)
        assert_each_ran_once(client, array.id, lines(ran))
    assert {line.split(".")[2] for line in lines(ran)} == {"head", "w1", "w2"}


def assert_each_ran_once(client: Client, job: str, told: list[str]) -> None:
    """By the word of the processes themselves, and by that of the controller."""
    assert Counter(line.split(".")[0] for line in told) == {str(index): 1 for index in range(TASKS)}
    assert {line.split(".")[1] for line in told} == {"1"}
    info = client.job(job).info
    assert info.counts == {"succeeded": TASKS}
