"""Whether log lines and spans of a node are about attempts that the node runs or ran.

A node whose certificate names it may send anything. What it sends about attempts of other nodes, or in the name of
processes that are no node's, is refused and counted; whose job it is says the job's row, never the node. Attempts that
are not known yet are looked up soon, in turns that cost little; until then all later lines of that node wait, within
bounds, so they stay in order. Processes of the collector's own host and user are trusted, and cost nothing here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from hal.core.model import HALError, StepId
from hal.planes.observability.logs.lines import STEP
from hal.planes.observability.logs.part import JOB, USER
from hal.planes.observability.sender_budget import LINES, SPANS
from hal.planes.observability.telemetry import ReceivedLines, ReceivedSpans, Sender
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.telemetry import SPAN_ID_BYTES, TRACE_ID_BYTES, LogLine, Spans
from hal.wire.roles import Role

COMPONENTS: Final = frozenset({"agent", "keeper", "files", "streams", STEP})
"""Processes that run on a node; no other one is a node's to name."""
TURN_MS: Final = 1_000
UNKNOWN_MS: Final = 10_000
"""An attempt that neither the controller nor the history knows for so long is not the node's: the controller knows it
before it begins, and the history soon after its end."""
MAX_KNOWN: Final = 100_000
"""Attempts that are remembered; the one that was not asked about for longest is looked up again."""
MAX_WAITING: Final = 64 << 20
"""Bytes, about, of all that waits;"""
MAX_WAITING_OF_NODE: Final = 16 << 20
"""and of one node."""
RECORD_BYTES: Final = 200
KEYS_A_TURN: Final = 1_000
"""Attempts of one node that are looked up in one turn;"""
NODES_A_TURN: Final = 50
"""nodes that have their turn at once: the others follow in the next."""


class Key(NamedTuple):
    """An attempt."""

    job: int
    task: int
    attempt: int


class Placed(NamedTuple):
    """Where an attempt runs or ran, which never changes."""

    user: str
    nodes: tuple[str, ...]
    """In rank order."""


class Answer(NamedTuple):
    """What is known of some attempts.

    Attributes:
        placed: those that are known.
        asked: those of which it is known whether they are; the others were too many for one turn.
    """

    placed: Mapping[Key, Placed]
    asked: Set[Key]


LookUp = Callable[[Sequence[Key]], Awaitable[Answer]]
"""Raises HALError where nothing can be said now."""


class _Waiting(NamedTuple):
    got: ReceivedLines | ReceivedSpans
    unknown: dict[Key, None]
    """Attempts of which it is not known yet where they run, or that nobody knows them."""
    size: int
    since_ms: int


class Attribution:
    """See `Part`. Passes on what it accepts, at once or a little later."""

    name: Final = "attribution"

    def __init__(
        self,
        runtime: Runtime,
        look_up: LookUp,
        lines: Callable[[ReceivedLines], None],
        spans: Callable[[ReceivedSpans], None],
    ) -> None:
        self._runtime, self._look_up, self._lines, self._spans = runtime, look_up, lines, spans
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        self._known: OrderedDict[Key, Placed] = OrderedDict()
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        """By node; the first has its turn next. None is empty."""
        self._sizes: Counter[str] = Counter()
        """Of what waits, by node."""
        self._size = 0
        self._refused: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._away = ""

    def take(self, got: ReceivedLines | ReceivedSpans) -> None:
        """Lines or spans that have arrived."""
        if not _to_be_checked(got.sender):
            self._pass_on(got)
            return
        unknown = {key: None for key in _keys_of(got) if key not in self._known}
        node = got.sender.name
        if node not in self._waiting and not unknown:
            self._decide(got)
            return
        size = _size_of(got)
        if self._sizes[node] + size > MAX_WAITING_OF_NODE or self._size + size > MAX_WAITING:
            self._dropped[_kind(got)] += _count(got)
            return
        self._waiting.setdefault(node, deque()).append(_Waiting(got, unknown, size, self._runtime.monotonic_ms()))
        self._sizes[node] += size
        self._size += size

    async def run(self) -> None:
        """See `Part`."""
        while True:
            await self._runtime.sleep(TURN_MS)
            for node in list(self._waiting)[:NODES_A_TURN]:
                await self._look_at(node)

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            "lines_refused": self._refused[LINES],
            "spans_refused": self._refused[SPANS],
            "lines_dropped": self._dropped[LINES],
            "spans_dropped": self._dropped[SPANS],
            "waiting_bytes": self._size,
            "known_attempts": len(self._known),
            "controller": f"away: {self._away}" if self._away else "answers",
        }

    async def close(self) -> None:
        """See `Part`: it keeps nothing."""

    async def _look_at(self, node: str) -> None:
        """Look up some of what a node's records are about, and decide about those that can be."""
        asked_ms = self._runtime.monotonic_ms()
        try:
            placed_by_key, asked = await self._look_up(self._chosen(node))
        except HALError as error:
            self._away = error.message
            self._waiting.move_to_end(node)
            return
        self._away = ""
        for key, placed in placed_by_key.items():
            self._remember(key, placed)
        queue = self._waiting[node]
        for waiting in queue:
            settled = asked if asked_ms - waiting.since_ms >= UNKNOWN_MS else placed_by_key.keys()
            for key in [key for key in waiting.unknown if key in settled]:
                del waiting.unknown[key]
        while queue and not queue[0].unknown:
            first = queue.popleft()
            self._sizes[node] -= first.size
            self._size -= first.size
            self._decide(first.got)
        if queue:
            self._waiting.move_to_end(node)
        else:
            del self._waiting[node], self._sizes[node]

    def _chosen(self, node: str) -> list[Key]:
        """The next ones of a node that are not known, in the order in which they came."""
        chosen: dict[Key, None] = {}
        for waiting in self._waiting[node]:
            for key in waiting.unknown:
                chosen[key] = None
                if len(chosen) >= KEYS_A_TURN:
                    return list(chosen)
        return list(chosen)

    def _remember(self, key: Key, placed: Placed) -> None:
        self._known[key] = placed
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def _pass_on(self, got: ReceivedLines | ReceivedSpans) -> None:
        if isinstance(got, ReceivedLines):
            self._lines(got)
        else:
            self._spans(got)

    def _decide(self, got: ReceivedLines | ReceivedSpans) -> None:
        if isinstance(got, ReceivedLines):
            lines = tuple(one for line in got.lines if (one := self._checked(got.sender.name, line)) is not None)
            accepted, some = len(lines), got._replace(lines=lines)
            if accepted:
                self._lines(some)
        else:
            spans, node = got.spans, got.sender.name
            chosen = [at for at, step in enumerate(spans.steps) if step is not None and self._is_of(node, step)]
            accepted = len(chosen)
            if accepted:
                self._spans(got._replace(spans=select(spans, chosen) if accepted < len(spans.names) else spans))
        refused = _count(got) - accepted
        if refused:
            self._refused[_kind(got)] += refused
            self._log.warning("a node sent what is not its own", node=got.sender.name, kind=_kind(got), refused=refused)

    def _checked(self, node: str, line: LogLine) -> LogLine | None:
        """The line as it is kept: with the user that the job's row names; None: it is refused."""
        if line.component not in COMPONENTS:
            return None
        fields = {key: value for key, value in line.fields.items() if key != USER}
        step = line.step
        if line.component == STEP:
            if step is None or not self._is_of(node, step):
                return None
            return msgspec.structs.replace(line, fields={**fields, USER: self._known[_key(step)].user})
        if step is not None and not self._is_of(node, step, any_rank=True):
            return None
        if step is None and JOB in fields:
            # Which attempt it is about is not said, so that cannot be checked: it stays the node's own line.
            fields["of_job"] = fields.pop(JOB)
        return msgspec.structs.replace(line, fields=fields)

    def _is_of(self, node: str, step: StepId, *, any_rank: bool = False) -> bool:
        placed = self._known.get(_key(step))
        if placed is None:
            return False
        self._known.move_to_end(_key(step))
        if any_rank:
            return node in placed.nodes
        return step.rank < len(placed.nodes) and placed.nodes[step.rank] == node


def select(spans: Spans, chosen: Sequence[int]) -> Spans:
    """Some spans of a batch, by ascending position."""

    def column(data: bytes, width: int) -> bytes:
        return b"".join(data[at * width : (at + 1) * width] for at in chosen)

    new = {at: index for index, at in enumerate(chosen)}
    return msgspec.structs.replace(
        spans,
        names=tuple(spans.names[at] for at in chosen),
        traces=column(spans.traces, TRACE_ID_BYTES),
        spans=column(spans.spans, SPAN_ID_BYTES),
        parents=column(spans.parents, SPAN_ID_BYTES),
        starts_us=column(spans.starts_us, 8),
        ends_us=column(spans.ends_us, 8),
        statuses=column(spans.statuses, 1),
        steps=tuple(spans.steps[at] for at in chosen),
        fields=tuple(spans.fields[at] for at in chosen) if spans.fields else (),
        links=tuple(msgspec.structs.replace(link, index=new[link.index]) for link in spans.links if link.index in new),
    )


def _to_be_checked(sender: Sender) -> bool:
    return sender.certified and sender.role is Role.AGENT


def _key(step: StepId) -> Key:
    return Key(step.job, step.task, step.attempt)


def _keys_of(got: ReceivedLines | ReceivedSpans) -> Iterator[Key]:
    if isinstance(got, ReceivedLines):
        for line in got.lines:
            if line.step is not None and line.component in COMPONENTS:
                yield _key(line.step)
    else:
        for step in got.spans.steps:
            if step is not None:
                yield _key(step)


def _kind(got: ReceivedLines | ReceivedSpans) -> str:
    return LINES if isinstance(got, ReceivedLines) else SPANS


def _count(got: ReceivedLines | ReceivedSpans) -> int:
    return len(got.lines) if isinstance(got, ReceivedLines) else len(got.spans.names)


def _size_of(got: ReceivedLines | ReceivedSpans) -> int:
    """About what it takes in memory."""
    if isinstance(got, ReceivedLines):
        texts = sum(len(line.text) + sum(map(len, line.fields.values())) for line in got.lines)
    else:
        texts = sum(len(value) for fields in got.spans.fields for value in fields.values())
    return texts + RECORD_BYTES * _count(got)
