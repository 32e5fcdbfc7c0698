"""What can go wrong between two ends of the wire.

Pure. The codes travel in `Goodbye` frames.
"""

from __future__ import annotations

from typing import Any

from hal.core.model.errors import HALError


class WireError(HALError):
    """The other end did not keep to the wire; the connection is of no more use."""

    code = "wire"


class MalformedFrameError(WireError):
    """Bytes came that are no frame.

    Attributes:
        frames: the good frames that were decoded from the same bytes before the bad one, in order.
    """

    code = "malformed-frame"

    def __init__(self, message: str, *, frames: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.frames = frames


class FrameTooLongError(MalformedFrameError):
    """A frame is longer than `MAX_FRAME_BYTES`: read, it is refused before its body; written, it is not sent."""

    code = "frame-too-long"


class VersionError(WireError):
    """The two ends have no wire version in common."""

    code = "version"
