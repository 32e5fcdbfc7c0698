"""What agents, brokers and other processes send to the collector: received, checked, limited, passed on to parts.

Each sender has a budget (`sender_budget`). One that exceeds it is not read for a while: what it sends then waits in its
own bounded queue, so it costs the collector and other senders nothing. Over TLS the name of a sender is that of its
certificate. What was taken is named to the sender soon after; whether a part could keep it is the part's to count.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hal.core.model import DeniedError, HALError, one_line
from hal.planes.observability.sender_budget import KINDS, LINES, SPANS, VALUES, SenderBudgets
from hal.runtime.interface import Connection, Runtime, Timer
from hal.runtime.line_budget import BudgetedLog
from hal.wire.agree import HELLO_TIMEOUT_MS, agree_version
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.frames.telemetry import (
    MAX_SERIES,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    VALUE_BYTES,
    BatchesReceived,
    Dropped,
    LogLine,
    LogLines,
    Series,
    SeriesTable,
    SeriesValues,
    Spans,
)
from hal.wire.roles import Role

ACK_MS: Final = 100
"""What was taken is named together with what is taken within this time."""
MAX_SENDERS: Final = 20_000
"""Processes whose last batch and drops are remembered; the one that was silent for longest is forgotten."""
MAX_CONNECTIONS_A_SENDER: Final = 2
"""Of one name: a new process may come before the connection of the former one has ended."""
FRAMES_A_TURN: Final = 8
"""Of one connection, before others have their turn."""

Numbers = NDArray[np.uint32]
Floats = NDArray[np.float64]
SlotArray = NDArray[np.int64]


class Sender(NamedTuple):
    """Who sends."""

    role: Role
    name: str
    """Of the node or process."""
    process: str
    """Boot id and process id: a restarted process is another one."""
    certified: bool = False
    """The name is that of its certificate; else it is a process of this host and user."""


class SenderTable:
    """The series of one connection by their number."""

    __slots__ = ("generation", "owner", "series", "slots")

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.owner: object = None
        """Whose slots they are, and of which generation of them."""
        self.generation = 0
        self.slots: SlotArray = np.full(64, -1, np.int64)
        """What the part that keeps values knows a number by; -1: it has not seen it since it was defined. At least as
        long as `series`."""

    @property
    def count(self) -> int:
        """Numbers below it are defined."""
        return len(self.series)

    def define(self, first: int, series: Sequence[Series]) -> None:
        """Define numbers: of those that are defined, or behind them without a gap."""
        end = first + len(series)
        self.series[first:end] = series
        if len(self.slots) < len(self.series):
            grown = np.full(min(MAX_SERIES, 2 * len(self.series)), -1, np.int64)
            grown[: len(self.slots)] = self.slots
            self.slots = grown
        self.slots[first:end] = -1


class ReceivedValues(NamedTuple):
    """Values of one instant."""

    sender: Sender
    at_ms: int
    """By the sender's clock."""
    received_ms: int
    table: SenderTable
    numbers: Numbers
    """Each is defined in the table."""
    values: Floats


class ReceivedLines(NamedTuple):
    """Lines, in order."""

    sender: Sender
    received_ms: int
    lines: tuple[LogLine, ...]


class ReceivedSpans(NamedTuple):
    """Finished spans; the columns have one length."""

    sender: Sender
    received_ms: int
    spans: Spans


Callback = Callable[[Any], None]
"""Is given a `ReceivedValues`, `ReceivedLines` or `ReceivedSpans`, on the loop: it queues, and returns at once."""


class _Known(Struct):
    """What is remembered of a process that sends."""

    batch: int = -1
    """Highest number that was taken."""
    dropped: dict[str, int] = {}
    """What it says that it has dropped."""


class Telemetry:
    """All connections of senders."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        self._callbacks: dict[str, list[Callback]] = {kind: [] for kind in KINDS}
        self._known: OrderedDict[Sender, _Known] = OrderedDict()
        self._open: dict[tuple[Role, str], list[Connection]] = {}
        self._received: Counter[str] = Counter()
        self._faulty: Counter[str] = Counter()
        self._repeated = 0
        self._held = self._held_ms = 0
        """How often, and for how long, a sender over its budget was not read."""
        self._budgets = SenderBudgets(runtime.monotonic_ms)
        self._dropped: Counter[str] = Counter()
        """At senders, by what they say; it only grows, whoever is forgotten."""

    def received(self, kind: str, callback: Callback) -> None:
        """Call with every batch of a kind: `values`, `lines`, `spans`. What it raises is logged, and the batch lost to
        it."""
        self._callbacks[kind].append(callback)

    def health(self) -> dict[str, float | int | str]:
        """Counts since this process began."""
        found: dict[str, float | int | str] = {"connections": sum(len(one) for one in self._open.values())}
        for kind in KINDS:
            found[f"{kind}_received"] = self._received[kind]
            found[f"{kind}_faulty"] = self._faulty[kind]
            found[f"{kind}_dropped_by_senders"] = self._dropped[kind]
        found["batches_repeated"] = self._repeated
        found["senders_held"] = self._held
        found["senders_held_seconds"] = self._held_ms // 1_000
        return found

    # ── one connection ────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, connection: Connection) -> None:
        """Serve an accepted connection, from hello to its end.

        Raises:
            HALError: it is refused, or sent what breaks the conversation.
        """
        hello = await connection.receive(timeout_ms=HELLO_TIMEOUT_MS)
        if hello is None:
            return
        if not isinstance(hello, Hello):
            raise MalformedFrameError("the first frame must be a hello")
        version = agree_version(hello.versions)
        sender = _sender(connection, hello)
        place = (sender.role, sender.name)
        there = self._open.setdefault(place, [])
        if len(there) >= MAX_CONNECTIONS_A_SENDER:
            there.pop(0).abort()
        there.append(connection)
        try:
            await connection.send(
                Welcome(role=Role.SERVICE, version=version, boot_id=self._runtime.boot_id, pid=self._runtime.pid)
            )
            await _Conversation(self, self._runtime, connection, sender).run()
        finally:
            there = self._open.get(place, [])
            if connection in there:
                there.remove(connection)
            if not there:
                self._open.pop(place, None)

    def _remember(self, sender: Sender) -> _Known:
        known = self._known.get(sender)
        if known is None:
            known = self._known[sender] = _Known()
            if len(self._known) > MAX_SENDERS:
                self._known.popitem(last=False)
        self._known.move_to_end(sender)
        return known

    def _note_held(self, sender: Sender, wait_ms: int) -> None:
        self._held += 1
        self._held_ms += wait_ms
        self._log.warning("a sender exceeds its rate: it is not read for a while", sender=sender.name, wait_ms=wait_ms)

    def _note_dropped(self, sender: Sender, counts: Mapping[str, int]) -> None:
        known = self._remember(sender)
        for kind in KINDS:
            more = counts.get(kind, 0) - known.dropped.get(kind, 0)
            if more > 0:
                self._dropped[kind] += more
        known.dropped = {kind: counts.get(kind, 0) for kind in KINDS}
        self._log.warning("a sender has dropped telemetry", sender=sender.name, role=sender.role, **known.dropped)

    def _pass_on(self, kind: str, count: int, received: object) -> None:
        self._received[kind] += count
        for callback in self._callbacks[kind]:
            try:
                callback(received)
            except Exception as error:
                self._faulty[kind] += count
                self._log.error("a part could not take what was received", kind=kind, error=one_line(repr(error), 300))


class _Conversation:
    """One connection after its hello."""

    def __init__(self, telemetry: Telemetry, runtime: Runtime, connection: Connection, sender: Sender) -> None:
        self._telemetry, self._runtime, self._connection, self._sender = telemetry, runtime, connection, sender
        self._known = telemetry._remember(sender)
        self._budget = telemetry._budgets.of(sender.role, sender.name)
        self._charged_bytes = 0
        """Of what has arrived on this connection."""
        self._table = SenderTable()
        self._taken = -1
        self._acknowledging: Timer | None = None

    async def run(self) -> None:
        looked_at = 0
        try:
            while (frame := await self._connection.receive()) is not None:
                arrived_bytes = self._connection.received_bytes
                self._budget.charge_frame(arrived_bytes - self._charged_bytes)
                self._charged_bytes = arrived_bytes
                self._take(frame)
                if isinstance(frame, Goodbye):
                    return
                looked_at += 1
                if looked_at % FRAMES_A_TURN == 0:
                    await self._runtime.sleep(0)
                while wait_ms := self._budget.wait_ms():
                    self._telemetry._note_held(self._sender, wait_ms)
                    await self._runtime.sleep(wait_ms)
        finally:
            if self._acknowledging is not None:
                self._acknowledging.cancel()

    def _take(self, frame: Frame) -> None:
        match frame:
            case SeriesTable():
                self._define(frame)
            case SeriesValues():
                self._batch(VALUES, frame.batch, len(frame.values) // VALUE_BYTES, frame)
            case LogLines():
                self._batch(LINES, frame.batch, len(frame.lines), frame)
            case Spans():
                self._batch(SPANS, frame.batch, len(frame.names), frame)
            case Dropped():
                self._telemetry._note_dropped(self._sender, frame.counts)
            case Goodbye():
                pass
            case _:
                raise MalformedFrameError(f"a sender of telemetry does not send {type(frame).__name__}")

    def _define(self, frame: SeriesTable) -> None:
        if frame.first == 0:
            self._table = SenderTable()
        end = frame.first + len(frame.series)
        if end > MAX_SERIES or frame.first > self._table.count:
            raise MalformedFrameError(
                f"series {frame.first} to {end - 1}, after {self._table.count}: numbers follow, up to {MAX_SERIES - 1}"
            )
        self._table.define(frame.first, frame.series)
        self._budget.charge(VALUES, len(frame.series))

    def _batch(self, kind: str, number: int, count: int, frame: SeriesValues | LogLines | Spans) -> None:
        telemetry = self._telemetry
        self._acknowledge_soon(number)
        self._budget.charge(kind, count)
        if number <= self._known.batch:
            telemetry._repeated += 1
            return
        self._known.batch = number
        received = self._checked(frame)
        if received is None:
            telemetry._faulty[kind] += count
            telemetry._log.warning("a batch makes no sense and was dropped", sender=self._sender.name, kind=kind)
            return
        telemetry._pass_on(kind, count, received)

    def _checked(self, frame: SeriesValues | LogLines | Spans) -> object | None:
        """What parts are given; None: the batch makes no sense."""
        now_ms = self._runtime.now_ms()
        match frame:
            case SeriesValues():
                if len(frame.values) % VALUE_BYTES or len(frame.series) * 2 != len(frame.values):
                    return None
                numbers = np.frombuffer(frame.series, "<u4")
                if numbers.size and int(numbers.max()) >= self._table.count:
                    return None
                values = np.frombuffer(frame.values, "<f8")
                return ReceivedValues(self._sender, frame.at_ms, now_ms, self._table, numbers, values)
            case LogLines():
                return ReceivedLines(self._sender, now_ms, frame.lines)
            case Spans():
                return ReceivedSpans(self._sender, now_ms, frame) if _is_whole(frame) else None

    def _acknowledge_soon(self, number: int) -> None:
        self._taken = max(self._taken, number)
        if self._acknowledging is None:
            self._acknowledging = self._runtime.call_later(ACK_MS, self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledging = None
        try:
            self._connection.send_nowait(BatchesReceived(batch=self._taken))
        except HALError:
            self._connection.abort()


def _is_whole(spans: Spans) -> bool:
    count = len(spans.names)
    columns = (
        (spans.traces, TRACE_ID_BYTES),
        (spans.spans, SPAN_ID_BYTES),
        (spans.parents, SPAN_ID_BYTES),
        (spans.starts_us, 8),
        (spans.ends_us, 8),
        (spans.statuses, 1),
    )
    return (
        all(len(column) == width * count for column, width in columns)
        and len(spans.steps) in (0, count)
        and len(spans.fields) in (0, count)
        and all(link.index < count for link in spans.links)
    )


def _sender(connection: Connection, hello: Hello) -> Sender:
    """
    Raises:
        DeniedError: it may not send telemetry, or has no name.
    """
    certified = connection.certified
    process = f"{hello.boot_id}:{hello.pid}"
    if certified is not None:
        if certified.role != hello.role:
            raise DeniedError(f"the certificate is of the role '{certified.role}', not '{hello.role}'")
        return Sender(hello.role, certified.name, process, certified=True)
    if connection.peer is None:
        raise DeniedError("a collector serves nobody without a certificate")
    if not hello.name:
        raise DeniedError("who sends telemetry names its node or process")
    return Sender(hello.role, hello.name, process)
