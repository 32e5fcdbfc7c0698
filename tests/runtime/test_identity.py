"""Processes are known by pid and start time, so that a recycled pid is never mistaken for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.runtime.identity import (
    ProcessIdentity,
    alive,
    identify,
    kill,
    read_pid_file,
    remove_pid_file,
    running,
    wait_gone,
    write_pid_file,
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_this_process_is_alive() -> None:
    """Its identity names its pid."""
    assert identify().pid == os.getpid()
    assert alive(identify())


def test_a_process_with_a_recycled_pid_is_not_the_one_meant(child: subprocess.Popen[bytes]) -> None:
    """Same pid, other start time: not alive, and a signal meant for the old one does not reach the new one."""
    old = identify(child.pid)._replace(start_ticks=identify(child.pid).start_ticks - 1)
    assert not alive(old)
    assert kill(old, signal.SIGKILL) is False
    assert child.poll() is None


def test_a_process_of_another_boot_is_not_the_one_meant(child: subprocess.Popen[bytes]) -> None:
    """Pid and ticks may repeat after a reboot; the boot id does not."""
    assert not alive(identify(child.pid)._replace(boot_id="another"))


def test_a_killed_process_is_gone_even_as_a_zombie(child: subprocess.Popen[bytes]) -> None:
    """Waiting ends when it has ended, before its parent reaps it."""
    who = identify(child.pid)
    assert kill(who, signal.SIGKILL)
    assert wait_gone(who, timeout_s=30)
    assert not alive(who)
    assert kill(who, signal.SIGKILL) is False


def test_waiting_for_a_process_that_lives_ends_at_the_deadline(child: subprocess.Popen[bytes]) -> None:
    """False: it is still there."""
    assert wait_gone(identify(child.pid), timeout_s=0.01) is False


def test_a_name_with_spaces_and_parentheses_does_not_confuse(tmp_path: Path) -> None:
    """/proc/PID/stat holds the name in parentheses; fields are counted from the last one."""
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    try:
        assert alive(identify(process.pid))
        assert identify(process.pid).start_ticks >= identify().start_ticks
    finally:
        process.kill()
        process.wait()


def test_a_pid_file_names_a_process_while_it_runs(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """Written whole, 0600; once the process is dead the file names nobody."""
    path = tmp_path / "x.pid"
    assert running(path) is None
    who = write_pid_file(path, identify(child.pid))
    assert running(path) == who
    assert path.stat().st_mode & 0o777 == 0o600
    child.kill()
    assert wait_gone(who, timeout_s=30)
    assert running(path) is None
    assert read_pid_file(path) == who


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "12", '{"pid": "x", "start_ticks": 1}', "\x00\xff", "null"])
def test_a_damaged_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    """It is not an error: the process is simply not known."""
    path = tmp_path / "x.pid"
    path.write_text(text)
    assert read_pid_file(path) is None


def test_only_ones_own_pid_file_is_removed(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """A predecessor that ends late must not remove its successor's."""
    path = tmp_path / "x.pid"
    write_pid_file(path, identify(child.pid))
    remove_pid_file(path)
    assert path.exists()
    write_pid_file(path)
    remove_pid_file(path)
    assert not path.exists()


def test_there_is_no_process_with_an_impossible_pid() -> None:
    """Above the kernel's largest."""
    with pytest.raises(ProcessLookupError):
        identify(2**22 + 1)
    assert not alive(ProcessIdentity(2**22 + 1, 1))
    assert not alive(None)
