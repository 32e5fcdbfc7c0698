"""`hal launch` on a real HAL: ranks on the nodes of a job, their output, input and signals, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from tests.e2e.conftest import DEADLINE_S, LiveHal, Ran, until

SHOW = "echo rank $HAL_RANK of $HAL_SIZE, $HAL_LOCAL_RANK of $HAL_LOCAL_SIZE on $HAL_NODE"


@pytest.fixture(scope="module")
def job(shared_hal: LiveHal) -> Iterator[Job]:
    """A running job on two nodes, whose command runs on the first."""
    with shared_hal.client() as client:
        made = client.submit(["sleep", "1000"], nodes=2, first_node=True, cpus=2, memory="100MiB")
        until(lambda: made.refresh().state == "running", "it did not run")
        yield made
        client.cancel(made.id)


def launched(live: LiveHal, job: Job, *words: str, text: str | None = None, **env: str) -> Ran:
    """`hal launch` into that job."""
    return live.run("launch", "--job", job.id, *words, text=text, **env)


def script(body: str) -> list[str]:
    """A job's command that finds this `hal`."""
    return ["bash", "-c", f'hal() {{ "{sys.executable}" -m hal.cli.main "$@"; }}\n{body}']


def gone(pid: int) -> bool:
    """Whether no such process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_job_launches_ranks_on_all_its_nodes(client: Client) -> None:
    """Its script runs once, on the first of them; variables and directory go with the ranks."""
    body = f"cd /usr; export COLOUR=blue; echo on $HAL_NODE; hal launch -n 4 sh -c '{SHOW}, $COLOUR in $PWD'; exit 6"
    made = client.submit(script(body), nodes=2, first_node=True, cpus=1)
    made.wait(DEADLINE_S)
    nodes = made.task(0).nodes
    first, *lines = made.logs().splitlines()
    assert first == f"on {nodes[0]}"
    assert sorted(lines) == [
        f"rank {rank} of 4, {rank % 2} of 2 on {nodes[rank // 2]}, blue in /usr" for rank in range(4)
    ]
    assert (made.info.state, made.info.exit_code) == ("failed", 6)


def test_lines_are_labelled_and_whole(shared_hal: LiveHal, job: Job) -> None:
    """A line that a rank writes in parts is written at once; input that rank 0 does not get, nobody misses."""
    words = "for w in a b c; do printf $w; done; echo; echo $HAL_RANK >&2; printf end"
    ran = launched(shared_hal, job, "-n", "3", "--label", "sh", "-c", words)
    assert sorted(ran.out.splitlines()) == sorted(f"[{rank}] {text}" for rank in range(3) for text in ("abc", "end"))
    assert sorted(ran.err.splitlines()) == [f"[{rank}] {rank}" for rank in range(3)]


def test_no_byte_is_added_to_what_ranks_write(shared_hal: LiveHal, job: Job) -> None:
    """Lines without an end, longer than what is kept of one."""
    ran = launched(shared_hal, job, "sh", "-c", "head -c 200000 /dev/zero; printf end")
    assert (ran.code, len(ran.out), ran.out.count("end")) == (0, 400_006, 2), ran.err


def test_input_goes_to_rank_0(shared_hal: LiveHal, job: Job) -> None:
    """The others read that there is none."""
    ran = launched(shared_hal, job, "-i", "-l", "wc", "-c", text="x" * 300_000)
    assert sorted(ran.out.splitlines()) == ["[0] 300000", "[1] 0"], ran.err


def test_a_rank_that_fails_ends_the_others_and_decides(shared_hal: LiveHal, job: Job) -> None:
    """Exit code 9, not that of those which were ended."""
    ran = launched(shared_hal, job, "sh", "-c", "test $HAL_RANK = 1 && exit 9; exec sleep 1000")
    assert (ran.code, "rank 1 on node" in ran.err) == (9, True), ran.err


def test_the_others_go_on_if_that_is_asked_for(shared_hal: LiveHal, job: Job) -> None:
    """The highest exit code is the launch's."""
    ran = launched(shared_hal, job, "--no-kill", "-n", "3", "sh", "-c", "echo $HAL_RANK; exit $((7 - HAL_RANK))")
    assert (ran.code, sorted(ran.out.split())) == (7, ["0", "1", "2"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["no-such-program"], 3, "no such program 'no-such-program'"),
        (["-C", "/nowhere", "true"], 6, "directory '/nowhere' cannot be entered"),
        (["--node", "n9", "true"], 2, "the job has no node 'n9'"),
        (["-n", "4000", "true"], 2, "1 to 256 ranks on a node"),
    ],
)
def test_what_cannot_be_begun_is_one_error(
    words: list[str], code: int, says: str, shared_hal: LiveHal, job: Job
) -> None:
    """However many nodes it fails on."""
    ran = launched(shared_hal, job, *words)
    assert (ran.code, ran.err.count(says)) == (code, 1), ran.err


def test_ranks_have_the_numbers_that_pytorch_and_slurm_give_them(shared_hal: LiveHal, job: Job) -> None:
    """Distributed in turn: rank 1 is on the second node."""
    words = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $HAL_NODE $SLURM_PROCID $SLURM_NTASKS"
    words += " $SLURM_STEP_NODELIST $SLURM_NODEID"
    options = ("--ranks-per-node", "2", "--distribution", "cyclic", "--slurm")
    ran = launched(shared_hal, job, *options, "sh", "-c", words)
    nodes = job.task(0).nodes
    expected = [f"{r} 4 {r // 2} 2 {nodes[r % 2]} {r} 4 {','.join(nodes)} {r % 2}" for r in range(4)]
    assert sorted(ran.out.splitlines()) == expected, ran.err


@pytest.mark.slow
def test_each_rank_has_its_part_of_the_cores(shared_hal: LiveHal, job: Job) -> None:
    """Two cores a node: one rank there has two threads, two have one each; who chooses is obeyed."""
    words = ("sh", "-c", "echo $HAL_LOCAL_SIZE:$OMP_NUM_THREADS")
    found = [
        launched(shared_hal, job, "-n", n, *words, **env)
        for n, env in (("2", {}), ("4", {}), ("4", {"OMP_NUM_THREADS": "3"}))
    ]
    assert [set(ran.out.split()) for ran in found] == [{"1:2"}, {"2:1"}, {"2:3"}]


def start(live: LiveHal, job: Job, words: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A launch of two ranks that have written their pids, and those."""
    client = subprocess.Popen(
        live.command("launch", "--job", job.id, "sh", "-c", words),
        env=live.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert client.stdout is not None
    return client, [int(client.stdout.readline()) for _ in range(2)]


def test_ranks_end_with_their_launch(shared_hal: LiveHal, job: Job) -> None:
    """Even if it is killed."""
    client, pids = start(shared_hal, job, "echo $$; exec sleep 1000")
    client.kill()
    client.communicate(timeout=DEADLINE_S)
    until(lambda: all(map(gone, pids)), f"processes {pids} outlived their launch")


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [
        pytest.param(signal.SIGUSR1, "USR1", 0, marks=pytest.mark.slow),
        (signal.SIGTERM, "TERM", 128 + signal.SIGTERM),
        pytest.param(signal.SIGINT, "INT", 0, marks=pytest.mark.slow),
    ],
)
def test_signals_go_to_all_ranks(shared_hal: LiveHal, job: Job, number: int, name: str, code: int) -> None:
    """SIGTERM ends the launch, too, when they have ended."""
    words = f"trap 'echo got {name}; exit 0' {name}; echo $$; while :; do sleep 0.05; done"
    client, _ = start(shared_hal, job, words)
    client.send_signal(number)
    out, _ = client.communicate(timeout=DEADLINE_S)
    assert (out.decode().splitlines(), client.returncode) == ([f"got {name}"] * 2, code)


def test_ranks_end_with_their_job(client: Client) -> None:
    """Those on other nodes, too."""
    made = client.submit(script("hal launch sh -c 'echo $$; exec sleep 1000'"), nodes=2, first_node=True)
    until(lambda: len(made.logs().split()) == 2, "it did not run")
    pids = [int(word) for word in made.logs().split()]
    made.cancel()
    assert made.wait(DEADLINE_S).state == "cancelled"
    until(lambda: all(map(gone, pids)), f"processes {pids} outlived their job")


@pytest.mark.slow
def test_what_runs_on_the_first_node_alone_is_shown_without_labels(shared_hal: LiveHal) -> None:
    """`hal run` prefixes lines of several nodes."""
    ran = shared_hal.run("run", "-N", "2", "--first-node", "--", "echo", "once")
    assert (ran.code, ran.out) == (0, "once\n"), ran.err


@pytest.mark.slow
def test_only_a_running_job_is_launched_into(shared_hal: LiveHal, client: Client) -> None:
    made = client.submit(["true"])
    made.wait(DEADLINE_S)
    ran = launched(shared_hal, made, "true")
    assert (ran.code, f"task {made.id}.0 has ended" in ran.err) == (6, True), ran.err


@pytest.mark.slow
def test_a_rank_has_the_cgroup_and_the_mark_of_its_step(shared_hal: LiveHal, job: Job) -> None:
    """So what limits the job limits it, and what ends the job ends it."""
    look = "cat /proc/self/cgroup; grep realtime.timeout /proc/self/limits"
    for rank, node in enumerate(job.task(0).nodes):
        step = shared_hal.run("exec", job.id, "--rank", str(rank), "--", "sh", "-c", look)
        assert launched(shared_hal, job, "--node", node, "sh", "-c", look).out == step.out


def test_a_command_enters_the_step_on_the_node_that_is_named(shared_hal: LiveHal, job: Job) -> None:
    """Instead of its rank, before the job or behind it."""
    _, second = job.task(0).nodes
    words = ("--", "sh", "-c", "echo $HAL_NODE")
    found = [
        shared_hal.run("exec", *where, *words) for where in (("--node", second, job.id), (job.id, "--node", second))
    ]
    assert [ran.out for ran in found] == [f"{second}\n"] * 2


@pytest.mark.slow
def test_a_node_that_the_job_does_not_have_is_refused(shared_hal: LiveHal, job: Job) -> None:
    ran = shared_hal.run("exec", "--node", "n9", job.id, "--", "true")
    assert (ran.code, f"task {job.id}.0 is not on node 'n9'" in ran.err) == (3, True), ran.err


@pytest.mark.slow
def test_the_audit_log_says_what_was_launched(shared_hal: LiveHal, job: Job) -> None:
    launched(shared_hal, job, "true", "unusual-word")
    assert f"launch in {job.id}.0.1.1 on n" in (said := shared_hal.run("audit").out)
    assert ": 1 of 2: true unusual-word" in said
