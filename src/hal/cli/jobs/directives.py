"""Options in the comments at the top of a script: the lines that begin with `#HAL`, `#SBATCH` or `#PBS`.

Pure. They are read up to the first line that is neither blank nor a comment, and split into words as a shell does:
quotes hold words together, and what follows an unquoted `#` is a comment.
"""

from __future__ import annotations

import shlex
from typing import Final, NamedTuple

from hal.core.model import SpecError

HAL: Final = "#HAL"
SBATCH: Final = "#SBATCH"
PBS: Final = "#PBS"
MAX_DIRECTIVES: Final = 1_000
"""Lines with options in one script."""


class Directive(NamedTuple):
    """One line of options."""

    line: int
    """From 1."""
    words: tuple[str, ...]


def read_directives(script: str, mark: str) -> list[Directive]:
    """The lines of a script that begin with `mark` and a space, before its first command.

    Raises:
        SpecError: a quote is not closed, or there are too many; names the line.
    """
    found: list[Directive] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if not line.startswith(mark) or line[len(mark) : len(mark) + 1] not in ("", " ", "\t"):
            continue
        try:
            words = tuple(shlex.split(_without_comment(line[len(mark) :])))
        except ValueError:
            raise SpecError(f"line {number}: {mark}: a quote is not closed", hint="quote it as in a shell") from None
        found.append(Directive(number, words))
        if len(found) > MAX_DIRECTIVES:
            raise SpecError(f"line {number}: more than {MAX_DIRECTIVES} lines of {mark}")
    return found


def _without_comment(text: str) -> str:
    """The text before an unquoted `#` that begins a word."""
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and text[at - 1 : at].isspace():
            return text[:at]
    return text
