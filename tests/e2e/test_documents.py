"""What docs/cli.md, docs/python.md and examples/ show is run as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.core.model import specs_from_text
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from tests.e2e.conftest import DEADLINE_S, LiveHal
from tests.programs import path_without

ROOT = Path(__file__).parents[2]
JUPYTER = Path(sys.executable).parents[1] / "jupyter"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run_page(
    page: str, live: LiveHal, directory: Path, *, chosen: Callable[[str], bool] = bool, **variables: str
) -> str:
    """Run every block of a page that begins with `set -e`, in order, in one shell with these variables; what it
    printed.

    Args:
        chosen: which of them are run.
    """
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / "hal").write_text(f'#!/bin/sh\nexec {sys.executable} -m hal.cli.main "$@"\n')
    (directory / "bin" / "hal").chmod(0o755)
    script = "\n".join(block for block in blocks(page, "sh") if block.startswith("set -e") and chosen(block))
    path = path_without("srun", directory / "programs")  # pages show what is where there is no Slurm
    env = live.environment | variables | {"PATH": f"{directory / 'bin'}:{path}"}
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.mark.slow
def test_the_commands_of_the_manual_work(own_hal: LiveHal, tmp_path: Path) -> None:
    """docs/cli.md, with a fresh HAL."""
    out = run_page("docs/cli.md", own_hal, tmp_path)
    assert "hello" in out
    assert "[1] index 1" in out
    assert len(json.loads((tmp_path / "jobs.json").read_text())) == 5


def test_the_commands_of_the_page_about_arrays_work(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/arrays.md."""
    out = run_page("docs/arrays.md", shared_hal, tmp_path)
    assert "[4] index 9" in out
    assert "[1] case: beta gamma" in out


@pytest.mark.slow
def test_the_example_of_elastic_jobs_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/elastic.md: a job grows, its base sees it, and its extensions end with the base; three workers share six
    parts, and the first that finds none left ends the others that wait."""
    out = run_page("docs/elastic.md", shared_hal, tmp_path)
    assert "the base sees its extensions" in out
    assert re.search(r"^\[2\] extension 2, beside the base on n\d$", out, re.MULTILINE)
    assert re.search(r"^tasks +3: .*1 succeeded.*2 cancelled|^tasks +3: .*2 cancelled.*1 succeeded", out, re.MULTILINE)
    assert re.search(r"^workers +share work", out, re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_page_about_parallel_programs_work(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/parallel.md."""
    out = run_page("docs/parallel.md", shared_hal, tmp_path)
    assert re.search(r"^rank 3 of 4, 1 of 2 on n\d$", out, re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_page_for_users_of_slurm_work(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/from-slurm.md: a script of Slurm runs as it is, and every command beside those of Slurm works."""
    out = run_page("docs/from-slurm.md", shared_hal, tmp_path)
    assert re.search(r"^task 2 of job \d+: data.csv, 2 cores$", out, re.MULTILINE)
    assert "5m" in out
    assert re.search(r"^task 3 of 4 on n\d$", out, re.MULTILINE)


def test_the_commands_of_the_page_about_periodic_jobs_work(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/cron.md: made, run by hand, changed, held, removed."""
    out = run_page("docs/cron.md", shared_hal, tmp_path)
    assert "02:30:00 CE" in out
    assert re.search(r"submitted by hand +\d+ +succeeded", out)
    assert re.search(r"^Next +held by ", out, re.MULTILINE)
    assert out.rstrip().endswith("nightly removed")


@pytest.mark.slow
def test_interactive_work_goes_as_its_page_shows(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/interactive.md."""
    out = run_page("docs/interactive.md", shared_hal, tmp_path, chosen=lambda block: "jupyter" not in block)
    assert "from outside" in out
    assert re.search(r"^\[1\] rank 1 of 2 on n\d is blue$", out, re.MULTILINE)
    assert "exit code " in out
    assert "2 nodes\nfrom a rank\nfrom a rank\n" in out


@pytest.mark.slow
def test_the_example_of_services_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/services.md."""
    out = run_page("docs/services.md", shared_hal, tmp_path)
    assert "hello" in out
    assert re.search(r"cancelled: replaced by job \d+", out)
    assert "restart always, 5 times within 10m; ports http; ready: GET /, every 1s" in out


@pytest.mark.skipif(not JUPYTER.is_dir(), reason="make test-all installs it, apart from all else: .venv/jupyter")
@pytest.mark.slow
def test_jupyter_is_reached_as_the_page_shows(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/interactive.md, with a real server of Jupyter's."""
    (tmp_path / "bin").mkdir()
    server = f'shift\nPYTHONPATH="{JUPYTER}" exec {sys.executable} -m jupyter_server "$@"\n'
    (tmp_path / "bin" / "jupyter").write_text(f"#!/bin/sh\n{server}")
    (tmp_path / "bin" / "jupyter").chmod(0o755)
    (tmp_path / ".jupyter").mkdir()
    (tmp_path / ".jupyter" / "jupyter_server_config.json").write_text('{"ServerApp": {"allow_root": true}}')
    home = str(tmp_path)
    out = run_page("docs/interactive.md", shared_hal, tmp_path, chosen=lambda block: "jupyter" in block, HOME=home)
    assert '"kernels": 0' in out


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page shows curl")
@pytest.mark.slow
def test_a_daemon_of_its_own_works_beside_hal(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/daemons.md: the shelf is started as a process, keeps what is sent, and ends when it is asked to."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    out = run_page("docs/daemons.md", shared_hal, tmp_path, EXAMPLES=str(ROOT / "examples"))
    assert '{"name":"note","bytes":5}hello' in out
    assert "/v1/items/{name}" in json.loads((tmp_path / "shelf.json").read_text())["paths"]


@pytest.mark.slow
def test_the_example_of_dependencies_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """The page's story: why a job waits, why it is held, and an array that follows another one."""
    out = run_page("docs/dependencies-of-jobs.md", shared_hal, tmp_path)
    assert "waits for afterok of job" in out
    assert "If that can never be met, this job is held" in out
    assert "held by its rule on_dependency_failed" in out
    assert "5 succeeded, 1 cancelled" in out


@pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
def test_the_example_of_sandboxes_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    out = run_page("docs/sandbox.md", shared_hal, tmp_path)
    assert out.split("\n")[:3] == ["mine", "nothing else can be changed", "1"]


@pytest.mark.slow
def test_the_example_of_renting_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """The page's story: refused without an offer, waiting with one, waiting on when it is gone."""
    out = run_page("docs/renting.md", shared_hal, tmp_path)
    assert "refused: no node has 512 cpus" in out
    assert "waits for a machine that could be rented: offer huge" in out
    assert "joins or is offered for rent" in out


@pytest.mark.slow
def test_the_example_of_access_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """The page's story: a robot with a token of its own runs a job and may not change the policy; alice over TLS."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own_hal.environment["PORT"] = str(probe.getsockname()[1])
    out = run_page("docs/access.md", own_hal, tmp_path)
    assert re.search(r"User +robot", out)
    assert "hello from the robot" in out
    assert "that is for admins: exit code 4" in out
    assert "revoked" in out
    assert "hello over TLS" in out
    assert re.search(r"changed: user-\S+: line 1 \(entry \d+\)\nno entry before that is intact\n$", out)


@pytest.mark.slow
def test_the_example_of_preemption_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """The page's policy and its story, on one cpu."""
    own_hal.root.mkdir(exist_ok=True)
    (own_hal.root / "hal.toml").write_text(blocks("docs/preemption.md", "toml")[0])
    own_hal.up("--cpus", "1", "--memory", "1GiB")
    out = run_page("docs/preemption.md", own_hal, tmp_path)
    assert "here at once" in out
    assert "preempted by job 2 (QOS urgent)" in out


@pytest.mark.slow
def test_the_example_of_nodes_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """The page's story on two nodes: closed, emptied, forgotten."""
    own_hal.up("--nodes", "2")
    out = run_page("docs/nodes.md", own_hal, tmp_path)
    assert "looks slow" in out
    assert "n2 is empty and cordoned" in out
    assert re.search(r"^NAME .* TAINTS +REASON$", out, re.MULTILINE)
    assert "on n1" in out
    assert "n2 is cordoned (drained by" in out
    _, _, after = out.partition("n2 removed")
    assert "n2" not in after.partition("HAL is up")[0]
    assert "prolog-failed" in after
    assert re.search(r"n1 +cordoned .*prolog: .*scratch is not mounted \(exit code 3\), for job", after)
    assert len(re.findall(r"^epilog of \d+\.\d on n2$", after, re.MULTILINE)) >= 2
    assert re.search(r"n1 +up", after.splitlines()[-2])


@pytest.mark.slow
def test_the_example_of_affinity_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """The page's story on two nodes: two of three replicas start, one job follows them and one stays away."""
    own_hal.up("--nodes", "2")
    out = run_page("docs/affinity.md", own_hal, tmp_path)
    assert out.count("what runs keeps it from 2 nodes (n1, n2): it is to be apart from app=web by node") == 2


@pytest.mark.slow
def test_the_example_of_preferences_of_queues_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """docs/placement.md: of two nodes the job of a queue that weighs prices takes the cheaper one."""
    out = run_page("docs/placement.md", own_hal, tmp_path)
    assert re.search(r"\bn2\b", out), out


@pytest.mark.slow
def test_the_example_of_advice_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """The page's story: a table from a file, one key changed, listed, shown, removed."""
    out = run_page("docs/advice.md", shared_hal, tmp_path).splitlines()
    assert out[:2] == ["price version 1: 2 keys", "price version 2: 2 keys"]
    assert [line.split()[-1] for line in out[-4:]] == ["VALUE", "0.12", "0.3", "removed"]


def test_the_python_of_the_manual_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """Every block of docs/python.md, in order, as one program."""
    program = "\n\n".join(blocks("docs/python.md", "python"))
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=shared_hal.environment,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stderr
    assert "JobState" not in ran.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples" / "python").glob("*.py")))
def test_an_example_program_works(name: str, shared_hal: LiveHal) -> None:
    """It checks its own result and says so by its exit code."""
    program = ROOT / "examples" / "python" / name
    ran = subprocess.run(
        [sys.executable, program], env=shared_hal.environment, capture_output=True, text=True, timeout=3 * DEADLINE_S
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples" / "jobs").iterdir()))
def test_an_example_job_works(name: str, shared_hal: LiveHal) -> None:
    """Submitted as it is, it succeeds."""
    ran = shared_hal.run("submit", "--wait", ROOT / "examples" / "jobs" / name)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", ["fit.toml", "workflow.yaml", "gang.json"])
def test_an_example_spec_is_well_formed(name: str) -> None:
    """Also where no HAL can be started."""
    kind = name.rpartition(".")[2]
    assert specs_from_text((ROOT / "examples" / "jobs" / name).read_text(), kind=kind)


@pytest.mark.slow
def test_the_example_of_topologies_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """docs/topology.md: a job on one of two racks; a node of the file is not there yet. Then six nodes, and jobs that
    are within one rack, or wait for one; at last one that waits for it for some time only."""
    out = run_page("docs/topology.md", own_hal, tmp_path)
    drawn = [" ".join(line.split()) for line in out.splitlines()]
    assert "├─ r1 rack 2/2 1 2/4 100MiB/200MiB - 1 n[1-2]" in drawn
    assert "east/r2 rack 1/1 1 0/2 0/100MiB - 0 n3" in drawn
    assert "topology zone east, rack east/r2" in drawn
    assert json.loads((tmp_path / "topology.json").read_text())["missing_nodes"] == "n4"
    assert any(re.fullmatch(r"\d+ n\[3-4\]", line) for line in drawn), out
    assert "at most 1 of one rack" in out
    assert "It waits up to 30m for one rack, then for nodes anywhere (in 29m" in " ".join(out.split())
    assert any(re.fullmatch(r"\d+ n\[2,4\]", line) for line in drawn), out
    spread = out[out.index("HAL is up: 4 nodes, home", out.rindex("It waits up to")) :]
    assert len(re.findall(r"^\d+ +n\[[12][,-][34]\]$", spread, re.MULTILINE)) == 3, out
    assert "no level 'zon'; did you mean 'zone'?" in (tmp_path / "refused.txt").read_text()
