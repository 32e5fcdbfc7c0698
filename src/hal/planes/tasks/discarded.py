"""Large values that are no longer used, freed in slices: to free them at once would keep everybody waiting.

Pure. Lists are emptied in place, whoever else still holds them; they must not be looked at again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hal.planes.tasks.slices import FREED_A_SLICE


class Discarded:
    """Values that wait to be freed."""

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._lists)

    def add(self, values: Collection[Any]) -> None:
        """Add a value; a small one is freed with its holder, as always."""
        if len(values) > FREED_A_SLICE:
            self._lists.append(values if isinstance(values, list) else list(values))

    def free_some(self) -> None:
        """Free one slice."""
        last = self._lists[-1]
        del last[-FREED_A_SLICE:]
        if not last:
            self._lists.pop()
