"""What happens at a due time, by policy; and the plane that stages it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hal.core.model import ConflictError, JobSpec, OverloadedError
from hal.core.model.periodic import CatchUp, Overlap, PeriodicSpec
from hal.planes.interface import finished
from hal.planes.periodic import MAX_LIVE, MAX_OF_USER, MAX_QUEUED, ON_TIME_MS, DueTimes, PeriodicPlane, decide
from hal.store import PeriodicRow, PeriodicRun, PutPeriodic

NOW = 10_000_000


def row(number: int = 1, user: str = "ann", name: str = "poll", **spec: object) -> PeriodicRow:
    """A periodic job; `spec`: fields of its spec."""
    what = PeriodicSpec(schedule="* * * * *", job=JobSpec(command=("true",)))
    what = replace(what, **spec)
    return PeriodicRow(
        id=number, user=user, name=name, spec=what, created_ms=1, created_by=user, changed_ms=1, next_ms=NOW
    )


def due(late_ms: int = 0, earlier: int = 0) -> DueTimes:
    """A due time that came so long ago, after others."""
    return DueTimes(NOW - late_ms, earlier, NOW - late_ms - 1, NOW + 60_000)


def outcomes(runs: tuple[PeriodicRun, ...]) -> list[tuple[str, int]]:
    """What is noted, and for how many due times."""
    return [(run.outcome.value, run.times) for run in runs]


def test_a_due_time_is_submitted() -> None:
    assert decide(row(), due(), (), NOW) == ((), NOW, (), ())


def test_a_due_time_of_a_minute_ago_is_on_time() -> None:
    """A failover takes seconds, and loses none."""
    assert decide(row(), due(ON_TIME_MS), (), NOW).due_ms == NOW - ON_TIME_MS


def test_an_older_one_is_missed() -> None:
    found = decide(row(), due(ON_TIME_MS + 1, earlier=4), (), NOW)
    assert (outcomes(found.runs), found.due_ms) == ([("missed", 5)], None)


def test_one_job_makes_up_for_all_that_were_missed() -> None:
    found = decide(row(catch_up=CatchUp.ONE), due(3_600_000, earlier=4), (), NOW)
    assert (outcomes(found.runs), found.due_ms) == ([("missed", 4)], NOW - 3_600_000)


@pytest.mark.parametrize(
    ("overlap", "submitted", "after", "cancelled"),
    [
        (Overlap.SKIP, False, (), ()),
        (Overlap.ALLOW, True, (), ()),
        (Overlap.QUEUE, True, (7, 8), ()),
        (Overlap.REPLACE, True, (7, 8), (7, 8)),
    ],
)
def test_while_earlier_jobs_live_the_overlap_policy_decides(
    overlap: Overlap, submitted: bool, after: tuple[int, ...], cancelled: tuple[int, ...]
) -> None:
    found = decide(row(overlap=overlap), due(), (7, 8), NOW)
    assert (found.due_ms is not None, found.after, found.cancel) == (submitted, after, cancelled)


@pytest.mark.parametrize(("overlap", "most"), [(Overlap.QUEUE, MAX_QUEUED), (Overlap.ALLOW, MAX_LIVE)])
def test_so_many_of_its_jobs_live_at_most(overlap: Overlap, most: int) -> None:
    periodic = row(overlap=overlap)
    assert decide(periodic, due(), tuple(range(most - 1)), NOW).due_ms == NOW
    assert outcomes(decide(periodic, due(), tuple(range(most)), NOW).runs) == [("skipped", 1)]


# ── the plane ─────────────────────────────────────────────────────────────────────────────────────────────────────


def sealed(plane: PeriodicPlane) -> PutPeriodic:
    """What it would commit."""
    (operation,) = finished(plane.sealing(NOW)).operations
    assert isinstance(operation, PutPeriodic)
    return operation


def test_what_is_not_committed_is_as_if_it_had_not_been() -> None:
    plane = PeriodicPlane()
    plane.add(row())
    plane.keep()
    plane.change(replace(row(), runs=5))
    plane.add(row(2, name="other"))
    plane.remove(plane.named("ann", "poll"))
    finished(plane.undoing())
    assert plane.rows == plane.committed == {1: row()}
    assert (plane.find("ann", "other"), plane.named("ann", "poll"), plane.staged) == (None, row(), False)


def test_one_that_is_removed_and_made_anew_in_one_group_is_another() -> None:
    plane = PeriodicPlane()
    plane.add(row())
    plane.keep()
    plane.remove(plane.named("ann", "poll"))
    plane.add(row(plane.new_id))
    assert (sealed(plane).forget, [one.id for one in sealed(plane).rows]) == ((1,), [2])


def test_a_second_one_of_a_name_is_refused() -> None:
    plane = PeriodicPlane()
    plane.add(row())
    with pytest.raises(ConflictError, match="already"):
        plane.add(row(2))
    plane.add(row(2, user="bob"))


def test_a_user_has_so_many_at_most() -> None:
    plane = PeriodicPlane()
    for number in range(MAX_OF_USER):
        plane.add(row(number + 1, name=f"n{number}"))
    with pytest.raises(OverloadedError):
        plane.add(row(MAX_OF_USER + 1, name="one more"))
    plane.add(row(MAX_OF_USER + 1, user="bob", name="one more"))
