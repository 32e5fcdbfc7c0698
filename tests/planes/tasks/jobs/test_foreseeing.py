"""What is foreseen of jobs that nobody has submitted: the engine is asked, and nothing that is staged is touched."""

from __future__ import annotations

from hal.core.model import spec_from_plain
from hal.planes.tasks.jobs.foreseeing import DEPENDENT, HELD, MAX_FORESEEN, NOT_PLAYED
from tests.planes.tasks.small_plane import BY, TRUE, SmallPlane


def test_a_question_between_two_commits_leaves_what_is_staged_as_it_was() -> None:
    """What is staged names its class by an index: the question's own classes have others."""
    plane = SmallPlane()
    plane.plane.submit([spec_from_plain({**TRUE, "request": {"cpu": 2}})], BY, plane.now_ms)
    interning = plane.plane._table.interning
    before = interning.classes, interning.owners
    asked = [spec_from_plain({**TRUE, "user": "bob", "request": {"cpu": 3}})]
    dry = plane.plane.submit(asked, BY, plane.now_ms, dry_run=True)
    (found,) = plane.plane.foresee(dry, plane.now_ms)
    assert found.basis == NOT_PLAYED  # the plain model plays nothing
    assert (interning.classes, interning.owners) == before
    assert len(interning.classes) == 1
    plane.commit()


def test_what_waits_for_people_or_jobs_has_no_instant_and_many_jobs_have_no_forecast() -> None:
    """The engine is not asked about them."""
    plane = SmallPlane()
    (first,) = plane.submit(TRUE)
    specs = [spec_from_plain({**TRUE, "hold": True}), spec_from_plain({**TRUE, "dependencies": [f"afterok:{first}"]})]
    dry = plane.plane.submit(specs, BY, plane.now_ms, dry_run=True)
    found = plane.plane.foresee(dry, plane.now_ms)
    assert [(one.basis, one.starts_at_ms, one.now) for one in found] == [(HELD, None, False), (DEPENDENT, None, False)]
    many = plane.plane.submit([specs[0]] * (MAX_FORESEEN + 1), BY, plane.now_ms, dry_run=True)
    assert plane.plane.foresee(many, plane.now_ms) == []
