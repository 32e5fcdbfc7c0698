"""A HAL of a user without rights: its interactive work, commands in steps, ports, allocations and launches."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import LiveHal, new_home, until

NOBODY = 65_534
CAN_READ = "+dac_read_search"
"""What is installed for these tests lies where only root may read."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root becomes another user"),
]


class HalOfNobody(LiveHal):
    """Everything of it, `hal` too, runs as nobody."""

    def command(self, *args: object) -> list[str]:
        """As that user."""
        caps = [f"--inh-caps={CAN_READ}", f"--ambient-caps={CAN_READ}"]
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *caps, *super().command(*args)]


@pytest.fixture(scope="module")
def live() -> Iterator[HalOfNobody]:
    root = new_home()
    os.chown(root, NOBODY, NOBODY)
    made = HalOfNobody(root)
    cache = root / "kernels"  # others' are not trusted
    shutil.copytree(os.environ["HAL_CACHE"], cache)
    for place in (cache, *cache.rglob("*")):
        os.chown(place, NOBODY, NOBODY)
    made.environment |= {"HOME": str(root), "USER": "nobody", "LOGNAME": "nobody"}
    made.environment |= dict.fromkeys(("HAL_CACHE", "NUMBA_CACHE_DIR"), str(cache))
    made.environment.pop("XDG_RUNTIME_DIR", None)
    try:
        made.up("--nodes", "2", "--cpus", "2", "--memory", "512MiB")
        yield made
    finally:
        made.remove()


def test_its_interactive_jobs_run_as_itself(live: HalOfNobody) -> None:
    ran = live.run("run", "-i", "-C", "/", "--", "sh", "-c", "id -u; cat", text="typed")
    assert (ran.code, ran.out) == (0, f"{NOBODY}\ntyped"), ran.err


def test_it_allocates_and_launches(live: HalOfNobody) -> None:
    """On both nodes, from a shell here."""
    launch = f"{sys.executable} -m hal.cli.main launch -C / -l id -u"
    ran = live.run("alloc", "-N", "2", "-C", "/", "--here", "--", "sh", "-c", launch)
    assert (ran.code, sorted(ran.out.splitlines())) == (0, [f"[0] {NOBODY}", f"[1] {NOBODY}"]), ran.err


def test_commands_enter_its_steps(live: HalOfNobody) -> None:
    """And end with their clients."""
    job = live.run("run", "--detach", "-C", "/", "--", "sleep", "1000", check=True).out.strip()
    until(lambda: "running" in live.run("show", job).out, "it did not run")
    ran = live.run("exec", "-i", job, "--", "sh", "-c", "id -u; cat; exit 7", text="typed")
    live.run("cancel", job)
    assert (ran.code, ran.out) == (7, f"{NOBODY}\ntyped"), ran.err


@pytest.mark.parametrize("collect", [(), ("--collect", "result")])
def test_a_job_that_closes_its_own_directory_leaves_nothing(
    live: HalOfNobody, tmp_path: Path, collect: tuple[str, ...]
) -> None:
    """To its user, who is also HAL's: what is collected is collected, and the directory is removed."""
    place = live.root / "shipped"
    place.mkdir(exist_ok=True)
    (place / "hello.txt").write_text("hello")
    os.chown(place, NOBODY, NOBODY)
    ship = ("--ship", str(place), *collect)
    ran = live.run("submit", "--wait", *ship, "--", "sh", "-c", "echo 42 > result; chmod 0 .")
    assert ran.code == 0, ran.err
    if collect:
        live.run("fetch", ran.out.split()[0], "--to", tmp_path / "got", check=True)
        assert (tmp_path / "got" / "result").read_text() == "42\n"

    def left() -> list[Path]:
        return [one for one in live.root.glob("nodes/*/*work/*") if not one.name.startswith("ready.")]

    until(lambda: not left(), f"these are left: {left()}")
