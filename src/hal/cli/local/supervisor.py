"""`python -m hal.cli.local.supervisor`: starts again what `hal up` or `hal agent` started here and ended since.

`hal up` starts it; `hal up --foreground` is one itself, for service managers and containers.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from hal.cli.local.supervision import Supervisor
from hal.core.model import ConflictError
from hal.runtime.home import Home
from hal.runtime.identity import remove_pid_file, write_pid_file
from hal.runtime.inheritance import confine_daemon
from hal.runtime.logfile import LogFile
from hal.runtime.regular_files import open_own
from hal.runtime.service_manager import ALIVE, notify, watchdog_s
from hal.runtime.startup import SUPERVISOR

LOOK_S: Final = 0.5
"""Pause between two looks at what runs."""
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
LEAVE_ALL: Final = signal.SIGUSR1
"""`hal down` sends it: end, and leave everything as it is."""
ALREADY_RUNNING: Final = 75


class Signals:
    """Signals that end the process, one after the other, instead of ending it at once."""

    def __init__(self) -> None:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in ENDING:
            signal.signal(number, lambda *_: None)

    def wait(self, timeout_s: float) -> int:
        """The number of the one that came; 0: none within the time."""
        ready, _, _ = select.select([self._read], [], [], timeout_s)
        return os.read(self._read, 1)[0] if ready else 0


@contextlib.contextmanager
def supervising(home: Home) -> Iterator[Supervisor]:
    """The only supervisor of this home; its pid file names this process.

    Raises:
        ConflictError: another one runs.
    """
    lock = open_own(home.run_dir / "supervisor.lock", os.O_RDWR)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                f"HAL at {home.root} is supervised already", hint="stop it first: hal down --leave"
            ) from None
        pid_file = home.pid_file(SUPERVISOR)
        log = LogFile(home.log_file(SUPERVISOR))
        write_pid_file(pid_file)
        try:
            yield Supervisor(home, partial(_write, log))
        finally:
            remove_pid_file(pid_file)
    finally:
        os.close(lock)


def _write(log: LogFile, event: str, **fields: object) -> None:
    """One line, without the library of logs, which is larger than the supervisor."""
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    log.write_line(json.dumps({"timestamp": at, "level": "warning", "event": event, **fields}))


def watch(supervisor: Supervisor, signals: Signals, looked: Callable[[], None] | None = None) -> int:
    """Look again and again until a signal says to end; returns its number.

    Args:
        looked: called after each look.
    """
    told_s = watchdog_s()
    while True:
        supervisor.look(time.monotonic())
        if looked is not None:
            looked()
        if told_s is not None:
            notify(ALIVE)
        if os.getpid() == 1:
            _reap()
        number = signals.wait(LOOK_S if told_s is None else min(LOOK_S, told_s / 2))
        if number:
            return number


def _reap() -> None:
    """As the first process of a container: what its own parent did not wait for ends here."""
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
            pass


def main(argv: Sequence[str]) -> int:
    """Run until `hal down`; the process's exit code."""
    parser = argparse.ArgumentParser(prog="hal-supervisor")
    parser.add_argument("--home", required=True)
    home = Home(parser.parse_args(argv).home)
    signals = Signals()
    try:
        with supervising(home) as supervisor:
            watch(supervisor, signals)
    except ConflictError:
        return ALREADY_RUNNING
    return 0


if __name__ == "__main__":
    confine_daemon(database=True)
    sys.exit(main(sys.argv[1:]))
