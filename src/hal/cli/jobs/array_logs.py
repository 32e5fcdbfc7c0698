"""`hal logs` of several tasks: their outputs merged, each line behind the number of its task.

What is there comes from one answer for each stream, by task. Following takes a connection for each output, if they are
`MAX_LIVE` at most; more are followed in rounds (`output_rounds`).
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.rest.views import TaskInfo, TaskOutput

MAX_LIVE: Final = 32
"""Outputs that are followed at the same time, each over a connection of its own."""
MAX_NOTES: Final = 5
"""Tasks that cannot be read and are named."""
ENDED_AT_ONCE: Final = 500
"""Ended tasks whose outputs are asked for together."""


class ArrayLogs:
    """Copies the outputs of several tasks of a job here."""

    def __init__(
        self,
        screen: Screen,
        job: Job,
        *,
        tasks: str,
        state: str,
        streams: Sequence[str],
        rank: int,
        tail: int | None,
        foreign: bool,
        collector: str = "",
    ) -> None:
        """
        Args:
            tasks, state: which tasks, as `Job.outputs` takes them.
            tail: only so many lines of each output.
            foreign: what is shown on a terminal is another user's.
            collector: URL of the collector, which may have what cannot be read; '': found by itself.
        """
        self._screen, self._job, self._tasks, self._state = screen, job, tasks, state
        self._streams, self._rank, self._tail = streams, rank, tail
        out, err = sys.stdout.buffer, sys.stderr.buffer
        self._to: dict[str, BinaryIO | _OnTerminal] = {
            "stdout": out,
            "stderr": out if list(streams) == ["stderr"] else err,
        }
        for name, file in self._to.items():
            if foreign and file.isatty():
                self._to[name] = _OnTerminal(file)
        self._seen = self._ran = self._unreadable = self._kept = 0
        self._collector, self._asks_collector = collector, True
        self._paths: dict[str, tuple[str, int]] = {}

    def print_all(self) -> None:
        """What there is now, by task."""
        self._print(self._tasks, self._state)
        self._conclude()

    def follow(self) -> None:
        """Until all of them have ended."""
        tasks = self._numbers()
        if len(tasks) * len(self._streams) <= MAX_LIVE:
            self._follow_live(tasks)
            return
        self._follow_in_rounds(frozenset(tasks))

    def _follow_in_rounds(self, wanted: frozenset[int]) -> None:
        from hal.cli.jobs.output_rounds import ROUND_S, OutputRounds

        rounds = OutputRounds(
            self._job, self._streams, tasks=self._tasks, rank=self._rank, write=self._write, tail_lines=self._tail
        )
        try:
            for some in batches(self._job.tasks_as_ended(), ROUND_S):
                numbers = sorted({task.task for task in some} & wanted)
                for name, end in rounds.finish(numbers):
                    self._count(name, end)
                rounds.advance()
        except KeyboardInterrupt:
            return
        if rounds.dropped:
            from hal.core.model import readable_amount

            self._screen.note(f"{readable_amount('disk', rounds.dropped)} were dropped (outputs are bounded)")
        self._conclude()

    def _numbers(self) -> list[int]:
        """The tasks that are meant."""
        info = self._job.info
        if not self._tasks and not self._state:
            return list(range(info.tasks))
        from hal.core.model import ArrayRange, convert, parse_tasks_ref
        from hal.core.model.index_ranges import IndexRange, pieces_of

        ref = parse_tasks_ref(f"{self._job.id}{self._tasks if self._tasks.startswith('[') else '.' + self._tasks}")
        ranges: Iterator[IndexRange] = iter(ref.ranges)
        if ref.by_index:
            raw = (info.spec or {}).get("array")
            ranges = convert(raw, ArrayRange).tasks_of(ref.ranges) if raw else iter(())
        return [task for first, end in pieces_of(ranges) for task in range(first, min(end, info.tasks))]

    def _follow_live(self, tasks: Sequence[int]) -> None:
        from hal.cli.jobs.output_streams import Mixer, Source

        sources = [Source(task, self._rank, name, f"[{task}] ") for task in tasks for name in self._streams]
        mixer = Mixer(self._screen.client, self._job.id, sources, self._to["stdout"], self._to["stderr"], _nothing)
        mixer.start()
        try:
            mixer.join()
        except KeyboardInterrupt:
            return
        if mixer.error is not None:
            raise mixer.error

    def _print(self, tasks: str, state: str) -> None:
        offset = -TAIL_BYTES if self._tail is not None else 0
        outputs = [
            self._job.outputs(name, tasks=tasks, state=state, rank=self._rank, offset=offset) for name in self._streams
        ]
        for together in zip(*outputs, strict=False):
            for name, output in zip(self._streams, together, strict=True):
                self._count(name, output)
                data = self._end_of(name, output) if self._tail is not None else output.data
                if data:
                    self._write(name, output.task, data)

    def _count(self, name: str, output: TaskOutput) -> None:
        """Remember what is to be said at the end of an output that is shown, or cannot be."""
        if name == self._streams[0]:
            self._seen += 1
            self._ran += output.attempt > 0
        if output.error and self._write_kept(name, output):
            self._kept += 1
        elif output.error:
            self._unreadable += 1
            if self._unreadable <= MAX_NOTES:
                self._screen.note(f"task {self._job.id}.{output.task}: {output.error}")
        if output.path:
            path, others = self._paths.get(name, (f"{output.path} on node {output.node}", -1))
            self._paths[name] = (path, others + 1)

    def _write_kept(self, name: str, output: TaskOutput) -> bool:
        """Write what the collector has kept of an output that cannot be read; returns whether there was any."""
        if not self._asks_collector:
            return False
        from hal.cli.jobs.log_search import kept_pieces
        from hal.core.model import HALError, NotFoundError

        which = {"task": output.task, "attempt": output.attempt or None, "rank": self._rank, "stream": name}
        some = False
        try:
            for piece in kept_pieces(self._screen, self._job.id, which, tail=self._tail, url=self._collector):
                some = True
                self._write(name, output.task, piece)
        except NotFoundError:
            return some
        except HALError:
            self._asks_collector = False  # there is none, or it does not answer
        return some

    def _write(self, name: str, task: int, data: bytes) -> None:
        self._to[name].write(_labelled(task, data))
        self._to[name].flush()

    def _end_of(self, name: str, output: TaskOutput) -> bytes:
        """The last lines of an output."""
        from hal.cli.jobs.output_streams import Source, offset_of_last_lines

        lines = output.data.splitlines(keepends=True)
        if len(lines) > (self._tail or 0) or output.offset == 0:
            return b"".join(lines[-self._tail :]) if self._tail else b""
        source = Source(output.task, self._rank, name)
        tail_bytes = offset_of_last_lines(self._job.client, self._job.id, source, None, self._tail or 0)
        return b"".join(self._job.log_bytes(name, task=output.task, rank=self._rank, tail_bytes=tail_bytes))

    def _conclude(self) -> None:
        """Say what was not there."""
        if self._kept:
            what = "output was" if self._kept == 1 else "outputs were"
            self._screen.note(f"{self._kept:,} {what} printed as far as the collector has kept them")
        if self._unreadable > MAX_NOTES:
            self._screen.note(f"{self._unreadable - MAX_NOTES:,} more could not be read")
        for name, (path, others) in self._paths.items():
            more = f" (and of {others:,} other {'task' if others == 1 else 'tasks'} in such files)" if others else ""
            self._screen.note(f"{name} goes to {path}, as the job asks; HAL keeps none of it{more}")
        if not self._seen:
            self._screen.note(f"no task of job {self._job.id} is {self._state.replace(',', ' or ')}")
        elif not self._ran:
            self._screen.note(f"none of these tasks of job {self._job.id} has run (see: hal why {self._job.id})")


TAIL_BYTES: Final = 64 << 10
"""How much of the end of each output is read first for its last lines."""


def batches(tasks: Iterator[TaskInfo], patience_s: float) -> Iterator[list[TaskInfo]]:
    """What has come by the time that it is asked for, as long as there are any; nothing where none has come for
    `patience_s`."""
    come: queue.SimpleQueue[TaskInfo | BaseException | None] = queue.SimpleQueue()

    def read() -> None:
        try:
            for task in tasks:
                come.put(task)
            come.put(None)
        except BaseException as error:
            come.put(error)

    threading.Thread(target=read, daemon=True).start()
    some: list[TaskInfo] = []
    while True:
        try:
            item = come.get(timeout=patience_s)
        except queue.Empty:
            yield []
            continue
        while True:
            if item is None or isinstance(item, BaseException):
                if some:
                    yield some
                if item is not None:
                    raise item
                return
            some.append(item)
            if come.empty() or len(some) >= ENDED_AT_ONCE:
                break
            item = come.get()
        yield some
        some = []


class _OnTerminal:
    """Writes whole lines to a terminal, with control characters as escapes."""

    def __init__(self, terminal: BinaryIO | _OnTerminal) -> None:
        self._terminal = terminal

    def write(self, lines: bytes) -> int:
        """Write them."""
        from hal.cli.jobs.output_streams import ForTerminal

        return self._terminal.write(ForTerminal().shown(lines, last=True))

    def flush(self) -> None:
        """As a file's."""
        self._terminal.flush()

    def isatty(self) -> bool:
        """It is one."""
        return True


def _labelled(task: int, data: bytes) -> bytes:
    """Lines behind the number of their task; a last line without an end gets one."""
    head = f"[{task}] ".encode()
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return b"".join(head + line + b"\n" for line in lines)


def _nothing() -> None:
    """Nothing is on the screen that would have to go before output is written."""
