"""The engine's tables as kernels see them: one argument instead of seventy arrays.

Unboxing an array costs a call 45 ns. A kernel takes one block of addresses instead, and what it calls gets one pointer:
a view of a table is made where the table is named. (Handing on views of all tables, some 300 words a call, took three
times as long to compile.) Which tables there are follows from `declared`, by name: where a table stands in the block is
worked out when a kernel is compiled, and nobody counts positions. Whoever replaces a table makes a new block
(`State.rewire`): a block must never outlive the arrays it was made from. With NUMBA_DISABLE_JIT=1 the block is the
`Tables` itself. Why numba is given a type of its own: docs/decisions/0035.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numba
import numpy as np
from numba import extending as _numba_extending
from numba import types as _numba_types
from numba.core.typing import templates as _numba_templates
from numba.np import arrayobj as _numba_arrays

from hal.core.kernels.structures.declaration import DECLARED
from hal.core.kernels.structures.declared import (
    BookingTables,
    CatalogueTables,
    DomainTables,
    LicenceTables,
    NodeTables,
    OutputTables,
    ScalarTables,
    ScratchTables,
    ShareTables,
    TimelineTables,
    WorkTables,
)


class Tables(
    ScalarTables,
    NodeTables,
    DomainTables,
    WorkTables,
    CatalogueTables,
    ShareTables,
    BookingTables,
    LicenceTables,
    TimelineTables,
    ScratchTables,
    OutputTables,
):
    """All declared tables, by name: what kernels see as `t`. Every array is C-contiguous."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        vars(self).update(arrays)

    def arrays(self) -> dict[str, Any]:
        """By name, as declared."""
        return {name: vars(self)[name] for name in DECLARED}

    def replaced(self, **arrays: Any) -> Tables:
        """The same tables with others in the place of some."""
        return Tables({**vars(self), **arrays})


types: Any = _numba_types
arrays: Any = _numba_arrays
extending: Any = _numba_extending
templates: Any = _numba_templates
_COMPILED: Final = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def address_block(tables: Tables) -> Any:
    """What kernels take as `at`: int64 [tables, 3] of address, rows, columns, in the order of their declarations.

    Raises ValueError for an array that is not C-contiguous (a kernel would read somebody else's memory).
    """
    block = np.array([_words(name, array) for name, array in tables.arrays().items()], np.int64)
    return block if _COMPILED else tables


def point_at(block: Any, name: str, array: Any) -> None:
    """Put another array in the place of a table, between calls of kernels. Raises ValueError like `address_block`."""
    words = _words(name, array)
    if _COMPILED:
        block[list(DECLARED).index(name)] = words
    else:
        vars(block)[name] = array


def _words(name: str, array: Any) -> tuple[int, int, int]:
    """Address, rows, columns."""
    if not array.flags.c_contiguous:
        raise ValueError(f"table {name} is not contiguous")
    return array.ctypes.data, array.shape[0], array.shape[1] if array.ndim == 2 else 1


def _array_type(name: str) -> Any:
    declared = DECLARED[name]
    return types.Array(getattr(types, declared.dtype), len(declared.shape), "C")


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
            return _array_type(name) if name in DECLARED else None

    @extending.lower_getattr_generic(_BlockType)
    def _view(context: Any, builder: Any, _block: Any, pointer: Any, name: str) -> Any:
        """A view of one table, made where it is used. No kernel changes a block, so what it says is read once."""
        kind = _array_type(name)
        intp = context.get_value_type(types.intp)
        words = builder.bitcast(pointer, intp.as_pointer())
        place = 3 * list(DECLARED).index(name)

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
