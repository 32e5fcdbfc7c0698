"""Errors of REST itself: what is wrong with a request, or with the controller that should answer it."""

from __future__ import annotations

from typing import Final

from hal.core.model import SpecError, TimedOutError, UnreachableError

WAIT: Final = "a follower takes over within seconds: try again"
LOOK: Final = "send it again with its Idempotency-Key, or look whether it was done"


class TooLargeError(SpecError):
    """The request's body is longer than allowed."""

    code = "too-large"


class HeadersError(SpecError):
    """More headers than a request may have."""

    code = "too-large"


class TooSlowError(TimedOutError):
    """The request did not arrive within its time limit: nothing was done."""

    code = "too-slow"


class EndingError(UnreachableError):
    """The controller ends before it has answered: it may have been done."""

    code = "ending"


class NoLeaderError(UnreachableError):
    """Nobody leads at the moment, or the leader cannot be reached: nothing was done."""

    code = "no-leader"


class BrokeOffError(UnreachableError):
    """The leader was lost before it answered what was passed on: it may have been done."""

    code = "broke-off"
