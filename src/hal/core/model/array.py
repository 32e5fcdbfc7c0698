"""The array of a job: how many tasks, the index of each, its item.

Pure. Task t counts from 0, whatever the indices are. A plain array is three numbers. One with gaps keeps its indices as
the text that people write, cut into parts, so that 100,000 of them take less than a megabyte and one is found in
O(log parts).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from hal.core.model.complaints import explain_complaint
from hal.core.model.errors import SpecError, shown
from hal.core.model.index_ranges import IndexRange, parse_index_ranges, ranges_of, text_of

MAX_TASKS: Final = 10_000_000
"""Longest array."""
MAX_ARRAY_INDEX: Final = 1 << 53
"""Largest HAL_ARRAY_INDEX; every JSON reader represents it exactly."""
MAX_INDEX_PARTS: Final = 100_000
"""Ranges, or single indices, of one array."""
MAX_ITEMS: Final = 50_000
"""Items of one array."""
MAX_ITEM_BYTES: Final = 4_096
"""Of one item."""
MAX_ITEMS_BYTES: Final = 4 << 20
"""Of all items of an array."""

_HINT: Final = "write 100, 0-99, 0-98:2, 1,3,5-9:2 or 0-99%8"
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_RANGES_A_PART: Final = 500
_CACHED_PARTS: Final = 256


class IndexPart(Struct, frozen=True, array_like=True, gc=False):
    """The indices of some tasks of an array with gaps."""

    task: Annotated[int, Meta(ge=0, le=MAX_TASKS)]
    """The number of the first of them."""
    text: Annotated[str, Meta(max_length=64 * _RANGES_A_PART)]
    """`1,3,5-9:2`."""


_first_task = attrgetter("task")
_first = attrgetter("first")


class ArrayRange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An array of `count` tasks; task t (from 0) sees HAL_ARRAY_INDEX = first + t * step, or the t-th of `indices`."""

    count: Annotated[int, Meta(ge=1, le=MAX_TASKS)]
    first: Annotated[int, Meta(ge=0, le=MAX_ARRAY_INDEX)] = 0
    step: Annotated[int, Meta(ge=1, le=MAX_ARRAY_INDEX)] = 1
    max_running: Annotated[int, Meta(ge=0, le=MAX_TASKS, description="tasks that run at once; 0: no limit")] = 0
    indices: Annotated[
        tuple[IndexPart, ...], Meta(description="of an array with gaps: first task and text of each part, in order")
    ] = ()
    items: Annotated[tuple[str, ...], Meta(description="one for each task, which sees it as HAL_ITEM")] = ()

    @classmethod
    def parse(cls, value: object) -> ArrayRange:
        """Parse `100` (tasks 0-99), `'1-100'`, `'0-98:2'`, `'1,3,5-9:2'`, `'0-99%8'` (8 at once), a list of indices, or
        the table that this class encodes to.

        Raises:
            SpecError: none of these, empty, or longer than `MAX_TASKS`.
        """
        if isinstance(value, ArrayRange):
            return value
        if isinstance(value, Mapping):
            try:
                return msgspec.convert(loosened(value), cls).check()
            except msgspec.ValidationError as error:
                raise SpecError(f"array: {explain_complaint(str(error), cls)}") from error
        if isinstance(value, list | tuple):
            if not 1 <= len(value) <= MAX_INDEX_PARTS:
                raise SpecError(f"array: {len(value):,} indices; between 1 and {MAX_INDEX_PARTS:,} are allowed")
            return cls._of(ranges_of(value, "array"), 0)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SpecError(f"array: expected a count or a range like '0-99', got {shown(value)}")
        text = value.strip() if isinstance(value, str) else shown(value)
        body, percent, limit = text.partition("%")
        if not body or (percent and not _COUNT.fullmatch(limit)):
            raise SpecError(f"array: '{shown(text)}' is not a range", hint=_HINT)
        max_running = int(limit) if limit else 0
        if limit and not 1 <= max_running <= MAX_TASKS:
            raise SpecError(
                f"array: '{shown(text)}' lets {max_running} tasks run at once", hint=f"between 1 and {MAX_TASKS}"
            )
        if _COUNT.fullmatch(body):
            return cls._counted(int(body), max_running)
        return cls._of(parse_index_ranges(body, "array", MAX_INDEX_PARTS), max_running)

    @classmethod
    def _counted(cls, count: int, max_running: int) -> ArrayRange:
        if not 1 <= count <= MAX_TASKS:
            raise _out_of_bounds(count)
        return cls(count=count, max_running=max_running)

    @classmethod
    def _of(cls, ranges: list[IndexRange], max_running: int) -> ArrayRange:
        count = sum(one.length for one in ranges)
        if not 1 <= count <= MAX_TASKS:
            raise _out_of_bounds(count)
        if len(ranges) == 1:
            first, _, step = ranges[0]
            return cls(count=count, first=first, step=step, max_running=max_running).check()
        return cls(count=count, max_running=max_running, indices=_parts(ranges)).check()

    def __str__(self) -> str:
        """As people write it, without its items: `0-98:2%8`."""
        whole = str(IndexRange(self.first, self.count, self.step))
        text = ",".join(part.text for part in self.indices) or whole
        return f"{text}%{self.max_running}" if self.max_running else text

    def check(self, known: ArrayRange | None = None) -> ArrayRange:
        """Return the array itself if every index is within bounds and there is one item for each task, or none.

        Args:
            known: one that was checked; what it shares with this one is not checked again.
        Raises:
            SpecError: says which is not.
        """
        same = known is not None and self.indices is known.indices and self.items is known.items
        if same and known is not None and self.count == known.count and (self.indices or self.items):
            return self
        if self.indices:
            self._check_indices()
        elif max(self.index(self.count - 1), self.step) > MAX_ARRAY_INDEX:
            raise SpecError(f"array: an index or step is above {MAX_ARRAY_INDEX}")
        if self.items:
            self._check_items()
        return self

    def _check_indices(self) -> None:
        if self.first != 0 or self.step != 1:
            raise SpecError("array: `indices` goes without `first` and `step`")
        text = ",".join(part.text for part in self.indices)
        ranges = parse_index_ranges(text, "array.indices", MAX_INDEX_PARTS)
        if ranges[-1].last > MAX_ARRAY_INDEX:
            raise SpecError(f"array: an index or step is above {MAX_ARRAY_INDEX}")
        if sum(one.length for one in ranges) != self.count or _parts(ranges) != self.indices:
            raise SpecError(
                "array.indices: not as HAL writes them", hint='write them as text: {"indices": "1,3,5-9:2"}'
            )

    def _check_items(self) -> None:
        if len(self.items) != self.count:
            raise SpecError(f"array: {len(self.items)} items for {self.count} tasks", hint="leave out `count`")
        total = 0
        for task, item in enumerate(self.items):
            size = _bytes_of(item, task)
            if not size:
                raise SpecError(f"array: item {task} is empty", hint="leave it out")
            if size > MAX_ITEM_BYTES:
                raise SpecError(
                    f"array: item {task} is longer than {MAX_ITEM_BYTES} bytes",
                    hint="put it into a file, and name that",
                )
            total += size
        if len(self.items) > MAX_ITEMS or total > MAX_ITEMS_BYTES:
            raise SpecError(
                f"array: {len(self.items):,} items of {total:,} bytes; at most {MAX_ITEMS:,} of together "
                f"{MAX_ITEMS_BYTES:,} bytes are allowed",
                hint="put them into a file, and let each task read its own line: sed -n $((HAL_TASK+1))p FILE",
            )

    def index(self, task: int) -> int:
        """The value of HAL_ARRAY_INDEX in task `task`."""
        if not self.indices:
            return self.first + task * self.step
        part = self.indices[bisect_right(self.indices, task, key=_first_task) - 1]
        starts, ranges = _decoded(part.text)
        at = bisect_right(starts, task - part.task) - 1
        return ranges[at].first + (task - part.task - starts[at]) * ranges[at].step

    def item(self, task: int) -> str:
        """The value of HAL_ITEM in task `task`; '' if the array has no items."""
        return self.items[task] if self.items else ""

    def tasks_of(self, wanted: Iterable[IndexRange]) -> Iterator[IndexRange]:
        """The numbers of the tasks whose HAL_ARRAY_INDEX is in `wanted`, ascending as that is. O(log parts) for each
        number of a range with a step, and for each range without one beside what it finds."""
        for one in wanted:
            if one.step == 1:
                yield from self._tasks_within(one.first, one.last)
                continue
            for index in range(one.first, one.last + 1, one.step):
                yield from self._tasks_within(index, index)

    def _tasks_within(self, first: int, last: int) -> Iterator[IndexRange]:
        """The tasks whose index is from `first` to `last`."""
        for task, mine in self._ranges_within(first, last):
            low = max(-((mine.first - first) // mine.step), 0)
            high = min((last - mine.first) // mine.step, mine.length - 1)
            if low <= high:
                yield IndexRange(task + low, high - low + 1)

    def _ranges_within(self, first: int, last: int) -> Iterator[tuple[int, IndexRange]]:
        """The ranges of indices that may hold one of `first` to `last`, each with the number of its first task."""
        if not self.indices:
            yield 0, IndexRange(self.first, self.count, self.step)
            return
        for part in self.indices[max(bisect_right(self.indices, first, key=_first_index) - 1, 0) :]:
            if _first_index(part) > last:
                return
            starts, ranges = _decoded(part.text)
            for at in range(max(bisect_right(ranges, first, key=_first) - 1, 0), len(ranges)):
                if ranges[at].first > last:
                    return
                yield part.task + starts[at], ranges[at]


def loosened(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """What people write as a table, in the declared form as far as it is known: `indices` as text or a list of numbers,
    items of any JSON type, and no `count` where these give it."""
    out = {str(key): value for key, value in raw.items()}
    if isinstance(out.get("indices"), str):
        parsed = ArrayRange._of(parse_index_ranges(out["indices"], "array.indices", MAX_INDEX_PARTS), 0)
        del out["indices"]
        for name in ("first", "step", "count"):
            if name in out:
                raise SpecError(f"array: `indices` goes without `{name}`")
        out |= {name: getattr(parsed, name) for name in ("count", "first", "step", "indices")}
    if isinstance(out.get("items"), list | tuple):
        out["items"] = [item_text(item) for item in out["items"]]
        out.setdefault("count", len(out["items"]))
        if not out["items"]:
            raise SpecError("array: there is no item")
    return out


def item_text(item: object) -> str:
    """An item as its task sees it: text as it is, everything else as JSON."""
    try:
        return item if isinstance(item, str) else msgspec.json.encode(item).decode()
    except TypeError as error:
        raise SpecError(f"array: an item is neither text nor JSON: {error}") from None


def _bytes_of(item: str, task: int) -> int:
    if "\0" in item:
        raise SpecError(f"array: item {task} has a NUL character, which cannot be passed to a program")
    try:
        return len(item.encode())
    except UnicodeEncodeError:
        raise SpecError(f"array: item {task} is not valid Unicode", hint="HAL stores text as UTF-8") from None


def _out_of_bounds(count: int) -> SpecError:
    hint = "a number alone is how many tasks; the task of index 0 alone is 0-0" if count == 0 else ""
    return SpecError(f"array: {count} tasks; between 1 and {MAX_TASKS} are allowed", hint=hint)


def _parts(ranges: list[IndexRange]) -> tuple[IndexPart, ...]:
    starts = [0, *accumulate(one.length for one in ranges)]
    return tuple(
        IndexPart(starts[at], text_of(ranges[at : at + _RANGES_A_PART])) for at in range(0, len(ranges), _RANGES_A_PART)
    )


def _first_index(part: IndexPart) -> int:
    digits = re.match(r"[0-9]+", part.text)
    return int(digits.group()) if digits else 0


@lru_cache(maxsize=_CACHED_PARTS)
def _decoded(text: str) -> tuple[tuple[int, ...], tuple[IndexRange, ...]]:
    """The ranges of a part, and how many tasks are before each."""
    ranges = tuple(parse_index_ranges(text, "array.indices", _RANGES_A_PART))
    return (0, *accumulate(one.length for one in ranges[:-1])), ranges
