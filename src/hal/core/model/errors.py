"""Every error that HAL raises on purpose, by whose fault it is and what the person can do next.

Pure. `code` is stable and travels in REST problem documents and wire frames; the exit code of the CLI follows from the
class (see docs/cli.md).
"""

from __future__ import annotations

from hal.core.model.printable import printable

MAX_SHOWN = 80
"""Longest piece of somebody's input that an error repeats."""


def shown(value: object) -> str:
    """What was written, cut to a length that fits into an error."""
    if isinstance(value, int) and value.bit_length() > 256:
        # str() refuses such numbers.
        return f"a number of {value.bit_length()} bits"
    text = printable((value if isinstance(value, str) else repr(value))[: MAX_SHOWN + 1])
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def one_line(text: str, most: int) -> str:
    """A text that somebody else made, as one line of at most so many characters, without control characters."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text if text.isprintable() else "".join(sign if sign.isprintable() else " " for sign in text)


class HALError(Exception):
    """Base of all of HAL's own errors.

    Attributes:
        code: stable, kebab-case name of the kind of error; what scripts match on.
        hint: one sentence that says what to do next, or ''.
    """

    code = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SpecError(HALError):
    """What the user asked for is malformed or can never be met. Nothing was stored."""

    code = "invalid-spec"


class NotFoundError(HALError):
    """The job, task, node, queue or file that was named does not exist."""

    code = "not-found"


class DeniedError(HALError):
    """The caller may not do this."""

    code = "denied"


class ConflictError(HALError):
    """The thing named is in a state in which this cannot be done (cancelling an ended job, say)."""

    code = "conflict"


class UnreachableError(HALError):
    """No HAL answered where one was expected."""

    code = "unreachable"


class TimedOutError(HALError):
    """The caller's own deadline passed before the thing waited for happened."""

    code = "timed-out"


class OverloadedError(HALError):
    """A bounded queue is full: the request was not accepted and may be sent again later."""

    code = "overloaded"


class StoreError(HALError):
    """The durable state could not be read or written (disk full, damaged file, another controller …)."""

    code = "store"


class InternalError(HALError):
    """A fault of HAL itself; the message says what was being done."""

    code = "internal"


ERRORS_BY_CODE: dict[str, type[HALError]] = {
    cls.code: cls
    for cls in (
        HALError,
        SpecError,
        NotFoundError,
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
    """The error of that code, in words that act on no terminal; an unknown code (a newer peer) gives a `HALError`."""
    return ERRORS_BY_CODE.get(code, HALError)(printable(message, lines=True), hint=printable(hint, lines=True))
