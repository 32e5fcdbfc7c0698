"""What docs/cli.md, docs/python.md and examples/ show is run as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hal.core.model import specs_from_text
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from tests.e2e.conftest import DEADLINE_S, LiveHal

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run_page(page: str, live: LiveHal, directory: Path, **variables: str) -> str:
    """Run every block of a page that begins with `set -e`, in order, in one shell with these variables; what it
    printed."""
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / "hal").write_text(f'#!/bin/sh\nexec {sys.executable} -m hal.cli.main "$@"\n')
    (directory / "bin" / "hal").chmod(0o755)
    script = "\n".join(block for block in blocks(page, "sh") if block.startswith("set -e"))
    env = live.environment | variables | {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}
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
    assert "and no machine that could be rented is offered for it" in out


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
    assert "n2 is cordoned (drained by" in out
    _, _, after = out.partition("n2 removed")
    assert "n2" not in after.partition("HAL is up")[0]
    assert "prolog-failed" in after
    assert re.search(r"n1 +cordoned .*prolog: .*scratch is not mounted \(exit code 3\), for job", after)
    assert len(re.findall(r"^epilog of \d+\.\d on n2$", after, re.MULTILINE)) >= 2
    assert re.search(r"n1 +up", after.splitlines()[-2])


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
