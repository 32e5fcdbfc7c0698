"""What the bytes of tasks mean between clients and workers written in Python: pickles, with buffers out of band.

A payload that begins with the mark of a pickle is one. One that begins with `BUFFERS` has buffers behind a pickle of
protocol 5, which are not copied when it is read. NumPy is never imported for it. What refers to the `__main__` of its
process, or cannot be pickled, is written by cloudpickle, by value.
"""

from __future__ import annotations

import pickle
import struct
import traceback
from collections.abc import Callable
from typing import Any, Final

PROTOCOL: Final = 5
BUFFERS: Final = 0
"""First byte of a payload with buffers."""
_HEAD: Final = struct.Struct("<BxxxI")
"""The mark, and how many parts follow: the pickle, and the buffers."""
_SIZE: Final = struct.Struct("<Q")
_ALIGNED: Final = 16
"""Parts begin at multiples of this, counted from the payload's begin."""
MAX_BUFFERS: Final = 65_536
MAIN: Final = b"__main__"
MAX_TEXT: Final = 1 << 16
"""Characters of a traceback."""

Bytes = bytes | bytearray | memoryview
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_dumps = pickle.dumps


def encode_value(value: Any) -> bytes:
    """Encode a value.

    Raises: what pickling it raises, of any type.
    """
    if type(value) in _PLAIN:
        return _dumps(value, PROTOCOL)
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = _dumps(value, PROTOCOL, buffer_callback=buffers.append)
        by_value = MAIN in data
    except (pickle.PicklingError, AttributeError, TypeError):
        by_value = True
    if by_value:
        buffers.clear()
        data = _by_value(value, buffers.append)
    return _with_buffers(data, buffers) if buffers else data


def encode_function(function: Any) -> bytes:
    """Encode a function, by value unless a worker can import it.

    Raises: what pickling it raises, of any type.
    """
    return _by_value(function, None)


def decode_value(data: Bytes) -> Any:
    """Decode a value; its buffers are views into `data`.

    Raises: what unpickling it raises, of any type.
    """
    if data[0] != BUFFERS:
        return pickle.loads(data)
    view = memoryview(data)
    _, count = _HEAD.unpack_from(view)
    if not 1 <= count <= MAX_BUFFERS:
        raise pickle.UnpicklingError(f"{count} parts")
    at = _HEAD.size + count * _SIZE.size
    parts = []
    for number in range(count):
        (size,) = _SIZE.unpack_from(view, _HEAD.size + number * _SIZE.size)
        at += -at % _ALIGNED
        parts.append(view[at : at + size])
        at += size
    if at > len(view):
        raise pickle.UnpicklingError(f"{len(view)} bytes, and the parts have {at}")
    return pickle.loads(parts[0], buffers=parts[1:])


def encode_error(error: BaseException) -> bytes:
    """Encode an exception with its traceback; one that cannot be pickled, or not be read back, as its text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-MAX_TEXT:]
    error.__traceback__ = None
    try:
        data = encode_value(error)
        pickle.loads(data)
    except Exception:
        data = b""
    return _dumps((data, text, f"{type(error).__name__}: {error}"[:MAX_TEXT]), PROTOCOL)


def decode_error(data: Bytes, otherwise: Callable[[str], BaseException]) -> BaseException:
    """Decode an exception; its cause shows the traceback of the worker.

    Args:
        otherwise: makes an exception of the text of one that cannot be decoded here.
    """
    pickled, text, line = pickle.loads(data)
    try:
        error = decode_value(pickled) if pickled else otherwise(line)
    except Exception:
        error = otherwise(line)
    if not isinstance(error, BaseException):
        error = otherwise(line)
    error.__cause__ = RemoteTraceback(text)
    return error


class RemoteTraceback(Exception):
    """The traceback of a task's exception, as the worker had it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def _by_value(value: Any, keep: Callable[[pickle.PickleBuffer], object] | None) -> bytes:
    import cloudpickle  # most processes never need it

    data: bytes = cloudpickle.dumps(value, PROTOCOL, buffer_callback=keep)
    return data


def _with_buffers(data: bytes, buffers: list[pickle.PickleBuffer]) -> bytes:
    parts: list[memoryview] = [memoryview(data), *(buffer.raw() for buffer in buffers)]
    if len(parts) > MAX_BUFFERS:
        raise pickle.PicklingError(f"{len(buffers)} buffers, at most {MAX_BUFFERS - 1} are allowed")
    pieces: list[Bytes] = [_HEAD.pack(BUFFERS, len(parts)), *(_SIZE.pack(part.nbytes) for part in parts)]
    at = _HEAD.size + len(parts) * _SIZE.size
    for part in parts:
        pieces += (bytes(-at % _ALIGNED), part)
        at += -at % _ALIGNED + part.nbytes
    return b"".join(pieces)
