"""Classes, shapes and constraint sets that are in use, by value and by number. Purely names: `interning` fills them.

Pure. What nobody refers to is forgotten under pressure, and its number is used again.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from hal.core.engine.classes import ClassSpec, Preference
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.declared import CatalogueTables

ClassKey: TypeAlias = (
    tuple[int, int, bool, Preference | None] | tuple[int, int, bool, Preference | None, int, bool, str]
)


class Catalogue(CatalogueTables):
    """The part of a `State` that knows kinds of work. A list by number holds None where the number is free."""

    def __init__(self, no_ids: Ints) -> None:
        self.sets: list[ClassSpec | None] = [ClassSpec({})]
        """By constraint set: a class that has it. Set 0 asks for nothing."""
        self.set_ids: dict[tuple[Any, ...], int] = {(): 0}
        """Constraint set by requirements, booking, and the shape where filters look at it."""
        self.set_free: list[int] = []
        """Constraint sets to be used again."""
        self.changes = 0
        """Counts constraint sets and preferences that came and went."""
        self.shape_ids: dict[tuple[Any, ...], int] = {}
        """Shape by `ClassSpec.shape_key`."""
        self.shape_specs: list[ClassSpec | None] = []
        """By shape: a class that has it."""
        self.shape_free: list[int] = []
        """Shapes to be used again."""
        self.class_ids: dict[ClassKey, int] = {}
        """Class by shape, number of nodes, whether it may be moved, and what it prefers; of one of several groups by
        the next one, too, whether it is the first, and its name."""
        self.class_specs: list[ClassSpec | None] = []
        """By class."""
        self.class_free: list[int] = []
        """Classes to be used again."""
        self.preference_ids: dict[Preference, int] = {}
        """Preference by value; 0 prefers nothing."""
        self.preference_specs: list[Preference | None] = [None]
        """By preference."""
        self.preference_free: list[int] = []
        """Preferences to be used again."""
        self.weighing = 0
        """Counts preferences that weigh advice, as they are made."""
        self.weighed: tuple[int, int, int] | None = None
        """Advice, nodes and `weighing` when it was last worked out what advice adds; None: never."""
        self.seen: tuple[ClassSpec, ...] | None = None
        """The classes of the last event, by identity: most events name the same tuple."""
        self.seen_ids: Ints = no_ids
        """Their numbers."""
