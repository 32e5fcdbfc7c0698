"""CPUs of steps as people see them, on a real HAL: in programs, in `hal show`, in `hal exec`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from hal.core.model.cpu_lists import format_cpus
from tests.e2e.conftest import LiveHal, new_home, until

pytestmark = pytest.mark.slow

CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def live() -> Iterator[LiveHal]:
    """A HAL whose node is this machine and binds."""
    found = LiveHal(new_home())
    found.root.mkdir(exist_ok=True)
    (found.root / "hal.toml").write_text('[node]\nbind = "cpus"\n')
    try:
        found.up("--name", "n1", "--cpus", str(len(CPUS)))
        yield found
    finally:
        found.remove()


def test_a_job_sees_its_cpus_and_so_does_whoever_looks(live: LiveHal) -> None:
    """All of the node, which nobody else gets meanwhile; what enters the step has them, too."""
    count = len(CPUS)
    with live.client() as client:
        job = client.submit(["sleep", "1000"], cpus=count)
        bound = f"CPUs {format_cpus(CPUS)} of n1"
        until(lambda: bound in live.run("show", job.id).out, "hal show does not say where it is bound")
        ask = "import os; print(sorted(os.sched_getaffinity(0)))"
        assert live.run("exec", job.id, "--", "python3", "-c", ask, check=True).out == f"{CPUS}\n"
        if count % 2 == 0:
            words = ("launch", "--job", job.id, "-n", "2", "python3", "-c", ask)
            halves = [set(json.loads(line)) for line in live.run(*words, check=True).out.splitlines()]
            assert (halves[0] | halves[1], halves[0] & halves[1]) == (set(CPUS), set())
            assert live.run(*words[:3], "--no-bind", *words[3:], check=True).out == f"{CPUS}\n" * 2
        client.cancel(job.id)
        one = client.submit(["python3", "-c", ask], cpus=1)
        one.wait(check=True)
        assert live.run("logs", one.id).out in [f"[{cpu}]\n" for cpu in CPUS]
