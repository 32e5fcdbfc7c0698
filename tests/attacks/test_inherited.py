"""What jobs and a site's scripts learn of who started HAL, and how files are left open: variables, umask, limits."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.wire.frames.agent_keeper import StepTemplate
from tests.daemons.agent.keeper.driving import Keeper
from tests.daemons.agent.keeper.test_keeper_guard import AS_NOBODY, NOBODY, without_root
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home

SECRET = "a-word-that-nobody-may-know"
READ_ALL = """
import os, sys
home = os.environ["HAL_HOME"].encode()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        command, environ = open(f"/proc/{pid}/cmdline", "rb").read(), open(f"/proc/{pid}/environ", "rb").read()
    except OSError:
        continue
    if home in command and b"hal" in command:
        print(pid, sys.argv[1].encode() in environ)
"""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveHal]:
    """Started by a shell with secrets, an open umask, and room for core files."""
    live = LiveHal(new_home())
    prolog = live.root / "prolog"
    prolog.write_text(f"#!/bin/sh\numask > {live.root}/umask\nenv > {live.root}/env\n")
    prolog.chmod(0o755)
    (live.root / "hal.toml").write_text(f'[node]\nprolog = ["{prolog}"]\n')
    secrets = {"AWS_SECRET_ACCESS_KEY": SECRET, "HAL_TOKEN": SECRET, "DB_URL": SECRET, "MY_TOKEN": SECRET}
    try:
        words = ["prlimit", "--core=4096:", "sh", "-c", 'umask 000; exec "$@"', "sh", *live.command("up")]
        env = live.environment | secrets
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield live
    finally:
        live.remove()


def test_no_job_reads_its_starters_secrets_in_daemons(live: LiveHal) -> None:
    """(L2, attempt 90) In the environment of controller, keeper, agent and helpers as the kernel shows it."""
    with live.client() as client:
        job = client.submit([sys.executable, "-I", "-S", "-c", READ_ALL, SECRET], env={})
        assert job.wait(DEADLINE_S).state == "succeeded"
        told = job.logs().split()
    assert len(told) >= 2 * 4
    assert "True" not in told


def test_a_sites_scripts_see_neither_secrets_nor_the_umask(live: LiveHal) -> None:
    """(L2) The prolog's environment and umask."""
    with live.client() as client:
        assert client.submit("true").wait(DEADLINE_S).state == "succeeded"
    assert (live.root / "umask").read_text().strip() == "0022"
    assert SECRET not in (live.root / "env").read_text()
    assert "HAL_NODE=" in (live.root / "env").read_text()


def test_steps_have_a_stated_umask_and_the_starters_core_limit(live: LiveHal) -> None:
    """(L2, L8) Whatever the shell of `hal up` had; daemons write no core file."""
    with live.client() as client:
        job = client.submit("umask; ulimit -S -c")
        job.wait(DEADLINE_S)
        assert job.logs().split() == ["0022", "8"]  # blocks of 512 bytes
    pid = json.loads((live.root / "run" / "controller.pid").read_text())["pid"]
    core = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core" in line)
    assert core.split()[4] == "0"


def test_no_file_of_hal_is_open_to_others(live: LiveHal) -> None:
    """(L3, attempt 12) Under a umask of 000: the database, logs, journals, outputs."""
    ours = {"prolog", "umask", "env", "hal.toml"}
    paths = [path for path in live.root.rglob("*") if not path.is_symlink() and path.name not in ours]
    assert live.root / "db" / "hal.sqlite" in paths
    assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_memory_of_daemons_is_not_for_their_users_steps(tmp_path: Path) -> None:
    """(L8) /proc/PID/mem and environ of keeper, recorder, helper and guard belong to root when they run as somebody
    else: nobody takes descriptors out of them, nor the sockets between them."""
    if reason := without_root():
        pytest.skip(reason)
    with Keeper(tmp_path / "home", under=AS_NOBODY, owner=NOBODY) as keeper:
        keeper.poll(lambda: len(keeper.helpers()) == 2)
        keeper.launch(StepTemplate(command=("sleep", "600"), guard=True), StepId(2, 0, 1, 0))
        keeper.running(StepId(2, 0, 1, 0))
        table = processes.all_processes()
        pids = [keeper.process.pid, *(one.pid for one in keeper.helpers())]
        pids += [table[one.pid].parent for one in keeper.helpers()]
        owners = {os.stat(f"/proc/{pid}/{name}").st_uid for pid in pids for name in ("mem", "environ")}
        assert len(set(pids)) >= 7  # keeper, two helpers and at least one guard's, and whoever watches over each
        assert owners == {0}
        assert keeper.shell("exit 4").code == 4
