"""The progress of a starting controller: a line in HAL_HOME, for clients that it cannot answer yet.

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
