"""A HAL all of whose streams between machines go through its relay, as its hal.toml says; here on one machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.test_terminals import free_port
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def live() -> Iterator[LiveHal]:
    """Clients come to its URL, as from elsewhere."""
    made = LiveHal(new_home())
    made.home.create()
    made.home.config.write_text('[server]\nrelay = "always"\n')
    try:
        made.up("--nodes", "2", "--cpus", "2", "--memory", "512MiB", "--tcp", str(port := free_port()))
        token = (made.root / "token").read_text().strip()
        made.environment |= {"HAL_URL": f"http://127.0.0.1:{port}", "HAL_TOKEN": token, "HAL_PLAIN": "1"}
        yield made
    finally:
        for name in ("HAL_URL", "HAL_TOKEN", "HAL_PLAIN"):
            made.environment.pop(name, None)
        made.remove()


@pytest.fixture(scope="module")
def job(live: LiveHal) -> str:
    """A running one on both nodes."""
    job = live.run("run", "--detach", "-N", "2", "--", "sleep", "1000", check=True).out.strip()
    until(lambda: "running" in live.run("show", job).out, "it did not run")
    return job


def relays(live: LiveHal) -> list[int]:
    """The pids of its relay, and of those that serve pairs."""
    words = str(live.home.relay_socket()).encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def test_streams_go_through_the_relay_if_the_site_says_so(live: LiveHal, job: str) -> None:
    """Megabytes in both directions, and the exit code."""
    ran = live.run("exec", "-i", job, "--", "sh", "-c", "cat; exit 3", text="x" * 3_000_000)
    assert (ran.code, len(ran.out)) == (3, 3_000_000), ran.err
    assert relays(live)


def test_a_launch_goes_through_the_relay(live: LiveHal, job: str) -> None:
    ran = live.run("launch", "--job", job, "-n", "4", "sh", "-c", "echo $HAL_NODE")
    assert (ran.code, sorted(ran.out.split())) == (0, ["n1", "n1", "n2", "n2"]), ran.err


def test_a_stream_has_a_process_of_its_own_which_outlives_the_controller(live: LiveHal, job: str) -> None:
    """And ends with its client."""
    inside = subprocess.Popen(
        live.command("exec", "-i", job, "--", "cat"),
        env=live.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert inside.stdin is not None
    assert inside.stdout is not None
    for word in (b"before\n", b"after\n"):
        inside.stdin.write(word)
        inside.stdin.flush()
        assert inside.stdout.readline() == word
        assert len(relays(live)) == 2
        if word == b"before\n":
            live.run("down", "--leave", check=True)
            live.up()
    inside.kill()
    inside.communicate(timeout=DEADLINE_S)
    until(lambda: len(relays(live)) == 1, "the process of a stream outlived it")
