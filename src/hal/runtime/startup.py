"""How far a controller that is starting has come: a line in HAL_HOME, for those whom it cannot answer yet.

Standard library only. The line counts only while its writer runs: a controller that was killed leaves it behind.
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
"""Exit code of a daemon when what a person wrote (hal.toml, an option) is malformed."""
EXIT_STORE: Final = 7
"""… when the store cannot be opened, or is not the one that was used."""
FILE: Final = "starting"
MAX_CHARS: Final = 200
"""Longest line that is believed."""


@contextlib.contextmanager
def told(home: Home) -> Iterator[Callable[[str], None]]:
    """Gives a function that replaces the line; at the end the line is gone, however the start went."""
    path = home.run_dir / FILE

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk costs the line, not the start
            write_private(path, f"{text}\n")

    try:
        yield say
    finally:
        path.unlink(missing_ok=True)


def stage(home: Home) -> str:
    """What a controller that is starting is doing; '' when none is starting."""
    try:
        text = read_regular(home.run_dir / FILE, MAX_CHARS).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text and running(home.controller_pid) is not None else ""
