"""Frames to bytes and back: a 4-byte little-endian length, then that many bytes of MessagePack.

No asyncio and no I/O, so that the keeper's own loop uses it too. About 1 µs a small frame.
"""

from __future__ import annotations

import msgspec

from hal.core.model.errors import one_line
from hal.wire.errors import FrameTooLongError, MalformedFrameError
from hal.wire.frames import MAX_FRAME_BYTES, AnyFrame

LENGTH_BYTES = 4
MAX_COMPLAINT = 300
"""Characters of what is said of a frame that cannot be decoded: its own text may be in it, and is sent back."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyFrame] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> bytes:
    """The frame as it crosses the wire, length first.

    Raises:
        FrameTooLongError: its body would be over `MAX_FRAME_BYTES`; split it. Nothing was sent.
    """
    buffer = bytearray(LENGTH_BYTES)
    _encoder.encode_into(frame, buffer, LENGTH_BYTES)
    size = len(buffer) - LENGTH_BYTES
    if size > MAX_FRAME_BYTES:
        raise FrameTooLongError(
            f"a {type(frame).__name__} frame of {size} bytes cannot be sent: at most {MAX_FRAME_BYTES} are allowed"
        )
    buffer[:LENGTH_BYTES] = size.to_bytes(LENGTH_BYTES, "little")
    return bytes(buffer)


class FrameDecoder:
    """Turns the bytes of one connection, in whatever pieces they come, into frames. Holds at most one frame's bytes."""

    __slots__ = ("_broken", "_buffer")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken = ""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not come in full; not 0 at the end of a stream means that it was cut off."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[AnyFrame]:
        """The frames that are complete with these bytes, in order; often none, or many.

        Raises:
            FrameTooLongError: a length over `MAX_FRAME_BYTES` came; its body is not waited for.
            MalformedFrameError: a body is not one of the frames. `error.frames` holds the good frames before it. After
                an error the decoder refuses everything: the place where the next frame begins is not known.
        """
        if self._broken:
            raise MalformedFrameError(self._broken)
        buffer = self._buffer
        if buffer:
            buffer += data
            frames, used = self._decode(memoryview(buffer))
            if used:
                del buffer[:used]
            return frames
        frames, used = self._decode(memoryview(data))
        if used < len(data):
            buffer += memoryview(data)[used:]
        return frames

    def _decode(self, view: memoryview) -> tuple[list[AnyFrame], int]:
        frames: list[AnyFrame] = []
        at, end = 0, len(view)
        with view:
            while end - at >= LENGTH_BYTES:
                body = at + LENGTH_BYTES
                size = int.from_bytes(view[at:body], "little")
                if size > MAX_FRAME_BYTES:
                    text = f"a frame of {size} bytes was announced; at most {MAX_FRAME_BYTES} are allowed"
                    self._broken = text
                    raise FrameTooLongError(text, frames=tuple(frames))
                if body + size > end:
                    break
                try:
                    frames.append(_decoder.decode(view[body : body + size]))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    complaint = one_line(str(error), MAX_COMPLAINT)
                    text = f"a frame of {size} bytes is none that this version knows: {complaint}"
                    self._broken = text
                    raise MalformedFrameError(text, frames=tuple(frames)) from error
                at = body + size
        return frames, at
