"""What all frames share, and a conversation: the frames that two kinds of process may send each other.

Every frame is a msgspec Struct tagged by its type name. Times: `*_ms` is milliseconds since 1970 unless the name says
boot (milliseconds since the host booted, suspended time included).
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec
from msgspec import Struct

from hal.wire.roles import Role

WIRE_VERSION: Final = 1
WIRE_VERSION_MIN: Final = 1
MAX_FRAME_BYTES: Final = 8 << 20
"""A longer frame is refused before it is read."""
MAX_INCOMING_BYTES: Final = 16 << 20
"""Size on the wire of frames that wait for `receive` on one connection."""


def _tag(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class Frame(Struct, frozen=True, kw_only=True, tag_field="t", tag=_tag):
    """Base of all frames."""


F = TypeVar("F", bound=Frame)


class Conversation(Generic[F]):
    """The frames of one kind of connection; every other frame is malformed there.

    Attributes:
        name: the two kinds of process, for logs and documents.
        listener: the role of the process that is dialled; which others may dial it: `hal.wire.roles`.
        kinds: the types of its frames, in the order of the union.
        max_frame_bytes: longer bodies are refused before they are read; at most `MAX_FRAME_BYTES`.
        max_incoming_bytes: while frames of more than this wait for `receive`, nothing more is read from the other end,
            until all of them were received.
        decode: the frame in a body (a buffer); raises msgspec.DecodeError, or what decoding text raises.
    """

    __slots__ = ("decode", "kinds", "listener", "max_frame_bytes", "max_incoming_bytes", "name")

    def __init__(
        self,
        name: str,
        listener: Role,
        frames: Any,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_incoming_bytes: int = MAX_INCOMING_BYTES,
    ) -> None:
        """Build the decoder.

        Args:
            name, listener, max_frame_bytes, max_incoming_bytes: see the class.
            frames: a union of frame types.
        """
        decoder: msgspec.msgpack.Decoder[F] = msgspec.msgpack.Decoder(frames)
        self.name: Final = name
        self.listener: Final = listener
        self.max_frame_bytes: Final = max_frame_bytes
        self.max_incoming_bytes: Final = max_incoming_bytes
        self.kinds: Final[tuple[type[F], ...]] = get_args(frames)
        self.decode: Final = decoder.decode

    def includes(self, frame: Frame) -> bool:
        """Whether the frame belongs to this conversation."""
        return type(frame) in self.kinds
