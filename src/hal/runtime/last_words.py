"""How a process ended, for the one that replaces it, although it could not say so itself.

A file in memory, which the process that watches them holds: whoever runs writes its number there, and Python, when a
signal like SIGSEGV ends it, where it was. Linux.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_BYTES: Final = 12_000
"""Of what is read."""


class Death(NamedTuple):
    """How a process ended.

    Attributes:
        numbers: of the process, as it has called itself; none: it never did.
        code: its exit code; negative: the signal that has ended it.
        how: for people.
        left: Python's traceback, where there is one.
    """

    numbers: tuple[int, ...]
    code: int
    how: str
    left: str


class LastWords:
    """The file. It is the same one for all that run, one after the other."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("hal-last-words")

    def begin(self, numbers: Iterable[int]) -> None:
        """In the process that runs: these are its numbers; where it is when a fault ends it is written from now on."""
        os.pwrite(self._fd, f"{' '.join(map(str, numbers))}\n".encode(), 0)
        os.lseek(self._fd, 0, os.SEEK_END)
        faulthandler.enable(self._fd, all_threads=False)

    def take(self, code: int) -> Death:
        """In the one that watches: what the former one has left; the file is empty afterwards.

        Args:
            code: its exit code; negative: the signal that has ended it.
        """
        data = os.pread(self._fd, MAX_BYTES, 0)
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        first, _, left = data.decode(errors="replace").partition("\n")
        known = tuple(int(one) for one in first.split() if one.isascii() and one.isdecimal())
        return Death(known, code, ending_of(code), left.strip())


def ending_of(code: int) -> str:
    """`it was killed by SIGSEGV`, `it exited with code 3`. Pure."""
    if code >= 0:
        return f"it exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    more = ", as the kernel does for lack of memory" if -code == signal.SIGKILL else ""
    return f"it was killed by {name}{more}"
