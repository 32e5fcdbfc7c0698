"""The state of an agent's connection to its controller: a line in HAL_HOME, for `hal up` and `hal agent`, which wait
for it.

Standard library only. The line is valid only while its writer runs.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from hal.runtime.home import Home
from hal.runtime.identity import running
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular

MAX_CHARS: Final = 1_000
_UP: Final = "up "
_DOWN: Final = "down "
_REFUSED: Final = "refused "


class LinkNote(NamedTuple):
    """Whether the agent is connected, and to which controller, or why not."""

    connected: bool
    text: str
    refused: bool = False
    """The controller does not accept this node until a person acts."""


def write_link_note(home: Home, node: str, note: LinkNote) -> None:
    """Replace the line."""
    word = _UP if note.connected else _REFUSED if note.refused else _DOWN
    line = " ".join((word, note.text))[:MAX_CHARS]
    with contextlib.suppress(OSError):  # a full disk loses the line, not the connection
        write_private(home.run_dir / f"agent-{node}.link", " ".join(line.split()) + "\n")


def remove_link_note(home: Home, node: str) -> None:
    """Remove the line: a former agent's state says nothing about the next."""
    (home.run_dir / f"agent-{node}.link").unlink(missing_ok=True)


def link_note_ms(home: Home, node: str) -> int | None:
    """When the line was written, in ms since 1970; None without one. The agent writes it when the state changes."""
    try:
        return int((home.run_dir / f"agent-{node}.link").stat().st_mtime * 1000)
    except OSError:
        return None


def read_link_note(home: Home, node: str) -> LinkNote | None:
    """Read what the running agent of that node has recorded; None if none runs, or it has recorded nothing yet."""
    try:
        line = read_regular(home.run_dir / f"agent-{node}.link", MAX_CHARS).decode()
    except (OSError, UnicodeDecodeError):
        return None
    if running(home.agent_pid(node)) is None:
        return None
    word, _, text = line.strip().partition(" ")
    return LinkNote(word == _UP.strip(), text, word == _REFUSED.strip())
