"""This terminal in raw mode, and back: whatever ends the context restores it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
import tty
from types import TracebackType
from typing import Any


class RawTerminal:
    """A context in which each key goes to the program that reads the terminal, control keys included."""

    def __init__(self, fd: int) -> None:
        """Args:
        fd: of the terminal.
        """
        self._fd = fd
        self._saved: list[Any] | None = None

    def __enter__(self) -> RawTerminal:
        self._saved = termios.tcgetattr(self._fd)
        self.set_raw()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._saved is not None:
            # A process in the background would be stopped for it, and the terminal would stay as it is.
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)
            signal.signal(signal.SIGTTOU, before)

    def set_raw(self) -> None:
        """Set raw mode, again after this process was stopped and continued."""
        with contextlib.suppress(termios.error):
            tty.setraw(self._fd, termios.TCSANOW)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns; 0, 0: not known."""
        return window_size(self._fd)


def window_size(fd: int) -> tuple[int, int]:
    """Rows and columns of a terminal; 0, 0: not known, or it is none."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return 0, 0
    return rows, columns


def has_input(fd: int) -> bool:
    """Whether bytes wait there that a program could read now: the rest of a file, or what was piped in. Of a terminal,
    no."""
    import stat

    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode):
            return info.st_size > os.lseek(fd, 0, os.SEEK_CUR)
        if not stat.S_ISFIFO(info.st_mode) and not stat.S_ISSOCK(info.st_mode):
            return False
        (waiting,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    except OSError:
        return False
    return bool(waiting)
