"""A program on a pseudo-terminal of its own: type to it, read what it shows, close it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from tests.e2e.conftest import readable

DEADLINE_S = 60.0


class Terminal:
    """Leaving the context closes the terminal, as a window is closed: its session gets SIGHUP."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.shown = ""
        self._code: int | None = None
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execve(command[0], list(command), {**environment, "TERM": "xterm"})

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._pid

    def type(self, text: str) -> None:
        """As if somebody typed it."""
        os.write(self._fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        """As if somebody changed the window."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text: str) -> str:
        """Everything shown so far, once `text` has appeared."""
        deadline_s = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert self._read(deadline_s), f"ended before it showed {text!r}:\n{self.shown}"
        return self.shown

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self._read(deadline_s):
            continue
        return self._reap()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)
        self._reap()

    def _read(self, deadline_s: float) -> bool:
        ready = readable(self._fd, max(0.0, deadline_s - time.monotonic()))
        assert ready, f"nothing more was shown:\n{self.shown}"
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the last process on it has gone
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def _reap(self) -> int:
        if self._code is None:
            _, status = os.waitpid(self._pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code
