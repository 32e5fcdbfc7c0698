"""What the bytes of tasks mean between clients and workers written in Python: pickles, with buffers out of band.

A payload that begins with the mark of a pickle is one. One that begins with `BUFFERS` has buffers behind a pickle of
protocol 5, which are not copied when it is read. One over 1 MiB is a file (`hal.runtime.exchange`). NumPy is never
imported for it. What refers to the `__main__` of its process, or cannot be pickled, is written by cloudpickle, by
value.
"""

from __future__ import annotations

import io
import pickle
import struct
import traceback
from collections.abc import Callable
from typing import Any, Final

from hal.core.model.errors import HALError
from hal.runtime.exchange import MARK, AnyExchange
from hal.wire.frames.sessions import MAX_INLINE_BYTES

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
MAX_PLAIN: Final = 4
MAX_TEXT: Final = 1 << 16
"""Characters of a traceback."""

Bytes = bytes | bytearray | memoryview
_EACH: Final = _SIZE.size + _ALIGNED
"""What a buffer costs, at most, besides its bytes."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
"""Their pickles have neither buffers nor anything of `__main__`."""
_dumps = pickle.dumps


class PayloadTooLargeError(HALError):
    """A value does not fit into a frame, and there is no directory to exchange files."""

    code = "payload-too-large"


def encode_value(value: Any, exchange: AnyExchange | None = None, client: int = 0) -> bytes:
    """Encode a value.

    Args:
        exchange: where a large one is written to; None: it is refused.
        client: whose task it belongs to.
    Raises: what pickling it raises, of any type; OSError of the file.
    """
    if _is_plain(value):
        data = _dumps(value, PROTOCOL)
        if len(data) <= MAX_INLINE_BYTES:  # an integer can be as long as it likes
            return data
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = _dumps(value, PROTOCOL, buffer_callback=buffers.append)
        by_value = MAIN in data
    except (pickle.PicklingError, AttributeError, TypeError):
        by_value = True
    if by_value:
        buffers.clear()
        data = _by_value(value, buffers.append)
    if not buffers:
        if len(data) <= MAX_INLINE_BYTES:
            return data
    elif len(data) + sum(buffer.raw().nbytes for buffer in buffers) + _EACH * len(buffers) <= MAX_INLINE_BYTES:
        return b"".join(_with_buffers(data, buffers))
    pieces = _with_buffers(data, buffers) if buffers else [data]
    if exchange is None:
        size = sum(memoryview(piece).nbytes for piece in pieces)
        raise PayloadTooLargeError(f"a value of {size} bytes; at most {MAX_INLINE_BYTES} are allowed")
    return exchange.write(pieces, client)


def _is_plain(value: Any) -> bool:
    """Whether it is a number, or a tuple of a few."""
    kind = type(value)
    if kind is not tuple or len(value) > MAX_PLAIN:
        return kind in _PLAIN
    for item in value:  # noqa: SIM110  twice as fast as all()
        if type(item) not in _PLAIN:
            return False
    return True


def encode_function(function: Any) -> bytes:
    """Encode a function, by value unless a worker can import it.

    Raises: what pickling it raises, of any type.
    """
    return _by_value(function, None)


def decode_value(data: Bytes, exchange: AnyExchange | None = None, *, last: bool = False, shared: bool = False) -> Any:
    """Decode a value; its buffers are views into `data`, or into the file.

    Args:
        exchange: where large ones are.
        last: remove the file.
        shared: other processes of this machine need it, too.
    Raises: what unpickling it raises, of any type; OSError of the file.
    """
    if data[0] > MARK:
        return pickle.loads(data)
    if data[0] == MARK:
        if exchange is None:
            raise PayloadTooLargeError("a value in a file, and no directory of such files")
        data = exchange.read_shared(data) if shared else exchange.read(data, last=last)
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
        data = encode_value(error)  # one that is large is refused, too
        sound = isinstance(decode_value(data), BaseException)
    except BaseException:  # code of the task's own runs there, which may also exit
        sound = False
    try:
        line = f"{type(error).__name__}: {error}"
    except BaseException:
        line = f"{type(error).__name__}, which has no text"
    return _dumps((data if sound else b"", text, line[:MAX_TEXT]), PROTOCOL)


def decode_error(data: Bytes, otherwise: Callable[[str], BaseException]) -> BaseException:
    """Decode an exception; its cause shows the traceback of the worker.

    Args:
        otherwise: makes an exception of the text of one that cannot be decoded here.
    """
    pickled, text, line = pickle.loads(data)
    try:
        error = decode_value(pickled) if pickled else otherwise(line)
    except BaseException:
        error = otherwise(line)
    if not isinstance(error, BaseException):
        error = otherwise(line)
    error.__cause__ = RemoteTraceback(text)
    return error


def error_text(data: Bytes) -> tuple[str, str]:
    """The line and the traceback of an encoded exception; no class is loaded for it. Of what is no such thing: what
    can be read of it."""
    try:
        _, text, line = _TextUnpickler(io.BytesIO(data)).load()
        return str(line), str(text)
    except Exception:
        return bytes(data[:MAX_TEXT]).decode(errors="replace"), ""


class _TextUnpickler(pickle.Unpickler):
    """Reads texts, bytes and tuples of them."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no text")


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


def _with_buffers(data: bytes, buffers: list[pickle.PickleBuffer]) -> list[Bytes]:
    parts: list[memoryview] = [memoryview(data), *(buffer.raw() for buffer in buffers)]
    if len(parts) > MAX_BUFFERS:
        raise pickle.PicklingError(f"{len(buffers)} buffers, at most {MAX_BUFFERS - 1} are allowed")
    pieces: list[Bytes] = [_HEAD.pack(BUFFERS, len(parts)), *(_SIZE.pack(part.nbytes) for part in parts)]
    at = _HEAD.size + len(parts) * _SIZE.size
    for part in parts:
        pieces += (bytes(-at % _ALIGNED), part)
        at += -at % _ALIGNED + part.nbytes
    return pieces
