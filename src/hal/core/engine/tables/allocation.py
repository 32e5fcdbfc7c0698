"""The arrays of all declared tables of one state: made, resized and copied by name, from their declarations.

Pure. Every growth copies what is kept; what nobody writes takes no memory, for NumPy hands out zeroed pages. Records
begin with lines of a cache: a record of 64 bytes that begins anywhere lies in two lines, and a walk through a tree of a
million of them is nothing but waiting for lines.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from hal.core.kernels.structures.declaration import DECLARED, Declaration, Growth, Room
from hal.core.kernels.structures.memory import Tables, address_block, point_at

LINE_BYTES: Final = 64
COPY_STEP: Final = 1 << 13
"""A copy has room for a multiple of so many records, so that the next copy can use its memory again."""
COPY_SPARE: Final = 256
"""Records that questions to a copy may add."""


def in_lines(shape: tuple[int, ...], dtype: str, make: Callable[[int, str], Any] = np.zeros) -> Any:
    """An array of this shape, of which the first value begins a line of the cache.

    make: what gives the memory; `np.empty` where all is written before it is read.
    """
    item = np.dtype(dtype).itemsize
    count = math.prod(shape)
    whole = make(count + LINE_BYTES // item - 1, dtype)
    first = -(whole.ctypes.data // item) % (LINE_BYTES // item)
    return whole[first : first + count].reshape(shape)


class Allocation:
    """Holds the size of every room, and puts the arrays that follow from them into the objects that own the tables.

    `sizes`: by name of the room, records that there is room for. `remade`: tables whose array is new since `rewire` of
    the state last looked: what was kept in those that are refilled is lost. `_block`: the addresses
    of all tables when they were last asked for, and those tables, without outputs, which plans alone keep; None before.
    """

    def __init__(self, owners: Mapping[str, Any]) -> None:
        """owners: by group, whose attributes the tables of that group become."""
        self.owners = dict(owners)
        rooms = {room.name: room.first for declared in DECLARED.values() for room in declared.rooms}
        self.sizes: dict[str, int] = rooms
        self.remade: set[str] = set()
        self._block: tuple[Any, dict[str, Any]] | None = None
        for declared in DECLARED.values():
            self._put(declared, _fresh(declared, declared.size(self.sizes)))

    def array(self, name: str) -> Any:
        """The array of a table."""
        return getattr(self.owners[DECLARED[name].group], name)

    def tables(self) -> Tables:
        """All arrays as kernels see them."""
        owners = self.owners
        return Tables({name: getattr(owners[declared.group], name) for name, declared in DECLARED.items()})

    def block(self) -> Any:
        """The block of addresses of all tables, the caller's own: see `address_block`.

        Asking an array for its address takes longer than all else here, so what was not replaced is not asked again.
        """
        tables = self.tables()
        if self._block is None:
            block = address_block(tables)
            if not isinstance(block, np.ndarray):
                return block
            replaced = list(DECLARED)
        else:
            block, before = self._block
            replaced = [name for name, array in vars(tables).items() if array is not before.get(name)]
            for name in replaced:
                point_at(block, name, getattr(tables, name))
        if any(DECLARED[name].growth is not Growth.OUTPUT for name in replaced):
            lasting = (name for name, declared in DECLARED.items() if declared.growth is not Growth.OUTPUT)
            self._block = block, {name: getattr(tables, name) for name in lasting}
        return block.copy()

    def size(self, room: Room) -> int:
        """Records of this kind that there is room for."""
        return self.sizes[room.name]

    def resize(self, rooms: Mapping[Room, int], *, emptied: bool = False) -> None:
        """Give rooms other sizes: every table that depends on one of them is made again.

        What is KEPT is copied as far as it fits. emptied: nothing is copied, and tables are made again even where the
        sizes are as before.
        """
        changed = {room for room, size in rooms.items() if emptied or size != self.sizes[room.name]}
        self.sizes.update((room.name, size) for room, size in rooms.items())
        for declared in DECLARED.values() if changed else ():
            if changed.isdisjoint(declared.rooms):
                continue
            array = _fresh(declared, declared.size(self.sizes))
            if declared.growth is Growth.KEPT and not emptied:
                old = self.array(declared.name)
                both = tuple(slice(0, min(sizes)) for sizes in zip(old.shape, array.shape, strict=True))
                array[both] = old[both]
            self._put(declared, array)

    def clear(self, names: Iterable[str]) -> None:
        """Make tables all zero, where they are."""
        for name in names:
            self.array(name).fill(0)

    def take_remade(self) -> set[str]:
        """The tables that were made since this was last asked."""
        remade, self.remade = self.remade, set()
        return remade

    def copied(self, owners: Mapping[str, Any], memory: dict[str, Any]) -> Allocation:
        """An equal allocation for other owners, with room for little more than is in use; outputs are not there yet.

        memory: by table, an array of an earlier copy that may be written over; holds the ones of this copy afterwards.
        """
        meta = self.array("meta")
        copy = Allocation.__new__(Allocation)
        copy.owners, copy.sizes, copy.remade, copy._block = dict(owners), dict(self.sizes), set(), None
        for declared in DECLARED.values():
            for room in declared.rooms:
                if room.top >= 0:
                    used = -(-(int(meta[room.top]) + COPY_SPARE) // COPY_STEP) * COPY_STEP
                    copy.sizes[room.name] = min(self.sizes[room.name], used)
        for name, declared in DECLARED.items():
            if declared.growth is Growth.OUTPUT:
                continue
            shape = declared.size(copy.sizes)
            there = memory.get(name)
            if there is None or there.shape != shape:
                memory[name] = there = _fresh(declared, shape)
            elif declared.growth is Growth.SCRATCH:
                there.fill(0)
                _set_fresh_columns(there, declared)
            if declared.growth is not Growth.SCRATCH:
                np.copyto(there, self.array(name)[tuple(slice(0, size) for size in shape)])
            copy._put(declared, there)
        copy.remade.clear()
        return copy

    def digest(self) -> str:
        """32 hex digits over all that is kept, table by table: what a table holds, not what it means."""
        digest = hashlib.blake2b(digest_size=16)
        meta = self.array("meta")
        for name, declared in DECLARED.items():
            if declared.growth is Growth.KEPT:
                used = tuple(
                    slice(0, int(meta[part.top])) if isinstance(part, Room) and part.top >= 0 else slice(None)
                    for part in declared.shape
                )
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(self.array(name)[used]).tobytes())
        return digest.hexdigest()

    def _put(self, declared: Declaration, array: Any) -> None:
        setattr(self.owners[declared.group], declared.name, array)
        self.remade.add(declared.name)


def _fresh(declared: Declaration, shape: tuple[int, ...]) -> Any:
    """The array of an empty table."""
    array = in_lines(shape, declared.dtype, np.empty if declared.growth is Growth.OUTPUT else np.zeros)
    _set_fresh_columns(array, declared)
    return array


def _set_fresh_columns(array: Any, declared: Declaration) -> None:
    for column, value in declared.fresh.items():
        array[..., column] = value
