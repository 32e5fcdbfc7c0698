"""The engine's tables as kernels see them: one argument instead of forty arrays.

Unboxing an array costs a call 45 ns. A kernel takes one block of addresses instead, and what it calls gets one pointer:
a view of a table is made where the table is named. (Handing on views of all tables, some 300 words a call, took three
times as long to compile.) Whoever replaces a table makes a new block (`State.rewire`): a block must never outlive the
arrays it was made from. With NUMBA_DISABLE_JIT=1 the block is the `Tables` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import numba
import numpy as np
from numba import extending as _numba_extending
from numba import types as _numba_types
from numba.core.typing import templates as _numba_templates
from numba.np import arrayobj as _numba_arrays
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Table = NDArray[np.int64]
Allowed = NDArray[np.int8]
Amounts = NDArray[np.float64]
Floats = NDArray[np.float32]
Narrow = NDArray[np.int32]


class Tables(NamedTuple):
    """C-contiguous arrays of `layout`'s records; `path` and what follows it is scratch."""

    meta: Ints
    entries: Table
    rank: Table
    by_time: Table
    job_index: Ints
    buckets: Table
    bucket_index: Ints
    active: Ints
    classes: Table
    shapes: Table
    request: Table
    allowed: Allowed
    open_now: Allowed
    free: Table
    capacity: Table
    rows: Table
    runs: Table
    ends: Table
    run_index: Ints
    pieces: Table
    reservations: Table
    reserved: Table
    owners: Table
    owner_ledgers: Ints
    ledgers: Table
    queues: Table
    share_nodes: Table
    share_use: Amounts
    charge: Amounts
    qos: Table
    searched: Table
    path: Ints
    scores: Table
    projected: Table
    heap: Table
    scratch: Table
    counts: Ints
    ticks: Ints
    profile: Table
    events: Table
    stale: Ints
    freed: Ints
    drops: Table
    bookings: Table
    booked: Table
    booked_rows: Ints
    licences: Table
    wants: Table
    licence_events: Table
    changes: Table
    reach: Table
    late: Ints
    row_log: Ints
    lines: Table
    line_begin: Table
    line_end: Table
    lagging: Ints
    counted: Table
    differ: Table
    spare: Floats
    per_unit: Floats
    best: Table
    touched: Ints
    block_touched: Ints
    room: Table
    value: Narrow
    ready: Table
    ready_of: Table
    unready: Ints
    search: Table
    picks: Table
    unlisted: Table
    holding: Table


types: Any = _numba_types
arrays: Any = _numba_arrays
extending: Any = _numba_extending
templates: Any = _numba_templates
_COMPILED: Final = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def address_block(tables: Tables) -> Any:
    """What kernels take as `at`: int64 [len(Tables), 3] of address, rows, columns.

    Raises ValueError for an array that is not C-contiguous (a kernel would read somebody else's memory).
    """
    for name, array in tables._asdict().items():
        if not array.flags.c_contiguous:
            raise ValueError(f"table {name} is not contiguous")
    if not _COMPILED:
        return tables
    return np.array(
        [(array.ctypes.data, array.shape[0], array.shape[1] if array.ndim == 2 else 1) for array in tables], np.int64
    )


_LINES: Final = (
    "meta", "job_index", "bucket_index", "active", "run_index", "path", "counts", "ticks", "owner_ledgers", "stale",
    "freed", "late", "row_log", "lagging", "touched", "block_touched", "value", "unready",
    "booked_rows",
)  # fmt: skip
_OTHER_TYPES: Final = {
    "allowed": types.int8,
    "open_now": types.int8,
    "share_use": types.float64,
    "charge": types.float64,
    "spare": types.float32,
    "per_unit": types.float32,
    "value": types.int32,
}


def _array_type(name: str) -> Any:
    return types.Array(_OTHER_TYPES.get(name, types.int64), 1 if name in _LINES else 2, "C")


def _same(at: Any) -> Tables:
    return at  # type: ignore[no-any-return]


tables: Callable[[Any], Tables] = _same
"""The tables of a block, for kernels."""

if _COMPILED:

    class _BlockType(types.Type):  # type: ignore[misc]
        """A block as kernels hand it on: one pointer, which has the attributes of Tables."""

        def __init__(self) -> None:
            super().__init__(name="hal.Tables")

    extending.register_model(_BlockType)(extending.models.OpaqueModel)
    _BLOCK: Final = _BlockType()

    @templates.infer_getattr
    class _BlockAttributes(templates.AttributeTemplate):  # type: ignore[misc]
        key = _BlockType

        def generic_resolve(self, block: Any, name: str) -> Any:
            return _array_type(name) if name in Tables._fields else None

    @extending.lower_getattr_generic(_BlockType)
    def _view(context: Any, builder: Any, _block: Any, pointer: Any, name: str) -> Any:
        """A view of one table, made where it is used. No kernel changes a block, so what it says is read once."""
        kind = _array_type(name)
        intp = context.get_value_type(types.intp)
        words = builder.bitcast(pointer, intp.as_pointer())
        place = 3 * Tables._fields.index(name)

        def word(at: int) -> Any:
            loaded = builder.load(builder.gep(words, [intp(at)]))
            loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            return loaded

        view = context.make_array(kind)(context, builder)
        data = builder.inttoptr(word(place), context.get_data_type(kind.dtype).as_pointer())
        size = intp(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        shape = [word(place + 1 + axis) for axis in range(kind.ndim)]
        strides = [size] if kind.ndim == 1 else [builder.mul(shape[1], size), size]
        arrays.populate_array(view, data, shape, strides, size, None)
        return view._getvalue()

    def _views(typing_context: Any, at: Any) -> Any:
        """The block behind an array of addresses."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = context.make_array(signature.args[0])(context, builder, arguments[0])
            return builder.bitcast(block.data, context.get_value_type(_BLOCK))

        return _BLOCK(at), generate

    tables = cast(Callable[[Any], Tables], extending.intrinsic(_views))
