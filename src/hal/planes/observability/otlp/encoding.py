"""Spans and log lines as OTLP's protocol buffers have them. Pure.

Source: opentelemetry-proto 1.x, trace/v1, logs/v1, common/v1 (the numbers of fields below are its). It is written by
hand because only two messages are sent: the official classes, which tests decode this with, would bring a runtime of
several megabytes into every collector.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from hal.planes.observability.logs.lines import STEP, Batch
from hal.planes.observability.traces.spans import Span, Status

SERVICE: Final = "hal"
SCOPE: Final = "hal"
INTERNAL: Final = 1
"""SPAN_KIND_INTERNAL."""
_STATUS: Final = {Status.UNSET: 0, Status.OK: 1, Status.ERROR: 2}
_NS: Final = 1_000_000
Value = str | int | float | bool


def traces_request(spans: Iterable[tuple[str, Span]], service: str = SERVICE) -> bytes:
    """An ExportTraceServiceRequest.

    Args:
        spans: each with the id of its trace.
    """
    scope = _text(1, SCOPE)
    packed = b"".join(_part(2, _span(trace_id, span)) for trace_id, span in spans)
    return _part(1, _resource({"service.name": service}) + _part(2, _part(1, scope) + packed))


def logs_request(batches: Iterable[Batch], service: str = SERVICE) -> bytes:
    """An ExportLogsServiceRequest: each source is a resource."""
    found = []
    for batch in batches:
        source = batch.source
        if not batch.lines:
            continue
        named: dict[str, Value] = {"service.name": service, "hal.component": source.component}
        if source.node:
            named["host.name"] = source.node
        common: dict[str, Value] = {}
        if source.job:
            common = {"hal.job": str(source.job), "hal.task": source.task, "hal.attempt": source.attempt}
        if source.component == STEP:
            common |= {"hal.rank": source.rank, "log.iostream": source.stream, "enduser.id": source.user}
        attributes = b"".join(_part(6, _pair(key, value)) for key, value in common.items())
        trace = _bytes(9, bytes.fromhex(source.trace_id)) if len(source.trace_id) == 32 else b""
        records = b"".join(
            _part(
                2,
                _fixed(1, line.at_ms * _NS)
                + _number(2, int(line.severity))
                + _text(3, line.severity.name)
                + _part(5, _text(1, line.text))
                + attributes
                + trace
                + _fixed(11, line.at_ms * _NS),
            )
            for line in batch.lines
        )
        found.append(_part(1, _resource(named) + _part(2, _part(1, _text(1, SCOPE)) + records)))
    return b"".join(found)


def _span(trace_id: str, span: Span) -> bytes:
    parts = [
        _bytes(1, bytes.fromhex(trace_id)),
        _bytes(2, bytes.fromhex(span.span_id)),
        _bytes(4, bytes.fromhex(span.parent_id)) if span.parent_id else b"",
        _text(5, span.name),
        _number(6, INTERNAL),
        _fixed(7, span.start_ms * _NS),
        _fixed(8, max(span.start_ms, span.end_ms or span.start_ms) * _NS),
    ]
    parts += [_part(9, _pair(key, value)) for key, value in span.attributes.items()]
    parts += [_part(11, _fixed(1, event.at_ms * _NS) + _text(2, event.name)) for event in span.events]
    for link in span.links:
        kept = _bytes(1, bytes.fromhex(link.trace_id)) + _bytes(2, bytes.fromhex(link.span_id))
        parts.append(_part(13, kept + _part(4, _pair("hal.why", link.why))))
    parts.append(_part(15, (_text(2, span.message) if span.message else b"") + _number(3, _STATUS[span.status])))
    return b"".join(parts)


def _resource(attributes: Mapping[str, Value]) -> bytes:
    return _part(1, b"".join(_part(1, _pair(key, value)) for key, value in attributes.items()))


def _pair(key: str, value: Value) -> bytes:
    if isinstance(value, bool):
        shown = _number(2, int(value))
    elif isinstance(value, int):
        shown = _varint(3 << 3) + _varint(value & (1 << 64) - 1)
    elif isinstance(value, float):
        shown = _varint(4 << 3 | 1) + struct.pack("<d", value)
    else:
        shown = _varint(1 << 3 | 2) + _sized(value.encode("utf-8", "replace"))
    return _text(1, key) + _part(2, shown)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _fixed(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode("utf-8", "replace")) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _sized(value)


_part = _bytes
"""A message in a message."""


def _sized(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
