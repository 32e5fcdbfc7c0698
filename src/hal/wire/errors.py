"""Errors between two ends of the wire.

Pure. The codes are sent in `Goodbye` frames.
"""

from __future__ import annotations

from typing import Any

from hal.core.model.errors import HALError


class WireError(HALError):
    """The other end violated the protocol; the connection is no longer usable."""

    code = "wire"


class MalformedFrameError(WireError):
    """Bytes arrived that are not a frame.

    Attributes:
        frames: the good frames decoded from the same bytes before the bad one, in order.
    """

    code = "malformed-frame"

    def __init__(self, message: str, *, frames: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.frames = frames


class FrameTooLongError(MalformedFrameError):
    """A frame is longer than `MAX_FRAME_BYTES`: a received one is refused before its body, an outgoing one is not
    sent."""

    code = "frame-too-long"


class VersionError(WireError):
    """The two ends have no wire version in common."""

    code = "version"
