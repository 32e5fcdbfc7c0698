"""The first start after an installation: HAL answers at once, and its kernels are compiled meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hal.core.kernels.structures.jit import stamp_of_all
from hal.runtime.kernel_compiler import LOCK
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, until
from tests.wheels import build_wheel, empty_environment, install

SMALL = ("--cpus", "1", "--memory", "256MiB")
COMPILING = "kernels are being compiled"

pytestmark = pytest.mark.slow


def started(live: LiveHal) -> list[str]:
    """What the controller's log says of each start of it, by process."""
    lines = map(json.loads, live.home.log_file("controller").read_text().splitlines())
    return [line["pid"] for line in lines if line["event"] == "started"]


def problems(live: LiveHal) -> str:
    """What `hal status` says besides."""
    return str(json.loads(live.run("status", "--json").out)["problems"])


def test_work_begins_on_plain_kernels_and_goes_on_with_compiled_ones(own_hal: LiveHal, tmp_path: Path) -> None:
    """All kernels are in the cache, but nobody says so: compiling them is quick, and the controller goes over."""
    cache = tmp_path / "cache"
    of_these = stamp_of_all()
    shutil.copytree(of_these.parent, cache / of_these.parent.name)
    (cache / of_these.parent.name / of_these.name).unlink()
    with (cache / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # somebody else compiles: ours waits
        own_hal.environment |= {"HAL_CACHE": str(cache)}
        own_hal.environment.pop("NUMBA_CACHE_DIR", None)
        up = own_hal.run("up", *SMALL, check=True)
        assert "in the background" in up.err
        assert COMPILING in problems(own_hal)
        gate = Gate(tmp_path)
        job = own_hal.run("submit", "--", *gate.command("echo through"), check=True).out.strip()
        gate.started()
    until(lambda: len(started(own_hal)) == 2, "the controller begins anew")
    assert len(set(started(own_hal))) == 1
    until(lambda: COMPILING not in problems(own_hal), "compiled kernels are in use")
    gate.open()
    own_hal.run("wait", job, check=True)
    assert own_hal.run("logs", job).out == "through\n"
    gate.close()


def test_hal_works_where_its_kernels_cannot_be_compiled(own_hal: LiveHal, tmp_path: Path) -> None:
    """It says so, and what to do."""
    cache = tmp_path / "cache"
    (cache / LOCK).mkdir(parents=True)
    own_hal.environment |= {"HAL_CACHE": str(cache)}
    own_hal.environment.pop("NUMBA_CACHE_DIR", None)
    own_hal.run("up", *SMALL, check=True)
    until(lambda: "could not be compiled" in problems(own_hal), "the failure is told")
    assert own_hal.run("run", "--", "echo", "hello", check=True).out == "hello\n"


def test_a_wheel_in_an_empty_environment_runs_its_first_job_before_anything_is_compiled(
    own_hal: LiveHal, tmp_path: Path
) -> None:
    """As a user does: build, install, `hal up`, `hal run`. The dependencies are those of this environment."""
    fresh = tmp_path / "fresh"
    empty_environment(fresh)
    install(fresh, build_wheel(tmp_path))
    cache = tmp_path / "cache"
    environment = {**os.environ, "HAL_HOME": str(own_hal.root), "HAL_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    environment.pop("PYTHONPATH", None)

    def installed(*words: str) -> str:
        command = [fresh / "bin" / "hal", *words]
        ran = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=3 * DEADLINE_S
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    installed("up", "--no-restart", *SMALL)
    assert installed("run", "--", "echo", "hello") == "hello\n"
    assert COMPILING in installed("status", "--json")
    where = subprocess.run(
        [fresh / "bin" / "python", "-c", "import hal; print(hal.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(fresh)
    installed("down", "--kill")
    until(lambda: not compiling(cache), "nothing compiles for a HAL that was stopped")


def compiling(cache: Path) -> bool:
    """Whether a process compiles into this cache."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(cache).encode() in words:
            return True
    return False
