"""Errors of controllers that share a database: who leads, and what became of a request that was passed on."""

from __future__ import annotations

from typing import Final

from hal.core.model import UnreachableError

WAIT: Final = "a follower takes over within seconds: try again"
LOOK: Final = "send it again with its Idempotency-Key, or look whether it was done"


class NoLeaderError(UnreachableError):
    """Nobody leads at the moment, or the leader cannot be reached: nothing was done."""

    code = "no-leader"
    answered_with = (503, "Nobody leads")


class BrokeOffError(UnreachableError):
    """The leader was lost before it answered what was passed on: it may have been done."""

    code = "broke-off"
    answered_with = (502, "The leader broke off")
