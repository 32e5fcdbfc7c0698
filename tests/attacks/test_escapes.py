"""Processes that hide from their step while its helper has others: ended with the step, and only they."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.runtime.identity import start_ticks
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate
from tests.daemons.agent.keeper.driving import Keeper
from tests.daemons.agent.keeper.test_keeper_guard import AS_NOBODY, NOBODY, without_root

ONE, OTHER = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)

DETACH = """
import os, resource, signal, sys, time
told = sys.argv[1]
def detach():
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.closerange(0, 64)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return True
def tell():
    fd = os.open(told + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, str(os.getpid()).encode())
    os.close(fd)
    os.rename(told + ".new", told)
"""
STAY = "tell(); os.execve('/bin/sleep', ['kworker/0:1', '600'], {})"
LEAVE_CGROUPS = """
for name in os.listdir("/sys/fs/cgroup"):
    try:
        open(f"/sys/fs/cgroup/{name}/cgroup.procs", "w").write("0")
    except OSError:
        pass
"""
ESCAPES = {
    "empty environment": STAY,
    "no mark": "resource.setrlimit(resource.RLIMIT_RTTIME, (7, 7)); " + STAY,
    "out of its cgroups": LEAVE_CGROUPS + STAY,
    "out of its cgroups, no mark": LEAVE_CGROUPS + "resource.setrlimit(resource.RLIMIT_RTTIME, (7, 7)); " + STAY,
    "another step's environment": (
        "tell(); os.execve('/bin/sleep', ['sleep', '600'], {'HAL_ATTEMPT_TOKEN': 'x', 'HAL_NODE': 'n1'})"
    ),
    "frozen": """
tell()
place = "/sys/fs/cgroup/freezer/" + os.path.basename(os.path.dirname(told)) + str(os.getpid())
try:
    os.mkdir(place)
    open(place + "/cgroup.procs", "w").write("0")
    open(place + "/freezer.state", "w").write("FROZEN")
except OSError:
    pass
time.sleep(600)
""",
    "twice detached": "os.setsid() if not os.fork() else os._exit(0); " + STAY,
    "in namespaces of its own": """
import ctypes
libc = ctypes.CDLL(None)
libc.unshare(0x20000000 | 0x00020000)  # CLONE_NEWPID, CLONE_NEWNS; refused to who is not root
tell()
if os.fork() == 0:
    os.execve('/bin/sleep', ['sleep', '600'], {})
time.sleep(600)
""",
    "with orphans of its own": """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
tell()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve('/bin/sleep', ['sleep', '600'], {})
    os._exit(0)
time.sleep(600)
""",
    "without a look at its memory": """
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody but root sees its /proc
tell()
time.sleep(600)
""",
    "a new pid all the time": """
while True:
    tell()
    if os.fork():
        os._exit(0)
    os.setsid()
""",
}
END = "\nwhile not os.path.exists(told): time.sleep(0.01)\n"


@pytest.fixture(params=["root", "nobody"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    """One helper; of root with cgroups, of another user without."""
    if os.geteuid() != 0:
        pytest.skip("acting as two users needs root")
    if request.param == "root":
        with Keeper(tmp_path / "home", helpers=1) as keeper:
            yield keeper
        return
    if reason := without_root():
        pytest.skip(reason)
    with Keeper(tmp_path / "home", helpers=1, under=AS_NOBODY, owner=NOBODY) as keeper:
        yield keeper


def escaping(how: str, told: Path, *, then: str = "") -> StepTemplate:
    """A step that lets a process out in that way and ends, or does something else first."""
    code = DETACH + f"if detach():\n    exec({ESCAPES[how]!r})\n" + END + then
    return StepTemplate(command=(sys.executable, "-I", "-S", "-c", code, str(told)), cpu_milli=1000)


def none_left(told: Path) -> bool:
    """Of what escaped: also where it changes its pid."""
    pid = int(told.read_text())
    before = told.stat().st_mtime_ns
    return start_ticks(pid) is None and told.stat().st_mtime_ns == before and int(told.read_text()) == pid


@pytest.mark.parametrize("how", ESCAPES)
def test_what_escapes_ends_with_its_step_while_others_go_on(keeper: Keeper, tmp_path: Path, how: str) -> None:
    """(M8, attempt 92) Its helper has another step, older and younger processes of which are left alone."""
    place = tmp_path / "told"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    daemon = escaping("empty environment", place / "other", then="time.sleep(600)")
    keeper.launch(daemon, OTHER)
    keeper.running(OTHER)
    keeper.poll(lambda: (place / "other").exists())
    ended = keeper.run(escaping(how, place / "told"), ONE)
    assert ended.cause is ExitCause.EXITED
    assert ended.code == 0, keeper.log(ONE)
    assert none_left(place / "told")
    assert start_ticks(keeper.started[OTHER]) is not None
    assert start_ticks(int((place / "other").read_text())) is not None
    keeper.stop(OTHER, grace_ms=0)
    keeper.exit_of(OTHER)
    assert none_left(place / "other")
    for made in Path("/sys/fs/cgroup/freezer").glob("told*"):
        made.rmdir()


def test_what_escapes_does_not_outlive_a_cancelled_step(keeper: Keeper, tmp_path: Path) -> None:
    """(M8, attempt 91) Cancelled while it goes on: what has lowered its mark, too."""
    place = tmp_path / "told"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    keeper.launch(StepTemplate(command=("sleep", "600")), OTHER)
    keeper.running(OTHER)
    keeper.launch(escaping("no mark", place / "told", then="time.sleep(600)"), ONE)
    keeper.running(ONE)
    keeper.poll(lambda: (place / "told").exists())
    keeper.stop(ONE, grace_ms=0)
    assert keeper.exit_of(ONE).cause is ExitCause.CANCELLED
    assert none_left(place / "told")
    assert start_ticks(keeper.started[OTHER]) is not None
