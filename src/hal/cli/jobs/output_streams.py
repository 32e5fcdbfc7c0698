"""A job's output, copied here while it runs: one thread per stream, whole lines where several are mixed."""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from hal.client.flows.log_follower import LogFollower
from hal.client.sync_client import Client
from hal.core.model import HALError, NotFoundError
from hal.core.model.printable import printable

TAIL_START_BYTES = 64 << 10
"""How much of a file's end is looked at first for its last lines; four times as much each time it is not enough."""


class Source(NamedTuple):
    """One output file of a job, and the prefix of its lines."""

    task: int
    rank: int
    stream: str
    prefix: str = ""


class Writable(Protocol):
    """Where output goes."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


class Mixer:
    """Copies several streams to standard output and error at the same time.

    One stream alone is copied byte for byte as it comes. Where several go to one place, whole lines are written, each
    behind its prefix, so that lines of different tasks never run into each other.
    """

    def __init__(
        self,
        client: Client,
        job_id: str,
        sources: list[Source],
        out: Writable,
        err: Writable,
        before_write: Callable[[], None],
    ) -> None:
        """`before_write` is called before anything is written, from any thread, one at a time."""
        self._followers = [
            (
                source,
                LogFollower(
                    client.connections,
                    job_id,
                    stream=source.stream,
                    task=source.task,
                    rank=source.rank,
                    from_first=True,
                ),
            )
            for source in sources
        ]
        self._to = {"stdout": out, "stderr": err}
        self._before_write = before_write
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.error: HALError | BrokenPipeError | None = None
        """Why a copy stopped early."""

    def start(self) -> None:
        """Follow all of them, in the background."""
        for source, follower in self._followers:
            thread = threading.Thread(target=self._copy, args=(source, follower), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Copy what is there by now, and stop. Call it when the job has ended, or when no more is wanted."""
        for _, follower in self._followers:
            follower.stop()
        self.join()

    @property
    def dropped(self) -> int:
        """Bytes that the job wrote faster than they could be brought here, and that were not kept."""
        return sum(follower.dropped for _, follower in self._followers)

    def join(self) -> None:
        """Wait until all streams are complete."""
        for thread in self._threads:
            thread.join()

    def _copy(self, source: Source, follower: LogFollower) -> None:
        try:
            with contextlib.suppress(NotFoundError):  # a task that never ran has no output
                pieces = follower.pieces(follow=True)
                for piece in prefixed(pieces, source.prefix) if source.prefix else pieces:
                    self._write(source.stream, piece)
        except (HALError, BrokenPipeError) as error:
            self.error = self.error or error

    def _write(self, stream: str, data: bytes) -> None:
        with self._lock:
            self._before_write()
            self._to[stream].write(data)
            self._to[stream].flush()


class ForTerminal:
    """Makes pieces of an output harmless on a terminal: control characters become escapes, line ends and tabs stay."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def shown(self, piece: bytes, *, last: bool = False) -> bytes:
        """What is to be written for a piece; letters that are cut between two come whole with the second."""
        return printable(self._decoder.decode(piece, last), lines=True).encode("utf-8", "backslashreplace")


def prefixed(pieces: Iterator[bytes], prefix: str) -> Iterator[bytes]:
    """Whole lines behind a prefix; a last line without an end gets one."""
    head = prefix.encode()
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield b"".join(head + line + b"\n" for line in lines)
    if rest:
        yield head + rest + b"\n"


def offset_of_last_lines(client: Client, job_id: str, source: Source, attempt: int | None, count: int) -> int:
    """How many bytes the last `count` lines take; of a shorter file all of it."""
    from hal.client.rest import calls

    def part(offset: int, limit: int) -> tuple[bytes, int]:
        read = client.call(
            calls.log(
                job_id,
                task=source.task,
                rank=source.rank,
                attempt=attempt,
                stream=source.stream,
                offset=offset,
                limit=limit,
            )
        )
        return read.data, read.size

    if count <= 0:
        return 0
    size = part(0, 1)[1]
    span = TAIL_START_BYTES
    while True:
        data = b""
        start = max(0, size - span)
        while len(data) < size - start:
            piece, _ = part(start + len(data), size - start - len(data))
            if not piece:
                break
            data += piece
        ends = [i for i, byte in enumerate(data[:-1]) if byte == 10]
        if len(ends) >= count:
            return len(data) - ends[-count] - 1
        if start == 0:
            return len(data)
        span *= 4
