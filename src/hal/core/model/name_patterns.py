"""Names of jobs as filters write them: exact, or with `*` and `?` as in a shell.

Pure. What is matched is what listings show: the name, or where a job has none its program.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hal.core.model.errors import SpecError, shown

MAX_PATTERN_CHARS: Final = 128
MAX_STARS: Final = 4
"""In one pattern; each may cost a pass over a name."""
MATCHED_CHARS: Final = 256
"""Of a name; longer ones, which only programs have, are matched by their beginning."""


def check_name_pattern(text: str) -> str:
    """Return the pattern, with neighbouring stars as one.

    Raises:
        SpecError: it is too long, or has too many stars.
    """
    text = re.sub(r"\*+", "*", text)
    if len(text) > MAX_PATTERN_CHARS or text.count("*") > MAX_STARS:
        raise SpecError(
            f"name: '{shown(text)}' is no pattern", hint=f"at most {MAX_PATTERN_CHARS} characters and {MAX_STARS} stars"
        )
    return text


def is_pattern(text: str) -> bool:
    """Whether it has a `*` or a `?`."""
    return "*" in text or "?" in text


def name_matches(name: str, pattern: str) -> bool:
    """Whether the whole name is as the pattern says."""
    return name == pattern or (is_pattern(pattern) and _compiled(pattern).fullmatch(name[:MATCHED_CHARS]) is not None)


def as_glob(pattern: str) -> str:
    """The pattern for GLOB of SQLite."""
    return pattern.replace("[", "[[]")


def as_like(pattern: str) -> str:
    """The pattern for LIKE whose escape is `|`."""
    escaped = re.sub(r"([%_|])", r"|\1", pattern)
    return escaped.replace("*", "%").replace("?", "_")


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.S)
