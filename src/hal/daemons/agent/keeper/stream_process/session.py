"""One open stream: waits for the client with the ticket, begins what it is for, and passes bytes until either ends.

Runs in a process of its own, with the rights of the agent; what it begins has the rights of the step.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from hal.daemons.agent.keeper.program_streams import (
    DRAIN_S,
    MAX_BACKLOG_BYTES,
    NOT_FOUND,
    ProgramStreams,
    exit_message,
)
from hal.daemons.agent.keeper.stream_process.inside import Inside, begin_program
from hal.daemons.agent.keeper.stream_process.order import Order, Refusal
from hal.daemons.agent.keeper.stream_process.remains import VARIABLE, end_all, reap
from hal.runtime.stream_link import READ_BYTES, Link, Watched
from hal.wire.step_streams import (
    HEAD,
    HELLO,
    OPENED,
    TICKET_BYTES,
    Backlog,
    MalformedStreamError,
    MessageReader,
    failure,
    message,
)

ARRIVAL_S = 15.0
"""How long the holder of a ticket may take to come and show it."""
MAX_COMING = 64
"""Connections that have not shown a ticket yet; one more replaces the oldest."""
LAST_WORDS_S = 10.0
"""How long the client may take to read what is left when the stream is over."""
MAX_REPORT_BYTES = 4_096
GONE = "the client has gone"
STEP_ENDED = "the step has ended, and with it what ran inside"


class Greeted(NamedTuple):
    """A client that has shown the ticket."""

    reader: MessageReader
    early: list[tuple[int, bytes | memoryview]]
    """What it has sent together with the ticket."""


def wait_for_client(
    listener: socket.socket | None,
    ticket: str,
    welcome: Callable[[socket.socket], socket.socket | None],
    come: socket.socket | None = None,
) -> tuple[Link, Greeted]:
    """Wait for a client with the ticket; whoever comes without it, or says nothing, keeps nobody else from coming.

    Args:
        listener: where they come; None: nobody comes but who has.
        welcome: what is spoken through with who came, TLS for instance; None: they may not come.
        come: the other end of a connection that is there already.
    Raises:
        Refusal: nobody came with it in time.
    """
    watched = Watched()
    coming: dict[int, tuple[Link, MessageReader]] = {}
    """Who has not shown anything yet, by descriptor."""
    if come is not None:
        coming[come.fileno()] = Link(come), MessageReader()
        watched.want(come.fileno(), read=True)
    if listener is not None:
        listener.setblocking(False)
        watched.want(listener.fileno(), read=True)
    deadline_s = time.monotonic() + ARRIVAL_S
    try:
        while (listener is not None or coming) and (left_s := deadline_s - time.monotonic()) > 0:
            for fd in watched.wait(left_s * 1000):
                if listener is not None and fd == listener.fileno():
                    _accept(listener, welcome, coming, watched)
                    continue
                link, reader = coming.pop(fd)
                data = link.read()
                if data is None:  # of TLS, a part of the handshake
                    coming[fd] = link, reader
                    continue
                watched.want(fd)
                greeted = _greeted(data, reader, ticket)
                if greeted is not None:
                    return link, greeted
                last_words(link, Backlog(), failure("denied", "this is not the ticket of this stream"))
    finally:
        for link, _ in coming.values():
            link.close()
    raise Refusal("timed-out", "nobody came to this stream in time")


def _accept(
    listener: socket.socket,
    welcome: Callable[[socket.socket], socket.socket | None],
    coming: dict[int, tuple[Link, MessageReader]],
    watched: Watched,
) -> None:
    try:
        accepted, _ = listener.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return
    accepted.setblocking(False)
    spoken = welcome(accepted)
    if spoken is None:
        accepted.close()
        return
    if len(coming) >= MAX_COMING:
        oldest = next(iter(coming))
        watched.want(oldest)
        coming.pop(oldest)[0].close()
    link = Link(spoken)
    coming[link.fileno()] = link, MessageReader()
    watched.want(link.fileno(), read=True)


def _greeted(data: bytes, reader: MessageReader, ticket: str) -> Greeted | None:
    """Whether the first bytes show the ticket, which comes in one piece."""
    try:
        said = list(reader.feed(data))
    except MalformedStreamError:
        return None
    if not said or said[0][0] != HELLO or len(ticket) < TICKET_BYTES:
        return None
    return Greeted(reader, said[1:]) if hmac.compare_digest(bytes(said[0][1]), ticket.encode()) else None


def hear_client(
    link: Link,
    reader: MessageReader,
    ready: dict[int, int],
    hear: Callable[[Iterable[tuple[int, bytes | memoryview]]], None],
    *,
    room: bool,
) -> str:
    """Read what the client has sent; returns why nothing more comes from it, or "".

    Args:
        ready: events by descriptor.
        hear: is given its messages; may raise as `ProgramStreams.obey`.
        room: there is room for what it sends; without, it is only noticed that it has gone.
    """
    events = ready.get(link.fileno(), 0)
    if not room:
        return GONE if events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) else ""
    if not events & ~select.POLLOUT and not link.pending:
        return ""
    data = link.read()
    if data is None:
        return ""
    if not data:
        return link.broken or GONE
    try:
        hear(reader.feed(data))
    except (MalformedStreamError, struct.error, IndexError) as error:
        return f"the client sent what is no message: {error}"
    return ""


def last_words(link: Link, backlog: Backlog, words: bytes) -> None:
    """Send what is left and the last message, as far as the client reads it, and close."""
    backlog.put(words)
    watched = Watched()
    watched.want(link.fileno(), write=True)
    deadline_s = time.monotonic() + LAST_WORDS_S
    before = backlog.bytes
    while backlog.bytes and not link.broken:
        left_ms = (deadline_s - time.monotonic()) * 1000
        if left_ms <= 0:
            break
        if watched.wait(left_ms):
            backlog.flush(link.write)
        if backlog.bytes < before:  # it reads
            before, deadline_s = backlog.bytes, time.monotonic() + LAST_WORDS_S
    link.close()


class Program(NamedTuple):
    """What a process inside the step becomes."""

    argv: list[str]
    environment: dict[str, str]
    directory: str
    """Where it begins; empty: where the step began, or if that is gone the root."""
    cpus: tuple[int, ...] = ()
    """CPUs that it keeps to; none: the step's."""


class Command:
    """A command inside the step."""

    def __init__(
        self,
        order: Order,
        inside: Inside,
        *,
        variables: dict[str, str] | None = None,
        directory: str = "",
        reads: bool = True,
        name: str = "",
        cpus: tuple[int, ...] = (),
    ) -> None:
        """Begin it.

        Args:
            variables: that it gets beside those of the step, or instead of them.
            directory: where it begins; empty: where the step began.
            reads: it has input.
            name: as `new_name` gives it; empty: a new one.
            cpus: of the step's, those that it keeps to; none: all.
        Raises:
            Refusal: it was not begun.
        """
        self.name = name or new_name(inside)
        environment = inside.environment | (variables or {})
        if self.name:
            environment[VARIABLE] = self.name
        if order.term:
            environment["TERM"] = order.term
        self.streams = ProgramStreams(order.terminal, reads=reads)
        if order.terminal:
            os.fchown(self.streams.theirs[0], inside.uid, -1)
            os.fchmod(self.streams.theirs[0], 0o600)
            self.streams.resize(order.rows, order.columns)
        program = Program(list(order.argv), environment, directory, cpus)
        self.streams.note_begun(begin(inside, program, self.streams))

    def end(self, *, politely: bool) -> None:
        """End what is left of it.

        Args:
            politely: as for `end_all`.
        """
        end_all(self.streams.pid, self.name, politely=politely)


def new_name(inside: Inside) -> str:
    """A name by which what a command leaves behind is found; '': that is adopted by this process."""
    return os.urandom(8).hex() if inside.forks else ""


class Taken(Protocol):
    """The streams of a program."""

    def take(self) -> None:
        """Let this process, which is about to become the program, have them."""


def begin(inside: Inside, program: Program, streams: Taken) -> int:
    """Begin a program inside the step; returns the pid of its first process, which this process reaps.

    Raises:
        Refusal: it could not be begun there.
    """
    told, tell = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if not child:
        os.close(told)
        _become(inside, program, streams, tell)
    os.close(tell)
    report = b""
    with open(told, "rb") as file:
        report = file.read(MAX_REPORT_BYTES)
    pid = child
    for line in report.decode(errors="replace").splitlines():
        word, _, text = line.partition(" ")
        if word == "pid":
            pid = int(text)
            os.waitpid(child, 0)
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            raise Refusal(word, text)
    return pid


def _become(inside: Inside, program: Program, streams: Taken, tell: int) -> None:
    """Go inside and become the program; never returns."""
    code, name = "conflict", program.argv[0]
    try:
        inside.enter()
        if program.cpus:
            with contextlib.suppress(OSError):  # the step has others by now: it keeps to those
                os.sched_setaffinity(0, program.cpus)
        if inside.forks and (pid := os.fork()):
            os.write(tell, f"pid {pid}\n".encode())
            os._exit(0)
        streams.take()
        if not program.directory:
            inside.enter_directory()
        else:
            try:
                os.chdir(program.directory)
            except OSError as error:
                what = f"directory '{program.directory}' cannot be entered: {error.strerror}"
                os.write(tell, f"conflict {what}\n".encode())
                os._exit(NOT_FOUND)
        code = "not-found"
        begin_program(program.argv, program.environment)
    except FileNotFoundError as error:
        what = f"no such program '{name}'" if code == "not-found" else f"the step cannot be entered: {error}"
        os.write(tell, f"{code} {what}\n".encode())
    except PermissionError as error:
        what = f"'{name}' cannot be run: {error.strerror}"
        what = what if code == "not-found" else f"the step cannot be entered: {error}"
        os.write(tell, f"{'denied' if code == 'not-found' else code} {what}\n".encode())
    except BaseException as error:
        os.write(tell, f"conflict {name if code == 'not-found' else 'the step'} cannot be begun: {error}\n".encode())
    finally:
        os._exit(NOT_FOUND)


class CommandSession:
    """Passes bytes between a client and its command."""

    def __init__(self, link: Link, client: Greeted, inside: Inside, command: Command) -> None:
        self._link = link
        self._reader = client.reader
        self._early = client.early
        self._inside = inside
        self._command = command
        self._streams = command.streams
        self._to_client = Backlog()
        self._watched = Watched()
        self._gone = ""

    def run(self, wake: int) -> bytes:
        """Serve until the command, the step or the client ends; returns the last words for the client.

        Args:
            wake: is readable when a child has ended.
        """
        self._to_client.put(message(OPENED))
        self._hear(self._early)
        self._early.clear()
        while True:
            self._look()
            ready = self._watched.wait(self._timeout_ms())
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, READ_BYTES)
            if (ended := reap().get(self._streams.pid)) is not None:
                self._streams.note_ended(ended)
            if self._inside.pidfd in ready:
                return self._end(STEP_ENDED)
            room = self._streams.waiting.bytes < MAX_BACKLOG_BYTES
            self._gone = hear_client(self._link, self._reader, ready, self._hear, room=room)
            self._streams.write_input(self._watched)
            for kind, data in self._streams.read(ready, self._watched):
                self._to_client.put(HEAD.pack(kind, len(data)), data)
                if self._to_client.bytes >= MAX_BACKLOG_BYTES:
                    break
            self._to_client.flush(self._link.write)
            if self._gone or self._link.broken:
                return self._end(self._gone or self._link.broken)
            if (status := self._streams.status) is not None and self._streams.drained:
                if os.WIFSIGNALED(status) and self._step_ends(os.WTERMSIG(status)):
                    return self._end(STEP_ENDED, politely=False)
                self._command.end(politely=False)
                return exit_message(status)

    @property
    def backlog(self) -> Backlog:
        """What the client has not read yet."""
        return self._to_client

    def _look(self) -> None:
        watched = self._watched
        room = self._to_client.bytes < MAX_BACKLOG_BYTES
        if not room:
            self._streams.wait_for_room()
        self._streams.watch(watched, room=room)
        read = self._streams.waiting.bytes < MAX_BACKLOG_BYTES
        watched.want(self._link.fileno(), read=read, write=bool(self._to_client.bytes), gone=True)
        watched.want(self._inside.pidfd, read=True)

    def _timeout_ms(self) -> float | None:
        if self._link.pending and self._streams.waiting.bytes < MAX_BACKLOG_BYTES:
            return 0
        drained_s = self._streams.drained_s
        return None if drained_s is None else max(0.0, (drained_s - time.monotonic()) * 1000)

    def watch(self, wake: int) -> None:
        """Also wait for this descriptor."""
        self._watched.want(wake, read=True)

    def _step_ends(self, number: int) -> bool:
        """Whether a command that this signal has ended was ended with its step, by HAL."""
        if number not in (signal.SIGTERM, signal.SIGKILL):
            return False
        poll = select.poll()
        poll.register(self._inside.pidfd, select.POLLIN)
        return bool(poll.poll(DRAIN_S * 1000))

    def _end(self, text: str, *, politely: bool = True) -> bytes:
        self._streams.close()
        self._command.end(politely=politely)
        return failure("unreachable", text)

    def _hear(self, messages: Iterable[tuple[int, bytes | memoryview]]) -> None:
        for kind, body in messages:
            self._streams.obey(kind, body)


def wake_on_children() -> int:
    """Return a descriptor that is readable whenever a child has ended."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read
