"""Encode and decode frames: a 4-byte little-endian length, then that many bytes of MessagePack.

No asyncio and no I/O, so that the keeper's own loop uses it too. About 1 µs per small frame.
"""

from __future__ import annotations

from typing import Generic

import msgspec

from hal.core.model.errors import one_line
from hal.wire.errors import FrameTooLongError, MalformedFrameError
from hal.wire.frames.conversation import MAX_FRAME_BYTES, Conversation, F, Frame

LENGTH_BYTES = 4
MAX_COMPLAINT = 300
"""Characters of a message about a frame that cannot be decoded: it may quote the frame's own text, and is sent back."""

_encoder = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """Encode a frame as it crosses the wire, length first.

    Raises:
        FrameTooLongError: its body would exceed `MAX_FRAME_BYTES`; split it. Nothing was sent.
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


class FrameDecoder(Generic[F]):
    """Decodes the bytes of one connection, in whatever chunks they arrive, into frames of its conversation. Holds at
    most one frame's bytes."""

    __slots__ = ("_broken", "_buffer", "_decode_body", "_max_bytes")

    def __init__(self, conversation: Conversation[F]) -> None:
        self._decode_body = conversation.decode
        self._max_bytes = conversation.max_frame_bytes
        self._buffer = bytearray()
        self._broken = ""

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame; not 0 at the end of a stream means that a frame was cut off."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[F]:
        """Return the frames completed by these bytes, in order; often none, or many.

        Raises:
            FrameTooLongError: a length over the limit of the conversation arrived; its body is not awaited.
            MalformedFrameError: a body is not a frame of the conversation. `error.frames` holds the good frames
                before it.

        After an error the decoder refuses everything, because the start of the next frame is unknown.
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

    def _decode(self, view: memoryview) -> tuple[list[F], int]:
        frames: list[F] = []
        at, end = 0, len(view)
        with view:
            while end - at >= LENGTH_BYTES:
                body = at + LENGTH_BYTES
                size = int.from_bytes(view[at:body], "little")
                if size > self._max_bytes:
                    text = f"a frame of {size} bytes was announced; at most {self._max_bytes} are allowed"
                    self._broken = text
                    raise FrameTooLongError(text, frames=tuple(frames))
                if body + size > end:
                    break
                try:
                    frames.append(self._decode_body(view[body : body + size]))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    complaint = one_line(str(error), MAX_COMPLAINT)
                    text = f"a frame of {size} bytes is not a known frame: {complaint}"
                    self._broken = text
                    raise MalformedFrameError(text, frames=tuple(frames)) from error
                at = body + size
        return frames, at
