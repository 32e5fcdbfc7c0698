"""Ranks of a launch, from here: a stream to each of their nodes, their output, their exit codes, signals for all."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from hal.cli.jobs.caught_signals import CaughtSignals
from hal.cli.jobs.step_session import MAX_BACKLOG_BYTES, READ_BYTES, pollable, write_all
from hal.cli.kit import exit_codes
from hal.cli.kit.screen import Screen
from hal.runtime.stream_link import Watched
from hal.wire.step_streams import (
    BEGIN,
    CODE,
    DATA,
    END,
    ERR,
    EXIT,
    FAIL,
    HEAD,
    MAX_BULK_BYTES,
    OUT,
    RANK,
    SIGNAL,
    VARIABLES,
    Backlog,
    MalformedStreamError,
    message,
)

if TYPE_CHECKING:
    from hal.client.step_streams import StepStream
    from hal.client.transport.http import Connections

OPENING: Final = 16
"""Streams that are opened at once."""
BEGUN_S: Final = 300.0
"""How long the step of a node may take to begin: a gate or a prolog may hold it there."""
MAX_LINE_BYTES: Final = 1 << 16
"""Longer lines are written in parts."""
GRACE_S: Final = 5.0
"""Between SIGTERM for ranks that are ended and the end of their streams, after which they are killed."""
PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGHUP})
"""Signals that also end the launch."""


class Part(NamedTuple):
    """The ranks of one node."""

    node_rank: int
    node: str
    first: int
    ranks: int
    size: int
    """Of all nodes together."""
    stride: int = 1
    """How far the ranks of this node are apart."""


class _Node:
    """One stream."""

    def __init__(self, part: Part, stream: StepStream) -> None:
        self.part = part
        self.stream = stream
        self.backlog = Backlog()
        """What goes there."""
        self.about = part.first
        """The rank that its messages are about."""
        self.open = True


def run_ranks(
    screen: Screen,
    job: int,
    task: int,
    argv: Sequence[str],
    parts: Sequence[Part],
    *,
    variables: Mapping[str, str],
    directory: str,
    forward: bool,
    label: bool,
    kill: bool,
    bind: bool,
) -> int:
    """Run a command as ranks of a task; returns the exit code of the launch.

    Args:
        forward: standard input goes to rank 0.
        label: each line begins with its rank.
        kill: a rank that fails ends the others.
        bind: each keeps to its own part of the step's CPUs.
    Raises:
        HALError: they could not be begun on every node; then none runs any more.
    """
    from hal.client.step_streams import connections_of
    from hal.core.model.errors import HALError

    setup = _setup(variables, directory)
    session = RankSession(screen, parts[0].size, stdin=0 if forward else None, label=label, kill=kill)
    connections = connections_of(screen.address)
    with ExitStack() as stack:
        stack.callback(connections.close)
        # Signals that come while streams are opened are taken afterwards.
        wake = stack.enter_context(session.signals.catching(PASSED_ON))
        nodes: list[_Node] = []
        stack.callback(_close_all, nodes)
        try:
            _open_all(connections, job, task, argv, parts, setup, nodes, session.signals, bind=bind)
        except HALError:
            if session.signals.first:
                return exit_codes.SIGNALLED + session.signals.first
            raise
        return session.run(nodes, wake)


def _setup(variables: Mapping[str, str], directory: str) -> bytes:
    """
    Raises:
        SpecError: the variables are too many.
    """
    from hal.core.model import SpecError

    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    if len(block) > MAX_BULK_BYTES:
        raise SpecError(f"the environment has {len(block) >> 10} KiB; at most 1 MiB is passed on", hint="env -i")
    return message(VARIABLES, block) + message(BEGIN, os.fsencode(directory))


def _close_all(nodes: Sequence[_Node]) -> None:
    for one in nodes:
        one.stream.link.close()


def _open_all(
    connections: Connections,
    job: int,
    task: int,
    argv: Sequence[str],
    parts: Sequence[Part],
    setup: bytes,
    nodes: list[_Node],
    signals: CaughtSignals,
    *,
    bind: bool,
) -> None:
    """Open all streams, or none: those that were opened are in `nodes`, and the first error is raised. A signal ends
    the wait for steps that have not begun."""
    from hal.client.step_streams import StreamDialler
    from hal.core.model.errors import HALError, TimedOutError

    dialler = StreamDialler(connections)
    deadline_s = time.monotonic() + BEGUN_S

    def open_one(part: Part) -> StepStream:
        while True:
            try:
                return dialler.open(
                    job,
                    setup=setup,
                    kind="launch",
                    task=task,
                    rank=part.node_rank,
                    argv=list(argv),
                    ranks=part.ranks,
                    first_rank=part.first,
                    size=part.size,
                    stride=part.stride,
                    bind=bind,
                )
            except TimedOutError:
                if time.monotonic() >= deadline_s or signals.first:
                    raise

    failed: HALError | None = None
    with ThreadPoolExecutor(OPENING) as pool:
        for part, opened in [(part, pool.submit(open_one, part)) for part in parts]:
            try:
                nodes.append(_Node(part, opened.result()))
            except HALError as error:
                failed = failed or error
                deadline_s = 0.0
    if failed is not None:
        raise failed


class RankSession:
    """All ranks of a launch."""

    def __init__(self, screen: Screen, size: int, *, stdin: int | None, label: bool, kill: bool) -> None:
        self.signals = CaughtSignals()
        self._screen = screen
        self._stdin = stdin
        self._label = label
        self._kill = kill
        self._lines = _Lines(size, label=label)
        self._watched = Watched()
        self._nodes: list[_Node] = []
        self._codes: dict[int, int] = {}
        """By rank, of those that have ended; of those that were ended here, none."""
        self._ending_s = 0.0
        """When what still runs is given up; 0: nothing is ended."""
        self._interrupted = False
        self._ended_by = 0
        """The signal that ends the launch."""
        self._lost = False

    def run(self, nodes: list[_Node], wake: int) -> int:
        """Pass everything on until all have ended; returns the exit code."""
        self._nodes = nodes
        for one in nodes:
            if self._stdin is None or one.part.first:
                one.backlog.put(message(END))
            self._hear(one, one.stream.early)
        while any(one.open for one in nodes):
            self._turn(wake)
        self._lines.finish()
        codes = [*self._codes.values(), *([exit_codes.UNREACHABLE] if self._lost else [])]
        if self._ended_by:
            codes.append(exit_codes.SIGNALLED + self._ended_by)
        return max(codes, default=exit_codes.OK)

    def _turn(self, wake: int) -> None:
        first = self._nodes[0]
        room = first.open and first.backlog.bytes < MAX_BACKLOG_BYTES
        ready_input = False
        if self._stdin is not None and not pollable(self._stdin):
            ready_input = room
        elif self._stdin is not None:
            self._watched.want(self._stdin, read=room)
        self._watched.want(wake, read=True)
        open_ = [one for one in self._nodes if one.open]
        for one in open_:
            self._watched.want(one.stream.link.fileno(), read=True, write=bool(one.backlog.bytes))
        left_ms = max(0.0, (self._ending_s - time.monotonic()) * 1000) if self._ending_s else None
        ready = self._watched.wait(0 if ready_input or any(one.stream.link.pending for one in open_) else left_ms)
        for number in self.signals.take(wake):
            self._pass_signal(number)
        if self._stdin is not None and (ready_input or self._stdin in ready):
            self._read_input(first, self._stdin)
        for one in open_:
            if ready.get(one.stream.link.fileno(), 0) & ~select.POLLOUT or one.stream.link.pending:
                self._read_node(one)
        for one in open_:
            if one.open:
                one.backlog.flush(one.stream.link.write)
        if self._ending_s and time.monotonic() >= self._ending_s:
            for one in self._nodes:
                self._close(one)

    def _read_input(self, first: _Node, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            data = b""
        if data:
            first.backlog.put(HEAD.pack(DATA, len(data)), data)
            return
        if pollable(fd):
            self._watched.want(fd)
        self._stdin = None
        first.backlog.put(message(END))

    def _read_node(self, one: _Node) -> None:
        data = one.stream.link.read()
        if data is None:
            return
        try:
            self._hear(one, one.stream.reader.feed(data))
        except (MalformedStreamError, ValueError) as error:
            self._lose(one, f"it sent what is no message: {error}")
            return
        if not data and one.open:
            self._lose(one, one.stream.link.broken or "the connection broke")

    def _hear(self, one: _Node, messages: Iterable[tuple[int, bytes | memoryview]]) -> None:
        for kind, body in messages:
            if kind == RANK:
                one.about = CODE.unpack(body)[0]
            elif kind in (OUT, ERR):
                self._lines.write(one.about, kind, bytes(body))
            elif kind == EXIT:
                self._ended(one, CODE.unpack(body)[0])
            elif kind == END:
                self._close(one)
            elif kind == FAIL:
                self._lose(one, bytes(body).decode(errors="replace").partition("\0")[2])
            if not one.open:
                return

    def _ended(self, one: _Node, code: int) -> None:
        self._lines.finish(one.about)
        if self._ending_s:
            return
        self._codes[one.about] = code
        if code and self._kill and len(self._codes) < one.part.size:
            if not self._interrupted:
                where = f"rank {one.about} on node {one.part.node}"
                self._screen.note(f"{where} ended with exit code {code}; the others are ended")
            self._end_all(signal.SIGTERM)

    def _lose(self, one: _Node, why: str) -> None:
        """A node is gone, and its ranks with it."""
        if not self._ending_s:
            self._screen.note(f"the ranks on node {one.part.node} are lost: {why}")
            self._lost = True
        self._close(one)
        if self._kill and not self._ending_s and any(other.open for other in self._nodes):
            self._end_all(signal.SIGTERM)

    def _close(self, one: _Node) -> None:
        if one.open:
            one.open = False
            self._watched.want(one.stream.link.fileno())
            one.stream.link.close()

    def _pass_signal(self, number: int) -> None:
        if number in ENDING or (number == signal.SIGINT and self._interrupted):
            self._ended_by = number
            self._end_all(number)
            return
        self._interrupted = self._interrupted or number == signal.SIGINT
        self._send(number)

    def _end_all(self, number: int) -> None:
        """Let all ranks end: by this signal, and by SIGKILL after a while."""
        self._send(number)
        self._ending_s = self._ending_s or time.monotonic() + GRACE_S

    def _send(self, number: int) -> None:
        for one in self._nodes:
            if one.open:
                one.backlog.put(message(SIGNAL, bytes([number])))


class _Lines:
    """Writes whole lines, so that those of different ranks never run into each other, and no byte that was not written
    by a rank, unless lines are labelled; of one rank alone everything as it comes."""

    def __init__(self, size: int, *, label: bool) -> None:
        self._as_it_comes = size == 1 and not label
        self._label = label
        self._rest: dict[tuple[int, int], bytes] = {}
        """By rank and kind, what has no end of its line yet."""

    def write(self, rank: int, kind: int, data: bytes) -> None:
        """Write output of a rank."""
        if self._as_it_comes:
            _write(kind, data)
            return
        whole, end, rest = (self._rest.pop((rank, kind), b"") + data).rpartition(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            whole, end, rest = whole + end + rest, b"", b""
        if rest:
            self._rest[rank, kind] = rest
        if whole or end:
            _write(kind, self._labelled(rank, whole) if self._label else whole + end)

    def finish(self, rank: int | None = None) -> None:
        """Write what has no end of its line; of one rank, or of all."""
        for key in [key for key in self._rest if rank in (None, key[0])]:
            rest = self._rest.pop(key)
            _write(key[1], self._labelled(key[0], rest) if self._label else rest)

    def _labelled(self, rank: int, lines: bytes) -> bytes:
        """Each behind its rank; a part of one that is too long counts as a line."""
        head = f"[{rank}] ".encode()
        return b"".join(head + line + b"\n" for line in lines.split(b"\n"))


def _write(kind: int, data: bytes) -> None:
    write_all(1 if kind == OUT else 2, data)
