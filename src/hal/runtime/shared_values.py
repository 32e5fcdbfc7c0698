"""Values that many tasks of a session share: sent once, named by reference in the tasks' arguments.

Where a reference is pickled, its id is noted for whoever sends the pickle; where it is unpickled, in a worker, the
value is there instead of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final


class _Used(threading.local):
    """Ids of references that this thread has pickled."""

    def __init__(self) -> None:
        self.refs: set[int] = set()


_used = _Used()
_NONE: Final[frozenset[int]] = frozenset()


class _Resolving(threading.local):
    """Who resolves references in this thread."""

    def __init__(self) -> None:
        self.function: Callable[[int], Any] | None = None


_resolving = _Resolving()
_resolve: Callable[[int], Any] | None = None
"""In threads that tasks have started."""


class SharedValue:
    """Stands for a value that the session has; a task that is given it gets the value."""

    def __init__(self, ref: int) -> None:
        self.ref = ref

    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        _used.refs.add(self.ref)
        return resolve, (self.ref,)


def take_used() -> frozenset[int]:
    """The ids of references that this thread has pickled since it was last asked."""
    if not _used.refs:
        return _NONE
    refs = frozenset(_used.refs)
    _used.refs.clear()
    return refs


def note_used(refs: frozenset[int]) -> None:
    """Count these to what this thread has pickled."""
    if refs:
        _used.refs |= refs


def resolve(ref: int) -> Any:
    """The value with this id, in a worker.

    Raises:
        RuntimeError: this process is not a worker.
    """
    function = _resolving.function or _resolve
    if function is None:
        raise RuntimeError("a shared value is only there in the tasks of its session")
    return function(ref)


def resolve_with(function: Callable[[int], Any]) -> None:
    """Resolve references in this thread so, and in those of this process that nobody has named."""
    global _resolve
    _resolve = _resolving.function = function
