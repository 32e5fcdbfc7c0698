"""Following the outputs of any number of tasks over two connections: in rounds, of what has grown since the last one.

A round asks how long the outputs of running tasks are, in one answer for each stream, and then for the ends of those
that grew, many tasks in one answer. What is kept here is an offset and the unfinished last line of each task that runs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.rest.views import TaskOutput

ROUND_S: Final = 1.0
"""Pause between two rounds, at least; a round that takes long is followed by a pause of `REST` times that."""
REST: Final = 2.0
TASKS_AT_ONCE: Final = 500
"""Tasks that one request names."""
MAX_LINE_BYTES: Final = 64 << 10
"""A line that is longer is shown in pieces."""

Write = Callable[[str, int, bytes], None]
"""Takes whole lines of a stream of a task."""


class _Shown:
    """What was shown of one output."""

    __slots__ = ("attempt", "offset", "rest")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.offset = 0
        self.rest = b""
        """The line that has no end yet."""


class OutputRounds:
    """Of several tasks of a job."""

    def __init__(
        self, job: Job, streams: Sequence[str], *, tasks: str, rank: int, write: Write, tail_lines: int | None
    ) -> None:
        """
        Args:
            tasks: which, as `Job.outputs` takes them.
            tail_lines: of what running tasks have written before the first round, only so many lines.
        """
        self._job, self._streams, self._tasks, self._rank = job, streams, tasks, rank
        self._write, self._tail_lines = write, tail_lines
        self._shown: dict[tuple[str, int], _Shown] = {}
        self._due_s = 0.0
        self.dropped = 0
        """Bytes that outputs lost before they could be read here: they are bounded."""

    def advance(self) -> None:
        """Show what running tasks have written since the last round, if the next one is due."""
        began_s = time.monotonic()
        if began_s < self._due_s:
            return
        for stream in self._streams:
            self._show_grown(stream, self._lengths(stream, self._tasks, "active"))
        self._tail_lines = None
        took_s = time.monotonic() - began_s
        self._due_s = began_s + took_s + max(ROUND_S, REST * took_s)

    def finish(self, numbers: Sequence[int]) -> Iterator[tuple[str, TaskOutput]]:
        """Show the rest of tasks that have ended.

        Gives: how long each output is, and where, without its bytes.
        """
        for named in _named(numbers):
            for stream in self._streams:
                ends = list(self._lengths(stream, named, ""))
                self._show_grown(stream, ends)
                for end in ends:
                    shown = self._shown.pop((stream, end.task), None)
                    if shown is not None and shown.rest:
                        self._write(stream, end.task, shown.rest + b"\n")
                    yield stream, end

    def _lengths(self, stream: str, tasks: str, states: str) -> Iterator[TaskOutput]:
        return self._job.outputs(stream, tasks=tasks, state=states, rank=self._rank, limit=0)

    def _show_grown(self, stream: str, lengths: Iterable[TaskOutput]) -> None:
        grown: dict[int, list[int]] = defaultdict(list)
        for output in lengths:
            shown = self._shown_of(stream, output)
            if output.size > shown.offset:
                # So much of the end that one answer serves many tasks; more than is missing, since it grows meanwhile.
                grown[1 << (2 * (output.size - shown.offset) - 1).bit_length()].append(output.task)
        for width, numbers in sorted(grown.items()):
            for named in _named(numbers):
                for output in self._job.outputs(stream, tasks=named, rank=self._rank, offset=-width):
                    self._show(stream, output)

    def _shown_of(self, stream: str, output: TaskOutput) -> _Shown:
        """What was shown of its latest attempt; what an earlier one left unfinished is shown now."""
        shown = self._shown.get((stream, output.task))
        if shown is None or shown.attempt != output.attempt:
            if shown is not None and shown.rest:
                self._write(stream, output.task, shown.rest + b"\n")
            shown = self._shown[stream, output.task] = _Shown(output.attempt)
        return shown

    def _show(self, stream: str, output: TaskOutput) -> None:
        shown = self._shown_of(stream, output)
        if self._tail_lines is not None and not shown.offset:
            shown.offset = self._offset_of_tail(stream, output)
        if output.offset > shown.offset:
            self._read_on(stream, output, shown)
        else:
            self._add(stream, output.task, shown, output.offset, output.data)

    def _add(self, stream: str, task: int, shown: _Shown, offset: int, data: bytes) -> None:
        """Show what is new of a piece."""
        self.dropped += max(0, offset - shown.offset)
        new = data[max(0, shown.offset - offset) :]
        shown.offset = max(shown.offset, offset + len(data))
        lines, end, rest = (shown.rest + new).rpartition(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines, end, rest = lines + end + rest, b"\n", b""
        shown.rest = rest
        if end:
            self._write(stream, task, lines + end)

    def _read_on(self, stream: str, output: TaskOutput, shown: _Shown) -> None:
        """It grew by more than was expected: read it from where it was shown to."""
        from hal.client.rest import calls

        call = self._job.client.call
        while True:
            part = call(
                calls.log(
                    self._job.id,
                    task=output.task,
                    attempt=output.attempt,
                    rank=self._rank,
                    stream=stream,
                    offset=shown.offset,
                )
            )
            if not part.data:
                return
            self._add(stream, output.task, shown, part.offset, part.data)

    def _offset_of_tail(self, stream: str, output: TaskOutput) -> int:
        from hal.cli.jobs.output_streams import Source, offset_of_last_lines

        source = Source(output.task, self._rank, stream)
        last = offset_of_last_lines(self._job.client, self._job.id, source, output.attempt, self._tail_lines or 0)
        return max(0, output.size - last)


def _named(numbers: Sequence[int]) -> Iterator[str]:
    """The tasks as requests name them, so many in each."""
    from hal.core.model.index_ranges import ranges_of, text_of

    for at in range(0, len(numbers), TASKS_AT_ONCE):
        yield text_of(ranges_of(sorted(numbers[at : at + TASKS_AT_ONCE]), "tasks"))
