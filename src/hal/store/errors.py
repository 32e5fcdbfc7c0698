"""What can go wrong with the store, and who has to act.

Every `StoreError` that `Store.commit` raises, except `CommitUnknown`, means that nothing of the group was written.
"""

from __future__ import annotations

from hal.core.model import InternalError, StoreError


class NotAStore(StoreError):
    """The file is not a database, is damaged, or holds tables of another program."""


class StoreMissing(StoreError):
    """There is no store at that location, and it was not to be created, or cannot be."""


class StoreAbsent(StoreMissing):
    """No store was ever created at that location, and none was to be created."""


class StoreLost(StoreMissing):
    """The store that this HAL used is missing or empty, is another one, or lacks groups that were committed."""


class StoreReadOnly(StoreError):
    """The file, its directory or its file system cannot be written."""


class StoreFull(StoreError):
    """The disk, or the size limit set for the store, is full."""


class StoreTooNew(StoreError):
    """The store was written by a newer HAL."""


class StoreBusy(StoreError):
    """Another controller uses this store."""


class StoreLed(StoreBusy):
    """Another controller's lease is current; this one may wait as a follower."""


class StoreUnreachable(StoreError):
    """The database's server does not answer, or the connection was lost before COMMIT was sent."""


class StaleEpoch(StoreError):
    """Another controller has become leader: this one must step down instead of retrying."""


class GroupRefused(StoreError):
    """The group contradicts what is stored (a duplicate row, or an update of a row that does not exist): a bug in
    HAL."""


class CommitUnknown(StoreError):
    """The group may or may not be durable: look up its commit id (`commit_known`) before anything else is decided."""


class FlushFailed(InternalError):
    """The disk refused to flush what was committed. Not a `StoreError`: the group is written, and the success of a
    later flush proves nothing about this one. The process must end and restart from what the disk holds."""


__all__ = [
    "CommitUnknown",
    "FlushFailed",
    "GroupRefused",
    "NotAStore",
    "StaleEpoch",
    "StoreAbsent",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreLed",
    "StoreLost",
    "StoreMissing",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnreachable",
]
