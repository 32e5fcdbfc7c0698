"""What nodes report of active attempts and what is not stored, because they report it again to each controller.

Pure. Values are replaced, never changed; what was staged since the last commit can be undone.
"""

from __future__ import annotations

from typing import Generic, TypeVar

AttemptKey = tuple[int, int, int]
"""Job, task, attempt number."""
V = TypeVar("V")


class Reported(Generic[V]):
    """One value for each active attempt of which something was reported."""

    def __init__(self) -> None:
        self._of: dict[AttemptKey, V] = {}
        self._before: dict[AttemptKey, V | None] = {}
        """Of attempts that have changed since the last `keep`: as they were; None: nothing was known."""

    def set(self, key: AttemptKey, value: V) -> None:
        """Put another value in place of what was known."""
        self._before.setdefault(key, self._of.get(key))
        self._of[key] = value

    def drop(self, key: AttemptKey) -> None:
        """Forget an attempt."""
        if key in self._of:
            self._before.setdefault(key, self._of[key])
            del self._of[key]

    def keep(self) -> None:
        """What was staged is committed."""
        self._before.clear()

    def undo(self) -> None:
        """Return to the last `keep`: what was reported since is reported again."""
        for key, before in self._before.items():
            if before is None:
                self._of.pop(key, None)
            else:
                self._of[key] = before
        self._before.clear()

    def __len__(self) -> int:
        return len(self._of)
