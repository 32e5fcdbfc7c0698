"""The exit codes of `hal`; docs/cli.md lists them for users."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""The job failed, or an error without a code of its own."""
USAGE: Final = 2
NOT_FOUND: Final = 3
DENIED: Final = 4
UNREACHABLE: Final = 5
CONFLICT: Final = 6
OVERLOADED: Final = 7
"""Not accepted now, try again later: too much waits, or nothing can be stored (a full disk)."""
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
SIGNALLED: Final = 128
"""Plus the signal's number, as shells do."""

_BY_ERROR_CODE: Final = {
    "invalid-spec": USAGE,
    "invalid-request": USAGE,
    "too-large": USAGE,
    "not-found": NOT_FOUND,
    "denied": DENIED,
    "unauthorized": DENIED,
    "unreachable": UNREACHABLE,
    "no-leader": UNREACHABLE,
    "broke-off": UNREACHABLE,
    "ending": UNREACHABLE,
    "conflict": CONFLICT,
    "overloaded": OVERLOADED,
    "too-many": OVERLOADED,
    "store": OVERLOADED,
    "timed-out": TIMED_OUT,
}


def of_error(code: str) -> int:
    """The exit code for an error's `code`."""
    return _BY_ERROR_CODE.get(code, FAILED)
