"""Parallel programs over two hosts that joined: MPI through its own launcher, ranks that meet at an address."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.rest import calls
from tests.cluster.hosts import DEADLINE_S, Cluster, Network, Ran

REST_PORT = 8_643
HAL = f"{sys.executable} -m hal.cli.main"
MPI_SUM = Path(__file__).with_name("mpi_sum.py")
MEETING = Path(__file__).with_name("meeting.py")
MPI = f"""
set -e
cd "$TMPDIR"
{HAL} hostfile --ranks-per-node 2 > hosts
export OMPI_MCA_plm_rsh_agent="{HAL} launch --rsh"
export OMPI_MCA_orte_default_hostfile=$PWD/hosts
mpirun --allow-run-as-root {sys.executable} {MPI_SUM} $1
"""


TORCH_SUM = Path(__file__).with_name("torch_sum.py")
TORCH_PYTHON = "/usr/bin/python3"
"""Debian's, for its package python3-torch: PyTorch of another origin is too large for tests."""
TORCH = f"{HAL} launch --ranks-per-node 2 {TORCH_PYTHON} {TORCH_SUM} $1"
TORCHRUN = f"""
{HAL} launch --ranks-per-node 1 torchrun -r 2 -t 1 --log_dir $TMPDIR --nnodes $HAL_NODE_COUNT --nproc_per_node 2 \\
  --rdzv_id $HAL_JOB_ID --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT {TORCH_SUM} $1
"""
"""As docs/parallel.md has it. On Python 3.11, Debian's PyTorch fails unless `-r` and `-t` each name one stream."""


@pytest.fixture(scope="module")
def torch() -> None:
    """Debian's Python can use PyTorch with gloo; asked when a test needs it, as the import takes seconds."""
    asked = [TORCH_PYTHON, "-c", "import torch.distributed as d; raise SystemExit(not d.is_available())"]
    try:
        there = subprocess.run(asked, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        there = False
    if not there:
        pytest.skip("there is no PyTorch: apt-get install python3-torch")


needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two workers whose steps reach the controller."""
    with Network() as network:
        yield Cluster(network, 2, toml=f'tcp = "10.77.0.1:{REST_PORT}"\n').up()


def run(cluster: Cluster, script: str, *words: str) -> Ran:
    """A script on the first of both workers, with these arguments; what its job wrote."""
    with cluster.head.client() as client:
        command = ["bash", "-c", script, "bash", *words]
        made = client.submit(command, nodes=2, first_node=True, exclude=["head"], cpus=2)
        made.wait(DEADLINE_S)
        return Ran(made.info.exit_code or 0, made.logs(), made.logs(stream="stderr"))


def left(cluster: Cluster, program: str) -> list[int]:
    """Processes of that program on all hosts."""
    pids = [pid for host in (cluster.head, *cluster.workers) for pid in host.pids()]
    return [pid for pid in pids if program.encode() in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@needs_mpi
def test_mpirun_runs_its_ranks_on_both_hosts(cluster: Cluster) -> None:
    """Debian's Open MPI as it is: its daemons begin through HAL, its ranks talk over the network."""
    ran = run(cluster, MPI)
    assert sorted(ran.out.splitlines()) == [f"rank {rank} of 4 on w{1 + rank // 2}: 6" for rank in range(4)], ran.err


@needs_mpi
def test_a_rank_that_fails_ends_mpirun_and_the_job(cluster: Cluster) -> None:
    """With its exit code; neither ranks nor daemons are left on any host."""
    ran = run(cluster, MPI, "3")
    assert (ran.code, ran.out) == (9, ""), ran.err
    assert left(cluster, "orted") + left(cluster, "mpi_sum") == []


@pytest.mark.usefixtures("torch")
def test_torchrun_of_two_nodes_begins_ranks_that_meet(cluster: Cluster) -> None:
    """One `torchrun` a node, which meet at the job's own port; if a rank fails, both end, and so does the job."""
    ran = run(cluster, TORCHRUN)
    said = [line.partition(":")[2] for line in ran.out.splitlines()]
    assert sorted(said) == [f"rank {rank} of 4 on w{1 + rank // 2}: 6" for rank in range(4)], ran.err
    ran = run(cluster, TORCHRUN, "3")
    assert (ran.code != 0, ran.out) == (True, ""), ran.err
    assert left(cluster, "torch_sum") == []


@pytest.mark.usefixtures("torch")
def test_ranks_of_pytorch_meet_on_both_hosts(cluster: Cluster) -> None:
    """Debian's, with gloo, by the variables alone; a rank that fails ends all, and the job with its exit code."""
    ran = run(cluster, TORCH)
    assert sorted(ran.out.splitlines()) == [f"rank {rank} of 4 on w{1 + rank // 2}: 6" for rank in range(4)], ran.err
    ran = run(cluster, TORCH, "3")
    assert (ran.code, ran.out) == (9, ""), ran.err
    assert left(cluster, "torch_sum") == []


def test_two_gangs_on_the_same_hosts_meet_each_at_a_port_of_its_own(cluster: Cluster) -> None:
    """One begins its ranks with `hal launch`, the other runs one on each node; both at the same time."""
    launched = f"echo $MASTER_PORT; {HAL} launch --ranks-per-node 2 {sys.executable} {MEETING}"
    on_each = f"test $RANK != 0 || echo $MASTER_PORT; exec {sys.executable} {MEETING}"
    with cluster.head.client() as client:
        jobs = [
            client.submit(["bash", "-c", script], nodes=2, first_node=first, exclude=["head"], cpus=1)
            for script, first in ((launched, True), (on_each, False))
        ]
        for one in jobs:
            one.wait(DEADLINE_S)
        said = [
            [line for rank in range(ranks) for line in one.logs(rank=rank).splitlines()]
            for one, ranks in zip(jobs, (1, 2), strict=True)
        ]
    ports = [int(next(line for line in lines if line.isdigit())) for lines in said]
    assert ports[0] != ports[1]
    met = [sorted(line for line in lines if not line.isdigit()) for lines in said]
    where = "met at 10.77.0.2"
    assert met == [
        [f"rank {rank} of 4 on w{1 + rank // 2} {where}: 6" for rank in range(4)],
        [f"rank {rank} of 2 on w{1 + rank} {where}: 1" for rank in range(2)],
    ]


def test_a_launch_on_other_nodes_than_the_first_meets_there(cluster: Cluster) -> None:
    """At the same port, which is the job's own on each of its nodes."""
    script = f"{HAL} launch --node w2 -n 2 {sys.executable} {MEETING}"
    ran = run(cluster, script)
    assert sorted(ran.out.splitlines()) == [f"rank {rank} of 2 on w2 met at 10.77.0.3: 1" for rank in range(2)], ran.err


def test_a_rank_that_fails_ends_those_on_other_hosts(cluster: Cluster) -> None:
    """The exit code is its own; nothing is left anywhere."""
    ran = run(cluster, f"{HAL} launch -n 4 bash -c '{sys.executable} {MEETING} 3 || exit; exec sleep 1000'")
    assert (ran.code, "rank 3 on node w2 ended with exit code 9" in ran.err) == (9, True), ran.err
    assert left(cluster, "meeting") == []


GROWING = f"""
if test $HAL_ELASTIC = extension; then
  exec {sys.executable} -c 'import os, socket, time
found = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
found.sendall(os.environ["HAL_NODE"].encode())
time.sleep(1000)'
fi
{sys.executable} -c 'import os, socket
other, _ = socket.create_server(("", int(os.environ["MASTER_PORT"]))).accept()
print(os.environ["HAL_NODE"], "met", other.recv(99).decode())'
{HAL} hostfile --ranks-per-node 1
"""


def test_an_extension_on_another_host_finds_its_base(cluster: Cluster) -> None:
    """By the base's address and port, which it is told; and the base sees both hosts as nodes of its job."""
    with cluster.head.client() as client:
        made = client.submit(["bash", "-c", GROWING], extensions=1, exclusive=True, exclude=["head"])
        made.wait(DEADLINE_S)
        assert made.info.exit_code == 0, made.logs(stream="stderr")
        assert made.task(0).nodes != made.task(1).nodes
        ((base,), (extension,)) = made.task(0).nodes, made.task(1).nodes
        assert client.call(calls.log(made.id)).data.decode().splitlines() == [
            f"{base} met {extension}",
            f"{base} slots=1",
            f"{extension} slots=1",
        ]
