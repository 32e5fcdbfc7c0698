"""How an agent's connection to its controller is: a line in HAL_HOME, for `hal agent`, which cannot ask a controller.

Standard library only. The line counts only while its writer runs.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from hal.runtime.home import Home
from hal.runtime.identity import running
from hal.runtime.privacy import write_private

MAX_CHARS: Final = 1_000
_UP: Final = "up "
_DOWN: Final = "down "


class LinkNote(NamedTuple):
    """Whether the agent is connected, and to whom, or why not."""

    connected: bool
    text: str


def note_link(home: Home, node: str, note: LinkNote) -> None:
    """Replace the line."""
    line = " ".join((_UP if note.connected else _DOWN, note.text))[:MAX_CHARS]
    with contextlib.suppress(OSError):  # a full disk costs the line, not the connection
        write_private(home.run_dir / f"agent-{node}.link", " ".join(line.split()) + "\n")


def forget_link(home: Home, node: str) -> None:
    """What an agent of before has noted says nothing about the next."""
    (home.run_dir / f"agent-{node}.link").unlink(missing_ok=True)


def read_link(home: Home, node: str) -> LinkNote | None:
    """What the running agent of that node has noted; None when none runs, or it has noted nothing yet."""
    try:
        with (home.run_dir / f"agent-{node}.link").open() as file:
            word, _, text = file.read(MAX_CHARS).strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    return LinkNote(word == _UP.strip(), text) if running(home.agent_pid(node)) is not None else None
