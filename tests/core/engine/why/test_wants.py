"""What waits, class by class: as a plain count of the waiting jobs says; and reservations as the engine keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsCancelled, JobsSubmitted, NodeSpec, submit_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import pending, reservations, reserved_rows
from hal.core.engine.why import wants as module
from hal.core.engine.why.wants import ClassWants, Wants, reserved, wants, wants_version
from hal.core.kernels.structures import layout as L
from hal.core.model.policy import Limit, Policy
from tests.core.engine.clusters import Starts, engine, job
from tests.core.engine.why.test_foresight import CLASSES, JOBS, OWNERS, busy, spec_of
from tests.examples import examples

T = TypeVar("T")
FCFS = EngineConfig(order="fcfs")


def key(spec: ClassSpec) -> object:
    """Equal for equal classes."""
    return spec.shape_key(), spec.nodes


def result(work: Generator[None, None, T]) -> T:
    """What a sliced answer comes to."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def asked(state: State, now_ms: int = 0, user: str = "") -> list[ClassWants]:
    """The wants, in order of the classes' first jobs."""
    return in_order(result(wants(state, now_ms, user)))


def in_order(found: Wants) -> list[ClassWants]:
    """Their values."""
    return found.rows(found.order)


@given(JOBS)
@settings(max_examples=examples(20))
def test_each_class_counts_what_waits_of_it(jobs: list[tuple[int, int, int, int]]) -> None:
    """Jobs, tasks and users of each class are those of a loop over all that waits."""
    state = busy(jobs, FCFS)
    rows = [row for row in pending(state) if row["where"] == L.WHERE_BUCKET]
    users = Counter(
        (key(spec_of(state, int(row["class_id"]))), OWNERS[jobs[int(row["job"]) - 1][1]].user) for row in rows
    )
    found = {(key(one.spec), user): count for one in asked(state) for user, count in one.users.items()}
    assert found == dict(users)
    assert sum(one.tasks for one in asked(state)) == sum(int(row["tasks"]) for row in rows)


@given(JOBS)
@settings(max_examples=examples(20))
def test_the_head_of_a_class_is_its_first_job_and_classes_are_in_order_of_their_heads(
    jobs: list[tuple[int, int, int, int]],
) -> None:
    """Under FCFS higher priority first, then the lower id."""
    state = busy(jobs, FCFS)
    first: dict[object, tuple[int, int]] = {}
    for row in pending(state):
        if row["where"] == L.WHERE_BUCKET:
            spec, rank = key(spec_of(state, int(row["class_id"]))), (-int(row["priority"]), int(row["job"]))
            first[spec] = min(first.get(spec, rank), rank)
    assert [one.head for one in asked(state)] == [rank[1] for rank in sorted(first.values())]


@given(JOBS)
@settings(max_examples=examples(20))
def test_of_one_user_it_is_what_that_user_has(jobs: list[tuple[int, int, int, int]]) -> None:
    """Each class of which ann has something, with her jobs only."""
    state = busy(jobs, FCFS)
    hers = {key(one.spec): one.users["ann"] for one in asked(state) if "ann" in one.users}
    assert {key(one.spec): one.jobs for one in asked(state, user="ann")} == hers
    assert all(one.users == {"ann": one.jobs} for one in asked(state, user="ann"))


@pytest.mark.parametrize(
    ("spec", "short", "resource", "by", "now", "ever"),
    [
        (ClassSpec({"cpu": 9}), "nodes", "cpu", 1, 0, 0),
        (ClassSpec({"cpu": 4}, 3), "nodes", "", 1, 0, 2),
        (ClassSpec({"cpu": 3}), "resources", "cpu", 1, 0, 2),
        (ClassSpec({"cpu": 2}, 2), "resources", "", 1, 1, 2),
        (ClassSpec({"gpu": 1}), "nodes", "gpu", 1, 0, 0),
    ],
)
def test_what_a_class_is_short_of(spec: ClassSpec, short: str, resource: str, by: int, now: int, ever: int) -> None:
    """Nodes of 8 and 4 cpus, of which 2 and 1 are free: 8 at most, 4 on both, 2 at most free, 2 on one node."""
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 8, "gpu": 0}), NodeSpec("b", {"cpu": 4}))
    scheduler.feed(job(1, 6))
    scheduler.feed(job(2, 3))
    scheduler.run(0)
    rows = submit_rows(1)
    rows["job"] = 3
    scheduler.feed(JobsSubmitted(rows, (spec,), (OwnerSpec(),)))
    scheduler.run(0)
    (found,) = asked(state)
    assert (found.short, found.resource, found.short_by) == (short, resource, by)
    assert (found.fits_now, found.fits_ever) == (now, ever)


def test_a_rule_that_keeps_the_first_job_is_named() -> None:
    """Two tasks at once are allowed and run; the third fits, and waits for the limit."""
    policy = Policy(limits={"few": Limit(running=2)})
    state, _, scheduler = engine(EngineConfig(order="priority", policy=policy), NodeSpec("a", {"cpu": 8}))
    for number in (1, 2, 3):
        scheduler.feed(job(number, 1))
    scheduler.run(0)
    assert [(one.head, one.short) for one in asked(state)] == [(3, "limit")]


def test_work_that_waits_behind_a_reservation_waits_for_its_turn() -> None:
    """A gang of two has both nodes reserved; a job without a limit fits on the free one and may not pass."""
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}))
    scheduler.feed(job(1, 4, walltime_ms=1_000))
    scheduler.run(0)
    scheduler.feed(job(2, 4, gang=2, walltime_ms=1_000))
    scheduler.feed(job(3, 4, walltime_ms=5_000))
    scheduler.run(0)
    assert [(one.head, one.short) for one in asked(state)] == [(2, "resources"), (3, "turn")]


def test_since_when_the_first_job_waits() -> None:
    """Submitted at 500, eligible at 700: it could have started at 700."""
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 1}))
    scheduler.feed(job(1, 4, submit_ms=500, eligible_ms=700))
    scheduler.run(900)
    assert [one.head_since_ms for one in asked(state, 900)] == [700]


def test_only_some_users_are_named_and_the_rest_counted() -> None:
    """Twelve users of one class: the ten with the most jobs, and two more."""
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 1}))
    counts = {f"u{number:02}": number for number in range(1, 13)}
    owners = [user for user, count in counts.items() for _ in range(count)]
    rows = submit_rows(len(owners))
    rows["job"] = np.arange(1, len(owners) + 1)
    rows["owner_index"] = [list(counts).index(user) for user in owners]
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 4}),), tuple(OwnerSpec(user=user) for user in counts)))
    (found,) = asked(state)
    assert (found.more_users, found.jobs) == (2, 78)
    assert found.users == {user: count for user, count in counts.items() if count > 2}


def test_the_version_changes_with_what_waits_and_only_then() -> None:
    """Asking changes nothing; a submission and a cancellation do."""
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 1}))
    versions = [wants_version(state)]
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    versions.append(wants_version(state))
    asked(state)
    assert wants_version(state) == versions[-1]
    scheduler.feed(JobsCancelled(np.array([1])))
    versions.append(wants_version(state))
    assert len(set(versions)) == 3


@given(JOBS, st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=5))
@settings(max_examples=40)
def test_a_class_is_unchanged_only_if_all_of_its_values_are(
    jobs: list[tuple[int, int, int, int]], changes: list[tuple[bool, int, int]]
) -> None:
    """Between two answers jobs come, of a new user too, or are cancelled: what is called unchanged is equal."""
    state = busy(jobs, FCFS)
    scheduler = Scheduler(state, Starts())
    for number, (comes, which, owner) in enumerate(changes, 1):
        before = result(wants(state, 0))
        if comes:
            rows = submit_rows(1)
            rows["job"] = len(jobs) + number
            user = (*OWNERS, OwnerSpec(user=f"u{number}"))[owner]
            scheduler.feed(JobsSubmitted(rows, (CLASSES[which],), (user,)))
        else:
            scheduler.feed(JobsCancelled(np.array([1 + (which * 4 + owner) % len(jobs)])))
        scheduler.run(0)
        after = result(wants(state, 0))
        was, same = after.unchanged_since(before)
        kept = np.flatnonzero(same)
        assert after.rows(kept) == before.rows(was[kept])


def test_of_several_classes_only_the_one_with_another_job_has_changed() -> None:
    """Three classes wait for a node that is too small; a job of the second comes."""
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 1}))
    for number in (1, 2, 3):
        scheduler.feed(job(number, 1 + number))
    before = result(wants(state, 0))
    scheduler.feed(job(4, 3))
    after = result(wants(state, 0))
    was, same = after.unchanged_since(before)
    assert [spec.request["cpu"] for spec, one in zip(after.specs, same.tolist(), strict=True) if not one] == [3]
    assert was.tolist() == [0, 1, 2]


def test_an_answer_that_is_overtaken_by_starts_and_growth_still_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its slices jobs end, start, and new ones come, so that tables grow: no count is below zero."""
    monkeypatch.setattr(module, "ENTRIES_A_SLICE", 8)
    monkeypatch.setattr(module, "SETS_A_SLICE", 1)
    state, _, scheduler = engine(FCFS, NodeSpec("a", {"cpu": 4}))
    for number in range(1, 40):
        scheduler.feed(job(number, 1 + number % 3, tasks=1 + number % 2))
    work = wants(state, 0)
    more = 40
    found: list[ClassWants] = []
    while True:
        try:
            next(work)
        except StopIteration as end:
            found = in_order(end.value)
            break
        for number in range(more, more + 100):
            scheduler.feed(job(number, 1 + number % 7, tasks=2))
        more += 100
        scheduler.run(0)
    assert {one.spec.request["cpu"] for one in found} == {1, 2, 3}
    assert all(one.tasks >= one.jobs > 0 for one in found)


@given(JOBS, st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE]))
@settings(max_examples=examples(20))
def test_reservations_are_those_that_the_engine_keeps(
    jobs: list[tuple[int, int, int, int]], backfill: Backfill
) -> None:
    """Jobs, starts and nodes."""
    state = busy(jobs, EngineConfig(order="fcfs", backfill=backfill))
    rows = reserved_rows(state)
    kept = [
        (int(one["job"]), int(one["start_ms"]), [state.nodes.names[row] for row in rows[first : first + count]])
        for one in reservations(state)
        for first, count in [(int(one["row_offset"]), int(one["row_count"]))]
        if one["kind"] in (L.KIND_RESERVED, L.KIND_CLAIM)
    ]
    found, more = result(reserved(state))
    assert [(one.job, one.start_ms, one.nodes) for one in found] == kept
    assert not more


def test_reservations_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three under conservative backfill two are shown, and that there are more."""
    monkeypatch.setattr(module, "MAX_RESERVATIONS", 2)
    jobs = [(1, 0, 0, 1)] * 8
    state = busy(jobs, EngineConfig(order="fcfs", backfill=Backfill.CONSERVATIVE))
    found, more = result(reserved(state))
    assert (len(found), more) == (2, True)
