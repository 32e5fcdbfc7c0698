"""What any plane of the control loop must do: give all that it staged, keep it or undo it, and read it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.planes.interface import Plane, finished
from hal.planes.joining import JoiningPlane, hash_of
from hal.store import Group, Store
from tests.planes.notes_plane import NotesPlane

Case = tuple[Callable[[], Plane], Callable[[Any, int], object], Callable[[Any], object]]


def stage_token(plane: JoiningPlane, number: int) -> None:
    """One join token, of its own."""
    made = plane.membership.create(f"t{number}", hash_of("s"), node="", life_ms=60_000, user="u", now_ms=1_000)
    plane.stage(made)


CASES: dict[str, Case] = {
    "notes": (NotesPlane, lambda plane, number: plane.write("note", f"text {number}"), lambda plane: dict(plane.notes)),
    "joining": (JoiningPlane, stage_token, lambda plane: plane.membership.tokens()),
}
"""A plane, a change that may follow others of its kind, and what the plane remembers."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_a_plane_that_staged_nothing_has_nothing_to_seal(case: Case) -> None:
    """So that a group without its requests costs it nothing."""
    make, _, _ = case
    plane = make()
    assert (plane.staged, plane.unsettled) == (False, False)


def test_what_is_undone_has_never_been(case: Case) -> None:
    """Twice staged, sealed, undone: it is as after the first commit; and what comes next is sealed alone."""
    make, stage, remembered = case
    plane = make()
    stage(plane, 1)
    finished(plane.sealing(1_000))
    plane.keep()
    kept = remembered(plane)
    stage(plane, 2)
    stage(plane, 3)
    finished(plane.settling())
    finished(plane.sealing(2_000))
    finished(plane.undoing())
    assert (remembered(plane), plane.staged) == (kept, False)
    stage(plane, 2)
    assert len(finished(plane.sealing(3_000)).operations) == 1


def test_a_plane_of_its_rows_alone_remembers_what_the_first_one_did(case: Case, tmp_path: Path) -> None:
    """What was committed is read by another one, and what is staged in that one meanwhile is gone."""
    make, stage, remembered = case
    store = Store.open(tmp_path / "hal.sqlite")
    try:
        epoch = store.take_leadership("test", 1_000)
        plane, heir = make(), make()
        stage(plane, 1)
        store.commit(Group("g", 1_000, list(finished(plane.sealing(1_000)).operations)), epoch=epoch)
        plane.keep()
        install = heir.read(store)
        stage(heir, 2)
        install()
        assert (remembered(heir), heir.staged) == (remembered(plane), False)
    finally:
        store.close()
