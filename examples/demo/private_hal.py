"""A HAL of one's own: started in a temporary HAL_HOME, stopped and removed whatever happens.

What a person does with `hal up` and `hal down`, as a context manager: useful in notebooks and tests as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

DOWN_S: Final = 60.0
"""How long `hal down --kill` may take: five seconds of grace for the steps, then the processes."""
ENDING_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
REMOVALS: Final = 50
"""How often the removal of the home is tried, ten times a second."""
LOG_LINES: Final = 15
"""How much of the controller's log is shown when something went wrong."""


def hal_command(*words: str | Path, home: Path | None = None, timeout_s: float | None = None) -> None:
    """Run the `hal` command of this Python; its output goes to the terminal.

    Raises:
        subprocess.CalledProcessError: it exited with another code than 0.
        subprocess.TimeoutExpired: it had not ended after `timeout_s` and was killed.
    """
    program = Path(sys.executable).with_name("hal")
    environment = {**os.environ, "HAL_HOME": str(home)} if home else dict(os.environ)
    subprocess.run([program, *words], env=environment, stdin=subprocess.DEVNULL, check=True, timeout=timeout_s)


@contextmanager
def private_hal(*, nodes: int) -> Iterator[Path]:
    """Start HAL with `nodes` nodes on this machine; the value is its HAL_HOME, gone afterwards."""
    # Signals wait until somebody removes `home`: `mkdtemp` leaves a file behind when it is interrupted. Not by a mask,
    # which other threads, of numpy for one, do not have.
    waiting: list[int] = []
    before = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in ENDING_SIGNALS}
    home = Path(tempfile.mkdtemp(prefix="hal-demo-"))
    try:
        for number in ENDING_SIGNALS:
            signal.signal(number, before[number] if number == signal.SIGINT else _leave)
        for early in waiting:
            signal.raise_signal(early)
        hal_command("up", "--quiet", "--nodes", str(nodes), home=home)
        yield home
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            _show_log(home)
        raise
    finally:
        kept = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning up
        _stop(home)
        signal.signal(signal.SIGINT, kept)
        for number, what in before.items():
            signal.signal(number, what)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _stop(home: Path) -> None:
    try:
        hal_command("down", "--kill", home=home, timeout_s=DOWN_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"hal down did not end as it should: {error}\n{home} is left as it is: look there", file=sys.stderr)
        return
    for _ in range(REMOVALS):
        shutil.rmtree(home, ignore_errors=True)
        if not home.exists():
            return
        time.sleep(0.1)  # what `hal up` had just started when it was interrupted still writes
    print(f"{home} could not be removed", file=sys.stderr)


def _show_log(home: Path) -> None:
    log = home / "log" / "controller.log"
    if log.exists():
        print(f"the last lines of {log.name}:", file=sys.stderr)
        for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            print(f"  {line}", file=sys.stderr)
