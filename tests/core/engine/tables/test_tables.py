"""A table is declared once: whoever adds one touches one place, and everything that must know of it does."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numba
import numpy as np
import pytest

from hal.core.engine import new_state
from hal.core.engine.checks.invariants import InvariantError, check_invariants
from hal.core.engine.why.shadow import Shadow
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declaration import DECLARED, Growth, declare, table
from hal.core.kernels.structures.declared import NODES, PIECES
from hal.core.kernels.structures.jit import kernel
from hal.core.kernels.structures.memory import address_block, tables

TWO_MEANINGS: Final = {"Q"}
"""Q_CHAIN is scratch of conservative in the column in which EASY keeps Q_EXTRA."""

COMPILED: Final = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="what is not compiled needs no addresses")  # type: ignore[attr-defined]


@pytest.fixture
def added() -> Iterator[None]:
    """One more table, as a change of `declared` would add it: two columns a piece, the second 7 in new records."""
    declare("work", "marks", table(PIECES, 2, row="slot of a piece", holds="marks", fresh={1: 7}))
    yield
    del DECLARED["marks"]


@kernel
def _mark(at: Any, slot: int, value: int) -> int:
    t = tables(at)
    t.marks[slot, 0] = value
    return t.marks[slot, 0] + t.marks[slot, 1]


@pytest.mark.usefixtures("added")
def test_a_table_that_is_declared_is_there() -> None:
    """64 records for 64 pieces, with what a new record holds."""
    marks = new_state().allocation.array("marks")
    assert marks.shape == (64, 2)
    assert (marks == (0, 7)).all()


@pytest.mark.usefixtures("added")
def test_a_kernel_sees_a_table_that_is_declared() -> None:
    """It writes 5 beside the 7 of a new record and returns 12; Python reads the 5."""
    state = new_state()
    assert _mark(state.at, 3, 5) == 12
    assert state.allocation.array("marks")[3].tolist() == [5, 7]


@pytest.mark.usefixtures("added")
def test_a_table_that_is_declared_grows_with_its_room() -> None:
    """What was in it stays, new records are new, and kernels see the larger array."""
    state = new_state()
    _mark(state.at, 63, 5)
    state.make_room({PIECES: 128})
    assert _mark(state.at, 100, 1) == 8
    marks = state.allocation.array("marks")
    assert marks.shape == (128, 2)
    assert marks[[63, 64]].tolist() == [[5, 7], [0, 7]]


@COMPILED
def test_kernels_see_what_grew_and_what_did_not() -> None:
    """Only what was made again is asked for its address: all addresses are right, before and after."""
    state = new_state()
    before = state.allocation.array("pieces")
    state.make_room({PIECES: 2 * before.shape[0]})
    assert state.allocation.array("pieces") is not before
    assert np.array_equal(state.at, address_block(state.tables()))


@COMPILED
def test_a_table_that_kernels_do_not_see_is_noticed() -> None:
    """Another array is in its place, and no block was made for it."""
    state = new_state()
    state.work.pieces = state.work.pieces.copy()
    with pytest.raises(InvariantError, match="kernels still see the old one"):
        check_invariants(state)


@pytest.mark.usefixtures("added")
def test_a_copy_has_a_table_of_its_own() -> None:
    """It begins equal; what a question writes in the copy does not reach the state."""
    state = new_state()
    _mark(state.at, 3, 5)
    other = Shadow().of(state)
    assert _mark(other.at, 3, 6) == 13
    assert state.allocation.array("marks")[3, 0] == 5


@pytest.mark.usefixtures("added")
def test_a_table_that_is_kept_is_in_the_digest() -> None:
    """Two states that differ in nothing else differ in the digest of their tables."""
    one, other = new_state(), new_state()
    assert one.allocation.digest() == other.allocation.digest()
    one.meta[L.M_PIECE_TOP] = other.meta[L.M_PIECE_TOP] = 4
    _mark(other.at, 3, 5)
    assert one.allocation.digest() != other.allocation.digest()


def test_a_name_is_declared_once() -> None:
    """The second declaration names the first one's group."""
    with pytest.raises(ValueError, match="entries is declared twice: in work and in nodes"):
        declare("nodes", "entries", table(NODES, row="", holds=""))


def test_what_is_not_kept_is_empty_after_growth() -> None:
    """Hash indexes and what placement keeps are made again; whoever owns them fills them."""
    state = new_state()
    for name in ("ready", "spare", "projected"):
        state.allocation.array(name).fill(1)
    state.make_room({NODES: 32})
    assert not any(state.allocation.array(name).any() for name in ("ready", "spare", "projected"))


def test_every_table_says_what_it_holds() -> None:
    """And whatever is part of the state says what is true of it."""
    for name, declared in DECLARED.items():
        assert declared.row, name
        assert declared.holds, name
        assert declared.invariant or declared.growth is not Growth.KEPT, name


def test_no_two_tables_share_a_column_prefix() -> None:
    """A prefix names one kind of record, and no two columns of it have the same number."""
    widths = defaultdict(set)
    for declared in DECLARED.values():
        if declared.columns:
            widths[declared.columns].add(declared.shape[-1])
    assert {prefix: sizes for prefix, sizes in widths.items() if len(sizes) > 1} == {}
    for prefix in set(widths) - TWO_MEANINGS:
        columns = [value for name, value in vars(L).items() if re.fullmatch(rf"{prefix}_[A-Z_]+", name)]
        assert len(columns) == len(set(columns)), prefix


def test_a_digest_looks_at_what_is_in_use() -> None:
    """What lies behind the top of a table means nothing."""
    state = new_state()
    before = state.allocation.digest()
    state.work.entries[5] = np.arange(L.ENTRY_SIZE)
    assert state.allocation.digest() == before
