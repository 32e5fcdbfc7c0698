"""Bodies that are long columns of texts and numbers, read piece by piece.

A decoder in C keeps the interpreter to itself until it returns, on whatever thread it runs: 100,000 values at once hold
up the loop for milliseconds. In pieces of `PIECE_BYTES` it holds it up for a fraction of one. What is not as expected
is read as a whole, for its error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import fields, replace

from hal.core.model import convert
from hal.rest.bodies import body_as
from hal.rest.body_entries import LARGE_BYTES, check_entries

T = TypeVar("T", bound=msgspec.Struct)

PIECE_BYTES: Final = 32 << 10
"""About so much of a column is decoded by one call."""
_BETWEEN_TEXTS: Final = re.compile(rb'"(?=,\s*+")')
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def body_with_columns(body: bytes, kind: type[T], columns: Sequence[str], *, most: int) -> T:
    """The body, with at most so many entries, as a value of that type.

    Args:
        columns: its fields that are lists of texts or numbers.

    Raises:
        SpecError: as `body_as`.
    """
    read = _in_pieces(body, kind, columns) if len(body) > LARGE_BYTES and check_entries(body, most) else None
    return body_as(body, kind, most=most) if read is None else read


def _in_pieces(body: bytes, kind: type[T], columns: Sequence[str]) -> T | None:
    """None: it is not as expected."""
    types = {field.name: field.type for field in fields(kind)}
    try:
        members = _MEMBERS.decode(body)
        lists = {
            name: _entries(bytes(members.pop(name)), msgspec.json.Decoder(types[name]))
            for name in columns
            if name in members
        }
        rest = {name: msgspec.json.decode(member) for name, member in members.items()}
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return replace(convert(rest | {name: [] for name in lists}, kind), **lists)


def _entries(text: bytes, decoder: msgspec.json.Decoder[list[Any]]) -> list[Any]:
    """The entries of a list.

    Raises:
        ValueError, DecodeError: it is none, an entry is of another type, or one looks like the end of another.
    """
    text = text.strip()
    if text[:1] != b"[" or text[-1:] != b"]":
        raise ValueError("not a list")
    texts, at, end = b'"' in text, 1, len(text) - 1
    entries: list[Any] = []
    while (comma := _comma(text, at + PIECE_BYTES, texts=texts)) >= 0:
        entries += decoder.decode(b"[%b]" % text[at:comma])
        at = comma + 1
    last = decoder.decode(b"[%b]" % text[at:end])
    if at > 1 and not last:
        raise ValueError("nothing follows the last comma")
    return entries + last


def _comma(text: bytes, at: int, *, texts: bool) -> int:
    """The next comma between two entries; -1: none.

    Among texts it may be inside of one that begins with a comma, or that has a quote before one. What ends there is no
    list then: its last text has no end.
    """
    if not texts:
        return text.find(b",", at)
    found = _BETWEEN_TEXTS.search(text, at)
    return found.end() if found else -1
