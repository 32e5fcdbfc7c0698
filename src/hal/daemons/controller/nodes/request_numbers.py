"""Numbers of requests to nodes: an answer names its request.

A node may still be at what an earlier controller has asked, and answers over the connection that there is then. So the
number is made of the epoch and of a counter: no two leaderships use the same.
"""

from __future__ import annotations

from typing import Final

from hal.daemons.controller.cycle.committer import Committer

SENT_BITS: Final = 32
EPOCHS: Final = 1 << 20
"""A number stays below 2^53."""


class RequestNumbers:
    """Those of one controller."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._sent = 0

    def next(self) -> int:
        """The number of a further request."""
        self._sent += 1
        return self._committer.epoch % EPOCHS << SENT_BITS | self._sent % (1 << SENT_BITS)
