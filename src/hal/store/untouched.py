"""Jobs that wait as they were submitted, in columns: what a controller starts from that holds a million of them.

A job is *untouched* while it is one task, no array, that waits for resources and to which nothing has happened. Such
jobs differ in a few numbers and words. Of a spec its JSON text is kept, the name and the walltime cut out: jobs that
differ in nothing else share one text, and a spec is decoded when somebody asks for it.

Cost: 60 bytes a job, and its text where no other job has the same. 1-2 µs to take in a row.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from hal.core.model import JobSpec, dec_hook
from hal.core.model.units import parse_duration

MAX_TOGETHER: Final = 65_536
"""Jobs after which another set of columns begins."""
MAX_DECODED: Final = 4_096
"""Specs that are kept decoded, so that jobs that are asked for one after the other share what lies in them."""

_WALLTIME: Final = ',"walltime":"'
_CUT: Final = "\0"
"""Stands in a shape where the walltime was: no JSON text has this character."""
_NAMED: Final = ","
"""With which a shape begins whose name was cut out: `,"queue":…}` of `{"name":"n","queue":…}`."""

_SPEC: Final = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook)
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])

T = TypeVar("T")


class Codes(dict[T, int]):
    """Small numbers for values, given when a value is first looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[T] = []
        """By number."""

    def __missing__(self, value: T) -> int:
        code = self[value] = len(self.known)
        self.known.append(value)
        return code


class Texts:
    """Short texts, one behind the other: a list of strings would cost fifty bytes more for each."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._firsts: list[int] = []
        """Place of the first text of each block."""
        self._ends = array("I")
        """Of each text, in its block."""

    def extend(self, texts: Sequence[str]) -> None:
        """Add these, as one block."""
        if not texts:
            return
        self._firsts.append(len(self._ends))
        self._blocks.append("".join(texts))
        self._ends.extend(accumulate(map(len, texts)))

    def __getitem__(self, place: int) -> str:
        at = bisect_right(self._firsts, place) - 1
        begin = self._ends[place - 1] if place > self._firsts[at] else 0
        return self._blocks[at][begin : self._ends[place]]


class _Asked(Struct, frozen=True):
    """What of a spec the engine's class, QOS and deadline follow from, and whether it is an array."""

    array: Raw = Raw(b"")
    request: Raw = Raw(b"")
    licences: Raw = Raw(b"")
    constraints: Raw = Raw(b"")
    nodes: int = 1
    booking: str = ""
    qos: str = ""
    deadline_ms: int = 0

    @property
    def is_array(self) -> bool:
        return bytes(self.array) not in (b"", b"null")

    def key(self) -> tuple[bytes, bytes, bytes, int, str, str, int]:
        return (
            bytes(self.request),
            bytes(self.licences),
            bytes(self.constraints),
            self.nodes,
            self.booking,
            self.qos,
            self.deadline_ms,
        )


_ASKED: Final = msgspec.json.Decoder(_Asked)


class Untouched:
    """Columns of untouched jobs, by ascending id; the place of a job is its index in each of them."""

    def __init__(self) -> None:
        self.ids = array("q")
        self.priority = array("q")
        self.walltime_ms = array("q")
        """-1: none."""
        self.submit_ms = array("q")
        self.eligible_ms = array("q")
        self.name = array("i")
        """Index into `names`; so are the next three into `owners`, `traces` and `shapes`."""
        self.owner = array("i")
        self.trace = array("i")
        self.shape = array("i")
        self.ask = array("i")
        """Of each shape: index into `asks`."""
        self.asks: list[JobSpec] = []
        """One spec for all that ask the engine for the same: equal request, licences, nodes, constraints, booking, QOS
        and deadline; nothing else in it says anything."""
        self._walltimes = Texts()
        """Of the specs; a job's own may have been changed since."""
        self._names: Codes[str] = Codes()
        self._owners: Codes[tuple[str, str, str]] = Codes()
        self._traces: Codes[str] = Codes()
        self._shapes: dict[str, int] = {}
        self._shape_of: list[str] = []
        self._ask_of: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> list[str]:
        """Different names, and others when jobs came after `settle`; so are the next two."""
        return self._names.known

    @property
    def owners(self) -> list[tuple[str, str, str]]:
        """Different (queue, account, user)."""
        return self._owners.known

    @property
    def traces(self) -> list[str]:
        """Different trace ids."""
        return self._traces.known

    def spec(self, place: int) -> JobSpec:
        """The job's spec, as it was submitted."""
        shape = self.shape[place]
        base = self.like(shape)
        walltime = self._walltimes[place]
        named = self._shape_of[shape].startswith(_NAMED)
        if named and walltime:
            return replace(base, name=self.names[self.name[place]], walltime=parse_duration(walltime))
        if walltime:
            return replace(base, walltime=parse_duration(walltime))
        return replace(base, name=self.names[self.name[place]]) if named else base

    def row(self, place: int) -> tuple[Any, ...]:
        """The job as `extend` takes it in."""
        name, walltime = self.names[self.name[place]], self._walltimes[place]
        shape = self._shape_of[self.shape[place]]
        text = shape.replace(_CUT, f'{_WALLTIME}{walltime}"')
        if shape.startswith(_NAMED):
            text = f'{{"name":"{name}"{text}'
        numbers = (column[place] for column in (self.priority, self.walltime_ms, self.submit_ms, self.eligible_ms))
        return (self.ids[place], name, *self.owners[self.owner[place]], *numbers, self.traces[self.trace[place]], text)

    def like(self, shape: int) -> JobSpec:
        """A spec of that shape: all that is not its name or walltime."""
        return _decoded(self._shape_of[shape])

    @property
    def full(self) -> bool:
        """Whether the next jobs belong into other columns."""
        return len(self.ids) >= MAX_TOGETHER

    def extend(self, rows: Iterable[Sequence[Any]]) -> list[int]:
        """Take in rows by ascending id; the ids of those that are arrays, which are not taken in.

        Args:
            rows: (id, name, queue, account, user, priority, walltime_ms or -1, submit_ms, eligible_ms, trace id,
                text of the spec)
        """
        refused: list[int] = []
        texts: list[str] = []
        shapes: list[int] = []
        kept: list[Sequence[Any]] = []
        known, find = self._shapes, self._shape
        for row in rows:
            name, text = row[1], row[10]
            if name and text.startswith(f'{{"name":"{name}",'):
                text = text[len(name) + 10 :]
            head, mark, tail = text.partition(_WALLTIME)
            walltime = ""
            if mark:
                walltime, _, rest = tail.partition('"')
                text = f"{head}{_CUT}{rest}"
            code = known.get(text)
            if code is None:
                text, walltime, code = find(text, walltime)
            if code < 0:
                refused.append(row[0])
                continue
            kept.append(row)
            texts.append(walltime)
            shapes.append(code)
        if kept:
            ids, names, queues, accounts, users, priority, walltime_ms, submit, eligible, traces, _ = zip(
                *kept, strict=True
            )
            self.ids.extend(ids)
            self.name.extend(map(self._names.__getitem__, names))
            self.owner.extend(map(self._owners.__getitem__, zip(queues, accounts, users, strict=True)))
            self.priority.extend(priority)
            self.walltime_ms.extend(walltime_ms)
            self.submit_ms.extend(submit)
            self.eligible_ms.extend(eligible)
            self.trace.extend(map(self._traces.__getitem__, traces))
            self.shape.extend(shapes)
            self._walltimes.extend(texts)
        return refused

    def settle(self) -> Untouched:
        """Few more rows come, if any: forget what only helps to take them in."""
        for codes in (self._names, self._owners, self._traces, self._shapes, self._ask_of):
            codes.clear()
        return self

    def _shape(self, text: str, walltime: str) -> tuple[str, str, int]:
        """The shape of a text that was not seen yet, the walltime cut out of it, the shape's number; -1: an array.

        What was cut out may be an amount that is called walltime: then it stays.
        """
        if walltime and not _is_whole(text, walltime):
            text, walltime = text.replace(_CUT, f'{_WALLTIME}{walltime}"'), ""
            if text in self._shapes:
                return text, walltime, self._shapes[text]
        whole = _json(text)
        asked = _ASKED.decode(whole)
        # An env variable or a label may be called `array` too: only the spec's own field counts.
        if asked.is_array:
            return text, walltime, -1
        code = self._shapes[text] = len(self._shape_of)
        self._shape_of.append(text)
        key = asked.key()
        ask = self._ask_of.get(key)
        if ask is None:
            ask = self._ask_of[key] = len(self.asks)
            self.asks.append(_SPEC.decode(whole))
        self.ask.append(ask)
        return text, walltime, code


@lru_cache(MAX_DECODED)
def _decoded(shape: str) -> JobSpec:
    return _SPEC.decode(_json(shape))


def _json(shape: str) -> str:
    """The spec without what was cut out."""
    text = shape.replace(_CUT, "")
    return "{" + text[1:] if text.startswith(_NAMED) else text


def _is_whole(shape: str, walltime: str) -> bool:
    """Whether the walltime that was cut out is that of the spec itself: only then it is there and is gone now."""
    with_it = shape.replace(_CUT, f'{_WALLTIME}{walltime}"')
    fields = _FIELDS.decode(_json(with_it))
    return bytes(fields.get("walltime", b"")) == f'"{walltime}"'.encode() and "walltime" not in _FIELDS.decode(
        _json(shape)
    )
