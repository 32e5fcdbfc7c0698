"""Metrics as Prometheus' protobuf messages, the only format in which native histograms are scraped. Pure.

Source: https://github.com/prometheus/client_model, `io/prometheus/client/metrics.proto`: each family is one message
`MetricFamily`, preceded by its length. Histograms have native and classic buckets, so whoever reads may choose.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from hal.runtime.metrics.declaration import Kind
from hal.runtime.metrics.histogram import SCHEMA, ZERO_THRESHOLD, HistogramValue
from hal.runtime.metrics.registry import AnyFamily

PROTOBUF: Final = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
_KINDS: Final = {Kind.COUNTER: 0, Kind.GAUGE: 1, Kind.HISTOGRAM: 4}
_NUMBER_FIELD: Final = {Kind.COUNTER: 3, Kind.GAUGE: 2}
_INLINE, _DOUBLE, _BYTES = 0, 1, 2
"""How a field is encoded."""


def protobuf_of(families: Iterable[AnyFamily]) -> bytes:
    """All of them; metrics without any series are left out."""
    return b"".join(_sized(_family(family)) for family in families if family.series)


def _family(family: AnyFamily) -> bytes:
    metric = family.metric
    out = [_text(1, metric.name), _text(2, metric.text), _unsigned(3, _KINDS[metric.kind])]
    names = [label.name for label in metric.labels]
    for values, series in family.series.items():
        labels = b"".join(
            _message(1, _text(1, name) + _text(2, value)) for name, value in zip(names, values, strict=True)
        )
        if isinstance(series, HistogramValue):
            body = labels + _message(7, _histogram(series, metric.classic))
        else:
            body = labels + _message(_NUMBER_FIELD[metric.kind], _double(1, series.value))
        out.append(_message(4, body))
    return b"".join(out)


def _histogram(series: HistogramValue, classic: tuple[int, int]) -> bytes:
    out = [_unsigned(1, series.count), _double(2, series.sum)]
    out += [
        _message(3, _unsigned(1, total) + _double(2, bound))
        for bound, total in (*series.cumulated(*classic), (float("inf"), series.count))
    ]
    out += [_signed(5, SCHEMA), _double(6, ZERO_THRESHOLD), _unsigned(7, series.zero)]
    buckets = sorted(series.buckets)
    out += [_message(12, _signed(1, offset) + _unsigned(2, length)) for offset, length in spans(buckets)]
    before = 0
    for bucket in buckets:
        count = series.buckets[bucket]
        out.append(_signed(13, count - before))
        before = count
    return b"".join(out)


def spans(buckets: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of neighbouring buckets, ascending: how far each begins behind the end of the one before it (the first:
    behind 0), and its length."""
    found: list[tuple[int, int]] = []
    end = 0
    for bucket in buckets:
        if found and bucket == end:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((bucket - end, 1))
        end = bucket + 1
    return found


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(body: bytes) -> bytes:
    return _varint(len(body)) + body


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _sized(body)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode("utf-8", "backslashreplace"))


def _unsigned(field: int, value: int) -> bytes:
    return _varint(field << 3 | _INLINE) + _varint(value)


def _signed(field: int, value: int) -> bytes:
    """A `sint`: zigzag, so that small negative numbers are short."""
    return _unsigned(field, value << 1 if value >= 0 else (-value << 1) - 1)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | _DOUBLE) + struct.pack("<d", value)
