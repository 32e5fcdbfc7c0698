"""The umask of a job's processes: octal text, as people write it for `umask` of a shell.

Pure.
"""

from __future__ import annotations

import re
from typing import Final

from hal.core.model.errors import SpecError, shown

UMASK_PATTERN: Final = r"0?[0-7]{1,3}"
"""Readers of the JSON Schema understand it, too."""

_UMASK: Final = re.compile(UMASK_PATTERN)
_HINT: Final = 'write octal digits as text: "0027"'


def parse_umask(written: object) -> object:
    """Return what stands in a job's file as it is, for who checks types.

    Raises:
        SpecError: a number: in YAML and JSON 0027 or 27 is twenty-seven, in Python 0o027 is twenty-three.
    """
    if isinstance(written, int) and not isinstance(written, bool):
        raise SpecError(f"umask: expected text, got the number {shown(written)}", hint=_HINT)
    return written


def check_umask(text: str) -> str:
    """Return it in canonical form, with four digits; '' stays.

    Raises:
        SpecError: it is no umask.
    """
    if text and not _UMASK.fullmatch(text):
        raise SpecError(f"umask: '{shown(text)}' is not a umask", hint=_HINT)
    return f"{int(text, 8):04o}" if text else ""


def umask_bits(text: str) -> int | None:
    """The bits of one that was checked; None for ''."""
    return int(text, 8) if text else None
