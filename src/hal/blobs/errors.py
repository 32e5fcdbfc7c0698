"""Errors of a blob store. Pure."""

from __future__ import annotations

from hal.core.model.errors import NotFoundError, OverloadedError, StoreError


class BlobDamagedError(NotFoundError):
    """Stored bytes do not match their name any more; they were removed. The blob must be stored again."""


class BlobStoreFullError(OverloadedError):
    """There is no room in the store, even if all that is not pinned were evicted. Nothing was stored or evicted."""


class BlobDiskError(StoreError):
    """The disk refused a call for another reason than room. Nothing was stored."""


class BlobDiskFullError(OverloadedError):
    """The disk, or the user's quota on it, is full. Nothing was stored."""
