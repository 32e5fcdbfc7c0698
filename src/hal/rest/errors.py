"""Errors of HTTP itself: what is wrong with a request, or with the daemon that should answer it."""

from __future__ import annotations

from hal.core.model import SpecError, TimedOutError, UnreachableError


class TooLargeError(SpecError):
    """The request's body is longer than allowed."""

    code = "too-large"


class HeadersError(SpecError):
    """More headers than a request may have."""

    code = "too-large"


class TooSlowError(TimedOutError):
    """The request did not arrive within its time limit: nothing was done."""

    code = "too-slow"


class SenderGoneError(SpecError):
    """The sender of a streamed body disconnected before its end: whoever reads it undoes what was begun."""

    code = "sender-gone"


class EndingError(UnreachableError):
    """The daemon ends before it has answered: it may have been done."""

    code = "ending"
