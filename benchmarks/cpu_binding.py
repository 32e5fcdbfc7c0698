"""What it costs to give each step CPUs of its own: two of each, one that binds and one that does not, take turns.

Keepers alone: pairs of /bin/true at once, one CPU each, as steps of a busy node that are not heirs of each other; here
every step is bound anew. A whole HAL: an array of /bin/true, whose tasks follow each other on credit. Each figure is
the median over the rounds of (time with binding) / (time without), both of a round measured at once after each other.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import hal
from _private_hal import private_hal, say
from hal.runtime import step_users
from hal.wire.frames.agent_keeper import StepTemplate
from keeper import Driver

PAIRS = 20
KEEPER_ROUNDS = 60
TASKS = 500
HAL_ROUNDS = 20
MOST = 1.02
CPUS = len(os.sched_getaffinity(0))


def compare(name: str, with_cpus: Callable[[], float], without: Callable[[], float], rounds: int) -> None:
    """Let them take turns, and print the median of the ratios."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            bound = with_cpus()
            pairs.append((bound, without()))
        else:
            free = without()
            pairs.append((with_cpus(), free))
    ratio = statistics.median(bound / free for bound, free in pairs)
    bound_us, us = (round(statistics.median(column) * 1e6, 1) for column in zip(*pairs, strict=True))
    say(name, ratio, "ratio", MOST, higher=False, bound_us=bound_us, free_us=us)


def keeper_at(home: Path, bind: str) -> Driver:
    home.mkdir()
    (home / "hal.toml").write_text(f'[node]\nbind = "{bind}"\n')
    return Driver(home)


def step_s(driver: Driver, template: StepTemplate) -> float:
    """Of a step, two at a time."""
    return sum(driver.run(2, template) for _ in range(PAIRS)) / PAIRS / 2


def task_s(client: hal.Client) -> float:
    begin = time.perf_counter()
    client.submit(["/bin/true"], array=TASKS).wait()
    return (time.perf_counter() - begin) / TASKS


def main() -> int:
    os.environ.setdefault(step_users.VARIABLE, "1")  # frames name no user
    true = StepTemplate(command=("/bin/true",), cpu_milli=1000, env={"PATH": os.environ["PATH"]})
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as directory:
        drivers = [keeper_at(Path(directory) / bind, bind) for bind in ("cpus", "none")]
        try:
            bound, free = drivers
            compare("cpu-binding-step", lambda: step_s(bound, true), lambda: step_s(free, true), KEEPER_ROUNDS)
        finally:
            for driver in drivers:
                driver.close()
    with (
        private_hal("--cpus", str(CPUS), config='[node]\nbind = "cpus"\n') as bound_home,
        private_hal("--cpus", str(CPUS), config='[node]\nbind = "none"\n') as free_home,
        hal.connect(home=bound_home) as with_cpus,
        hal.connect(home=free_home) as without,
    ):
        for client in (with_cpus, without):
            client.submit(["/bin/true"], array=200).wait()
        compare("cpu-binding-array", lambda: task_s(with_cpus), lambda: task_s(without), HAL_ROUNDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
