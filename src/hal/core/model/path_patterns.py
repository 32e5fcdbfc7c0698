"""Paths of a step's standard streams, with the patterns that users of Slurm know: `%j`, `%a`, `%05a`.

Pure. A pattern is `%`, up to two digits that pad a number with zeros, and a letter of `LETTERS`; `%%` is one `%`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hal.core.model.errors import SpecError, shown

LETTERS: Final = {
    "j": "the job's id",
    "A": "the same",
    "a": "the task's array index (HAL_ARRAY_INDEX)",
    "T": "the task's number in its job, from 0",
    "n": "the step's rank among the nodes of a gang, from 0",
    "t": "the same",
    "N": "the node's name",
    "r": "the attempt's number, from 1",
    "u": "the user",
    "x": "the job's name",
}
"""Every letter, with what it stands for."""
MAX_PAD: Final = 10
"""Most digits to which a number is padded, as in Slurm."""
_PATTERN: Final = re.compile(r"%(\d{0,2})(.?)", re.S)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_path(field: str, text: str, max_bytes: int) -> None:
    """Check a path with patterns.

    Raises:
        SpecError: it cannot be a path, or has a pattern that does not exist; names `field`.
    """
    if _CONTROL.search(text):
        raise SpecError(f"{field}: '{shown(text)}' has a control character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise SpecError(f"{field}: '{shown(text)}' is not valid Unicode", hint="rename the file") from None
    if size > max_bytes:
        raise SpecError(f"{field}: longer than {max_bytes} bytes")
    if text.endswith("/"):
        raise SpecError(f"{field}: '{shown(text)}' is a directory", hint="name a file in it, such as job-%j.out")
    for match in _PATTERN.finditer(text):
        pad, letter = match.groups()
        if (letter == "%" and not pad) or (letter in LETTERS and int(pad or 0) <= MAX_PAD):
            continue
        raise SpecError(
            f"{field}: '{shown(match.group())}' is not a pattern",
            hint=f"patterns are {' '.join(f'%{known}' for known in LETTERS)}, and %05a pads; a percent sign is %%",
        )


def expand_path(text: str, values: Mapping[str, str | int]) -> str:
    """Put values into a checked path; `%%` stays as it is unless `values` has a `%`, as do patterns without a value.

    Args:
        values: by letter. Slashes in them become `_`, so that a name never leads into another directory.
    """

    def value_of(match: re.Match[str]) -> str:
        pad, letter = match.groups()
        value = values.get(letter)
        if value is None:
            return match.group()
        word = str(value).replace("/", "_")
        word = word.zfill(int(pad)) if pad and isinstance(value, int) else word
        return word if "%" in values else word.replace("%", "%%")

    return _PATTERN.sub(value_of, text)


def values_of_job(job: int, user: str, name: str) -> dict[str, str | int]:
    """Return the values that all steps of a job share."""
    return {"j": job, "A": job, "u": user, "x": name}


def values_of_step(task: int, array_index: int, attempt: int, rank: int, node: str) -> dict[str, str | int]:
    """Return the values of one step, and that of `%%`, so that nothing of the path is left as a pattern."""
    return {"T": task, "a": array_index, "r": attempt, "n": rank, "t": rank, "N": node, "%": "%"}
