"""Reading answers: one decoder for each type, and what is known of a type is gathered by one thread at a time.

Two threads that meet a type for the first time at the same moment (`hal run` reads two streams) can end the whole
process: msgspec 0.22 keeps what it gathers at the type, where another thread finds it half done.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

from hal.core.model import dec_hook

T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_gathering = threading.Lock()


def decode(body: bytes, kind: type[T]) -> T:
    """A value from JSON.

    Raises:
        msgspec.DecodeError: it is none of that kind.
        UnicodeDecodeError: it is no text.
    """
    try:
        value: T = _decoder(kind).decode(body)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    return value


def convert(raw: Any, kind: type[T]) -> T:
    """A value from plain data.

    Raises:
        msgspec.ValidationError: it is none of that kind.
    """
    _decoder(kind)
    return msgspec.convert(raw, kind, dec_hook=dec_hook)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    known = _decoders.get(kind)
    if known is None:
        with _gathering:
            known = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=dec_hook)
    return known
