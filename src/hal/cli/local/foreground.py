"""`--foreground`: HAL as one process that a service manager or a container runs, and ends with SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

from hal.cli.kit.screen import Screen
from hal.cli.local import processes
from hal.cli.local.supervisor import LEAVE_ALL, Signals, supervising, watch
from hal.core.model import plural
from hal.runtime.home import Home
from hal.runtime.service_manager import READY, STOPPING, notify, status

STOP_WAIT_S: Final = 60.0
"""How long a stop waits for a `hal up` or `hal down` that runs."""


@contextlib.contextmanager
def ended_on_signal(foreground: bool) -> Iterator[None]:
    """While HAL starts in the foreground, SIGTERM takes back what was started, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, _leave) if foreground else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def stay(screen: Screen, home: Home, on_stop: str) -> None:
    """Keep everything running until a signal says to end, then stop it; HAL works when this is called.

    Args:
        on_stop: `leave`: running steps, and the nodes that hold them, continue; `kill`: they are ended.
    Raises:
        ConflictError: another supervisor runs.
    """
    signals = Signals()
    with supervising(home) as supervisor:
        supervisor.look(time.monotonic())
        notify(READY, status("HAL works"))
        number = watch(supervisor, signals)
    if number == LEAVE_ALL:
        return  # `hal down` stops the rest
    notify(STOPPING, status("stopping"))
    kill = on_stop == "kill"
    with processes.one_at_a_time(home, wait_s=STOP_WAIT_S):
        steps = processes.steps_in_processes(home)
        processes.stop_all(home, leave=bool(steps) and not kill, kill_steps=kill, tell=lambda _: None)
    left = f"; {plural(steps, 'step')} left running" if steps and not kill else ""
    screen.note(f"HAL at {home.root} is stopped{left}")


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
