"""Names and sizes of secrets, which jobs name and never contain.

Pure.
"""

from __future__ import annotations

import re
from typing import Final

from hal.core.model.errors import SpecError, shown

MAX_SECRET_BYTES: Final = 64 << 10
"""Longest value of a secret."""
MAX_JOB_SECRETS: Final = 16
"""Secrets that one job may name."""
MAX_SECRET_NAME_CHARS: Final = 64

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HINT: Final = f"letters, digits and . _ - after the first, at most {MAX_SECRET_NAME_CHARS}"


def is_secret_name(text: str) -> bool:
    """Whether the text is valid as the name of a secret, which is also the name of a file."""
    return _NAME.fullmatch(text) is not None


def check_secret_name(text: str, field: str = "name") -> str:
    """Return the name itself.

    Raises:
        SpecError: it is not one.
    """
    if not is_secret_name(text):
        raise SpecError(f"{field}: '{shown(text)}' is not the name of a secret", hint=_HINT)
    return text


def check_secret_names(names: tuple[str, ...]) -> None:
    """Check the secrets that a job names.

    Raises:
        SpecError: too many, one is not a name, or named twice.
    """
    if len(names) > MAX_JOB_SECRETS:
        raise SpecError(f"secrets: {len(names)}; at most {MAX_JOB_SECRETS} are allowed")
    for name in names:
        check_secret_name(name, "secrets")
        if names.count(name) > 1:
            raise SpecError(f"secrets: '{name}' is named twice")
