"""Sandboxed jobs on a real HAL: what they see and change, and that they are ended, limited and seen like others."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from tests.e2e.conftest import LiveHal, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap"),
]


def said(live: LiveHal, sandbox: str, script: str, *options: str, **env: str) -> str:
    """What a job with that sandbox prints."""
    return live.run("run", "--sandbox", sandbox, *options, "--", "sh", "-c", script, check=True, **env).out


def test_a_sandboxed_job_changes_only_its_work_directory(shared_hal: LiveHal, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    script = f"echo 1 >here; echo 1 >{other}/there; echo 1 >/usr/hal-marker; ls {tmp_path} 2>/dev/null; ls"
    assert "here" in said(shared_hal, "read-only", f"{script} 2>/dev/null", "-C", str(own))
    assert (os.listdir(own), os.listdir(other), os.path.exists("/usr/hal-marker")) == (["here"], [], False)


def test_a_directory_that_a_job_names_is_writable_too(shared_hal: LiveHal, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    said(shared_hal, f"yes,writable={other}", f"echo 1 >{other}/there", "-C", str(own))
    assert os.listdir(other) == ["there"]


def test_a_private_tmp_is_empty_and_gone_afterwards(shared_hal: LiveHal, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    script = (
        "ls /var/tmp; echo 1 >/tmp/hal-note; echo 1 >/var/tmp/hal-note; echo 1 >/dev/shm/hal-note; cat /tmp/hal-note"
    )
    assert said(shared_hal, "private-tmp", script, "-C", str(tmp_path / "own")) == "1\n"
    assert not any(os.path.exists(f"{place}/hal-note") for place in ("/tmp", "/var/tmp", "/dev/shm"))


def test_with_its_own_proc_a_job_sees_itself_alone(shared_hal: LiveHal) -> None:
    seen = said(shared_hal, "own-proc", "ls /proc | grep -c '^[0-9]'")
    assert int(seen) < 10


def test_without_network_there_is_only_a_loopback_device(shared_hal: LiveHal) -> None:
    assert said(shared_hal, "yes,no-network", "grep -c : /proc/net/dev") == "1\n"


def test_nothing_of_hal_is_seen_but_its_rest(shared_hal: LiveHal) -> None:
    """The home belongs to the step's user here: its token would make the step an admin."""
    script = (
        'ls -A "$HAL_HOME" "$HAL_HOME/run"; d=$(cat "$HAL_HOME/run/socket-dir"); ls -A "$d"; '
        'test -e "$HAL_HOME/token" || echo hidden'
    )
    out = said(shared_hal, "own-proc", script)
    assert "hidden" in out
    assert set(out.split()) <= {
        "hidden",
        "run",
        "socket-dir",
        "api.sock",
        f"{shared_hal.root}:",
        f"{shared_hal.root}/run:",
    }


def test_a_script_runs_in_a_sandbox(shared_hal: LiveHal, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nls /var/tmp; exit 4\n")
    assert shared_hal.run("submit", "--sandbox", "yes", "--wait", script).code == 4


def test_a_sandboxed_job_that_is_cancelled_can_end_by_itself(shared_hal: LiveHal, tmp_path: Path) -> None:
    """SIGTERM reaches it, and does not end what waits for it outside its namespace."""
    script = f"trap 'echo saved; exit 3' TERM; touch {tmp_path}/begun; sleep 600 & wait"
    with shared_hal.client() as client:
        job = client.submit(["sh", "-c", script], sandbox="yes", workdir=str(tmp_path))
        until((tmp_path / "begun").exists, "the job has begun")
        job.cancel()
        assert job.wait().exit_code == 3
        assert b"".join(job.log_bytes()) == b"saved\n"


def test_what_a_sandboxed_job_leaves_behind_ends_with_it(shared_hal: LiveHal, tmp_path: Path) -> None:
    """A process of a session of its own, in a namespace of its own; it holds a lock for as long as it lives."""
    script = f"flock {tmp_path}/lock setsid sleep 600 & until ! flock -n {tmp_path}/lock true; do :; done"
    said(shared_hal, "yes", script, "-C", str(tmp_path))
    with open(tmp_path / "lock") as lock:
        until(lambda: _free(lock.fileno()), "what it left has ended")


def _free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
