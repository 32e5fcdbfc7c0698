"""Sends what steps print to the collector, while there is one: read from their output files, as they grow.

A step is never held up: it writes to its own file, and what is read of that is bounded in bytes and steps a turn. An
output that grows faster is sent with gaps, which a line in it names; the file on the node has all of it. While the
sender's queue is half full nothing is read. Values of secrets that HAL has put beside a step are replaced. Which jobs
do not want it, whose they are, and how far each output was read is noted in a file, so that another agent goes on.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from hal.core.model import StepId
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.runtime.interface import Runtime
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.agent_keeper import Exits, Refused, Start, Started, Stream
from hal.wire.frames.conversation import Frame
from hal.wire.frames.telemetry import LogLine, Severity

LANE: Final = "outputs"
TURN_MS: Final = 1_000
STREAM_BYTES: Final = 64 << 10
"""Of one output in one turn; also how much of one that is far ahead is still sent."""
TURN_BYTES: Final = 1 << 20
"""Of all outputs in one turn."""
TURN_STEPS: Final = 500
BEHIND_BYTES: Final = 1 << 20
"""An output that is so far ahead is gone on with near its end."""
QUEUED_BYTES: Final = 2 << 20
"""While the sender has so much, nothing is read."""
MAX_STEPS: Final = 65_536
"""Running steps whose outputs are read."""
MAX_ENDED: Final = 10_000
"""Ended steps whose last lines have not been read."""
MAX_JOBS: Final = 65_536
MAX_NOTE_BYTES: Final = 16 << 20
MAX_PIECE: Final = 8_192
"""Characters of a line; a longer one is sent in pieces."""
LEAST_SECRET: Final = 6
"""Bytes of a value that is looked for: a shorter one would be found everywhere."""
MASK: Final = b"[hidden]"
WISH: Final = "HAL_COLLECT_OUTPUT"
"""A job that sets it to 0 keeps what it prints on its nodes."""
STEP: Final = "step"


class OutputPlaces(NamedTuple):
    """Where a node has them."""

    directory: Path
    note: Path
    """The file for the next agent."""


class Wish(NamedTuple):
    """Of a job."""

    user: str
    wanted: bool


class _Note(Struct, frozen=True):
    """What the next agent must know."""

    jobs: dict[str, tuple[str, bool]] = {}
    """By id: whose it is, and whether its output is sent."""
    read: dict[str, tuple[int, int]] = {}
    """By step: how far stdout and stderr were read."""


class _Tail:
    """One step."""

    __slots__ = ("ended", "read", "secrets", "step")

    def __init__(self, step: StepId) -> None:
        self.step = step
        self.read = [0, 0]
        """Bytes of stdout and stderr."""
        self.secrets: tuple[bytes, ...] | None = None
        """None: not looked up yet."""
        self.ended = False


class OutputTails:
    """Of one node. `run` is one task; the rest is called from the loop."""

    def __init__(
        self,
        runtime: Runtime,
        outputs: Path,
        note: Path,
        sender: TelemetrySender,
        secrets_of: Callable[[StepId], Iterable[bytes]] = lambda _: (),
    ) -> None:
        """
        Args:
            outputs: directory of the steps' outputs.
            note: the file for the next agent.
            secrets_of: values of the secrets that a step has, while it has them.
        """
        self._runtime, self._sender, self._secrets_of, self._note = runtime, sender, secrets_of, note
        self._files = OutputFiles(outputs)
        self._jobs: dict[int, Wish] = {}
        self._running: dict[StepId, _Tail] = {}
        self._ended: deque[_Tail] = deque()
        self._turn: deque[StepId] = deque()
        """Running steps in the order in which they are read."""
        self._noted = b""
        self._left = _read_note(note)
        self.skipped_bytes = 0
        """Of outputs that grew too fast, and of steps that were too many."""
        self.skipped_steps = 0

    # ── what the agent hears ──────────────────────────────────────────────────────────────────────────────────────

    def begin(self, frame: Start) -> None:
        """Steps that are about to start: whose they are, and whether they want it."""
        for template in frame.templates:
            job = template.env.get("HAL_JOB_ID", "")
            if job.isascii() and job.isdigit() and len(job) < 17 and int(job) not in self._jobs:
                if len(self._jobs) >= MAX_JOBS:
                    self._forget_jobs()
                self._jobs[int(job)] = Wish(template.user, template.env.get(WISH) != "0")

    def holds(self, steps: Iterable[StepId]) -> None:
        """Steps that run as this agent, or its keeper, begins."""
        for step in steps:
            if step not in self._running:
                self._add(step)

    def hear(self, frame: Frame) -> None:
        """What the keeper reports. Call it before what an ended step had is removed."""
        match frame:
            case Started():
                for one in frame.steps:
                    if one.step not in self._running:
                        self._add(one.step)
            case Exits():
                for ended in frame.exits:
                    self._end(ended.step)
            case Refused():
                for refused in frame.steps:
                    self._running.pop(refused.step, None)

    def _add(self, step: StepId) -> None:
        wish = self._jobs.get(step.job)
        if wish is None and (known := self._left.jobs.get(str(step.job))) is not None:
            wish = self._jobs[step.job] = Wish(*known)
        if wish is None or not wish.wanted:
            return  # of a job of which nothing is known it is not known either whether it wants it
        if len(self._running) >= MAX_STEPS:
            self.skipped_steps += 1
            return
        tail = _Tail(step)
        tail.read[:] = self._left.read.get(str(step), (0, 0))
        self._running[step] = tail
        self._turn.append(step)

    def _end(self, step: StepId) -> None:
        tail = self._running.pop(step, None)
        if tail is None:
            if step.job not in self._jobs or not self._jobs[step.job].wanted:
                return
            tail = _Tail(step)  # it began and ended in one report
        if not self._sender.active:
            return
        if len(self._ended) >= MAX_ENDED:
            self.skipped_steps += 1
            return
        if tail.secrets is None:
            tail.secrets = _worth_hiding(self._secrets_of(step))
        tail.ended = True
        self._ended.append(tail)

    def _forget_jobs(self) -> None:
        """Forget jobs of which nothing runs here."""
        live = {step.job for step in self._running} | {tail.step.job for tail in self._ended}
        self._jobs = {job: wish for job, wish in self._jobs.items() if job in live}

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Read and send until cancelled."""
        while True:
            await self._runtime.sleep(TURN_MS)
            if not self._sender.active:
                self._ended.clear()
                continue
            if self._sender.queued_bytes >= QUEUED_BYTES or not (self._running or self._ended):
                continue
            chosen = self._choose()
            at_ms = self._runtime.now_ms()
            lines, finished = await self._runtime.run_blocking(lambda: self._read(chosen, at_ms), LANE)  # noqa: B023
            for tail in chosen:
                if tail.ended and tail not in finished:
                    self._ended.append(tail)
            self._sender.lines(lines)
            note = self._make_note()
            if note != self._noted:
                self._noted = note
                await self._runtime.run_blocking(lambda: self._write_note(note), LANE)  # noqa: B023

    def _choose(self) -> list[_Tail]:
        """Steps of this turn: ended ones first, then running ones in turns."""
        chosen: list[_Tail] = []
        while self._ended and len(chosen) < TURN_STEPS:
            chosen.append(self._ended.popleft())
        for _ in range(min(len(self._turn), TURN_STEPS)):
            step = self._turn.popleft()
            tail = self._running.get(step)
            if tail is None:
                continue
            self._turn.append(step)
            if len(chosen) < TURN_STEPS:
                chosen.append(tail)
        return chosen

    def _read(self, chosen: list[_Tail], at_ms: int) -> tuple[list[LogLine], set[_Tail]]:
        """On a thread: the new lines, and the steps of which all was read."""
        lines: list[LogLine] = []
        finished: set[_Tail] = set()
        left = TURN_BYTES
        for tail in chosen:
            if left <= 0:
                break
            if tail.secrets is None:
                tail.secrets = _worth_hiding(self._secrets_of(tail.step))
            whole = True
            for at, stream in enumerate((Stream.STDOUT, Stream.STDERR)):
                took, end = self._read_stream(tail, at, stream, at_ms, lines)
                left -= took
                whole = whole and end
            if tail.ended and whole:
                finished.add(tail)
        return lines, finished

    def _read_stream(self, tail: _Tail, at: int, stream: Stream, at_ms: int, lines: list[LogLine]) -> tuple[int, bool]:
        """Read some of an output; returns how many bytes, and whether that was all of it."""
        part, secrets = self._files.read(tail.step, stream, tail.read[at], STREAM_BYTES), tail.secrets or ()
        user = self._jobs.get(tail.step.job, Wish("", False)).user
        if part.size - tail.read[at] > BEHIND_BYTES:
            part = self._files.read(tail.step, stream, part.size - STREAM_BYTES, STREAM_BYTES)
        offset, data = part.offset, part.data
        if offset > tail.read[at] and data:
            torn = _torn(data, secrets)
            offset, data = offset + torn, data[torn:]
            gap, where = offset - tail.read[at], tail.read[at]
            self.skipped_bytes += gap
            text = f"[{gap} bytes were not sent to the collector; the node's own file has them]"
            lines.append(LogLine(at_ms, Severity.WARNING, STEP, text, tail.step, stream, where, fields={"user": user}))
            tail.read[at] = offset
        end = offset + len(data)
        last = end >= part.size
        if not (tail.ended and last):
            cut = data.rfind(b"\n") + 1
            if not cut and len(part.data) >= STREAM_BYTES:
                cut = _outside(data, secrets)
            data = data[:cut]
        if data:
            lines += lines_of(tail.step, stream, data, offset, at_ms, user, secrets)
            tail.read[at] = offset + len(data)
        return len(data), last and offset + len(data) == end

    def _make_note(self) -> bytes:
        live = {step.job for step in self._running}
        note = _Note(
            {str(job): wish for job, wish in self._jobs.items() if job in live},
            {str(step): (tail.read[0], tail.read[1]) for step, tail in self._running.items()},
        )
        return msgspec.json.encode(note)

    def _write_note(self, note: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk: the next agent then leaves out what runs now
            write_private(self._note, note.decode())


def _read_note(path: Path) -> _Note:
    try:
        return msgspec.json.decode(read_regular(path, MAX_NOTE_BYTES), type=_Note)
    except (OSError, msgspec.DecodeError):
        return _Note()


def _worth_hiding(values: Iterable[bytes]) -> tuple[bytes, ...]:
    """Values, and the lines of values that have several; the longest first."""
    found = {part for value in values for part in (value.strip(), *value.splitlines()) if len(part) >= LEAST_SECRET}
    return tuple(sorted(found, key=len, reverse=True))


def _outside(data: bytes, secrets: Sequence[bytes]) -> int:
    """Where a line that is longer than one reading may be cut: near its end, and in no secret."""
    at = len(data) - max(map(len, secrets), default=1) + 1
    while (found := _around(data, at, secrets)) is not None and found[0] > 0:
        at = found[0]
    return at


def _torn(data: bytes, secrets: Sequence[bytes]) -> int:
    """How much of the beginning of a reading may be the end of a secret, or of a line that holds one."""
    line_end = data.find(b"\n") + 1
    if line_end:
        return line_end
    at = min(len(data), max(map(len, secrets), default=1) - 1)
    while (found := _around(data, at, secrets)) is not None:
        at = found[1]
    return at


def _around(data: bytes, at: int, secrets: Iterable[bytes]) -> tuple[int, int] | None:
    """Beginning and end of a secret that a cut at a place would tear."""
    for secret in secrets:
        found = data.find(secret, max(0, at - len(secret) + 1), at + len(secret) - 1)
        if found >= 0:
            return found, found + len(secret)
    return None


def masked(line: bytes, secrets: Iterable[bytes]) -> bytes:
    """The same, with secrets replaced."""
    for secret in secrets:
        if secret in line:
            line = line.replace(secret, MASK)
    return line


def lines_of(
    step: StepId, stream: str, data: bytes, offset: int, at_ms: int, user: str, secrets: Iterable[bytes] = ()
) -> Iterator[LogLine]:
    """The lines of a piece of an output; the first names the user, and one without an end says so."""
    raws = data.split(b"\n")
    named = {"user": user}
    for at, raw in enumerate(raws):
        last = at == len(raws) - 1
        if last and not raw:
            return
        text = masked(raw, secrets).decode("utf-8", "replace")
        while len(text) > MAX_PIECE:
            piece, text = text[:MAX_PIECE], text[MAX_PIECE:]
            yield LogLine(at_ms, Severity.INFO, STEP, piece, step, stream, offset, fields={**named, "part": "1"})
            named = {}
        fields = {**named, "part": "1"} if last else named
        yield LogLine(at_ms, Severity.INFO, STEP, text, step, stream, offset, fields=fields)
        named = {}
        offset += len(raw) + 1
