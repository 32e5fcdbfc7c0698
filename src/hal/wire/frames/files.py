"""Files of jobs between a controller and the file service of a node: what is shipped to it, what was collected there.

Values only. The service dials the controller's port for agents with the node's certificate, on a connection of its own,
which begins with `OpenFiles`; each request is answered before the next. A controller gives a node nothing but what the
steps need that it has been started there. `Goodbye` refuses.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from hal.core.model import StepId
from hal.core.model.bundle import MAX_MANIFEST_BYTES, SEGMENT_BYTES
from hal.wire.bounds import Amount, Count, Name, Version
from hal.wire.frames.conversation import Frame

MAX_SEGMENTS_ASKED: Final = 64
"""Segments that one frame asks for."""
PIECE_BYTES: Final = SEGMENT_BYTES
"""Of what is collected, in one frame."""

Piece = Annotated[bytes, Meta(max_length=SEGMENT_BYTES)]


class OpenFiles(Frame, frozen=True, kw_only=True):
    """The first frame of the file service of a node; there is no answer unless it is refused."""

    versions: tuple[Version, Version]
    """Lowest and highest wire version that it supports."""
    node: Name


class ReadBundle(Frame, frozen=True, kw_only=True):
    """Ask for the manifest of the bundle of a step's job. The answer is `BundleManifest`."""

    step: StepId
    """It has been started on this node."""


class BundleManifest(Frame, frozen=True, kw_only=True):
    """The answer to `ReadBundle`."""

    data: Annotated[bytes, Meta(max_length=MAX_MANIFEST_BYTES)]
    """Its SHA-256 is in the name of the bundle."""


class ReadSegments(Frame, frozen=True, kw_only=True):
    """Ask for segments of the bundle whose manifest was read last on this connection. The answer is a `BundleSegment`
    for each, in this order."""

    digests: Annotated[tuple[Name, ...], Meta(max_length=MAX_SEGMENTS_ASKED)]
    """SHA-256 of each, in lower-case hex."""


class BundleSegment(Frame, frozen=True, kw_only=True):
    """A segment of a bundle."""

    data: Piece


class StoreCollected(Frame, frozen=True, kw_only=True):
    """Ask to store what was collected of a step. The answer is `CollectBounds`."""

    step: StepId


class CollectBounds(Frame, frozen=True, kw_only=True):
    """The answer to `StoreCollected`."""

    size_bytes: Amount
    """So much may be sent, of the archive."""
    files: Count
    """So many files may be in it."""
    stored: bool = False
    """It is stored already: nothing is to be sent."""


class CollectedPiece(Frame, frozen=True, kw_only=True):
    """The next bytes of the archive, a tar file of plain files."""

    data: Piece


class CollectedEnd(Frame, frozen=True, kw_only=True):
    """The archive is complete. The answer is `CollectedStored`."""

    files: Count


class CollectedStored(Frame, frozen=True, kw_only=True):
    """It is stored."""
