"""Tasks of a session beside Ray, Dask, Parsl and the pools of Python's standard library: `make bench-sessions PEERS=1`.

No-op tasks, one future each, two workers, on the same machine one after the other; the note says how many times HAL's
figure each one's is. Ray, Dask and Parsl are installed in environments that are removed afterwards; one that cannot be
installed or does not run is said to be not measured, and why.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import cloudpickle

import sessions
from hal.client.session import open_session
from hal.runtime.session_file import new_session_file, private_directory, write_session_file
from sessions import ROUND_TRIPS, SLOTS, round_trips, say, started, submit_rate

HAL_TASKS: Final = 100_000
TASKS: Final = {"pool": 20_000, "multiprocessing": 20_000, "dask": 3_000, "ray": 3_000, "parsl": 3_000}
INSTALLED: Final = {"dask": "distributed", "ray": "ray", "parsl": "parsl"}
INSTALL_S: Final = 300
RUN_S: Final = 120
SKIPPED: Final = 77


def measure_hal() -> tuple[float, float]:
    """Tasks a second, and ms of a round trip."""
    cloudpickle.register_pickle_by_value(sessions)  # workers cannot import a benchmark
    directory = private_directory()
    file = directory / "session.json"
    write_session_file(file, new_session_file(directory))
    processes = list(started(file, file))
    try:
        with open_session(file) as session:
            trips = statistics.median(round_trips(session, ROUND_TRIPS))
            return submit_rate(session, HAL_TASKS), trips
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def measure_peer(name: str, directory: Path) -> dict[str, Any]:
    """Its figures.

    Raises:
        RuntimeError: why there are none.
    """
    python = sys.executable
    if name in INSTALLED:
        done([sys.executable, "-m", "venv", str(directory)], INSTALL_S)
        python = str(directory / "bin" / "python")
        done([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", INSTALLED[name]], INSTALL_S)
    peer = Path(__file__).with_name("_session_peer.py")
    lines = done([python, str(peer), name, str(TASKS[name])], RUN_S).splitlines()
    found: dict[str, Any] = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    return found


def done(argv: list[str], limit_s: int) -> str:
    """Run a command; returns its output.

    Raises:
        RuntimeError: it failed, or took too long.
    """
    try:
        path = f"{Path(argv[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # of Parsl
        environment = {**os.environ, "PATH": path}
        run = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, env=environment)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(argv[1:4])} took more than {limit_s} s") from None
    if run.returncode:
        raise RuntimeError((run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1][:200])
    return run.stdout


def main() -> int:
    if not os.environ.get("PEERS"):
        print("it installs Ray, Dask and Parsl: make bench-sessions PEERS=1")
        return SKIPPED
    rate, trip = measure_hal()
    say("peers-hal", rate, "tasks/s", note=f"{SLOTS} slots, submit")
    say("peers-hal-round-trip", trip, "ms", better="lower")
    for name in TASKS:
        with tempfile.TemporaryDirectory(prefix="hal-peer-") as directory:
            try:
                found = measure_peer(name, Path(directory))
            except (RuntimeError, StopIteration) as error:
                print(f"{name}: not measured: {error}")
                continue
        say(f"peers-{name}", found["rate"], "tasks/s", note=f"HAL has {rate / found['rate']:.1f} times as many")
        ratio = found["round_trip_ms"] / trip
        say(f"peers-{name}-round-trip", found["round_trip_ms"], "ms", better="lower", note=f"{ratio:.1f} times HAL's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
