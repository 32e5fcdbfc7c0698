"""A HAL of its own for a benchmark: real processes in a temporary home, ended and removed afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def say(bench: str, value: float, unit: str, target: float | None = None, *, higher: bool = True, **more: Any) -> None:
    """One measurement as a JSON line; with a target, whether it holds."""
    line: dict[str, Any] = {"bench": bench, "value": round(value, 3), "unit": unit}
    if target is not None:
        line |= {
            "target": target,
            "better": "higher" if higher else "lower",
            "holds": value >= target if higher else value <= target,
        }
    print(json.dumps(line | more), flush=True)


def command(home: Path, *words: str) -> None:
    """Run `hal` on that home; what it says goes to standard error."""
    subprocess.run([sys.executable, "-m", "hal.cli.main", "--home", str(home), *words], check=True, stdout=sys.stderr)


def as_typed(*words: str) -> tuple[list[str], dict[str, str]]:
    """The command as people type it, the script that an installation brings, and an environment for it: Python keeps
    what it has compiled, as it does for a package that was installed."""
    script = Path(sys.executable).with_name("hal")
    return [str(script), *words], {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def typed_cpu_ms(*words: str, runs: int = 20) -> float:
    """Milliseconds of CPU, user and system, that a typed command takes: the least of some runs, which other work on the
    machine hardly touches."""
    argv, environment = as_typed(*words)
    spent = []
    for _ in range(runs + 1):
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert not process.returncode, (argv, process.returncode)
        spent.append((used.ru_utime + used.ru_stime) * 1e3)
    return min(spent[1:])


@contextmanager
def private_hal(*up: str, config: str = "") -> Iterator[Path]:
    """A running HAL.

    Args:
        up: words after `hal up`.
        config: its hal.toml.
    """
    home = Path(tempfile.mkdtemp(prefix="hal-b-", dir="/tmp"))
    before = os.environ.get("HAL_HOME")
    os.environ["HAL_HOME"] = str(home)
    if config:
        (home / "hal.toml").write_text(config)
    try:
        command(home, "up", "--no-restart", *up)
        yield home
    finally:
        command(home, "down", "--kill")
        shutil.rmtree(home, ignore_errors=True)
        if before is None:
            del os.environ["HAL_HOME"]
        else:
            os.environ["HAL_HOME"] = before


def pid_of(home: Path, process: str) -> int:
    """Of a process of that home by its pid file's name (`controller`)."""
    return int(json.loads((home / "run" / f"{process}.pid").read_text())["pid"])


def cpu_s(pid: int) -> float:
    """CPU time that a process has used so far, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Its resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def xargs(count: int) -> float:
    """Tasks a second of `xargs -P2`, with the output of each captured in one file."""
    numbers = "\n".join(str(n) for n in range(count))
    begin = time.perf_counter()
    subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], input=numbers, text=True, check=True, capture_output=True)
    return count / (time.perf_counter() - begin)
