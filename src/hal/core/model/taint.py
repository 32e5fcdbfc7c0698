"""Taints: what keeps work away from a node unless it tolerates them.

Pure. A taint is a key with a value, which may be empty; a node has at most one of each key. A job tolerates `KEY`,
whatever the value, or `KEY=VALUE`, that one only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hal.core.model.errors import SpecError, shown

MAX_TAINTS: Final = 16
"""Taints of one node."""
MAX_TOLERATED: Final = 32
"""Taints that one job may tolerate."""

_WORD: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9])?")


def untolerated(taints: Mapping[str, str], tolerated: Sequence[str]) -> list[str]:
    """The taints of a node that work does not tolerate which names these; [] = it may start there."""
    return [
        taint_text(key, value)
        for key, value in sorted(taints.items())
        if key not in tolerated and f"{key}={value}" not in tolerated
    ]


def taint_text(key: str, value: str) -> str:
    """`KEY=VALUE`, or `KEY` where the value is empty."""
    return f"{key}={value}" if value else key


def taints_of(texts: Iterable[str], field: str = "taints") -> dict[str, str]:
    """Taints from `KEY` or `KEY=VALUE`; raises SpecError as `check_taints`, and for a key that is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key in found:
            raise SpecError(f"{field}: '{shown(key)}' is given twice", hint="a node has at most one taint of each key")
        found[key] = value
    check_taints(found, field)
    return found


def check_taints(taints: Mapping[str, str], field: str = "taints") -> None:
    """Check keys and values.

    Raises:
        SpecError: names the field and the taint.
    """
    if len(taints) > MAX_TAINTS:
        raise SpecError(f"{field}: {len(taints)}; a node has at most {MAX_TAINTS}")
    for key, value in taints.items():
        _check_words(key, value, field)


def check_tolerated(texts: Sequence[str], field: str = "tolerate") -> None:
    """Check what a job tolerates.

    Raises:
        SpecError: names the field and the text.
    """
    if len(texts) > MAX_TOLERATED:
        raise SpecError(f"{field}: {len(texts)}; at most {MAX_TOLERATED} are allowed")
    for text in texts:
        key, mark, value = text.partition("=")
        if mark and not value:
            raise SpecError(
                f"{field}: '{shown(text)}' has no value", hint=f"write {shown(key)} for whatever value it has"
            )
        _check_words(key, value, field)
        if texts.count(text) > 1:
            raise SpecError(f"{field}: '{text}' is named twice")


def _check_words(key: str, value: str, field: str) -> None:
    if not _WORD.fullmatch(key) or (value and not _WORD.fullmatch(value)):
        raise SpecError(
            f"{field}: '{shown(taint_text(key, value))}' is not a taint",
            hint="write KEY or KEY=VALUE: letters and digits, with _ . / - inside",
        )
