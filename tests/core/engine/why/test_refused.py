"""`hal why` for rules: limits with numbers and the time when room comes, hours, strict queues; priority by factor."""

from __future__ import annotations

import pytest

from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.engine.why.explain import explain
from hal.core.engine.why.priority import priority_of
from hal.core.model.policy import Account, Limit, Policy, Qos, Queue, Weights
from hal.core.model.policy_hours import ZoneOffsets
from hal.core.model.resources import Resources
from hal.core.model.units import Duration
from hal.core.model.verdict import Reason
from tests.core.engine.rules.test_limits import HOUR_MS, cluster, job, limits


def test_a_full_limit_says_who_how_much_and_when() -> None:
    """Four of four cpus in use; two come free in an hour."""
    policy = limits(ml=Limit(account="ml", resources=Resources({"cpu": 4})))
    state, _sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 2, account="ml", tasks=2, walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 2, account="ml", walltime_ms=HOUR_MS))
    scheduler.run(0)
    verdict = explain(state, 2, 0)
    assert verdict.reason is Reason.LIMIT
    assert (verdict.asked, verdict.available, verdict.starts_at_ms) == (2, 0, HOUR_MS)
    assert "account ml may use 0.004 cpu; 0.004 in use, this asks for 0.002; 0.002 come free in 1h" in verdict.message


def test_a_gang_beyond_the_limit_hears_how_many_nodes_would_do() -> None:
    """Three of five are left for a gang of four times one."""
    policy = limits(ml=Limit(account="ml", resources=Resources({"cpu": 5})))
    state, _sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 2, account="ml", walltime_ms=HOUR_MS))
    scheduler.feed(NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 8}) for k in range(4))))
    scheduler.feed(job(2, 1, account="ml", nodes=4, walltime_ms=HOUR_MS))
    scheduler.run(0)
    verdict = explain(state, 2, 0)
    assert (verdict.reason, verdict.helps) == (Reason.LIMIT, ("nodes=3 would stay within the limit now",))


def test_hours_say_what_is_left_and_when_the_period_ends() -> None:
    """One of two cpu-hours is left, two are asked for."""
    two = Resources({"cpu": 2_000})
    policy = limits(day=Limit(user="ada", hours=two, period=Duration(24 * HOUR_MS)))
    state, _sink, scheduler = cluster(policy, cpus=4_000)
    scheduler.feed(job(1, 1_000, user="ada", walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 1_000, user="ada", walltime_ms=2 * HOUR_MS))
    scheduler.feed(job(3, 1_000, user="ada"))
    scheduler.run(0)
    verdict = explain(state, 2, 0)
    assert (verdict.reason, verdict.starts_at_ms) == (Reason.LIMIT, 24 * HOUR_MS)
    assert "has 1 cpu-hours left of 2; this asks for 2, and the next period begins in 1d" in verdict.message
    assert verdict.helps == ("a shorter walltime needs less",)
    assert explain(state, 3, 0).helps == ("give the job a walltime",)


def test_a_shut_queue_says_when_it_opens() -> None:
    """At noon, six hours before."""
    policy = Policy(queues={"default": Queue(name="default", hours=("18:00-24:00",))})
    state, _sink, scheduler = cluster(policy)
    scheduler.run(12 * HOUR_MS)
    scheduler.feed(job(1))
    scheduler.run(12 * HOUR_MS)
    verdict = explain(state, 1, 12 * HOUR_MS)
    assert (verdict.reason, verdict.starts_at_ms) == (Reason.HOURS, 18 * HOUR_MS)


def test_a_shut_queue_says_in_which_zone_its_hours_are() -> None:
    """Noon UTC is 13:00 on clocks that are an hour ahead, so it opens an hour earlier."""
    policy = Policy(queues={"default": Queue(name="default", hours=("18:00-24:00",), zone="Europe/Berlin")})
    ahead = {"Europe/Berlin": ZoneOffsets((0,), (HOUR_MS,))}
    state, sink, scheduler = cluster(policy, zones=ahead)
    scheduler.feed(job(1))
    scheduler.run(12 * HOUR_MS)
    verdict = explain(state, 1, 12 * HOUR_MS)
    assert (verdict.starts_at_ms, "18:00-24:00 (Europe/Berlin) only" in verdict.message) == (17 * HOUR_MS, True)
    scheduler.run(17 * HOUR_MS)
    assert sink.jobs() == [1]


def test_a_closed_queue_starts_nothing_and_says_so() -> None:
    """Whatever its hours; on an idle node."""
    policy = Policy(queues={"default": Queue(name="default", starts=False, hours=("00:00-24:00",))})
    state, sink, scheduler = cluster(policy)
    scheduler.feed(job(1))
    scheduler.run(12 * HOUR_MS)
    verdict = explain(state, 1, 12 * HOUR_MS)
    assert sink.jobs() == []
    assert (verdict.reason, verdict.starts_at_ms) == (Reason.HOURS, None)
    assert verdict.message == "queue 'default' is closed: none of its jobs starts until somebody opens it"


def test_a_strict_queue_names_the_job_ahead() -> None:
    """Job 3 would fit, and job 2 does not."""
    policy = Policy(queues={"default": Queue(name="default", strict=True)}, weights=Weights(fairshare=0.0))
    state, _sink, scheduler = cluster(policy)
    for number, cpu in ((1, 6), (2, 8), (3, 1)):
        scheduler.feed(job(number, cpu, walltime_ms=1_000))
    scheduler.run(0)
    verdict = explain(state, 3, 0)
    assert (verdict.reason, verdict.helps) == (Reason.STRICT, ("hal why 2",))


def test_priority_parts_add_up_to_the_order() -> None:
    """Each factor is what the weights say, and who has more points starts first."""
    policy = Policy(
        accounts={"x": Account(name="x")}, qos={"high": Qos(name="high", priority=3)},
        queues={"default": Queue(name="default", priority=2)},
        weights=Weights(age=10.0, fairshare=500.0, qos=7.0, queue=5.0, priority=2.0, size=1.0, deadline=64.0),
    )  # fmt: skip
    state, _sink, scheduler = cluster(policy, cpus=1_000)
    scheduler.feed(job(1, 1_000, account="x"))
    scheduler.run(0)
    scheduler.feed(job(2, 500, account="x", priority=4, deadline_ms=2 * HOUR_MS, walltime_ms=HOUR_MS))
    scheduler.run(0)
    parts = priority_of(state, 2, 3 * HOUR_MS)
    assert (parts.age, parts.queue, parts.priority, parts.size) == (30.0, 10.0, 8.0, 0.5)
    assert parts.deadline == pytest.approx(32.0)
    assert parts.fair_factor == pytest.approx(0.5)
    assert parts.fairshare == pytest.approx(250.0)
    total = parts.age + parts.queue + parts.priority + parts.size + parts.deadline + parts.fairshare
    assert parts.total == pytest.approx(total)
