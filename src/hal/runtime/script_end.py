"""The end of a short program: the same value from the real and the virtual runtime."""

from __future__ import annotations

from typing import NamedTuple


class ScriptEnd(NamedTuple):
    """How a program ended."""

    code: int
    """Exit code, or minus the signal that ended it."""
    output: str
    """The end of what it wrote to stdout and stderr."""
    timed_out: bool = False
    """It exceeded its time and was killed, with the first process group of its session."""
