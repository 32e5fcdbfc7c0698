"""Parameters of requests in path and query, read strictly: every mistake is a `SpecError` that names it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from litestar import Request

from hal.core.model import SpecError

AnyRequest = Request[Any, Any, Any]

DEFAULT_PAGE: Final = 100
MAX_LIMIT: Final = 1_000
MAX_SEQUENCE: Final = (1 << 63) - 1
MAX_TEXT: Final = 1_000
"""Longest value of a query parameter."""
_NUMBER: Final = re.compile(r"[-+]?([0-9]{1,19}\.?[0-9]{0,19}|\.[0-9]{1,19})([eE][-+]?[0-9]{1,3})?")


class Params:
    """The query parameters of one request.

    Raises (in the constructor):
        SpecError: one that this path does not know, or one given twice.
    """

    repeatable: ClassVar[frozenset[str]] = frozenset()
    """Parameters that may be given several times: their values become one comma list."""

    def __init__(self, request: AnyRequest, known: Sequence[str]) -> None:
        self._values: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known) or 'none'}"
                raise SpecError(f"'{name}' is not a query parameter of this path", hint=hint)
            if name in self._values:
                if name not in self.repeatable:
                    raise SpecError(f"{name}: given twice")
                value = f"{self._values[name]},{value}"
            if len(value) > MAX_TEXT:
                raise SpecError(f"{name}: longer than {MAX_TEXT} characters")
            self._values[name] = value

    def text(self, name: str, default: str = "") -> str:
        """As it stands."""
        return self._values.get(name, default)

    def integer(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self._values.get(name)
        return default if text is None else integer(text, name, low=low, high=high)

    def optional_integer(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number within bounds; None: it is not given."""
        text = self._values.get(name)
        return None if text is None else integer(text, name, low=low, high=high)

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds."""
        text = self._values.get(name)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text):
            raise SpecError(f"{name}: '{text}' is not a number of seconds")
        value = float(text)
        if not 0 <= value < 1e9:
            raise SpecError(f"{name}: '{text}' is out of range")
        return value

    def flag(self, name: str) -> bool:
        """`1`, `true`, `0`, `false`, or the bare name."""
        text = self._values.get(name)
        if text is None or text.lower() in ("0", "false", "no"):
            return False
        if text.lower() in ("", "1", "true", "yes"):
            return True
        raise SpecError(f"{name}: '{text}' is neither true nor false", hint="write 1 or 0")

    def limit(self) -> int:
        """How many entries a page may have."""
        return self.integer("limit", DEFAULT_PAGE, low=1, high=MAX_LIMIT)

    def cursor(self) -> int | None:
        """Where the page before ended; what the answer to it called `cursor`."""
        text = self._values.get("cursor")
        return None if not text else integer(text, "cursor", low=0, high=MAX_SEQUENCE)


def integer(text: str, name: str, *, low: int, high: int) -> int:
    """A whole number within bounds."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or text.startswith("-0"):
        raise SpecError(f"{name}: '{text[:40]}' is not a whole number")
    value = int(text)
    if not low <= value <= high:
        raise SpecError(f"{name}: {value} is out of range", hint=f"between {low} and {high}")
    return value
