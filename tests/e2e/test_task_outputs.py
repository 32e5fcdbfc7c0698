"""Outputs of many tasks in one call, tasks as they end, and what a failed job says, on a real HAL."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hal
from hal.cli.jobs.array_logs import MAX_LIVE
from hal.client.sync_client import Client
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, Ran

Hal = Callable[..., Ran]


@pytest.fixture(name="hal_cli")
def _hal_cli(request: pytest.FixtureRequest) -> Hal:
    """`hal` of the command line, where `hal` is the module."""
    found: Hal = request.getfixturevalue("hal")
    return found


def test_outputs_of_all_tasks_come_in_one_call_by_task(client: Client) -> None:
    """Short ones and ones that are longer than a first piece, byte for byte; each says where it is from."""
    script = "import os, sys; t = int(os.environ['HAL_TASK']); sys.stdout.buffer.write(bytes([t, 10]) * (t * 20_000))"
    job = client.submit([sys.executable, "-c", script], array=5, cpus=0.25)
    job.wait(DEADLINE_S, check=True)
    found = list(job.outputs())
    assert [one.task for one in found] == [0, 1, 2, 3, 4]
    assert [one.data for one in found] == [bytes([task, 10]) * (task * 20_000) for task in range(5)]
    assert {(one.attempt, one.complete, one.node != "") for one in found} == {(1, True, True)}


def test_outputs_of_chosen_tasks_from_the_end(client: Client) -> None:
    """By number, by index, by state; the last bytes of each."""
    job = client.submit("echo index $HAL_ARRAY_INDEX; echo bad >&2; test $HAL_TASK != 2", array="1,3,5-9:2", cpus=0.25)
    job.wait(DEADLINE_S)
    assert [(one.task, one.text) for one in job.outputs(tasks="1-2", offset=-2)] == [(1, "3\n"), (2, "5\n")]
    assert [one.text for one in job.outputs(tasks="[9]", limit=5)] == ["index"]
    assert [(one.task, one.text) for one in job.outputs("stderr", state="failed")] == [(2, "bad\n")]
    with pytest.raises(hal.NotFoundError, match=f"job {job} has no task 5"):
        list(job.outputs(tasks="3-5"))


def test_tasks_that_have_not_run_or_wrote_to_files_of_their_own_say_so(client: Client, tmp_path: Path) -> None:
    """No attempt, and a path."""
    held = client.submit(["true"], array=2, hold=True)
    assert [(one.attempt, one.data) for one in held.outputs()] == [(0, b""), (0, b"")]
    held.cancel()
    named = client.submit("echo x", array=2, stdout="%A-%T.txt", workdir=tmp_path, cpus=0.25)
    named.wait(DEADLINE_S, check=True)
    assert [one.path for one in named.outputs()] == [f"{tmp_path}/{named}-{task}.txt" for task in range(2)]


def test_a_task_that_waits_again_shows_what_it_wrote_before(client: Client) -> None:
    """Its latest attempt, though it has none now."""
    job = client.submit("echo $HAL_ATTEMPT; exit 1", array=2, retries={"max": 1, "backoff": "1h"}, cpus=0.25)
    ended = (info for info in client.attempts(job=job.id, follow=True))
    assert {next(ended).task, next(ended).task} == {0, 1}
    assert [(one.attempt, one.text) for one in job.outputs()] == [(1, "1\n"), (1, "1\n")]
    job.cancel()


def test_tasks_come_as_they_end_and_those_cancelled_before_they_ran_last(client: Client, gate: Gate) -> None:
    """The first ends while the second still runs; the third never runs."""
    job = client.submit(["sh", "-c", f"test $HAL_TASK = 0 || {{ {gate.shell}; }}"], array="0-2%2", cpus=0.25)
    tasks = job.tasks_as_ended(DEADLINE_S)
    assert next(tasks).task == 0
    gate.started()
    client.cancel(job.id, state="pending")
    gate.open(2)
    rest = {task.task: task.state for task in tasks}
    assert rest[1] == "succeeded"
    assert set(rest) == {1, 2}


def test_the_same_in_asyncio(client: Client, shared_hal: LiveHal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks as they end, outputs, and a wait that checks."""
    monkeypatch.setenv("HAL_HOME", str(shared_hal.root))

    async def body() -> None:
        async with await hal.aconnect() as there:
            job = await there.submit("echo $HAL_TASK", array=3, cpus=0.25)
            assert {task.task async for task in job.tasks_as_ended(DEADLINE_S)} == {0, 1, 2}
            assert [one.text async for one in job.outputs()] == ["0\n", "1\n", "2\n"]
            await there.wait_all([job], DEADLINE_S, check=True, progress=True)

    asyncio.run(body())


def test_a_failed_job_says_which_tasks_failed_and_how_stderr_ends(client: Client) -> None:
    """The error survives a pickle, as errors of process pools must."""
    job = client.submit("echo line $HAL_TASK >&2; test $HAL_TASK = 0", array=3, cpus=0.25)
    good = client.submit(["true"])
    with pytest.raises(hal.JobFailedError) as failed:
        client.wait_all([good, job], DEADLINE_S, check=True)
    error = pickle.loads(pickle.dumps(failed.value))
    assert (error.job, [task.task for task in error.failed], error.stderr) == (job.id, [1, 2], "line 1\n")
    assert "tasks 1, 2 did not succeed\n  line 1" in error.message
    with pytest.raises(hal.JobFailedError, match="line 1"):
        job.wait(DEADLINE_S, check=True)


def test_logs_of_an_array_are_merged_behind_the_numbers_of_its_tasks(client: Client, hal_cli: Hal) -> None:
    """All of them, chosen ones, those that failed, the last line of each; a line without an end gets one."""
    job = client.submit(
        "echo a $HAL_TASK; printf 'b\\nlast'; echo e >&2; test $HAL_TASK != 1", array="1,3,5", cpus=0.25
    )
    job.wait(DEADLINE_S)
    ran = hal_cli("logs", job)
    assert ran.out == "".join(f"[{task}] a {task}\n[{task}] b\n[{task}] last\n" for task in range(3))
    assert ran.err == "[0] e\n[1] e\n[2] e\n"
    assert hal_cli("logs", f"{job}.1-2", "--tail", "1").out == "[1] last\n[2] last\n"
    assert hal_cli("logs", f"{job}[5]", "--stderr").out == "[2] e\n"
    assert hal_cli("logs", job, "--failed", "--stream", "stdout").out == "[1] a 1\n[1] b\n[1] last\n"
    assert hal_cli("logs", f"{job}.0", "--failed") == (0, "", f"no task of job {job} is failed or timed-out\n")


def test_logs_of_what_never_ran_say_so(client: Client, hal_cli: Hal) -> None:
    """Of a job, of a task, of an array."""
    one = client.submit(["true"], hold=True)
    many = client.submit(["true"], hold=True, array=2)
    assert f"job {one} has not run yet; it is held" in hal_cli("logs", one).err
    assert f"none of these tasks of job {many} has run" in hal_cli("logs", many).err
    many.cancel()
    assert f"task {many}.1 never ran; it is cancelled: cancelled by " in hal_cli("logs", f"{many}.1").err
    one.cancel()


def test_logs_of_a_few_tasks_are_followed_to_their_end(client: Client, hal_cli: Hal) -> None:
    """Each over a connection of its own."""
    few = client.submit("echo $HAL_TASK", array=3, cpus=0.25)
    assert sorted(hal_cli("logs", "-f", few).out.splitlines()) == ["[0] 0", "[1] 1", "[2] 2"]


def test_logs_of_many_tasks_are_shown_while_they_run(client: Client, shared_hal: LiveHal, tmp_path: Path) -> None:
    """More outputs than connections: what each has written is there before it may go on, and the rest afterwards."""
    go_on = tmp_path / "go-on"
    script = f"echo first $HAL_TASK; until test -e {go_on}; do sleep 0.2; done; seq 500; printf last"
    job = client.submit(script, array=MAX_LIVE // 2 + 1, cpus=0.05, memory="8MiB")
    tasks = range(MAX_LIVE // 2 + 1)
    process = shared_hal.start("logs", "-f", job.id)
    assert process.stdout is not None
    first = {process.stdout.readline() for _ in tasks}
    assert first == {f"[{task}] first {task}\n" for task in tasks}
    go_on.touch()
    rest, _ = process.communicate(timeout=DEADLINE_S)
    per_task = [*(str(number) for number in range(1, 501)), "last"]
    assert sorted(rest.splitlines()) == sorted(f"[{task}] {line}" for task in tasks for line in per_task)
    assert process.returncode == 0
