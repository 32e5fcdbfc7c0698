"""The notes that an agent keeps of steps at its node's gates, for its successor: one small file per step.

A note exists from before a step's prolog begins until its epilog has ended. It holds the environment of the step's
scripts, the process of the newest script, and the gates that its job names. A step without scripts has a note only if
its gates were not satisfied at once, or if it has finalising gates, then until its exit is acknowledged: the keeper
repeats the exit until then, and only these gates know how the attempt ended. Notes of an earlier boot are obsolete.
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
from hal.wire.frames.agent_keeper import TemplateGate

SUFFIX: Final = ".gate"
MAX_NOTE_BYTES: Final = 16 << 20
"""Largest note: it holds the environment of a step's scripts."""


class GateNote(Struct, frozen=True, kw_only=True):
    """The note of one step."""

    step: StepId
    boot_id: str
    env: dict[str, str]
    """The environment of its scripts."""
    script: ProcessIdentity | None = None
    """The process of its newest script, which may have ended."""
    gates: tuple[TemplateGate, ...] = ()
    """Those that its job names."""
    user: str = ""
    """Who submitted its job."""


class GateNotes(Protocol):
    """The notes of one node."""

    def load(self) -> Sequence[GateNote]:
        """Load all notes; unreadable ones are skipped."""

    def save(self, note: GateNote) -> None:
        """Save a note, replacing the former one.

        Raises:
            OSError: for example, the disk is full.
        """

    def drop(self, step: StepId) -> None:
        """Delete the note; harmless if there is none."""


class GateFiles:
    """Notes as files of one directory."""

    def __init__(self, directory: Path) -> None:
        """The directory is created when the first note is saved."""
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
