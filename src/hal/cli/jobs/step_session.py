"""A stream to a step at this terminal, or in this pipe: its output here, this input there, signals and window sizes.

Whatever ends it (the command, the connection, a signal, an exception) restores the terminal.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from hal.cli.jobs.caught_signals import CaughtSignals
from hal.cli.kit.raw_terminal import RawTerminal
from hal.runtime.stream_link import Watched
from hal.wire.step_streams import (
    CODE,
    DATA,
    END,
    ERR,
    EXIT,
    FAIL,
    HEAD,
    OUT,
    RESIZE,
    SIGNAL,
    SIZE,
    Backlog,
    MalformedStreamError,
    message,
)

if TYPE_CHECKING:
    from hal.client.step_streams import StepStream

READ_BYTES: Final = 1 << 16
MAX_BACKLOG_BYTES: Final = 1 << 20
LEAVE: Final = b"\x10\x11"
"""Ctrl-P Ctrl-Q."""
PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that go to the command, where there is no terminal that makes them of keys."""
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the session."""


class SessionEndedError(Exception):
    """A signal has ended the session.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


class Session:
    """One stream, from here."""

    def __init__(
        self, stream: StepStream, *, stdin: int | None, stdout: int = 1, stderr: int = 2, may_leave: bool = False
    ) -> None:
        """Args:
        stdin: descriptor of what goes to the step; None: nothing does.
        may_leave: Ctrl-P Ctrl-Q ends the session, as signal 0.
        """
        self._may_leave = may_leave
        self._held_back = b""
        """A Ctrl-P, until the next key says what it meant."""
        self._stream = stream
        self._link = stream.link
        self._stdin = stdin
        self._outputs = {OUT: stdout, ERR: stderr}
        self._to_step = Backlog()
        self._watched = Watched()
        self._code: int | None = None
        self._signals = CaughtSignals()
        self._interrupted = False
        self._terminal: RawTerminal | None = None
        if stdin is None:
            self._to_step.put(message(END))

    def run(self, terminal: RawTerminal | None = None) -> int:
        """Pass everything on until the command has ended; returns its exit code.

        Raises:
            HALError: the stream ended otherwise.
            SessionEndedError: a signal came that ends it.
            BrokenPipeError: nobody reads the output.
        """
        self._terminal = terminal
        with ExitStack() as stack:
            stack.callback(self._link.close)
            if terminal is not None:
                stack.enter_context(terminal)
                self._to_step.put(message(RESIZE, SIZE.pack(*terminal.size)))
            wake = stack.enter_context(self._signals.catching([*PASSED_ON, *ENDING, signal.SIGWINCH, signal.SIGCONT]))
            self._hear(self._stream.early)
            while self._code is None:
                self._turn(wake)
            return self._code

    def _turn(self, wake: int) -> None:
        watched, link = self._watched, self._link.fileno()
        if self._stdin is not None and not pollable(self._stdin):
            ready_input = self._to_step.bytes < MAX_BACKLOG_BYTES
        else:
            ready_input = False
            if self._stdin is not None:
                watched.want(self._stdin, read=self._to_step.bytes < MAX_BACKLOG_BYTES)
        watched.want(link, read=True, write=bool(self._to_step.bytes))
        watched.want(wake, read=True)
        ready = watched.wait(0 if ready_input or self._link.pending else None)
        self._pass_signals(self._signals.take(wake))
        if self._stdin is not None and (ready_input or self._stdin in ready):
            self._read_input(self._stdin)
        if ready.get(link, 0) & ~select.POLLOUT or self._link.pending:
            self._read_step()
        self._to_step.flush(self._link.write)

    def _read_input(self, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            data = b""
        if data and self._may_leave:
            data = self._held_back + data
            if LEAVE in data:
                raise SessionEndedError(0)
            held = LEAVE[:1] if data.endswith(LEAVE[:1]) else b""
            data, self._held_back = data[: len(data) - len(held)], held
            if not data:
                return
        if data:
            self._to_step.put(HEAD.pack(DATA, len(data)), data)
            return
        if pollable(fd):
            self._watched.want(fd)
        self._stdin = None
        if self._terminal is not None:
            raise SessionEndedError(signal.SIGHUP)
        self._to_step.put(message(END))

    def _read_step(self) -> None:
        from hal.core.model.errors import UnreachableError

        data = self._link.read()
        if data is None:
            return
        try:
            self._hear(self._stream.reader.feed(data))
        except (MalformedStreamError, ValueError) as error:
            raise UnreachableError(f"node {self._stream.node} sent what is no message: {error}") from error
        if not data and self._code is None:
            why = f": {self._link.broken}" if self._link.broken else ""
            raise UnreachableError(
                f"the connection to node {self._stream.node} broke{why}; what ran there for it was ended",
                hint=f"the job itself continues: hal show {self._stream.step.partition('.')[0]}",
            )

    def _hear(self, messages: Iterable[tuple[int, bytes | memoryview]]) -> None:
        for kind, body in messages:
            if kind in self._outputs:
                write_all(self._outputs[kind], body)
            elif kind == EXIT:
                self._code = CODE.unpack(body)[0]
            elif kind == FAIL:
                from hal.client.step_streams import failure_of

                raise failure_of(bytes(body))

    # ── signals ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _pass_signals(self, signals: Iterable[int]) -> None:
        for number in signals:
            if number in ENDING:
                raise SessionEndedError(number)
            if number == signal.SIGWINCH or number == signal.SIGCONT:
                if self._terminal is not None:
                    if number == signal.SIGCONT:
                        self._terminal.set_raw()
                    self._to_step.put(message(RESIZE, SIZE.pack(*self._terminal.size)))
                continue
            if number == signal.SIGINT and self._interrupted:
                raise SessionEndedError(number)  # the command takes no notice of it
            self._interrupted = self._interrupted or number == signal.SIGINT
            self._to_step.put(message(SIGNAL, bytes([number])))


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of it, also where that is not taken at once."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def pollable(fd: int) -> bool:
    """Whether poll waits for it: files are always ready."""
    import stat

    return not stat.S_ISREG(os.fstat(fd).st_mode)
