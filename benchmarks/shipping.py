"""What a shipped directory adds to a job, from submission to its end, and what the controller's loop pays.

A real HAL; a directory of `--files` files, `--mib` together. Jobs run `true`, one after the other, without files and
with them: the first time (nothing of the directory is known anywhere), again (client, controller and node have it), and
with one file changed. The file service of the node runs already, as it does after the first job of the day that ships
anything; how long its start takes is said, too. Also: collecting and fetching the same files, and the slowest answer of
the controller to another client while directories come.
Prints JSON lines: `python benchmarks/shipping.py [--files 1000] [--mib 10]`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from _private_hal import private_hal, say
from hal import connect
from hal.client.sync_client import Client

FIRST_MS = 300.0
AGAIN_MS = 10.0
TIMES = 20
FIRST_TIMES = 5
SETTLE_S = 1.0
"""After a job, until the node has the next copy ready."""


def make_directory(path: Path, files: int, total: int) -> None:
    """Files of equal size, in ten directories, of which no two are alike."""
    for number in range(files):
        place = path / f"part-{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"file-{number}.dat").write_bytes(os.urandom(total // files))


def job_ms(client: Client, **options: object) -> float:
    """Milliseconds from submission to the known end of one job."""
    began = time.perf_counter()
    client.submit(["true"], **options).wait(check=True)  # type: ignore[arg-type]
    return (time.perf_counter() - began) * 1000


def typical(client: Client, times: int, before: Callable[[], object] = lambda: None, **options: object) -> float:
    """The median of some jobs, each after a pause."""
    found = []
    for _ in range(times):
        before()
        time.sleep(SETTLE_S)
        found.append(job_ms(client, **options))
    return statistics.median(found)


class Beside:
    """Asks for the health again and again, on a connection of its own; knows the slowest answer."""

    def __init__(self) -> None:
        self.slowest_ms = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with connect() as client:
            client.health()
            while not self._over.is_set():
                began = time.perf_counter()
                client.health()
                self.slowest_ms = max(self.slowest_ms, (time.perf_counter() - began) * 1000)
                self._over.wait(0.005)


def measure(client: Client, work: Path, files: int, total: int) -> None:
    """All of it."""
    bare_ms = typical(client, TIMES)
    say("shipping-bare-job", bare_ms, "ms", note="a job of `true` without files, submission to end")
    warm = work / "warm"
    make_directory(warm, 1, 1000)
    say(
        "shipping-service-start", job_ms(client, ship=warm) - bare_ms, "ms", note="first job of all: the service starts"
    )
    place = work / "place"

    def fresh() -> None:
        shutil.rmtree(place, ignore_errors=True)
        make_directory(place, files, total)

    first_ms = typical(client, FIRST_TIMES, fresh, ship=place) - bare_ms
    say("shipping-first", first_ms, "ms", FIRST_MS, higher=False, files=files, mib=total >> 20)
    job_ms(client, ship=place)
    again_ms = typical(client, TIMES, ship=place) - bare_ms
    say("shipping-again", again_ms, "ms", AGAIN_MS, higher=False, files=files, mib=total >> 20)

    def change() -> None:
        (place / "part-3" / "file-3.dat").write_bytes(os.urandom(total // files))

    say("shipping-one-changed", typical(client, FIRST_TIMES, change, ship=place) - bare_ms, "ms")
    collected_ms = typical(client, FIRST_TIMES, ship=place, collect=["**"]) - bare_ms
    say("shipping-collect", collected_ms, "ms", note="all files back to the controller, shipping included")
    job = client.submit(["true"], ship=place, collect=["**"])
    job.wait(check=True)
    began = time.perf_counter()
    assert len(job.fetch(work / "got")) == files
    say("shipping-fetch", (time.perf_counter() - began) * 1000, "ms")
    with Beside() as beside:
        for _ in range(FIRST_TIMES):
            fresh()
            job_ms(client, ship=place)
    say("shipping-health-beside", beside.slowest_ms, "ms", note="slowest answer to another client meanwhile")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--mib", type=int, default=10)
    given = parser.parse_args()
    print(f"{given.files:,} files, {given.mib} MiB", file=sys.stderr)
    with tempfile.TemporaryDirectory() as work, private_hal("--cpus", "4"):
        os.environ["XDG_CACHE_HOME"] = f"{work}/cache"
        with connect() as client:
            measure(client, Path(work), given.files, given.mib << 20)


if __name__ == "__main__":
    main()
