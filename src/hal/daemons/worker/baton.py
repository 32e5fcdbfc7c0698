"""Who runs tasks: one thread of a worker at a time. One whose task goes on after it waited comes first."""

from __future__ import annotations

import threading


class Baton:
    """Held by the thread that runs a task.

    Attributes:
        wanted: threads whose tasks would go on.
    """

    def __init__(self) -> None:
        self.wanted = 0
        self._held = False
        self._changed = threading.Condition()

    def take(self) -> None:
        """Wait until nobody holds it or comes first."""
        with self._changed:
            while self._held or self.wanted:
                self._changed.wait()
            self._held = True

    def take_first(self) -> None:
        """Wait until nobody holds it."""
        with self._changed:
            self.wanted += 1
            while self._held:
                self._changed.wait()
            self.wanted -= 1
            self._held = True

    def give(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()
