"""Telemetry: what agents, brokers and other processes measure and log, and the collector that takes it.

Values only. The sender dials the collector; its `Hello` names its role and its node or process, and the collector
answers `Welcome`. Over TLS the collector takes the name from the certificate. Telemetry may be lost: a sender keeps
little, drops the oldest and counts it (`Dropped`). Each batch has a number that ascends for as long as the sender's
process runs. What the collector has taken it names in `BatchesReceived`; a sender may send the others again on its next
connection, and the collector ignores numbers that it has. Columns are bytes: numbers of fixed width, little-endian, one
behind the other.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model import StepId
from hal.wire.bounds import Count, Name, Note
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.roles import Role

MAX_TELEMETRY_FRAME_BYTES: Final = 1 << 20
"""A collector has a connection to each node, so what one may send at once is small."""
MAX_UNREAD_TELEMETRY_BYTES: Final = 256 << 10
"""Of frames that wait at the collector; beyond that it reads no more, and the sender keeps the rest."""
MAX_TABLE_SERIES: Final = 1_000
"""Series in one `SeriesTable`."""
MAX_SERIES: Final = 8_192
"""Numbers of series on one connection; a table that begins at 0 makes room."""
MAX_SERIES_LABELS: Final = 8
MAX_SERIES_NAME: Final = 128
MAX_LABEL: Final = 128
"""Characters of the value of a label."""
SERIES_ID_BYTES: Final = 4
VALUE_BYTES: Final = 8
MAX_LINES: Final = 4_000
"""Lines of one batch."""
MAX_LINE: Final = 16_384
"""Characters of one line's text."""
MAX_FIELDS: Final = 32
"""Of a line or a span."""
MAX_SPANS: Final = 2_000
"""Spans of one batch."""
MAX_SPAN_LINKS: Final = 16
TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
INSTANT_BYTES: Final = 8
MAX_KINDS: Final = 8
"""Kinds of telemetry that are counted when dropped."""

SeriesName = Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_]*\Z", max_length=MAX_SERIES_NAME)]
LabelValue = Annotated[str, Meta(max_length=MAX_LABEL)]
SeriesLabels = Annotated[dict[SeriesName, LabelValue], Meta(max_length=MAX_SERIES_LABELS)]
SeriesNumber = Annotated[int, Meta(ge=0, lt=MAX_SERIES)]
LineText = Annotated[str, Meta(max_length=MAX_LINE)]
Fields = Annotated[dict[Name, Note], Meta(max_length=MAX_FIELDS)]
TraceId = Annotated[bytes, Meta(max_length=TRACE_ID_BYTES)]
SpanId = Annotated[bytes, Meta(max_length=SPAN_ID_BYTES)]


class SeriesKind(StrEnum):
    """How the values of a series are to be read."""

    GAUGE = "gauge"
    """A value at an instant."""
    COUNTER = "counter"
    """A sum that only grows; a lower value than before: it began again at 0."""


class Series(Struct, frozen=True, array_like=True):
    """What is measured. The node or process is the connection's, and no label."""

    name: SeriesName
    """With its unit: `hal_node_memory_used_bytes`."""
    kind: SeriesKind
    labels: SeriesLabels
    """Few values each: a device, a mode, an attempt that runs there."""


class SeriesTable(Frame, frozen=True, kw_only=True):
    """Numbers for series: `first` and the following ones, without a gap behind those before. They hold on this
    connection. A table that begins at 0 makes all earlier numbers invalid."""

    first: SeriesNumber
    series: Annotated[tuple[Series, ...], Meta(max_length=MAX_TABLE_SERIES)]


class SeriesValues(Frame, frozen=True, kw_only=True):
    """The values of some series at one instant."""

    batch: Count
    at_ms: Count
    """When they were read, by the sender's clock."""
    series: Annotated[bytes, Meta(max_length=MAX_SERIES * SERIES_ID_BYTES)]
    """Their numbers, unsigned, 4 bytes each."""
    values: Annotated[bytes, Meta(max_length=MAX_SERIES * VALUE_BYTES)]
    """Floating point numbers of 8 bytes."""


class Severity(IntEnum):
    """Of a line; the numbers are OpenTelemetry's."""

    TRACE = 1
    DEBUG = 5
    INFO = 9
    WARNING = 13
    ERROR = 17
    FATAL = 21


class LogLine(Struct, frozen=True, array_like=True):
    """A line that a component of HAL or a step has written."""

    at_ms: Count
    """When it was written; of a step's output when it was read."""
    severity: Severity
    component: Name
    """`agent`, `keeper`, `controller`; `step` for the output of a step."""
    text: LineText
    """Of a component the event in plain words; of a step the line. Without a newline at its end."""
    step: StepId | None = None
    """Whom it is about."""
    stream: Name = ""
    """Of a step's output: `stdout` or `stderr`."""
    offset: Count = 0
    """Of a step's output: where the line begins, in bytes from the start of all output."""
    trace: TraceId = b""
    """16 bytes, or none."""
    span: SpanId = b""
    """8 bytes, or none."""
    fields: Fields = {}
    """Named values of a component's event. Never a secret, never an environment."""


class LogLines(Frame, frozen=True, kw_only=True):
    """Lines, in the order in which they were read."""

    batch: Count
    lines: Annotated[tuple[LogLine, ...], Meta(max_length=MAX_LINES)]


class SpanStatus(IntEnum):
    """How a span ended; one byte of `statuses` each. The numbers are OpenTelemetry's."""

    UNSET = 0
    OK = 1
    ERROR = 2


class SpanLink(Struct, frozen=True, array_like=True):
    """A span of this batch is linked to another one."""

    index: Annotated[int, Meta(ge=0, lt=MAX_SPANS)]
    """Of the span in this batch."""
    trace: TraceId
    span: SpanId
    why: Name = ""
    """`former-attempt`, `dependency`."""


class Spans(Frame, frozen=True, kw_only=True):
    """Finished spans, in columns."""

    batch: Count
    names: Annotated[tuple[Name, ...], Meta(max_length=MAX_SPANS)]
    """The name of each span."""
    traces: Annotated[bytes, Meta(max_length=MAX_SPANS * TRACE_ID_BYTES)]
    """16 bytes each."""
    spans: Annotated[bytes, Meta(max_length=MAX_SPANS * SPAN_ID_BYTES)]
    """8 bytes each."""
    parents: Annotated[bytes, Meta(max_length=MAX_SPANS * SPAN_ID_BYTES)]
    """8 bytes each; zero: none."""
    starts_us: Annotated[bytes, Meta(max_length=MAX_SPANS * INSTANT_BYTES)]
    """Microseconds since 1970, unsigned, 8 bytes each."""
    ends_us: Annotated[bytes, Meta(max_length=MAX_SPANS * INSTANT_BYTES)]
    """As `starts_us`."""
    statuses: Annotated[bytes, Meta(max_length=MAX_SPANS)]
    """A `SpanStatus` each."""
    steps: Annotated[tuple[StepId | None, ...], Meta(max_length=MAX_SPANS)] = ()
    """Whom each is about; empty: none is about a step."""
    fields: Annotated[tuple[Fields, ...], Meta(max_length=MAX_SPANS)] = ()
    """Attributes of each; empty: none has any."""
    links: Annotated[tuple[SpanLink, ...], Meta(max_length=MAX_SPANS * MAX_SPAN_LINKS)] = ()


class Dropped(Frame, frozen=True, kw_only=True):
    """How much the sender's process has dropped since it began, because nobody took it in time."""

    counts: Annotated[dict[Name, Count], Meta(max_length=MAX_KINDS)]
    """By kind: `values`, `lines`, `spans`."""


class BatchesReceived(Frame, frozen=True, kw_only=True):
    """From the collector: it has taken all batches up to this one, or has counted as dropped what it has not kept of
    them. Sent at least every few seconds while batches arrive."""

    batch: Count


TelemetryFrame = Hello | Welcome | Goodbye | SeriesTable | SeriesValues | LogLines | Spans | Dropped | BatchesReceived
"""What senders of telemetry and a collector may send each other."""
TELEMETRY: Final[Conversation[TelemetryFrame]] = Conversation(
    "telemetry", Role.SERVICE, TelemetryFrame, MAX_TELEMETRY_FRAME_BYTES, MAX_UNREAD_TELEMETRY_BYTES
)
"""Agents, brokers and planes to a collector, and back."""
