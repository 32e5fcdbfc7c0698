"""The first `hal up` after an installation: seconds until HAL answers, until a first job has ended, and until the
scheduling kernels are compiled and in use. Each run has a home of its own and an empty cache.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Final

from _private_hal import command, private_hal, say

RUNS: Final = 3
DEADLINE_S: Final = 900.0
TARGET_S: Final = 10.0


def first_up(cache: str, *, to_the_end: bool) -> tuple[float, float, float | None]:
    """Seconds from the start to the answer of `hal up`, to the end of a job, and to compiled kernels."""
    os.environ["HAL_CACHE"] = cache
    os.environ.pop("NUMBA_CACHE_DIR", None)
    began_s = time.perf_counter()
    with private_hal() as home:
        up_s = time.perf_counter() - began_s
        command(home, "run", "--", "true")
        ran_s = time.perf_counter() - began_s
        while to_the_end and time.perf_counter() - began_s < DEADLINE_S:
            if (home / "log" / "controller.log").read_text().count('"leading"') == 2:
                return up_s, ran_s, time.perf_counter() - began_s
            time.sleep(0.2)
        return up_s, ran_s, None


def main() -> None:
    """Measure."""
    ups, ends = [], []
    for number in range(RUNS):
        with tempfile.TemporaryDirectory() as cache:
            up_s, ran_s, compiled_s = first_up(cache, to_the_end=number == RUNS - 1)
        ups.append(up_s)
        ends.append(ran_s)
    say("first-up", statistics.median(ups), "s", TARGET_S, higher=False, note="empty cache: until `hal up` returns")
    say("first-up-first-job", statistics.median(ends), "s", TARGET_S, higher=False, note="until a first job has ended")
    if compiled_s is not None:
        say("first-up-compiled", compiled_s, "s", note="until compiled kernels are in use, once")


if __name__ == "__main__":
    main()
