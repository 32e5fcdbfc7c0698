"""How a short program ended: the same value from the real and from the virtual runtime."""

from __future__ import annotations

from typing import NamedTuple


class ScriptEnd(NamedTuple):
    """How a program ended."""

    code: int
    """Exit code, or minus the signal that ended it."""
    output: str
    """The end of what it wrote to stdout and stderr."""
    timed_out: bool = False
    """It took too long and was killed, with all of its session's first process group."""
