"""Reading the outputs of many tasks of a job from one answer: steps for both clients.

The answer is a line of JSON before each piece; pieces of one output follow one another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from hal.client.flows.steps import Emit, Flow, Listen, Pause, Read
from hal.client.rest import calls
from hal.client.rest.views import TaskOutput
from hal.client.transport.backoff import Backoff
from hal.client.transport.exchange import BrokenStreamError
from hal.core.model import InternalError, UnreachableError
from hal.core.model.output_record import OutputRecord, read_record

MAX_LINE_BYTES: Final = 64 << 10


def task_outputs(
    job_id: str,
    *,
    stream: str,
    tasks: str,
    states: str,
    rank: int,
    offset: int,
    limit: int | None,
    reconnect_s: float,
    clock: Callable[[], float],
) -> Flow[TaskOutput]:
    """Emit the output of each task by task number; an answer that breaks off is asked for again behind the last one.

    Args:
        clock: monotonic, in seconds.
    Raises:
        NotFoundError: no such job or task, or its outputs were removed.
        UnreachableError: no HAL answers any more.
    """
    after, backoff = -1, Backoff(reconnect_s)
    while True:
        reader = _Reader()
        try:
            yield Listen(
                calls.outputs(
                    job_id,
                    stream=stream,
                    tasks=tasks,
                    states=states,
                    rank=rank,
                    offset=offset,
                    limit=limit,
                    after=after,
                )
            )
            while (chunk := (yield Read())) is not None:
                for output in reader.feed(chunk):
                    backoff.worked()
                    after = output.task
                    yield Emit(output)
            last = reader.end()
            if last is not None:
                yield Emit(last)
            return
        except BrokenStreamError as broken:
            delay_s = backoff.failed(clock())
            if delay_s is None:
                what = f"the outputs of job {job_id} break off again and again"
                raise UnreachableError(what, hint="try again; `hal status` shows the controller") from broken
            yield Pause(delay_s)


class _Reader:
    """Puts outputs together from the bytes of an answer."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._record: OutputRecord | None = None
        """Of the piece whose bytes come next."""
        self._first: OutputRecord | None = None
        """Of the output that is being put together."""
        self._pieces: list[bytes] = []
        self._error = ""

    def feed(self, chunk: bytes) -> list[TaskOutput]:
        """The outputs that are complete with this chunk."""
        self._bytes += chunk
        found: list[TaskOutput] = []
        at = 0
        while True:
            if self._record is None:
                end = self._bytes.find(b"\n", at)
                if end < 0:
                    if len(self._bytes) - at > MAX_LINE_BYTES:
                        raise _not_understood("a line without an end")
                    break
                self._begin(bytes(self._bytes[at:end]), found)
                at = end + 1
            record = self._record
            if record is None or len(self._bytes) - at < record.bytes:
                break
            self._pieces.append(bytes(self._bytes[at : at + record.bytes]))
            at += record.bytes
            self._record = None
        del self._bytes[:at]
        return found

    def end(self) -> TaskOutput | None:
        """The last output.

        Raises:
            BrokenStreamError: the answer broke off inside of a piece.
        """
        if self._record is not None or self._bytes:
            raise BrokenStreamError("an answer ended inside of a piece")
        return self._finished()

    def _begin(self, line: bytes, found: list[TaskOutput]) -> None:
        try:
            record = read_record(line)
        except msgspec.DecodeError as error:
            raise _not_understood(str(error)) from error
        if self._first is None or record.task != self._first.task:
            if (finished := self._finished()) is not None:
                found.append(finished)
            self._first = record
        self._error = record.error
        self._record = record

    def _finished(self) -> TaskOutput | None:
        first, data = self._first, b"".join(self._pieces)
        self._pieces, self._first = [], None
        if first is None:
            return None
        return TaskOutput(
            task=first.task,
            attempt=first.attempt,
            node=first.node,
            data=data,
            offset=first.offset,
            size=first.size,
            path=first.path,
            error=self._error,
        )


def _not_understood(what: str) -> InternalError:
    return InternalError(f"the controller's answer is not understood: {what}")
