"""The first process of an interactive step: holds the input and output of its program for those who attach.

Run as a script with `python -I -S` as the step's user, in the step's cgroups: `step_holder.py MODE HANGUP PROGRAM
ARGUMENTS…`. MODE is `terminal` or `pipes`. With HANGUP `end` it waits for somebody to attach before it begins the
program, and ends the program when nobody is attached any more; with `continue` the program goes on. What the program
writes goes to the step's own output, too, so that HAL keeps it. It ends as the program ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from hal.daemons.agent.keeper.program_streams import (
    MAX_BACKLOG_BYTES,
    NOT_EXECUTABLE,
    NOT_FOUND,
    ProgramStreams,
    exit_message,
)
from hal.daemons.agent.keeper.stream_process.remains import reap
from hal.runtime.order_socket import user_of
from hal.runtime.stream_link import READ_BYTES, Link, Watched
from hal.wire.step_streams import OPENED, OUT, Backlog, MalformedStreamError, MessageReader, message

VARIABLES = ("HAL_HOME", "HAL_NODE", "HAL_ATTEMPT_TOKEN", "HAL_NODE_RANK")
"""Together they name one step of one HAL."""
MAX_CLIENTS = 16
"""Attached at once."""
STUCK_S = 30.0
"""A client that reads nothing for so long while the program waits for it is dropped."""
FIRST_S = 60.0
"""How long the first one may take to attach, if the program is not to run alone."""
REPLAY_BYTES = 1 << 16
"""The newest output that who attaches later is shown."""
GRACE_S = 5.0
"""Between SIGHUP, when nobody is attached any more, and SIGKILL."""
LAST_WORDS_S = 5.0
NOBODY_CAME = 129
LEFT_TO_THE_PROGRAM = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
)
"""HAL sends signals to every process of a step; the program decides what they mean."""


def holder_address(variables: dict[str, str]) -> str:
    """Return the abstract Unix socket of a step's holder, by the step's variables. Others may know it: the holder looks
    at who comes, and who comes looks at who serves it."""
    import hashlib

    named = "\0".join(variables.get(name, "") for name in VARIABLES)
    return f"\0hal-step-{hashlib.sha256(named.encode(errors='surrogateescape')).hexdigest()[:32]}"


class _Client:
    """Somebody who is attached."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.reader = MessageReader()
        self.backlog = Backlog()
        self.progress_s = time.monotonic()


class Holder:
    """The program and those who are attached to it."""

    def __init__(self, terminal: bool, *, ends: bool, argv: list[str]) -> None:
        """Args:
        ends: the program ends when nobody is attached any more.
        """
        self._program = ProgramStreams(terminal)
        self._ends = ends
        self._argv = argv
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind(holder_address(dict(os.environ)))
        self._listener.listen(MAX_CLIENTS)
        self._listener.setblocking(False)
        self._clients: dict[int, _Client] = {}
        self._watched = Watched()
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *LEFT_TO_THE_PROGRAM):
            signal.signal(number, lambda number, frame: None)
        self._replay: deque[bytes] = deque()
        self._replay_bytes = 0
        self._hangup_s = 0.0
        """When SIGKILL is due, because nobody is attached any more."""
        self._deadline_s = time.monotonic() + FIRST_S if ends else 0.0

    def run(self) -> int:
        """Serve until the program has ended; returns its wait status, or an exit code as one."""
        if not self._ends:
            self._begin()
        while True:
            self._look()
            ready = self._watched.wait(self._timeout_ms())
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, READ_BYTES)
            if (ended := reap().get(self._program.pid)) is not None:
                self._program.note_ended(ended)
            if self._listener.fileno() in ready:
                self._accept()
            for fd in [fd for fd in self._clients if ready.get(fd, 0) & ~select.POLLOUT]:
                self._hear(self._clients[fd])
            if not self._program.pid and self._deadline_s:
                if self._clients:
                    self._begin()
                elif time.monotonic() >= self._deadline_s:
                    os.write(2, b"nobody attached to this interactive job in time\n")
                    return NOBODY_CAME << 8
            self._program.write_input(self._watched)
            for kind, data in self._program.read(ready, self._watched):
                self._keep(kind, data)
            self._send()
            self._hang_up()
            if (status := self._program.status) is not None and self._program.drained:
                self._say_goodbye(status)
                return status

    def _begin(self) -> None:
        pid = os.fork()
        if not pid:
            self._become()
        self._program.note_begun(pid)

    def _become(self) -> None:
        code = NOT_EXECUTABLE
        try:
            for number in range(1, signal.NSIG):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            self._program.take()
            os.execvp(self._argv[0], self._argv[1:])
        except FileNotFoundError:
            code = NOT_FOUND
            os.write(2, f"no such program '{self._argv[0]}'\n".encode())
        except OSError as error:
            os.write(2, f"'{self._argv[0]}' cannot be run: {error.strerror}\n".encode())
        finally:
            os._exit(code)

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        watched = self._watched
        watched.want(self._wake, read=True)
        watched.want(self._listener.fileno(), read=len(self._clients) < MAX_CLIENTS)
        self._program.watch(watched, room=all(one.backlog.bytes < MAX_BACKLOG_BYTES for one in self._clients.values()))
        for fd, one in self._clients.items():
            read = self._program.waiting.bytes < MAX_BACKLOG_BYTES
            watched.want(fd, read=read, write=bool(one.backlog.bytes), gone=True)

    def _timeout_ms(self) -> float | None:
        now_s = time.monotonic()
        due = [] if self._program.drained_s is None else [self._program.drained_s]
        due += [self._hangup_s] if self._hangup_s else []
        due += [self._deadline_s] if self._deadline_s and not self._program.pid else []
        due += [one.progress_s + STUCK_S for one in self._clients.values() if one.backlog.bytes >= MAX_BACKLOG_BYTES]
        return max(0.0, (min(due) - now_s) * 1000) if due else None

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if user_of(accepted) not in (0, os.geteuid()):
            accepted.close()
            return
        client = _Client(Link(accepted))
        client.backlog.put(message(OPENED))
        for piece in self._replay:
            client.backlog.put(piece)
        self._clients[client.link.fileno()] = client
        self._hangup_s = 0.0

    def _hear(self, client: _Client) -> None:
        data = client.link.read()
        if data is None:
            return
        if not data:
            self._drop(client)
            return
        try:
            for kind, body in client.reader.feed(data):
                self._program.obey(kind, body)
        except (MalformedStreamError, struct.error, IndexError):
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        fd = client.link.fileno()
        self._watched.want(fd)
        del self._clients[fd]
        client.link.close()
        if not self._clients and self._ends and self._program.status is None and self._program.pid:
            for number in (signal.SIGHUP, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._program.pid, number)
            self._hangup_s = time.monotonic() + GRACE_S

    def _hang_up(self) -> None:
        now_s = time.monotonic()
        for client in list(self._clients.values()):
            if client.link.broken or (
                client.backlog.bytes >= MAX_BACKLOG_BYTES and now_s >= client.progress_s + STUCK_S
            ):
                self._drop(client)
        if self._hangup_s and now_s >= self._hangup_s and self._program.status is None:
            self._hangup_s = now_s + GRACE_S
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, signal.SIGKILL)

    def _keep(self, kind: int, data: bytes) -> None:
        """Give output to the step's own files, to those who are attached, and to those who will be."""
        with contextlib.suppress(OSError):  # a full disk costs output, and nothing else
            view = memoryview(data)
            while view:
                view = view[os.write(1 if kind == OUT else 2, view) :]
        said = message(kind, data)
        for client in self._clients.values():
            if not client.backlog.bytes:
                client.progress_s = time.monotonic()
            client.backlog.put(said)
        self._replay.append(said)
        self._replay_bytes += len(said)
        while self._replay_bytes > REPLAY_BYTES and len(self._replay) > 1:
            self._replay_bytes -= len(self._replay.popleft())

    def _send(self) -> None:
        for client in self._clients.values():
            before = client.backlog.bytes
            client.backlog.flush(client.link.write)
            if client.backlog.bytes < before:
                client.progress_s = time.monotonic()

    def _say_goodbye(self, status: int) -> None:
        deadline_s = time.monotonic() + LAST_WORDS_S
        for client in self._clients.values():
            client.backlog.put(exit_message(status))
        watched = Watched()
        for fd in self._clients:
            watched.want(fd, write=True)
        while any(one.backlog.bytes for one in self._clients.values()):
            left_ms = (deadline_s - time.monotonic()) * 1000
            if left_ms <= 0 or not watched.wait(left_ms):
                break
            for fd, client in self._clients.items():
                client.backlog.flush(client.link.write)
                watched.want(fd, write=bool(client.backlog.bytes))
        for client in self._clients.values():
            client.link.close()


def main(argv: list[str]) -> None:
    """Hold the program that is named; ends as it does."""
    mode, hangup, *program = argv[1:]
    status = Holder(mode == "terminal", ends=hangup == "end", argv=program).run()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


if __name__ == "__main__":
    main(sys.argv)
