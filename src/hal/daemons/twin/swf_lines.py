"""Convert the text of a log to columns: plain lines in bulk, every other line one by one, with a reason if it is
bad.

Pure. A line is plain if its columns are whole numbers (fractions allowed in columns that are not read); the bulk path
decodes the nine columns that matter straight from the bytes, exactly, about 40 ns per column. The careful path gives
the same values for the same line (checked by a property test).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
ByteArray = NDArray[np.uint8]

COLUMNS = 18
"""Columns of the Standard Workload Format; further ones are ignored."""

BAD_LINES_KEPT = 20
"""Bad lines whose number and reason are kept; the others are only counted."""

CHUNK_BYTES = 4 << 20
"""Text processed at once: bounds the scratch memory to about 20 times that."""

_PLAIN_DIGITS = 11
_LARGEST = 10**11
"""Largest number read: 3,000 years in seconds; keeps every sum of times and amounts well within 64 bits."""

_SHOWN_CHARACTERS = 24
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")

_READ = {0: "job number", 1: "submit time", 3: "run time", 4: "allocated processors", 7: "requested processors",
         8: "requested time", 11: "user", 12: "group", 14: "queue"}  # fmt: skip
"""Column index -> its name, for the columns that are read, in the order of LogRows after `line`."""

_LABELS = (12, 14)
"""Columns in which an invalid number is read as 'unknown', never as a bad line: they only identify owners."""

_SPACE = np.zeros(256, np.bool_)
_SPACE[[9, 10, 11, 12, 13, 32]] = True
_DIGIT = np.zeros(256, np.bool_)
_DIGIT[48:58] = True


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a job: its number in the file (from 1) and what is wrong with it."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class LogRows:
    """The well-formed lines of a log in file order; every array has the shape (L,); -1 means 'not known'."""

    line: IntArray
    job_id: IntArray
    submit_s: IntArray
    run_s: IntArray
    allocated: IntArray
    requested: IntArray
    requested_s: IntArray
    user: IntArray
    group: IntArray
    queue: IntArray


def parse_lines(data: bytes, chunk_bytes: int = CHUNK_BYTES) -> tuple[LogRows, tuple[BadLine, ...], int]:
    """Return the columns of all well-formed job lines, the first BAD_LINES_KEPT bad lines, and the number of bad
    lines.

    Comments (first character ';') and blank lines are neither.
    """
    blocks: list[IntArray] = []
    bad: list[BadLine] = []
    bad_lines = 0
    position, lines_before = 0, 0
    while position < len(data):
        end = _chunk_end(data, position, chunk_bytes)
        block, odd, lines = _plain_block(data[position:end], lines_before)
        careful: list[list[int]] = []
        for number, text in odd:
            values = careful_line(text)
            if isinstance(values, str):
                bad_lines += 1
                if len(bad) < BAD_LINES_KEPT:
                    bad.append(BadLine(number, values))
            else:
                careful.append([number, *values])
        if careful:
            block = np.concatenate([block, np.array(careful, np.int64)])
            block = block[np.argsort(block[:, 0], kind="stable")]
        blocks.append(block)
        position, lines_before = end, lines_before + lines
    rows = np.ascontiguousarray(np.concatenate(blocks).T) if blocks else np.empty((1 + len(_READ), 0), np.int64)
    return LogRows(*rows), tuple(bad), bad_lines


def careful_line(text: bytes) -> list[int] | str:
    """Return the columns of one line that are read, or the first problem found in it."""
    tokens = text.split()
    if len(tokens) < COLUMNS:
        return f"{len(tokens)} columns where {COLUMNS} are expected"
    values: list[int] = []
    for column, token in enumerate(tokens[:COLUMNS]):
        if not _NUMBER.match(token):
            return f"column {column + 1}: {_shown(token)} is not a number"
        name = _READ.get(column)
        if name is None:
            continue
        value = float(token)
        if column in _LABELS and not (abs(value) <= _LARGEST and value.is_integer()):
            value = -1.0
        if abs(value) > _LARGEST:
            return f"column {column + 1} ({name}): {_shown(token)} is too large"
        if not value.is_integer():
            return f"column {column + 1} ({name}): {_shown(token)} is not a whole number"
        values.append(int(value))
    return values


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def _chunk_end(data: bytes, position: int, chunk_bytes: int) -> int:
    """Return where the chunk that begins at `position` ends: after a line end, or at the end of the data."""
    if len(data) - position <= chunk_bytes:
        return len(data)
    end = data.rfind(b"\n", position, position + chunk_bytes)
    if end < 0:
        end = data.find(b"\n", position + chunk_bytes)
    return end + 1 if end >= 0 else len(data)


def _plain_block(chunk: bytes, lines_before: int) -> tuple[IntArray, list[tuple[int, bytes]], int]:
    """Decode the plain lines of a chunk; return the others as (line number, text), and the number of lines."""
    if not chunk.endswith(b"\n"):
        chunk += b"\n"
    text = np.frombuffer(chunk, np.uint8)
    space = _SPACE[text]
    line_end = np.flatnonzero(text == 10)
    line_start = np.concatenate([np.zeros(1, np.int64), line_end[:-1] + 1])
    before = np.concatenate([np.ones(1, np.bool_), space[:-1]])
    starts_here = ~space & before
    token_start = np.flatnonzero(starts_here)
    token_end = np.flatnonzero(space & ~before)
    first_token = np.searchsorted(token_start, line_start)
    tokens = np.diff(np.append(first_token, token_start.size))

    blank = tokens == 0
    comment = np.zeros(line_end.size, np.bool_)
    comment[~blank] = text[token_start[first_token[~blank]]] == ord(";")
    plain = ~blank & ~comment & (tokens >= COLUMNS)
    minus = text == ord("-")
    strange = np.flatnonzero(~(space | _DIGIT[text] | (minus & starts_here)))
    strange = strange[~_unread_fraction(text, strange, token_start, first_token, line_end)]
    plain[np.searchsorted(line_end, strange)] = False
    length = token_end - token_start
    unreadable = np.flatnonzero((length > _PLAIN_DIGITS) | (minus[token_start] & (length == 1)))
    plain[np.searchsorted(line_end, token_start[unreadable])] = False

    chosen = np.flatnonzero(plain)
    block = np.empty((chosen.size, 1 + len(_READ)), np.int64)
    block[:, 0] = chosen + (lines_before + 1)
    for at, column in enumerate(_READ, start=1):
        index = first_token[chosen] + column
        block[:, at] = _decoded(text, token_start[index], length[index])
    odd = [
        (lines_before + 1 + int(line), chunk[line_start[line] : line_end[line]])
        for line in np.flatnonzero(~(plain | blank | comment))
    ]
    return block, odd, int(line_end.size)


def _unread_fraction(
    text: ByteArray, strange: IntArray, token_start: IntArray, first_token: IntArray, line_end: IntArray
) -> NDArray[np.bool_]:
    """Find which of the strange characters are the one decimal point of a number in a column that is not read.

    Average CPU times are fractions in many logs; without this, each such line would take the slow path.
    """
    if not strange.size:
        return np.zeros(0, np.bool_)
    inside = (text[strange] == ord(".")) & (strange > 0) & (strange < text.size - 1)
    inside &= _DIGIT[text[strange - 1]] & _DIGIT[text[np.minimum(strange + 1, text.size - 1)]]
    token = np.searchsorted(token_start, strange, side="right") - 1
    same = token[1:] == token[:-1]
    inside[1:] &= ~same
    inside[:-1] &= ~same
    column = token - first_token[np.searchsorted(line_end, strange)]
    unread: NDArray[np.bool_] = inside & ~np.isin(column, np.fromiter(_READ, np.int64))
    return unread


def _decoded(text: ByteArray, start: IntArray, length: IntArray) -> IntArray:
    """Decode the integers at these positions: an optional minus, then digits."""
    negative = text[start] == ord("-")
    at = start + negative
    digits = length - negative
    value = np.zeros(start.size, np.int64)
    for place in range(int(digits.max(initial=0))):
        has = place < digits
        digit = text[np.where(has, at + place, at)].astype(np.int64) - ord("0")
        value = np.where(has, value * 10 + digit, value)
    return np.where(negative, -value, value)
