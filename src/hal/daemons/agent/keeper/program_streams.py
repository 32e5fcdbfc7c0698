"""Input and output of a program, kept by the process that began it for those who use it: a terminal, or three pipes.

For the holder of an interactive step, and for a command that enters one. Imports only what runs without packages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator

from hal.runtime.stream_link import READ_BYTES, Watched
from hal.wire.step_streams import CODE, DATA, END, ERR, EXIT, OUT, RESIZE, SIGNAL, SIZE, Backlog, message

MAX_BACKLOG_BYTES = 1 << 20
"""Bytes that wait in one direction; beyond that nothing more is read there."""
DRAIN_S = 0.25
"""How long output is read on after the program's end, if something that it left behind holds it open."""
SIGNALS = frozenset({1, 2, 3, 10, 12, 15, 18, 20, 28})
"""What a client may send to the program: HUP, INT, QUIT, USR1, USR2, TERM, CONT, TSTP, WINCH. To end it for good, it
closes the stream."""
NOT_FOUND = 127
NOT_EXECUTABLE = 126


class ProgramStreams:
    """Our ends, what waits to be written to its input, and the program's first process once it has begun."""

    def __init__(self, terminal: bool, *, reads: bool = True) -> None:
        """Args:
        reads: it has input.
        """
        self.terminal = terminal
        self.pid = 0
        """Its first process, which leads a session; 0: it has not begun."""
        self.status: int | None = None
        """Its wait status, once it has ended."""
        self.waiting = Backlog()
        """What it has not read yet."""
        self.outputs: dict[int, int] = {}
        """What is read here: the kind of message by descriptor."""
        self._input_ends = False
        self._drained_s = 0.0
        """When nothing more is read, after its end."""
        if terminal:
            self.input, slave = pty.openpty()
            """Where its input is written; -1: it reads no more. A terminal is one descriptor in both directions."""
            self.outputs[self.input] = OUT
            self.theirs = [slave] * 3
            """The program's ends, until it has begun."""
        else:
            read_in, self.input = os.pipe() if reads else (os.open(os.devnull, os.O_RDONLY), -1)
            out, write_out = os.pipe()
            err, write_err = os.pipe()
            self.outputs |= {out: OUT, err: ERR}
            self.theirs = [read_in, write_out, write_err]
            for fd in {self.input, out, err} - {-1}:
                with contextlib.suppress(OSError):  # a user's pipes have a bound
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, READ_BYTES)
        for fd in {self.input, *self.outputs} - {-1}:
            os.set_blocking(fd, False)

    def take(self) -> None:
        """In the program's process: lead a session, and use the program's ends as standard streams."""
        os.setsid()
        if self.terminal:
            fcntl.ioctl(self.theirs[0], termios.TIOCSCTTY, 0)
        for number, fd in enumerate(self.theirs):
            os.dup2(fd, number)

    def note_begun(self, pid: int) -> None:
        """The program has its ends."""
        self.pid = pid
        for fd in set(self.theirs):
            os.close(fd)
        self.theirs = []

    def note_ended(self, status: int) -> None:
        """Its first process was reaped."""
        self.status = status
        self._drained_s = time.monotonic() + DRAIN_S

    @property
    def drained(self) -> bool:
        """After its end: there is no more output, or nobody waits for it any more."""
        return not self.outputs or time.monotonic() >= self._drained_s

    def wait_for_room(self) -> None:
        """Its output cannot be passed on now: that is no reason not to read it."""
        if self.status is not None:
            self._drained_s = time.monotonic() + DRAIN_S

    @property
    def drained_s(self) -> float | None:
        """When nobody waits for more output, on the monotonic clock; None: it runs."""
        return None if self.status is None else self._drained_s

    def obey(self, kind: int, body: bytes | memoryview) -> None:
        """Carry out a client's message.

        Raises:
            struct.error, IndexError: it is malformed.
        """
        if kind == DATA:
            if self.input >= 0 and not self._input_ends:
                self.waiting.put(body)
        elif kind == END:
            self._input_ends = self._input_ends or not self.terminal
        elif kind == RESIZE:
            self.resize(*SIZE.unpack(body))
        elif kind == SIGNAL and body[0] in SIGNALS:
            self._signal(body[0])

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        if self.terminal and self.input >= 0 and rows and columns:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _signal(self, number: int) -> None:
        """Signal what runs in the foreground of its terminal, or else its process group."""
        if not self.pid or self.status is not None:
            return
        group = self.pid
        if self.terminal:
            with contextlib.suppress(OSError):
                group = os.tcgetpgrp(self.input) or group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)

    def watch(self, watched: Watched, *, room: bool) -> None:
        """Wait for what there is to do.

        Args:
            room: its output can be passed on.
        """
        for fd in self.outputs:
            if fd != self.input:
                watched.want(fd, read=room)
        if self.input >= 0:
            watched.want(self.input, read=self.input in self.outputs and room, write=bool(self.waiting.bytes))

    def write_input(self, watched: Watched) -> None:
        """Write what it reads now, and let it read the end of its input behind that."""
        fd = self.input
        if fd < 0:
            return

        def write(data: memoryview) -> int:
            try:
                return os.write(fd, data)
            except BlockingIOError:
                return 0
            except OSError:  # it reads no more
                self._input_ends = True
                return len(data)

        self.waiting.flush(write)
        if self._input_ends and not self.waiting.bytes and not self.terminal:
            watched.want(fd)
            os.close(fd)
            self.input = -1

    def read(self, ready: dict[int, int], watched: Watched) -> Iterator[tuple[int, bytes]]:
        """Yield the kind of message, and bytes of output. Who leaves off reads the rest another time."""
        for fd, kind in list(self.outputs.items()):
            if not ready.get(fd, 0) & ~select.POLLOUT:
                continue
            try:
                data = os.read(fd, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # nothing has the terminal open any more
                data = b""
            if data:
                yield kind, data
                continue
            watched.want(fd)
            del self.outputs[fd]
            if fd == self.input:
                self.input = -1
                self.waiting.clear()
            os.close(fd)

    def forget(self, watched: Watched) -> None:
        """Wait for nothing of it any more, and close it."""
        for fd in {self.input, *self.outputs} - {-1}:
            watched.want(fd)
        self.close()

    def close(self) -> None:
        """Let its terminal hang up, and its pipes break."""
        for fd in {self.input, *self.outputs} - {-1}:
            os.close(fd)
        self.input, self.outputs = -1, {}


def exit_message(status: int) -> bytes:
    """The last message of a program that has ended: its exit code, or 128 and the number of the signal."""
    code = os.waitstatus_to_exitcode(status)
    return message(EXIT, CODE.pack(code if code >= 0 else 128 - code))
