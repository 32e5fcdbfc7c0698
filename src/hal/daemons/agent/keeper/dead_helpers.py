"""The journals of helpers that have died, read in pieces: a long one would keep everybody else waiting, and its user
could repeat that."""

from __future__ import annotations

from collections import deque

from hal.daemons.agent.keeper.helper_journal import HelperJournal
from hal.daemons.agent.keeper.helper_link import HelperLink


class DeadHelper:
    """A helper that has died, with what its journal says so far."""

    def __init__(self, link: HelperLink) -> None:
        self.link = link
        self.journal = HelperJournal(link.journal)
        self._readable = True

    @property
    def whole(self) -> bool:
        """Whether the journal is the one that the helper began, or it had not begun any."""
        return (self._readable and self.journal.pid > 0) or not self.link.greeted

    def read_piece(self) -> bool:
        """Read on; returns whether more follows."""
        try:
            return self.journal.read_piece()
        except OSError:  # a step has removed or replaced it
            self._readable = False
            return False


class DeadHelpers:
    """Those whose journals are being read."""

    def __init__(self) -> None:
        self._reading: deque[DeadHelper] = deque()

    def __bool__(self) -> bool:
        return bool(self._reading)

    def add(self, link: HelperLink) -> None:
        """Begin with a helper that has just died."""
        self._reading.append(DeadHelper(link))

    def read(self) -> DeadHelper | None:
        """Read one piece; returns the helper whose journal is complete now, if it is."""
        if not self._reading or self._reading[0].read_piece():
            return None
        return self._reading.popleft()
