"""What it means to declare a table: its size by named rooms, its dtype, its meaning, and what becomes of it in growth.

Pure; imports no numba. `declared` holds all declarations. Everything else that must know of a table asks its
declaration, by name: allocation, growth and copies (`hal.core.engine.tables.allocation`), digests
(`hal.core.engine.checks.digest`) and what kernels are passed (`memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Room:
    """A size that tables share: how many records there is room for, not how many there are.

    Args:
        first: the size in an empty state.
        top: index in `meta` of how many are in use; the rest of such tables is not copied. -1: all of it counts.
    """

    name: str
    first: int = 1
    top: int = -1

    def __add__(self, more: int) -> Extent:
        return Extent(self, 1, more)

    def __rmul__(self, times: int) -> Extent:
        return Extent(self, times, 0)

    def of(self, sizes: Mapping[str, int]) -> int:
        """The size of one dimension of a table."""
        return sizes[self.name]


@dataclass(frozen=True, slots=True)
class Extent:
    """A dimension that follows a room: `times * room + more`."""

    room: Room
    times: int
    more: int

    def of(self, sizes: Mapping[str, int]) -> int:
        """The size of one dimension of a table."""
        return self.times * sizes[self.room.name] + self.more


Dimension: TypeAlias = int | Room | Extent


class Growth(Enum):
    """What becomes of a table's contents when one of its rooms changes, and in a shadow copy."""

    KEPT = "kept"
    """They stay; new records are zero, or as `fresh` says. Part of what the state means: copied, and in the digest."""
    REFILLED = "refilled"
    """They are lost; whoever owns the table fills it again from others (hash indexes, what is kept between cycles)."""
    SCRATCH = "scratch"
    """They are lost and nobody minds: they hold for one call of a kernel. Not copied."""
    OUTPUT = "output"
    """Plans own slices of it and nothing is written twice: a full one gives way to a fresh array. Not copied."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One table.

    Args:
        shape: one or two dimensions.
        row: what the first index counts; of a matrix also the second.
        holds: what the values are, with their unit; `layout` has the columns of records.
        invariant: what is true of it between two events.
        columns: prefix in `layout` of its columns; "" = it has no named ones.
        fresh: column -> value of new records (of a vector: index -> value), where that is not zero.
    """

    name: str
    group: str
    shape: tuple[Dimension, ...]
    row: str
    holds: str
    invariant: str
    columns: str
    dtype: str
    growth: Growth
    fresh: Mapping[int, int]
    rooms: tuple[Room, ...] = field(init=False)
    """The rooms that its shape depends on."""

    def __post_init__(self) -> None:
        rooms = (part.room if isinstance(part, Extent) else part for part in self.shape if not isinstance(part, int))
        object.__setattr__(self, "rooms", tuple(rooms))

    def size(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape when rooms have these sizes."""
        return tuple(part if isinstance(part, int) else part.of(sizes) for part in self.shape)


DECLARED: Final[dict[str, Declaration]] = {}
"""All tables, by name, in the order of their declarations."""
NO_FRESH: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True)
class _Said:
    """The arguments of `table`, until the class body says under which name."""

    arguments: dict[str, Any]


def table(
    *shape: Dimension,
    row: str,
    holds: str,
    invariant: str = "",
    columns: str = "",
    dtype: str = "int64",
    growth: Growth = Growth.KEPT,
    fresh: Mapping[int, int] = NO_FRESH,
) -> Any:
    """Declare a table in the body of a `Group`: `entries: Table = table(ENTRIES, L.ENTRY_SIZE, row=..., holds=...)`."""
    return _Said(
        {
            "shape": shape, "row": row, "holds": holds, "invariant": invariant, "columns": columns, "dtype": dtype,
            "growth": growth, "fresh": fresh,
        }
    )  # fmt: skip


def declare(group: str, name: str, said: Any) -> Declaration:
    """Enter one table. Raises ValueError for a name that there is already."""
    if name in DECLARED:
        raise ValueError(f"table {name} is declared twice: in {DECLARED[name].group} and in {group}")
    DECLARED[name] = Declaration(name=name, group=group, **said.arguments)
    return DECLARED[name]


class Group:
    """The tables that one part of the engine owns: a subclass declares them, an instance holds the arrays by name."""

    group: ClassVar[str] = ""

    def __init_subclass__(cls, *, group: str = "") -> None:
        if not group:
            return
        cls.group = group
        for name, said in list(cls.__dict__.items()):
            if isinstance(said, _Said):
                declare(group, name, said)
                delattr(cls, name)
