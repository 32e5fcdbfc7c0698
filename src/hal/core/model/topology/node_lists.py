"""Lists of names as Slurm writes them: `n[001-128],gpu[1,3-5]`, to names and back.

Pure. O(names). Zeros in front of a number are kept: `n[08-10]` is n08, n09, n10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from hal.core.model.errors import SpecError, shown

MAX_NAMES: Final = 100_000
"""Names that one list may have."""
MAX_LIST_CHARS: Final = 1 << 20
MAX_BRACKETS: Final = 4
"""Of one part: `rack[1-4]node[01-32]` has two."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
"""What HAL accepts as the name of a node."""
_PIECE: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)")


def expand_names(text: str, most: int = MAX_NAMES) -> list[str]:
    """The names of a list, in the order in which it has them.

    Raises:
        SpecError: malformed, a name that is none of a node, a name twice, or more than `most`.
    """
    if len(text) > MAX_LIST_CHARS:
        raise SpecError(f"a list of names of {len(text)} characters", hint=f"at most {MAX_LIST_CHARS}")
    names: dict[str, None] = {}
    for part in _parts(text):
        for name in _expand_part(part, most):
            if not _NAME.match(name):
                raise SpecError(f"'{shown(name)}' is not a name", hint="at most 63 of letters, digits, . _ - inside")
            if name in names:
                raise SpecError(f"'{name}' is twice in the list", hint="name it once")
            names[name] = None
            if len(names) > most:
                raise SpecError(f"'{shown(text)}' has more than {most:,} names", hint="is a range mistyped?")
    return list(names)


def fold_names(names: Iterable[str]) -> str:
    """A short list that has these names: `n[1-4,7],gpu02`. Names that differ in their last number are one part,
    each part where the first of its names is; `expand_names` reads it."""
    numbers: dict[tuple[str, str, bool], list[str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        before, number, after = found.groups() if found else (name, "", "")
        numbers.setdefault((before, after, bool(found)), []).append(number)
    parts = []
    for (before, after, _), some in numbers.items():
        runs = _runs(some)
        inner = ",".join(first if first == last else f"{first}-{last}" for first, last in runs)
        many = len(runs) > 1 or runs[0][0] != runs[0][1]
        parts.append(f"{before}[{inner}]{after}" if many else f"{before}{inner}{after}")
    return ",".join(parts)


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """What orders names as people count: n9 before n10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return (*((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part), (-1, 0, name))


def _runs(numbers: list[str]) -> list[tuple[str, str]]:
    """First and last of each run of consecutive numbers that are written alike."""
    runs: list[tuple[str, str]] = []
    for number in sorted(set(numbers), key=lambda text: (int(text or 0), len(text))):
        last = runs[-1][1] if runs else ""
        follows = last and int(number) == int(last) + 1 and (len(number) == len(last) or number[0] != "0" != last[0])
        if follows:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are outside brackets.

    Raises:
        SpecError: brackets that do not match, or an empty part.
    """
    start, inside = 0, False
    for position, sign in enumerate(f"{text},"):
        if sign in "[]":
            if inside == (sign == "["):
                raise SpecError(f"'{shown(text)}': brackets that do not match", hint="like n[001-128]")
            inside = not inside
        elif sign == "," and not inside:
            part = text[start:position].strip()
            if not part:
                raise SpecError(f"'{shown(text)}' is not a list of names", hint="like n[001-128],gpu[1,3-5]")
            yield part
            start = position + 1
    if inside:
        raise SpecError(f"'{shown(text)}': brackets that do not match", hint="like n[001-128]")


def _expand_part(part: str, most: int) -> Iterator[str]:
    """The names of one part, first brackets slowest."""
    choices: list[list[str]] = []
    count, brackets = 1, 0
    for match in _PIECE.finditer(part):
        if match[1] is None:
            choices.append([match[2]])
            continue
        brackets += 1
        if brackets > MAX_BRACKETS:
            raise SpecError(f"'{shown(part)}' has more than {MAX_BRACKETS} brackets", hint="write several parts")
        numbers = _numbers(match[1], part, most)
        count *= len(numbers)
        if count > most:
            raise SpecError(f"'{shown(part)}' has more than {most:,} names", hint="is a range mistyped?")
        choices.append(numbers)
    return map("".join, product(*choices))


def _numbers(text: str, part: str, most: int) -> list[str]:
    found: list[str] = []
    for one in text.split(","):
        match = _RANGE.match(one.strip())
        if match is None:
            raise SpecError(f"'{shown(part)}': '{shown(one)}' is not a range of numbers", hint="like n[001-128,130]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise SpecError(f"'{shown(part)}': '{shown(one)}' has no number", hint="write the smaller number first")
        if last - first >= most:
            raise SpecError(f"'{shown(part)}' has more than {most:,} names", hint="is a range mistyped?")
        width = len(match[1])
        found += (f"{number:0{width}d}" for number in range(first, last + 1))
    return found
