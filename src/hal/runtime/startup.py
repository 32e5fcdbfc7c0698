"""The progress of a starting controller: a line in HAL_HOME, for clients that it cannot answer yet; and whether one
that has ended is started again.

Standard library only. The line is valid only while its writer runs: a killed controller leaves it behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from hal.runtime.home import Home
from hal.runtime.identity import running
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular

EXIT_BAD_INPUT: Final = 2
"""Exit code of a daemon when input from a person (hal.toml, an option) is malformed."""
EXIT_STORE: Final = 7
"""… when the store cannot be opened, or is not the one that was used."""
FILE: Final = "starting"
SUPERVISOR: Final = "supervisor"
"""Its pid file's name."""
SUPERVISION_FILE: Final = "supervision.json"
"""In HAL_HOME/run: what the supervisor knows of each process."""
MAX_SUPERVISION_BYTES: Final = 1 << 16
MAX_CHARS: Final = 200
"""Longest line that is accepted."""


@contextlib.contextmanager
def report_stages(home: Home) -> Iterator[Callable[[str], None]]:
    """Yield a function that replaces the line; at the end the line is removed, whether or not the start succeeded."""
    path = home.run_dir / FILE

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk loses the line, not the start
            write_private(path, f"{text}\n")

    try:
        yield say
    finally:
        path.unlink(missing_ok=True)


def read_stage(home: Home) -> str:
    """The stage of a starting controller; '' if none is starting."""
    try:
        text = read_regular(home.run_dir / FILE, MAX_CHARS).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text and running(home.controller_pid) is not None else ""


def comes_back(home: Home) -> bool:
    """Whether a controller that has ended is started again by itself: a supervisor runs, and has not given it up."""
    import json

    if running(home.pid_file(SUPERVISOR)) is None:
        return False
    try:
        known = json.loads(read_regular(home.run_dir / SUPERVISION_FILE, MAX_SUPERVISION_BYTES))
        tried = known["processes"]["controller"]
        return not tried.get("given_up", False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
