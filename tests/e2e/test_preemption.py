"""Taking back on a real HAL: processes really leave, stand still, save their work, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from tests.e2e.conftest import Gate, LiveHal, new_home, until

POLICY = """
[qos.requeued]
preempt_mode = "requeue"
grace = "20s"
[qos.suspended]
preempt_mode = "suspend"
[qos.saved]
preempt_mode = "checkpoint"
grace = "30s"
[qos.dropped]
preempt_mode = "cancel"
grace = "20s"
[qos.urgent]
priority = 10
preempts = ["requeued", "suspended", "saved", "dropped"]
"""


@pytest.fixture(scope="module")
def small_hal() -> Iterator[LiveHal]:
    """One node with one cpu, and a QOS for each way of taking back."""
    live = LiveHal(new_home())
    (live.root / "hal.toml").write_text(POLICY)
    try:
        yield live.up("--cpus", "1", "--memory", "1GiB")
    finally:
        live.remove()


@pytest.fixture
def small(small_hal: LiveHal) -> Iterator[Client]:
    with small_hal.client() as made:
        yield made


@pytest.fixture
def other_gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path, "other")
    yield made
    made.close()


def state_of(pid: int) -> str:
    """The letter of /proc: R, S, T …; '' when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def submit(client: Client, qos: str, command: list[str]) -> Job:
    """A job that needs the whole cpu."""
    return client.submit({"command": command, "qos": qos, "request": {"cpu": 1}})


def urgent(client: Client, gate: Gate) -> Job:
    """An urgent job that waits at its gate."""
    return submit(client, "urgent", gate.command())


def tries(job: Job) -> list[str]:
    """How each of its attempts ended."""
    return [attempt.state.value for attempt in job.task(0).attempts]


def test_requeued_work_leaves_and_runs_again(small: Client, gate: Gate, other_gate: Gate) -> None:
    """Its process ends, the urgent job runs in its place, then its second try, which knows that it is one."""
    low = submit(small, "requeued", gate.command('test "$HAL_RESTART" = 1'))
    assert gate.started().endswith(".1.0")
    high = urgent(small, other_gate)
    assert other_gate.started().startswith(f"{high.id}.")
    assert low.refresh().state == "pending"
    other_gate.open()
    assert gate.started() == f"{low.id}.0.2.0"
    gate.open()
    assert low.wait().state == "succeeded"
    assert tries(low) == ["preempted", "succeeded"]


def test_suspended_work_stands_still_and_goes_on(small: Client, gate: Gate, other_gate: Gate, tmp_path: Path) -> None:
    """State T in /proc while the urgent job runs; the same process goes on afterwards."""
    note = tmp_path / "pid"
    low = submit(small, "suspended", ["sh", "-c", f"echo $$ > {note}; {gate.shell}"])
    gate.started()
    pid = int(note.read_text())
    high = urgent(small, other_gate)
    other_gate.started()
    until(lambda: state_of(pid) == "T", "the process was not stopped")
    until(lambda: low.refresh().state == "suspended", "nobody was told that it stands still")
    other_gate.open()
    assert high.wait().state == "succeeded"
    until(lambda: state_of(pid) == "S", "the process does not go on")
    gate.open()
    assert low.wait().state == "succeeded"
    assert tries(low) == ["succeeded"]


def test_checkpointed_work_is_asked_to_save_itself_first(
    small: Client, gate: Gate, other_gate: Gate, tmp_path: Path
) -> None:
    """USR2 reaches it, it saves and leaves; its second try finds what the first one saved."""
    saved = tmp_path / "saved"
    script = f"test -e {saved} && exit 0; trap 'echo work > {saved}; exit 3' USR2; {gate.shell} & wait; wait"
    low = submit(small, "saved", ["sh", "-c", script])
    gate.started()
    until(lambda: low.refresh().state == "running", "nobody was told that it runs")
    high = urgent(small, other_gate)
    other_gate.started()
    assert saved.read_text() == "work\n"
    other_gate.open()
    assert high.wait().state == "succeeded"
    assert low.wait().state == "succeeded"
    assert tries(low) == ["preempted", "succeeded"]


def test_cancelled_work_is_told_for_whom(small: Client, gate: Gate, other_gate: Gate) -> None:
    """It ends as cancelled, with the job and the QOS that took its place."""
    low = submit(small, "dropped", gate.command())
    gate.started()
    high = urgent(small, other_gate)
    other_gate.started()
    ended = low.wait()
    assert ended.state == "cancelled"
    assert f"preempted by job {high.id} (QOS urgent)" in ended.reason
    other_gate.open()
    assert high.wait().state == "succeeded"


@pytest.mark.slow
def test_a_job_with_groups_makes_room_for_all_of_them_at_once(tmp_path: Path) -> None:
    """Three nodes are full: whoever is in the way of a driver and two workers leaves, and runs again afterwards."""
    live = LiveHal(new_home())
    (live.root / "hal.toml").write_text(POLICY)
    try:
        live.up("--nodes", "3", "--cpus", "1", "--memory", "1GiB")
        with live.client() as client:
            low = client.submit({"command": ["sleep", "600"], "qos": "requeued", "request": {"cpu": 1}, "array": "0-2"})
            until(lambda: low.refresh().counts.get("running") == 3, "the nodes are not full")
            groups = [
                {"name": "driver", "request": {"cpu": 0.5}},
                {"name": "worker", "nodes": 2, "request": {"cpu": 1}},
            ]
            told = ["sh", "-c", f"echo $HAL_GROUP > {tmp_path}/$RANK"]
            high = client.submit({"command": told, "qos": "urgent", "groups": groups, "walltime": "5m"})
            assert high.wait().state == "succeeded"
            assert [(tmp_path / str(rank)).read_text() for rank in range(3)] == ["driver\n", "worker\n", "worker\n"]
            until(lambda: all(len(low.task(at).attempts) == 2 for at in range(3)), "they do not run again")
            assert [low.task(at).attempts[0].state.value for at in range(3)] == ["preempted"] * 3
    finally:
        live.remove()
