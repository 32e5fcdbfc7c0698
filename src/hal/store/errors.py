"""What can go wrong with the store, and whose turn it is then.

Every `StoreError` that `Store.commit` raises, except `CommitUnknown`, means that nothing of the group was written.
"""

from __future__ import annotations

from hal.core.model import InternalError, StoreError


class NotAStore(StoreError):
    """The file is not a database, is damaged, or holds somebody else's tables."""


class StoreMissing(StoreError):
    """There is no store at that place, and it was not to be created, or cannot be."""


class StoreAbsent(StoreMissing):
    """Nobody has made a store at that place, and it was not to be created."""


class StoreLost(StoreMissing):
    """The store that this HAL used is gone, is empty, is another one, or lacks groups that were committed."""


class StoreReadOnly(StoreError):
    """The file, its directory or its file system cannot be written."""


class StoreFull(StoreError):
    """The disk (or the limit that was set for the store) is full."""


class StoreTooNew(StoreError):
    """The store was written by a newer HAL."""


class StoreBusy(StoreError):
    """Another controller has this store."""


class StoreLed(StoreBusy):
    """Another controller's lease holds: this one may wait as a follower."""


class StoreUnreachable(StoreError):
    """The database's server does not answer, or the connection to it was lost before COMMIT was sent."""


class StaleEpoch(StoreError):
    """Another controller has taken over since: this one must step down, not try again."""


class GroupRefused(StoreError):
    """The group contradicts what is stored (a row twice, or an update of a row that is not there): a fault of HAL."""


class CommitUnknown(StoreError):
    """The group may or may not be durable: look its commit id up (`commit_known`) before anything else is decided."""


class FlushFailed(InternalError):
    """The disk refused to flush what was committed. Not a `StoreError`: the group is written, and no later flush that
    succeeds says anything of this one, so the process must end and start again from what the disk holds."""


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
