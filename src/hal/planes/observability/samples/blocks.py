"""A block: series of one source over some time, a matrix of series by instants, packed into bytes. Pure.

All series of a source are read at the same instants, so a block has one column of instants. Values are floats of 64
bits; a missing one is NaN. Packed, each row is XORed with the value before, and bytes of equal weight stand together,
which leaves long runs of zeros for zlib: about a byte a value of a node. Source: Pelkonen et al., Gorilla, VLDB 2015.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hal.wire.frames.telemetry import Series, SeriesKind

Floats = NDArray[np.float64]
Instants = NDArray[np.int64]
LEVEL: Final = 1
"""Of zlib: higher ones take far longer for little."""
MAX_PACKED_BYTES: Final = 64 << 20


class Block(Struct, frozen=True):
    """Series of one source.

    Attributes:
        series: S of them.
        at_ms: shape (T,), ascending.
        values: shape (S, T).
    """

    series: tuple[Series, ...]
    at_ms: Instants
    values: Floats


class _Packed(Struct, frozen=True, array_like=True):
    series: tuple[Series, ...]
    count: int
    at_ms: bytes
    values: bytes


_decoder: Final = msgspec.msgpack.Decoder(_Packed)


def pack(block: Block) -> bytes:
    """Pack a block."""
    bits = np.ascontiguousarray(block.values).view(np.uint64)
    mixed = bits.copy()
    mixed[:, 1:] ^= bits[:, :-1]
    planes = mixed.view(np.uint8).reshape(*bits.shape, 8).transpose(2, 0, 1)
    steps = np.diff(block.at_ms, prepend=0)
    packed = _Packed(block.series, len(block.at_ms), steps.astype("<i8").tobytes(), planes.tobytes())
    return zlib.compress(msgspec.msgpack.encode(packed), LEVEL)


def unpack(data: bytes) -> Block:
    """Unpack what `pack` has made.

    Raises:
        ValueError: it is damaged.
    """
    try:
        reader = zlib.decompressobj()
        packed = _decoder.decode(reader.decompress(data, MAX_PACKED_BYTES))
        if not reader.eof:
            raise ValueError("a block of samples is cut off, or too long: it is damaged")
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"a block of samples is damaged: {error}") from error
    shape = len(packed.series), packed.count
    planes = np.frombuffer(packed.values, np.uint8).reshape(8, *shape)
    mixed = np.ascontiguousarray(planes.transpose(1, 2, 0)).view(np.uint64).reshape(shape)
    values = np.bitwise_xor.accumulate(mixed, axis=1).view(np.float64)
    at_ms = np.cumsum(np.frombuffer(packed.at_ms, "<i8"))
    return Block(packed.series, at_ms, values)


def reduce(block: Block, step_ms: int) -> Block:
    """Return one instant a step, at its end: the mean of a gauge's values in it, the last of a counter's.

    A value at the end of a step belongs to that step, so reducing what was reduced changes nothing.
    """
    if not len(block.at_ms):
        return block
    steps = (block.at_ms - 1) // step_ms
    ends, first = np.unique(steps, return_index=True)
    there = ~np.isnan(block.values)
    counts = np.add.reduceat(there, first, axis=1, dtype=np.int64)
    sums = np.add.reduceat(np.where(there, block.values, 0.0), first, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(counts > 0, sums / counts, np.nan)
    counters = np.array([one.kind is SeriesKind.COUNTER for one in block.series], bool)
    if counters.any():
        # The position of the last value up to each instant, within its step.
        positions = np.where(there[counters], np.arange(len(block.at_ms)), -1)
        last = np.maximum.reduceat(positions, first, axis=1)
        rows = np.arange(last.shape[0])[:, None]
        taken = block.values[counters][rows, np.maximum(last, 0)]
        means[counters] = np.where(last >= 0, taken, np.nan)
    return Block(block.series, (ends + 1) * step_ms, means)


def join(blocks: Sequence[Block]) -> Block:
    """Put blocks of one source behind one another; of instants that are in several, the first block's counts."""
    rows: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    series: list[Series] = []
    for block in blocks:
        for one in block.series:
            if rows.setdefault(key_of(one), len(series)) == len(series):
                series.append(one)
    parts_at: list[Instants] = []
    parts: list[Floats] = []
    end_ms = -1
    for block in blocks:
        keep = block.at_ms > end_ms
        if not keep.any():
            continue
        values = np.full((len(series), int(keep.sum())), np.nan)
        values[[rows[key_of(one)] for one in block.series]] = block.values[:, keep]
        parts.append(values)
        parts_at.append(block.at_ms[keep])
        end_ms = int(parts_at[-1][-1])
    if not parts:
        return Block((), np.zeros(0, np.int64), np.zeros((0, 0)))
    return Block(tuple(series), np.concatenate(parts_at), np.concatenate(parts, axis=1))


def select(block: Block, wanted: Callable[[Series], bool]) -> Block:
    """Return the block with the series that are wanted; it has nothing of the others in memory."""
    rows = [row for row, one in enumerate(block.series) if wanted(one)]
    if len(rows) == len(block.series):
        return block
    return Block(tuple(block.series[row] for row in rows), block.at_ms, block.values[rows])


def key_of(series: Series) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What one series of a source is told from the others by."""
    return series.name, tuple(sorted(series.labels.items()))


def rates(block: Block) -> Block:
    """Return how much counters grew a second, at each instant since the one before; gauges as they are."""
    values = block.values.copy()
    for row, one in enumerate(block.series):
        if one.kind is not SeriesKind.COUNTER:
            continue
        there = np.flatnonzero(~np.isnan(block.values[row]))
        values[row] = np.nan
        if len(there) < 2:
            continue
        grown = np.diff(block.values[row, there])
        seconds = np.diff(block.at_ms[there]) / 1000
        grown = np.where(grown < 0, np.nan, grown)  # it began again
        values[row, there[1:]] = grown / seconds
    return Block(block.series, block.at_ms, values)
