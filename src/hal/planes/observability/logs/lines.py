"""A log line, and where it comes from. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from hal.wire.frames.telemetry import Severity

MAX_LINE_CHARS: Final = 8_192
"""A longer line of an output is kept in pieces."""
HEAD_CHARS: Final = 96
"""Where a line of an output names its severity, if it does."""

STEP: Final = "step"
"""The component of what jobs print."""


def severity_word(severity: Severity) -> str:
    """As people write it: `warning`."""
    return severity.name.lower()


SEVERITIES: Final = {severity_word(one): one for one in Severity}
_WORDS: Final = {
    "trace": Severity.TRACE,
    "debug": Severity.DEBUG,
    "info": Severity.INFO,
    "notice": Severity.INFO,
    "warn": Severity.WARNING,
    "warning": Severity.WARNING,
    "error": Severity.ERROR,
    "err": Severity.ERROR,
    "critical": Severity.FATAL,
    "fatal": Severity.FATAL,
    "panic": Severity.FATAL,
}
_NAMED: Final = re.compile(
    # As loggers write it: in capitals, or as the value of a key; a word of a sentence says nothing.
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|PANIC)\b"
    r"|\b(?:level|severity|levelname|lvl)[\"']?\s*[=:]\s*[\"']?([A-Za-z]+)"
)
_TRACEBACK: Final = ("Traceback (most recent call last)", "panic: ", "Segmentation fault")


def severity_of(text: str) -> Severity:
    """The severity that a line of an output names at its beginning; info if it names none."""
    found = _NAMED.search(text, 0, HEAD_CHARS)
    if found is not None:
        return _WORDS.get((found[1] or found[2]).lower(), Severity.INFO)
    return Severity.ERROR if text.startswith(_TRACEBACK) else Severity.INFO


class Source(NamedTuple):
    """What a line comes from: one output of a step, or one process of HAL."""

    node: str
    """Where; empty: on no node (the controller)."""
    component: str
    """`step`, or the process: `controller`, `agent`, `keeper`, …"""
    job: int = 0
    """0: of no job."""
    task: int = 0
    attempt: int = 0
    rank: int = 0
    stream: str = ""
    """`stdout` or `stderr`, of a job."""
    user: str = ""
    """Whose job it is; empty: only operators see the line."""
    trace_id: str = ""
    """Of the job, 32 hexadecimal digits; empty: none."""


class Line(NamedTuple):
    """One line."""

    at_ms: int
    """When it was written, or read where that is not known."""
    severity: Severity
    text: str
    """Without its end; whatever a program wrote, invalid UTF-8 replaced. Not safe for a terminal."""
    offset: int = 0
    """Of an output: where it begins, counted over all bytes ever written."""
    whole: bool = True
    """An end of line follows; else the next piece does."""


class Batch(NamedTuple):
    """Lines of one source, in order."""

    source: Source
    lines: list[Line]
    end: int = 0
    """Of an output or a file: lines that begin before this have now been taken; 0: they are not numbered."""


def lines_of(data: bytes, offset: int, at_ms: int) -> Iterator[Line]:
    """The lines of a piece of an output.

    Args:
        offset: of its first byte.
        at_ms: when it was read.
    """
    for raw in data.splitlines(keepends=True) if b"\r" not in data else _split(data):
        begins, offset = offset, offset + len(raw)
        whole = raw.endswith(b"\n")
        text = (raw[:-1] if whole else raw).decode("utf-8", "replace")
        severity = severity_of(text)
        if len(text) <= MAX_LINE_CHARS:
            yield Line(at_ms, severity, text, begins, whole)
            continue
        pieces = [text[at : at + MAX_LINE_CHARS] for at in range(0, len(text), MAX_LINE_CHARS)]
        for piece in pieces[:-1]:
            yield Line(at_ms, severity, piece, begins, False)
        yield Line(at_ms, severity, pieces[-1], begins, whole)


def _split(data: bytes) -> list[bytes]:
    """At ends of lines alone: a carriage return is a part of its line (progress bars)."""
    pieces = data.split(b"\n")
    lines = [piece + b"\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines
