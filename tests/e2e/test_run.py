"""`hal run` on a real HAL: output, exit codes, limits, gangs, arrays, interruption."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.client.sync_client import Client
from hal.core.model.node_address import is_node_address
from hal.core.model.trace_ids import run_span
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, Ran, until
from tests.e2e.terminal import Terminal

ROOT = Path(__file__).parents[2]

Hal = Callable[..., Ran]


def test_output_goes_to_the_streams_it_was_written_to(hal: Hal) -> None:
    """stdout to stdout, stderr to stderr, nothing else on either."""
    assert hal("run", "--", "sh", "-c", "echo out; echo err >&2") == (0, "out\n", "err\n")


@pytest.mark.slow
def test_output_written_faster_than_it_is_read_loses_bytes_but_never_repeats_or_hides_it(hal: Hal) -> None:
    """100 MB of numbers where 64 MiB are kept: they only grow, the last is there, and any loss is said."""
    ran = hal("run", "--", "sh", "-c", "seq 100000001 110000000 | paste -d: - -")
    pairs = [line.split(":") for line in ran.out.split()]
    # Where bytes are missing two halves of lines meet; such a line does not hold a number and the one after it.
    numbers = [int(pair[0]) for pair in pairs if len(pair) == 2 and int(pair[0] or 0) + 1 == int(pair[1] or 0)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 109_999_999
    assert (len(numbers) < 5_000_000) == ("were dropped" in ran.err)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["/no/such/program"], 127),
        (["/etc/hostname"], 126),
    ],
)
def test_the_exit_code_is_the_jobs_own(command: list[str], code: int, hal: Hal) -> None:
    """128 + signal when signalled, 127 and 126 as a shell says."""
    assert hal("run", "--", *command).code == code


def test_every_byte_arrives(hal: Hal) -> None:
    """200,000 lines, in order, nothing twice."""
    ran = hal("run", "--", "seq", "200000")
    assert ran.out == "".join(f"{n}\n" for n in range(1, 200_001))


def test_a_job_sees_its_comment(hal: Hal) -> None:
    """Word for word, in every script."""
    ran = hal("run", "--comment", 'zweiter  Versuch, "größer" $HOME', "--", "sh", "-c", 'echo "$HAL_JOB_COMMENT"')
    assert ran.out == 'zweiter  Versuch, "größer" $HOME\n'


def test_a_job_writes_to_the_files_that_it_names(hal: Hal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array with a file for each task, read back by the next job; `hal logs` says where the output went instead."""
    monkeypatch.chdir(tmp_path)
    (job,) = hal(
        "submit", "-a", "1-2", "--stdout", "%x-%a.out", "-n", "sweep", "--", "sh", "-c", "echo $HAL_STDOUT"
    ).out.split()
    assert hal("wait", job).code == 0
    assert [(tmp_path / f"sweep-{n}.out").read_text() for n in (1, 2)] == [
        f"{tmp_path}/sweep-{n}.out\n" for n in (1, 2)
    ]
    logs = hal("logs", f"{job}.1")
    assert logs.out == ""
    assert f"its output goes to {tmp_path}/sweep-2.out on node" in logs.err
    assert hal("run", "--stdin", "sweep-1.out", "--", "cat").out == f"{tmp_path}/sweep-1.out\n"


def test_a_job_belongs_to_the_trace_of_whoever_runs_it(hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps have a TRACEPARENT of that trace, below the span of their attempt's run, if it is valid; every event
    about the job has its trace id."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    monkeypatch.setenv("TRACEPARENT", f"00-{trace}-00f067aa0ba902b7-01")
    job, seen = hal("run", "--", "sh", "-c", "echo $HAL_JOB_ID $TRACEPARENT").out.split()
    assert seen == f"00-{trace}-{run_span(trace, int(job), 0, 1)}-01"
    job = hal("submit", "--", "true").out.strip()
    hal("wait", job)
    assert trace in hal("show", job).out
    events = [json.loads(line) for line in hal("events", "--job", job, "-o", "json").out.splitlines()]
    assert {event["kind"] for event in events} >= {"jobs-submitted", "attempts-started", "attempts-ended", "jobs-ended"}
    assert {event["trace_id"] for event in events} == {trace}
    (attempt,) = json.loads(hal("attempts", "--job", job, "-o", "json").out)
    assert attempt["trace_id"] == trace
    monkeypatch.setenv("TRACEPARENT", "broken")
    assert hal("run", "--", "sh", "-c", "echo ${TRACEPARENT-none}").out == "none\n"


def test_the_job_runs_here_with_this_environment(hal: Hal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Current directory, PATH and HOME; other variables only when asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET_OF_MINE", "1")
    show = "pwd; echo $PATH; echo ${SECRET_OF_MINE-unset} $MORE"
    out = hal("run", "-e", "MORE=more", "--", "sh", "-c", show).out.splitlines()
    assert out == [str(tmp_path), os.environ["PATH"], "unset more"]
    assert hal("run", "--export-all", "--", "sh", "-c", "echo $SECRET_OF_MINE").out == "1\n"


def test_the_time_limit_ends_the_job_with_124(hal: Hal) -> None:
    """And says so."""
    ran = hal("run", "-t", "1s", "--", "sleep", "600")
    assert ran.code == 124
    assert "timed-out" in ran.err


def test_a_gang_runs_on_three_nodes_at_once(hal: Hal) -> None:
    """Each rank's lines are marked; all see the same list of nodes."""
    ran = hal("run", "--nodes", "3", "--", "sh", "-c", "echo $HAL_NODE_RANK $HAL_NODE $HAL_NODES")
    assert ran.code == 0
    lines = sorted(ran.out.splitlines())
    nodes = lines[0].split()[-1].split(",")
    assert sorted(nodes) == ["n1", "n2", "n3"]
    assert lines == [f"[@{rank}] {rank} {nodes[rank]} {','.join(nodes)}" for rank in range(3)]


def test_a_gang_is_told_where_its_nodes_are_reached(hal: Hal) -> None:
    """As docs/cluster.md prints the command. Nodes of one machine have its host name, if that can be an address."""
    (command,) = re.findall(
        r"^hal (run --nodes 2 .*HAL_NODE_ADDRESSES.*)$", (ROOT / "docs" / "cluster.md").read_text(), re.M
    )
    ran = hal(*shlex.split(command))
    assert ran.code == 0
    found = dict(re.findall(r"^\[@(\d)\] rank \1 of (.*)$", ran.out, re.M))
    host = socket.gethostname()
    assert set(found) == {"0", "1"}
    assert len(set(found.values())) == 1
    addresses = found["0"].split(",")
    assert len(addresses) == 2
    assert set(addresses) <= ({host} if is_node_address(host) else {"n1", "n2", "n3"})
    assert f"[@0] master: {addresses[0]}" in ran.out


def test_an_arrays_lines_are_marked_with_their_task(hal: Hal) -> None:
    """Whole lines, whatever the order of the tasks."""
    ran = hal("run", "-a", "5-9:2", "-c", "0.1", "--", "sh", "-c", "echo index $HAL_ARRAY_INDEX; exit $HAL_TASK")
    assert sorted(ran.out.splitlines()) == ["[0] index 5", "[1] index 7", "[2] index 9"]
    assert ran.code == 2


def test_detach_prints_the_id(hal: Hal, client: Client) -> None:
    """The job goes on by itself."""
    ran = hal("run", "--detach", "--", "true")
    assert client.job(ran.out.strip()).wait(DEADLINE_S).state == "succeeded"


def test_a_retried_job_shows_the_output_of_every_try(hal: Hal, tmp_path: Path) -> None:
    """It fails until a file is there; the exit code is that of the last try."""
    script = f"echo try $HAL_ATTEMPT; test -e {tmp_path}/there || {{ touch {tmp_path}/there; exit 1; }}"
    assert hal("run", "--retries", "2", "--", "sh", "-c", script) == (0, "try 1\ntry 2\n", "")


def test_an_impossible_request_is_refused_with_what_the_largest_node_has(hal: Hal, client: Client) -> None:
    """Exit code 2; no job was made."""
    before = sum(1 for _ in client.jobs())
    ran = hal("run", "-c", "64", "--", "true")
    assert ran.code == 2
    assert "4" in ran.err
    assert sum(1 for _ in client.jobs()) == before


def test_interrupted_without_a_terminal_cancels(shared_hal: LiveHal, gate: Gate, client: Client) -> None:
    """Nobody can be asked; exit code 130, the job is cancelled."""
    process = shared_hal.start("run", "--", *gate.command())
    job = gate.started().partition(".")[0]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, f"cancelling job {job}" in err) == (130, True)
    assert client.job(job).state == "cancelled"


def test_ctrl_c_on_a_terminal_asks_and_no_lets_it_go_on(shared_hal: LiveHal, gate: Gate) -> None:
    """After 'n' the job runs to its end, and its exit code counts."""
    with Terminal(shared_hal.command("run", "--", *gate.command("exit 7")), shared_hal.environment) as terminal:
        gate.started()
        terminal.type("\x03")
        terminal.read_until("cancel job")
        terminal.type("n\n")
        terminal.read_until("continues")
        gate.open()
        assert terminal.wait() == 7


def test_a_second_ctrl_c_cancels_at_once(shared_hal: LiveHal, gate: Gate, client: Client) -> None:
    """Without an answer to the question."""
    with Terminal(shared_hal.command("run", "--", *gate.command()), shared_hal.environment) as terminal:
        job = gate.started().partition(".")[0]
        terminal.type("\x03")
        terminal.read_until("cancel job")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert client.job(job).wait(DEADLINE_S).state == "cancelled"


def test_closing_the_terminal_leaves_the_job_running(shared_hal: LiveHal, gate: Gate, client: Client) -> None:
    """The hang-up ends `hal run`, not the job."""
    with Terminal(shared_hal.command("run", "--", *gate.command()), shared_hal.environment):
        job = gate.started().partition(".")[0]
    assert client.job(job).state.active
    gate.open()
    assert client.job(job).wait(DEADLINE_S).state == "succeeded"


def test_a_reader_that_goes_away_ends_the_job(shared_hal: LiveHal, client: Client) -> None:
    """`hal run -- yes | head -1` is quiet and leaves nothing running, as a pipe without HAL would be."""
    hal = shared_hal.command("run", "--name", "endless-talk", "--", "yes")
    with subprocess.Popen(
        hal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shared_hal.environment, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == 141
    until(lambda: all(info.ended for info in client.jobs(name="endless-talk")), "the job did not end")
    assert [info.state for info in client.jobs(name="endless-talk")] == ["cancelled"]


def test_a_program_that_is_python_needs_no_shell(hal: Hal) -> None:
    """Arguments arrive as they are, also empty ones and those with spaces."""
    code = "import sys; print(sys.argv[1:])"
    assert hal("run", "--", sys.executable, "-c", code, "a b", "", "*").out == "['a b', '', '*']\n"
