"""What a ledger is charged and given back, with the arithmetic written out: cpu-seconds, periods, early ends."""

from __future__ import annotations

import pytest

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import (
    AttemptsEnded,
    ConfigChanged,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.rules.policy_tables import hours_spent
from hal.core.engine.state import State
from hal.core.engine.views import ledger_rows
from hal.core.model.policy import Limit, Policy
from hal.core.model.resources import Resources
from hal.core.model.units import Duration
from tests.core.engine.rules.test_limits import HOUR_MS, cluster, end, job, limits

DAY_MS = 24 * HOUR_MS


def day_of(cpu_hours: int) -> Policy:
    """Ada may use so many cpu-hours a day."""
    return limits(day=Limit(user="ada", hours=Resources({"cpu": cpu_hours}), period=Duration(DAY_MS)))


def used(state: State) -> list[int]:
    """Of every ledger."""
    return [entry.used for entry in ledger_rows(state)]


@pytest.mark.parametrize(
    ("walltime_ms", "cpu", "nodes", "charged"),
    [(HOUR_MS, 1, 1, 3_600), (HOUR_MS, 3, 1, 10_800), (1, 1, 1, 1), (1_000, 1, 1, 1), (1_001, 1, 1, 2)],
)
def test_hours_are_charged_in_whole_seconds_of_each_cpu(walltime_ms: int, cpu: int, nodes: int, charged: int) -> None:
    """A second that has begun counts; three cpus count three times."""
    state, _sink, scheduler = cluster(day_of(100))
    scheduler.feed(job(1, cpu, user="ada", nodes=nodes, walltime_ms=walltime_ms))
    scheduler.run(0)
    assert used(state) == [charged]


@pytest.mark.parametrize(
    ("ended_ms", "left"), [(HOUR_MS, 3_600), (HOUR_MS // 4, 900), (0, 0), (1, 1), (2 * HOUR_MS, 7_200)]
)
def test_an_end_settles_what_was_charged_with_what_was_used(ended_ms: int, left: int) -> None:
    """An hour was charged; who overstayed it pays for that, too."""
    state, _sink, scheduler = cluster(day_of(100))
    scheduler.feed(job(1, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(0)
    scheduler.feed(end(1, at_ms=ended_ms))
    scheduler.run(ended_ms)
    assert used(state) == [left]


def test_what_began_in_the_period_before_is_not_given_back_to_this_one() -> None:
    """Charged yesterday; ada's hour of today stays as it is."""
    state, _sink, scheduler = cluster(day_of(100))
    scheduler.feed(job(1, user="ada", walltime_ms=48 * HOUR_MS))
    scheduler.run(DAY_MS - HOUR_MS)
    scheduler.run(DAY_MS)
    scheduler.feed(job(2, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(DAY_MS)
    scheduler.feed(end(1, at_ms=DAY_MS + 1_000))
    scheduler.run(DAY_MS + 1_000)
    assert used(state) == [3_600]


@pytest.mark.parametrize(
    ("now_ms", "ends_ms"),
    [(0, DAY_MS), (DAY_MS - 1, DAY_MS), (DAY_MS, 2 * DAY_MS), (3 * DAY_MS + 5, 4 * DAY_MS), (4 * DAY_MS, 5 * DAY_MS)],
)
def test_a_period_ends_at_the_next_multiple_of_its_length(now_ms: int, ends_ms: int) -> None:
    """Also where several have passed unnoticed; its end is the beginning of the next."""
    state, _sink, scheduler = cluster(day_of(1))
    scheduler.feed(job(1, user="ada"))
    scheduler.run(0)
    scheduler.run(now_ms)
    assert [entry.ends_ms for entry in ledger_rows(state)] == [ends_ms]


@pytest.mark.parametrize(("asked", "starts"), [(4, 1), (5, 0)])
def test_a_start_that_fills_a_limit_is_made_and_one_beyond_is_not(asked: int, starts: int) -> None:
    """Four cpus of four; five of four."""
    _state, sink, scheduler = cluster(limits(few=Limit(user="ada", resources=Resources({"cpu": 4}))))
    scheduler.feed(job(1, asked, user="ada"))
    scheduler.run(0)
    assert len(sink.jobs()) == starts


def test_limits_that_are_set_while_work_runs_count_what_runs() -> None:
    """Three tasks of two cpus; the hours of a period begin with nothing."""
    state, _sink, scheduler = cluster(Policy())
    scheduler.feed(job(1, 2, user="ada", tasks=3, walltime_ms=HOUR_MS))
    scheduler.run(0)
    policy = limits(
        a=Limit(user="ada", running=10),
        b=Limit(user="ada", resources=Resources({"cpu": 8})),
        c=Limit(user="ada", hours=Resources({"cpu": 9}), period=Duration(DAY_MS)),
    )
    scheduler.feed(ConfigChanged(type(state.config)(order="priority", policy=policy)))
    scheduler.run(1)
    assert sorted(used(state)) == [0, 3, 6]


def test_a_requeued_attempt_gives_back_all_that_it_held() -> None:
    """Running, and its cpus; it may start again at once."""
    state, sink, scheduler = cluster(
        limits(a=Limit(user="ada", running=1), b=Limit(user="ada", resources=Resources({"cpu": 2})))
    )
    scheduler.feed(job(1, 2, user="ada"))
    scheduler.run(0)
    again: AttemptsEnded = end(1, at_ms=5, requeue=1)
    scheduler.feed(again)
    scheduler.run(5)
    assert (sink.jobs(), sorted(used(state))) == ([1, 1], [1, 2])


def test_hours_of_little_memory_are_never_nothing() -> None:
    """A byte for a second, of a limit that is counted in larger units."""
    hours = Resources({"memory": 1 << 50})
    state, _sink, scheduler = cluster(limits(day=Limit(user="ada", hours=hours, period=Duration(DAY_MS))))
    scheduler.feed(NodesChanged((NodeSpec("m", {"memory": 1 << 40}),)))
    rows = submit_rows(1)
    rows["job"], rows["tasks"], rows["walltime_ms"] = 1, 1, 1_000
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"memory": 1}),), (OwnerSpec("default", "", "ada"),)))
    scheduler.run(0)
    assert used(state)[0] > 0


def test_what_was_spent_yesterday_is_not_spent_today() -> None:
    """An hour of yesterday has ended; an hour of today runs."""
    state, _sink, scheduler = cluster(day_of(100))
    scheduler.feed(job(1, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(0)
    scheduler.feed(end(1, at_ms=HOUR_MS))
    scheduler.run(HOUR_MS)
    assert [entry.units for entry in hours_spent(state)] == [3_600]
    scheduler.feed(job(2, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(DAY_MS)
    assert list(hours_spent(state)) == []
