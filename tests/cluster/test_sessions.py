"""A session over several hosts: tasks run on all of them, whoever opens it, and a host that is lost loses no task."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hal.client.sessions.job_labels import SESSION_LABEL
from tests.cluster.hosts import DEADLINE_S, Cluster, Host, Network, until

PROGRAM = Path(__file__).with_name("session_program.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Network() as network:
        yield Cluster(network, 2).up()


def program(host: Host, *words: str) -> subprocess.Popen[str]:
    """The program, on a host: what it makes there no other host sees."""
    return host.start("env", "XDG_RUNTIME_DIR=/dev/shm/run", sys.executable, str(PROGRAM), *words)


def elsewhere(cluster: Cluster) -> Host:
    """A host without a node, which reaches the controller."""
    known = [host for host in cluster.network.hosts if host.name == "outside"]
    host = known[0] if known else cluster.network.host("outside")
    host.env["HAL_HOME"] = str(cluster.head.home.root)  # its socket is a file, which no namespace hides
    return host


def said(process: subprocess.Popen[str]) -> dict[str, object]:
    """What it says at its end, which must be good."""
    out, err = process.communicate(timeout=3 * DEADLINE_S)
    assert process.returncode == 0, err[-3_000:]
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def left(cluster: Cluster) -> bool:
    """Whether anything of a session is left."""
    with cluster.head.client() as client:
        return bool(client.secrets()) or any(not job.ended for job in client.jobs(label=SESSION_LABEL))


def test_tasks_run_on_all_hosts(cluster: Cluster) -> None:
    """The broker runs where the session is opened; nothing is left of it, no secret either."""
    assert said(program(cluster.head, "spread")) == {
        "hosts": ["head", "w1", "w2"], "broker": "head", "right": True, "brokers": 1, "used": 1
    }  # fmt: skip
    until(lambda: not left(cluster), "the session has ended")


def test_a_session_has_brokers_where_hal_lets_them_run(cluster: Cluster) -> None:
    """Opened on a host without a node: three brokers somewhere, tasks on several hosts."""
    found = said(program(elsewhere(cluster), "shards"))
    assert (found["right"], found["brokers"], found["used"]) == (True, 3, 3)
    until(lambda: not left(cluster), "the session has ended")


def test_a_session_is_shown_and_found_from_another_host(cluster: Cluster) -> None:
    """By the same user, on a host that is no node and has no file of the session."""
    opened = program(cluster.head, "stay")
    assert opened.stdout is not None
    assert opened.stdout.readline() == "open\n"
    reader = elsewhere(cluster)
    shown = reader.hal("session", "show", "found", "-o", "json")
    assert json.loads(shown.out)["session"]["name"] == "found"
    assert said(program(reader, "find")) == {"tasks": 1_024}
    said(opened)
    until(lambda: not left(cluster), "the session has ended")


def test_a_session_with_several_brokers_is_shown_and_found_from_another_host(cluster: Cluster) -> None:
    """Its file is read where one of its brokers runs; each of them is asked."""
    opened = program(cluster.head, "stay-sharded")
    assert opened.stdout is not None
    assert opened.stdout.readline() == "open\n"
    reader = elsewhere(cluster)
    shown = json.loads(reader.hal("session", "show", "found", "-o", "json").out)
    assert [shard["answers"] for shard in shown["shards"]] == [True, True]
    assert said(program(reader, "find")) == {"tasks": 1_024}
    said(opened)
    until(lambda: not left(cluster), "the session has ended")


def test_a_session_is_ended_by_a_command(cluster: Cluster) -> None:
    """From another host, with both jobs and its secrets; the program that opened it fails."""
    opened = program(cluster.head, "stay-sharded")
    assert opened.stdout is not None
    assert opened.stdout.readline() == "open\n"
    elsewhere(cluster).hal("session", "end", "found")
    opened.communicate(timeout=3 * DEADLINE_S)
    assert opened.returncode
    until(lambda: not left(cluster), "the session has ended")


def test_a_session_is_opened_where_no_node_is(cluster: Cluster) -> None:
    """HAL chooses where its broker runs."""
    found = said(program(elsewhere(cluster), "spread"))
    assert (found["hosts"], found["right"]) == (["head", "w1", "w2"], True)
    until(lambda: not left(cluster), "the session has ended")


def test_large_payloads_travel_between_hosts(cluster: Cluster) -> None:
    """Whether the client is where the broker is, or not; nothing of them is left on any host."""
    for host in (cluster.head, elsewhere(cluster)):
        assert said(program(host, "large")) == {"right": True}
        until(lambda: not left(cluster), "the session has ended")
        for each in cluster.network.hosts:
            until(lambda one=each: not one.memory_files("hal-session-*"), f"{each.name} keeps files of it")


@pytest.mark.long
def test_a_host_that_disappears_loses_no_task(cluster: Cluster) -> None:
    """Its tasks run elsewhere, in order and once in the results. It comes back: other tests run on all hosts, and those
    that take long run first."""
    opened = program(cluster.head, "long")
    assert opened.stdout is not None
    assert opened.stdout.readline() == "all\n"
    lost = cluster.workers[1]
    lost.part()
    lost.power_off()
    try:
        assert said(opened) == {"right": True}
        cluster.until_node(lost, "unreachable")
    finally:
        lost.heal()
        cluster.rejoin(lost)
    cluster.until_node(lost, "up")
    until(lambda: not left(cluster), "the session has ended")


def test_a_durable_session_outlives_the_machine_of_its_broker(cluster: Cluster) -> None:
    """It is opened on a worker's host, and its slots are on all. That host loses its power, with broker, client and
    slots; when it is back, the broker goes on from its journal, and the session is opened again by its name."""
    host = cluster.workers[1]
    env = {"HAL_HOME": str(cluster.head.home.root), "XDG_STATE_HOME": str(host.root / "state")}
    with variables(host, env):
        opened = program(host, "durable")
        assert opened.stdout is not None
        assert opened.stdout.readline() == "all\n"
    host.power_off()
    opened.communicate()
    cluster.until_node(host, "unreachable")
    cluster.rejoin(host)
    cluster.until_node(host, "up")
    with variables(host, env):
        assert said(program(host, "resume")) == {"right": True, "some": True}
    until(lambda: not left(cluster), "the session has ended")
    assert not list((host.root / "state" / "hal-sessions").iterdir())


@contextmanager
def variables(host: Host, more: dict[str, str]) -> Iterator[None]:
    """Of what is started on a host meanwhile; its daemons have others."""
    before = dict(host.env)
    host.env.update(more)
    yield
    host.env.clear()
    host.env.update(before)
