"""Stands in for systemctl on a host of these tests, where no systemd runs: it does what the units say, and no more.

`systemctl.py DIRECTORY VERB [--now] UNIT...`: the directory holds what runs. Of a unit it reads Type, Environment and
ExecStart, quoted as systemd reads them, and of its own environment where kernels are; a service of `Type=notify` has
started when it says READY=1. Timers only count as enabled; what they start can be started by name.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
DEADLINE_S = 120.0


def settings(unit: str) -> dict[str, str]:
    """The settings of a unit, by name."""
    lines = (UNITS / unit).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def start(directory: Path, unit: str) -> None:
    """Start a service and wait until it says that it works, or has ended if it is a oneshot."""
    found = settings(unit)
    (variable,) = shlex.split(found["Environment"])
    name, _, value = variable.partition("=")
    words = shlex.split(found["ExecStart"].replace("$$", "$").replace("%%", "%"))
    environment = {"PATH": os.environ["PATH"], "HAL_CACHE": os.environ["HAL_CACHE"], name: value}
    with (directory / f"{unit}.out").open("ab") as output:
        if found["Type"] == "oneshot":
            subprocess.run(words, env=environment, stdout=output, stderr=output, check=True, timeout=DEADLINE_S)
            return
        path = directory / "notify"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(path))
            told.settimeout(DEADLINE_S)
            process = subprocess.Popen(
                words,
                env={**environment, "NOTIFY_SOCKET": str(path)},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            (directory / f"{unit}.pid").write_text(str(process.pid))
            while b"READY=1" not in told.recv(4096).split(b"\n"):
                continue


def stop(directory: Path, unit: str) -> None:
    """Ask the service's main process to end, and wait until it has (`KillMode=process`)."""
    note = directory / f"{unit}.pid"
    if not note.exists():
        return
    pid = int(note.read_text())
    note.unlink()
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    os.kill(pid, signal.SIGTERM)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    if not poll.poll(DEADLINE_S * 1000):
        raise SystemExit(f"{unit}: process {pid} does not end")


def main() -> None:
    """Do it."""
    directory = Path(sys.argv[1])
    verb, *rest = sys.argv[2:]
    now = "--now" in rest
    deadline_s = time.monotonic() + DEADLINE_S
    for word in rest:
        unit = word if word.endswith(".timer") else f"{word}.service"
        if word == "--now":
            continue
        if not (UNITS / unit).exists():
            raise SystemExit(f"Unit {unit} not found.")
        if unit.endswith(".timer"):
            continue
        if verb in {"stop", "restart"} or (verb == "disable" and now):
            stop(directory, unit)
        if verb in {"start", "restart"} or (verb == "enable" and now):
            start(directory, unit)
        assert time.monotonic() < deadline_s


if __name__ == "__main__":
    main()
