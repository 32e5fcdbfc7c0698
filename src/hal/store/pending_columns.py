"""Pending jobs that are unchanged since submission, in columns: from these a controller with a million of them
starts.

A job is kept here while it is a single task (no array) that waits for resources and that nothing has happened to. Such
jobs differ in a few numbers and words. Of a spec, the JSON text is kept, with the name and the walltime cut out: jobs
that differ in nothing else share one text, and a spec is decoded on demand.

Cost: 60 bytes per job, and its text if no other job has the same. 1-2 µs to add a row.
"""

from __future__ import annotations

import re
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
from hal.core.model.affinity import followed
from hal.core.model.job import title_of
from hal.core.model.units import parse_duration

MAX_TOGETHER: Final = 65_536
"""Jobs after which the next set of columns begins."""
MAX_DECODED: Final = 4_096
"""Decoded specs to keep, so that jobs read one after the other share their common values."""

_WALLTIME: Final = ',"walltime":"'
_CUT: Final = "\0"
"""Marks where the walltime was cut out of a shape: no JSON text contains this character."""
_NAMED: Final = ","
"""The beginning of a shape whose name was cut out: `,"queue":…}` of `{"name":"n","queue":…}`."""

_SPEC: Final = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook)
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])

T = TypeVar("T")


class Codes(dict[T, int]):
    """Assigns consecutive numbers to values when they are first looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[T] = []
        """By number."""

    def __missing__(self, value: T) -> int:
        code = self[value] = len(self.known)
        self.known.append(value)
        return code


class Texts:
    """Short texts, concatenated: a list of strings would cost fifty bytes more for each."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._firsts: list[int] = []
        """Index of the first text of each block."""
        self._ends = array("I")
        """End of each text, within its block."""

    def extend(self, texts: Sequence[str]) -> None:
        """Append these texts as one block."""
        if not texts:
            return
        self._firsts.append(len(self._ends))
        self._blocks.append("".join(texts))
        self._ends.extend(accumulate(map(len, texts)))

    def __getitem__(self, index: int) -> str:
        at = bisect_right(self._firsts, index) - 1
        begin = self._ends[index - 1] if index > self._firsts[at] else 0
        return self._blocks[at][begin : self._ends[index]]


class _Asked(Struct, frozen=True):
    """The fields of a spec from which the engine's class, QOS and deadline follow, and whether it is an array, or
    has groups of nodes, each of which is a task to the engine."""

    array: Raw = Raw(b"")
    groups: Raw = Raw(b"")
    request: Raw = Raw(b"")
    licences: Raw = Raw(b"")
    constraints: Raw = Raw(b"")
    exclude: Raw = Raw(b"")
    tolerate: Raw = Raw(b"")
    movable: bool | None = None
    apart: Raw = Raw(b"")
    together: Raw = Raw(b"")
    prefer_apart: Raw = Raw(b"")
    prefer_together: Raw = Raw(b"")
    labels: dict[str, str] = {}
    user: str = ""
    nodes: int = 1
    within: str = ""
    pack: str = ""
    spread: str = ""
    booking: str = ""
    qos: str = ""
    deadline_ms: int = 0

    @property
    def is_array(self) -> bool:
        return bytes(self.array) not in (b"", b"null") or bytes(self.groups) not in (b"", b"[]")

    def key(self) -> tuple[Any, ...]:
        return (
            bytes(self.request),
            bytes(self.licences),
            bytes(self.constraints),
            bytes(self.exclude),
            bytes(self.tolerate),
            self.movable,
            self.nodes,
            self.within,
            self.pack,
            self.spread,
            self.booking,
            self.qos,
            self.deadline_ms,
            *self._social(),
        )

    def _social(self) -> tuple[Any, ...]:
        """What affinity asks of it, and what others may ask of it; () where nothing is."""
        labels = followed(self.labels)
        terms = tuple(map(bytes, (self.apart, self.together, self.prefer_apart, self.prefer_together)))
        return (self.user, labels, *terms) if labels or any(terms) else ()


_ASKED: Final = msgspec.json.Decoder(_Asked)


_PROGRAM: Final = re.compile(r'"command":\[("(?:[^"\\]|\\.)*")')
"""The first word of a command in the JSON of a spec; in its strings a quote is escaped."""


class PendingColumns:
    """Columns of pending jobs, by ascending id; a job has the same index in every column."""

    def __init__(self) -> None:
        self.ids = array("q")
        self.priority = array("q")
        self.walltime_ms = array("q")
        """-1: none."""
        self.submit_ms = array("q")
        self.eligible_ms = array("q")
        self.name = array("i")
        """Index into `names`; the next three columns are indexes into `owners`, `traces` and `shapes`."""
        self.owner = array("i")
        self.trace = array("i")
        self.shape = array("i")
        self.ask = array("i")
        """For each shape: index into `asks`."""
        self.asks: list[JobSpec] = []
        """One spec for all that are equal for the engine: same request, licences, nodes, levels, constraints,
        excluded nodes, taints, affinity, booking, QOS, deadline and `movable`; its other fields are meaningless."""
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
        """Distinct names; new ones may appear when rows are added after `settle`. The same is true for the next two."""
        return self._names.known

    @property
    def owners(self) -> list[tuple[str, str, str]]:
        """Distinct (queue, account, user)."""
        return self._owners.known

    @property
    def traces(self) -> list[str]:
        """Distinct trace ids."""
        return self._traces.known

    def spec(self, index: int) -> JobSpec:
        """The job's spec, as submitted."""
        shape = self.shape[index]
        base = self.spec_of_shape(shape)
        walltime = self._walltimes[index]
        named = self._shape_of[shape].startswith(_NAMED)
        if named and walltime:
            return replace(base, name=self.names[self.name[index]], walltime=parse_duration(walltime))
        if walltime:
            return replace(base, walltime=parse_duration(walltime))
        return replace(base, name=self.names[self.name[index]]) if named else base

    def row(self, index: int) -> tuple[Any, ...]:
        """The job in the form that `extend` accepts."""
        name, walltime = self.names[self.name[index]], self._walltimes[index]
        shape = self._shape_of[self.shape[index]]
        text = shape.replace(_CUT, f'{_WALLTIME}{walltime}"')
        if shape.startswith(_NAMED):
            text = f'{{"name":"{name}"{text}'
        numbers = (column[index] for column in (self.priority, self.walltime_ms, self.submit_ms, self.eligible_ms))
        return (self.ids[index], name, *self.owners[self.owner[index]], *numbers, self.traces[self.trace[index]], text)

    def spec_of_shape(self, shape: int) -> JobSpec:
        """A spec of that shape, with everything but its name and walltime."""
        return _decoded(self._shape_of[shape])

    def title(self, shape: int) -> str:
        """What a job of that shape without a name is called: its program; without decoding the whole spec."""
        found = _PROGRAM.search(self._shape_of[shape])
        return title_of([msgspec.json.decode(found[1])]) if found is not None else title_of([])

    @property
    def full(self) -> bool:
        """Whether the next jobs belong to another set of columns."""
        return len(self.ids) >= MAX_TOGETHER

    def extend(self, rows: Iterable[Sequence[Any]]) -> list[int]:
        """Append rows by ascending id.

        Args:
            rows: (id, name, queue, account, user, priority, walltime_ms or -1, submit_ms, eligible_ms, trace id, text
                of the spec)
        Returns: the ids of arrays, which are not appended.
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

    def settle(self) -> PendingColumns:
        """Free what is only needed for adding rows, because few more will come, if any."""
        for codes in (self._names, self._owners, self._traces, self._shapes, self._ask_of):
            codes.clear()
        return self

    def _shape(self, text: str, walltime: str) -> tuple[str, str, int]:
        """Register the shape of a new text; returns the walltime that was cut out and the shape's number, or -1 for
        an array.

        If what was cut out turns out to be another amount called walltime, it is put back.
        """
        if walltime and not _is_whole(text, walltime):
            text, walltime = text.replace(_CUT, f'{_WALLTIME}{walltime}"'), ""
            if text in self._shapes:
                return text, walltime, self._shapes[text]
        whole = _json(text)
        asked = _ASKED.decode(whole)
        # An environment variable or a label may be called `array` too: only the spec's own field counts.
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
    """The spec's JSON without what was cut out."""
    text = shape.replace(_CUT, "")
    return "{" + text[1:] if text.startswith(_NAMED) else text


def _is_whole(shape: str, walltime: str) -> bool:
    """Whether the walltime that was cut out is the spec's own: only then it is there with it and missing without it."""
    with_it = shape.replace(_CUT, f'{_WALLTIME}{walltime}"')
    fields = _FIELDS.decode(_json(with_it))
    return bytes(fields.get("walltime", b"")) == f'"{walltime}"'.encode() and "walltime" not in _FIELDS.decode(
        _json(shape)
    )
