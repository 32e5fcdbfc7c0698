"""Every error that HAL raises on purpose, by who caused it, with what the person can do next.

Pure. `code` is stable and is sent in REST problem documents and wire frames; the exit code of the CLI follows from the
class (see docs/cli.md).
"""

from __future__ import annotations

from hal.core.model.printable import printable

MAX_SHOWN = 80
"""Longest excerpt of somebody's input in an error."""


def shown(value: object) -> str:
    """Format an input value, cut to a length that fits into an error."""
    if isinstance(value, int) and value.bit_length() > 256:
        # str() refuses such numbers.
        return f"a number of {value.bit_length()} bits"
    text = printable((value if isinstance(value, str) else repr(value))[: MAX_SHOWN + 1])
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def one_line(text: str, most: int) -> str:
    """Format foreign text as one line of at most this many characters, without control characters."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text if text.isprintable() else "".join(sign if sign.isprintable() else " " for sign in text)


class HALError(Exception):
    """Base of all of HAL's own errors.

    Attributes:
        code: stable, kebab-case name of the kind of error; scripts match on it.
        hint: one sentence with the next step, or ''.
    """

    code = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SpecError(HALError):
    """The user's request is malformed or can never be met. Nothing was stored."""

    code = "invalid-spec"


class NotFoundError(HALError):
    """The named job, task, node, queue or file does not exist."""

    code = "not-found"


class BundleMissingError(NotFoundError):
    """A job ships a bundle that its user has not sent, or that is not kept any more: send it, and submit again."""

    code = "bundle-missing"


class DeniedError(HALError):
    """The caller may not do this."""

    code = "denied"


class ConflictError(HALError):
    """The named object is in a state in which this cannot be done (for example, cancelling an ended job)."""

    code = "conflict"


class UnreachableError(HALError):
    """No HAL answered at the address."""

    code = "unreachable"


class TimedOutError(HALError):
    """The caller's own deadline passed first."""

    code = "timed-out"


class OverloadedError(HALError):
    """A bounded queue is full: the request was not accepted and may be sent again later."""

    code = "overloaded"


class StoreError(HALError):
    """The durable state could not be read or written (disk full, damaged file, another controller …)."""

    code = "store"


class InternalError(HALError):
    """A bug in HAL itself; the message names the operation."""

    code = "internal"


ERRORS_BY_CODE: dict[str, type[HALError]] = {
    cls.code: cls
    for cls in (
        HALError,
        SpecError,
        NotFoundError,
        BundleMissingError,
        DeniedError,
        ConflictError,
        UnreachableError,
        TimedOutError,
        OverloadedError,
        StoreError,
        InternalError,
    )
}


def error_from_code(code: str, message: str, hint: str = "") -> HALError:
    """Create the error of that code, with text that is safe to print; an unknown code (a newer peer) gives a
    `HALError`."""
    return ERRORS_BY_CODE.get(code, HALError)(printable(message, lines=True), hint=printable(hint, lines=True))
