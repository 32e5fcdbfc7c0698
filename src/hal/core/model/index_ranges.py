"""Lists of whole numbers as people write them: `7`, `1,3,5-9:2`, as ranges in ascending order.

Pure. O(parts log parts), whatever the numbers are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hal.core.model.errors import SpecError, shown

_PART: Final = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")


class IndexRange(NamedTuple):
    """`length` numbers from `first` on, `step` apart."""

    first: int
    length: int = 1
    step: int = 1

    @property
    def last(self) -> int:
        """The greatest of them."""
        return self.first + (self.length - 1) * self.step

    def __str__(self) -> str:
        if self.length == 1:
            return str(self.first)
        return f"{self.first}-{self.last}" + (f":{self.step}" if self.step > 1 else "")


def parse_index_ranges(text: str, field: str, most: int) -> list[IndexRange]:
    """Parse `1,3,5-9:2`: ascending and disjoint, neighbours joined; parts may stand in any order.

    Args:
        most: parts that the text may have.
    Raises:
        SpecError: malformed, too many parts, or a number is in two of them; names `field`.
    """
    parts = text.split(",", most)
    if len(parts) > most:
        raise SpecError(f"{field}: more than {most:,} parts", hint="write neighbours as a range: 5-9")
    return joined((_parse_part(part.strip(), text, field) for part in parts), field)


def joined(ranges: Iterable[IndexRange], field: str) -> list[IndexRange]:
    """Ranges in ascending order, neighbours of one step joined.

    Raises:
        SpecError: two of them overlap.
    """
    out: list[IndexRange] = []
    for one in sorted(ranges):
        if not out:
            out.append(one)
            continue
        before = out[-1]
        if one.first <= before.last:
            raise SpecError(
                f"{field}: {before} and {one} overlap", hint="name each number once, in parts that follow one another"
            )
        step = one.step if one.length > 1 else before.step
        if one.first == before.last + step and step in (1, before.step) and (before.length == 1 or before.step == step):
            out[-1] = IndexRange(before.first, before.length + one.length, step)
        else:
            out.append(one)
    return out


def text_of(ranges: Iterable[IndexRange]) -> str:
    """The inverse of `parse_index_ranges`."""
    return ",".join(map(str, ranges))


def ranges_of(numbers: Sequence[int], field: str) -> list[IndexRange]:
    """Whole numbers, in any order, as ranges.

    Raises:
        SpecError: one is no whole number, is negative, or is there twice.
    """
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise SpecError(f"{field}: {shown(number)} is not an index", hint="write whole numbers from 0 on")
    return joined(map(IndexRange, numbers), field)


def pieces_of(ranges: Iterable[IndexRange]) -> Iterator[tuple[int, int]]:
    """As (first, one past the last) of numbers without gaps."""
    for one in ranges:
        if one.step == 1 or one.length == 1:
            yield one.first, one.last + 1
        else:
            for number in range(one.first, one.last + 1, one.step):
                yield number, number + 1


def _parse_part(part: str, text: str, field: str) -> IndexRange:
    match = _PART.fullmatch(part)
    if match is None:
        raise SpecError(f"{field}: '{shown(part or text)}' is not a range", hint="write 7, 5-9, 5-9:2 or 1,3,5-9:2")
    first = int(match.group(1))
    last = int(match.group(2) or first)
    step = int(match.group(3) or 1)
    if last < first or step < 1:
        hint = "write the smaller index first" if step else "the step behind ':' is at least 1"
        raise SpecError(f"{field}: '{shown(part)}' has no task", hint=hint)
    count = (last - first) // step + 1
    return IndexRange(first, count, step if count > 1 else 1)
