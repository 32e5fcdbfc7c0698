"""What could never start: refused at submission, accepted when it says so, and explained in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.model import Duration, Never, Reason, Resources, spec_from_plain
from hal.core.model.occurrences import longest_gap_ms
from hal.core.model.policy import WEEK_MS, Account, Booking, Limit, Policy, Queue, Reclaim, Repeat
from hal.planes.tasks import NeverStartsError
from hal.planes.tasks.jobs.patches import JobPatch
from tests.planes.tasks.small_plane import BY, TRUE, SmallPlane

HOUR_MS = 3_600_000
CPU_2: dict[str, Any] = {"request": {"cpu": 2}}


def limited(**fields: Any) -> Policy:
    """A policy with one limit for each user."""
    return Policy(limits={"small": Limit(name="small", user="*", **fields)})


def shared(*, borrow: Resources | None) -> Policy:
    """Two accounts of one cpu each, which share them."""
    limits = {
        name: Limit(name=name, account=name, resources=Resources({"cpu": 1_000}), cohort="both", borrow=borrow,
                    reclaim=Reclaim.WAIT)
        for name in ("red", "blue")
    }  # fmt: skip
    return Policy(accounts={name: Account(name=name) for name in ("red", "blue")}, limits=limits)


def nightly(hours: int, *nodes: str) -> Policy:
    booking = Booking(
        name="nightly", start_ms=0, duration=Duration(hours * HOUR_MS), repeat=Repeat.DAILY, nodes=nodes,
        maintenance=True,
    )  # fmt: skip
    return Policy(bookings={"nightly": booking})


@pytest.mark.parametrize(
    ("policy", "job", "words"),
    [
        (
            limited(resources=Resources({"cpu": 1_000})), CPU_2,
            "limit 'small' (user alice) allows 1 cpu at once and this asks for 2, until that limit is raised",
        ),
        (limited(resources=Resources({"cpu": 3_000})), {**CPU_2, "nodes": 2}, "this asks for 4 on 2 nodes"),
        (limited(running=0), {}, "allows 0 tasks at once"),
        (limited(hours=Resources({"cpu": 1_000})), {}, "this has no walltime, so its use is not known"),
        (limited(hours=Resources({"cpu": 1_000})), {**CPU_2, "walltime": "31m"}, "and this asks for 1.033, until"),
        (shared(borrow=Resources({"cpu": 500})), {**CPU_2, "account": "red"}, "its cohort 'both' allow 1.5 cpu"),
        (shared(borrow=None), {"request": {"cpu": 3}, "account": "red"}, "its cohort 'both' allow 2 cpu at once"),
        (nightly(1, "n1", "n2"), {}, "booking 'nightly' returns without end, the nodes are free for at most 23h"),
        (nightly(1, "n1"), {"nodes": 2, "walltime": "1d"}, "and this may run for 1d"),
        (
            Policy(bookings={"b": Booking(name="b", duration=Duration(HOUR_MS), nodes=("gone",), users=("alice",))}),
            {"booking": "b"},
            "on the nodes of booking 'b', no node counts",
        ),
        (Policy(), {"request": {"cpu": 65}}, "the largest node has 64, until a larger node joins"),
    ],
)  # fmt: skip
def test_what_could_never_start_is_refused_and_a_waiting_job_is_explained_in_the_same_words(
    policy: Policy, job: dict[str, Any], words: str
) -> None:
    """With `wait_for_change` the same job is accepted, and `why` says what the refusal said."""
    plane = SmallPlane(policy)
    with pytest.raises(NeverStartsError) as refused:
        plane.submit(job)
    assert words in refused.value.message
    (accepted,) = plane.submit({**job, "wait_for_change": True})
    verdict = plane.plane.why(plane.live(accepted), plane.now_ms)
    assert (verdict.never, verdict.message) == (True, refused.value.message)


@pytest.mark.parametrize(
    ("policy", "job"),
    [
        (limited(resources=Resources({"cpu": 2_000})), CPU_2),
        (limited(hours=Resources({"cpu": 1_000})), {**CPU_2, "walltime": "30m"}),
        (limited(hours=Resources({"gpu": 1_000})), {}),
        (shared(borrow=Resources({"cpu": 1_000})), {**CPU_2, "account": "red"}),
        (shared(borrow=None), {**CPU_2, "account": "red"}),
        (nightly(1, "n1", "n2"), {"walltime": "23h"}),
        (nightly(1, "n1"), {"walltime": "2d"}),
        (Policy(queues={"default": Queue(starts=False)}), {}),
    ],
)
def test_what_could_start_when_all_is_free_is_accepted(policy: Policy, job: dict[str, Any]) -> None:
    """Exactly as much as the bound is not too much; what is closed today opens again."""
    plane = SmallPlane(policy)
    (accepted,) = plane.submit(job)
    assert plane.plane.never(plane.live(accepted), plane.now_ms) is None


def test_a_limit_that_is_lowered_turns_what_waits_into_never() -> None:
    """Accepted under 2 cpus; the same limit then allows 1."""
    plane = SmallPlane(limited(resources=Resources({"cpu": 2_000})))
    (job,) = plane.submit(CPU_2)
    plane.plane.change_policy(limited(resources=Resources({"cpu": 1_000})), BY, plane.now_ms)
    plane.commit()
    found = plane.plane.why(plane.live(job), plane.now_ms)
    assert (found.reason, found.never, found.resource, found.available) == (Reason.LIMIT, True, "cpu", 1_000)


def test_a_held_job_that_could_never_start_says_both() -> None:
    """Releasing it would not be enough."""
    plane = SmallPlane(limited(running=0))
    (job,) = plane.submit({"hold": True, "wait_for_change": True})
    found = plane.plane.why(plane.live(job), plane.now_ms)
    assert (found.reason, "even then it never starts, because limit 'small'" in found.message) == (Reason.HELD, True)


def test_a_queue_whose_limit_is_too_small_is_no_queue_to_move_to() -> None:
    """`hal update --queue` is refused in the words of a submission."""
    limit = Limit(name="tiny", queue="quick", resources=Resources({"cpu": 1_000}))
    plane = SmallPlane(Policy(queues={"default": Queue(), "quick": Queue(name="quick")}, limits={"tiny": limit}))
    (job,) = plane.submit(CPU_2)
    with pytest.raises(NeverStartsError, match="limit 'tiny' \\(queue quick\\) allows 1 cpu"):
        plane.plane.update(job, JobPatch(queue="quick"), BY, plane.now_ms)


@pytest.mark.parametrize(
    ("starts_h", "hours", "repeat", "gap_h"),
    [
        ([0], 1, Repeat.DAILY, 23),
        ([0], 24, Repeat.DAILY, 0),
        ([30], 12, Repeat.WEEKLY, 156),
        ([0, 12], 6, Repeat.DAILY, 6),
        ([23, 20], 4, Repeat.DAILY, 17),
    ],
)
def test_the_longest_gap_between_returning_bookings(
    starts_h: list[int], hours: int, repeat: Repeat, gap_h: int
) -> None:
    """The last one overlaps itself and midnight: 20:00 to 03:00 leaves 17 hours."""
    bookings = [Booking(start_ms=at * HOUR_MS, duration=Duration(hours * HOUR_MS), repeat=repeat) for at in starts_h]
    assert longest_gap_ms(bookings) == gap_h * HOUR_MS <= WEEK_MS


def test_the_words_name_cause_and_end() -> None:
    """One sentence, for the refusal and for `why`."""
    never = Never(reason=Reason.LIMIT, because="a", until="b", mend="c")
    assert (never.text, never.verdict(7).helps) == ("never starts, because a, until b", ("c",))


def test_all_jobs_of_a_submission_are_refused_with_the_one_that_could_never_start() -> None:
    """Its place in the list is named."""
    plane = SmallPlane(limited(resources=Resources({"cpu": 1_000})))
    with pytest.raises(NeverStartsError, match="job 2 of 2: never starts, because limit 'small'"):
        plane.plane.submit([spec_from_plain({**TRUE, **job}) for job in ({}, CPU_2)], BY, plane.now_ms)
