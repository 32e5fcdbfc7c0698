"""What an agent notes of steps that stand at its node's gates, for the agent that follows it: one small file a step.

A note is there from before a step's prolog begins until its epilog has ended. It holds what scripts of that step see,
and which process the last of them is. Notes of an earlier boot say nothing any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from hal.core.model import StepId
from hal.runtime.identity import ProcessIdentity
from hal.runtime.privacy import make_private, write_private
from hal.runtime.regular_files import read_regular

SUFFIX: Final = ".gate"
MAX_NOTE_BYTES: Final = 16 << 20
"""A note holds the environment of a step's scripts."""


class GateNote(Struct, frozen=True, kw_only=True):
    """Of one step."""

    step: StepId
    boot_id: str
    env: dict[str, str]
    """What its scripts see."""
    script: ProcessIdentity | None = None
    """The newest of its scripts; it may have ended."""


class GateNotes(Protocol):
    """Where they are kept."""

    def load(self) -> Sequence[GateNote]:
        """All of them; what cannot be read is left out."""

    def save(self, note: GateNote) -> None:
        """Keep it, in place of the one of before.

        Raises:
            OSError: the disk is full, say.
        """

    def drop(self, step: StepId) -> None:
        """Forget it; harmless when there is none."""


class GateFiles:
    """Notes as files of one directory."""

    def __init__(self, directory: Path) -> None:
        """It is made when the first note is kept."""
        self._directory = directory

    def load(self) -> Sequence[GateNote]:
        notes = []
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            try:
                notes.append(msgspec.json.decode(read_regular(path, MAX_NOTE_BYTES), type=GateNote))
            except (OSError, msgspec.DecodeError):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        return notes

    def save(self, note: GateNote) -> None:
        make_private(self._directory)
        write_private(self._path(note.step), msgspec.json.encode(note).decode())

    def drop(self, step: StepId) -> None:
        self._path(step).unlink(missing_ok=True)

    def _path(self, step: StepId) -> Path:
        return self._directory / f"{step.job}.{step.task}.{step.attempt}.{step.rank}{SUFFIX}"
