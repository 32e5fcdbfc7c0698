"""Shares and disciplines: who goes first among accounts, users and queues; delivered shares under saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    ConfigChanged,
    JobsCancelled,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    SharesLoaded,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import running, share_rows
from hal.core.model.policy import Account, Discipline, FairShare, Limit, Policy, Qos, Queue, Weights
from hal.core.model.units import Duration
from tests.core.engine.clusters import Starts, engine
from tests.core.engine.rules.test_limits import cluster, end, job
from tests.examples import examples

HOUR_MS = 3_600_000


def order_of(sink: Starts) -> list[int]:
    """Jobs in the order in which they started."""
    return sink.jobs()


def run_all(scheduler: Scheduler, state: State, length_ms: int = 1_000) -> None:
    """Let everything that runs end after `length_ms`, again and again, until nothing is left."""
    now = 0
    scheduler.run(now)
    while state.running_attempts:
        now += length_ms
        for run in running(state):
            scheduler.feed(end(int(run["job"]), int(run["task"]), at_ms=now))
        scheduler.run(now)


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_delivered_shares_are_as_promised_under_saturation(backfill: Backfill) -> None:
    """Three accounts 1:2:5 with work without end, jobs far shorter than the half-life: within 2 % after ten of them."""
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    policy = Policy(
        accounts={name: Account(name=name, weight=weight) for name, weight in weights.items()},
        fairshare=FairShare(half_life=Duration(200_000)),
    )
    count = saturated(policy, [(name, "", 20_000) for name in weights], backfill=backfill)
    delivered = count / count.sum()
    assert delivered == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.02)


@pytest.mark.parametrize("idle", [0, 1, 7])
def test_users_without_work_move_nothing_between_accounts(idle: int) -> None:
    """Two accounts 1:1; y has users who ran one job each and have no more. A user of each shares the machine evenly."""
    policy = Policy(
        accounts={"x": Account(name="x"), "y": Account(name="y")}, fairshare=FairShare(half_life=Duration(200_000))
    )
    workers = [("x", "ada", 20_000), ("y", "bob", 20_000), *(("y", f"idle{k}", 1) for k in range(idle))]
    delivered = saturated(policy, workers)
    assert delivered[:2] / delivered[:2].sum() == pytest.approx([1 / 2, 1 / 2], abs=0.02)


@pytest.mark.parametrize("why", ["limit", "size", "hours"])
def test_who_has_work_that_cannot_go_keeps_no_colleague_from_what_is_theirs(why: str) -> None:
    """As before; y has a user whose job is over its limit, fits on no node, or waits in a queue that is shut."""
    policy = Policy(
        queues={"default": Queue(name="default"), "night": Queue(name="night", hours=("thu 01:00-02:00",))},
        accounts={"x": Account(name="x"), "y": Account(name="y")},
        limits={"none": Limit(user="dan", running=0)} if why == "limit" else {},
        fairshare=FairShare(half_life=Duration(200_000)),
    )
    stuck = job(9, 8 if why == "size" else 1, account="y", user="dan", queue="night" if why == "hours" else "default")
    delivered = saturated(policy, [("x", "ada", 20_000), ("y", "bob", 20_000)], beside=stuck)
    assert delivered[:2] / delivered[:2].sum() == pytest.approx([1 / 2, 1 / 2], abs=0.02)


def test_an_accounts_users_share_what_the_account_gets() -> None:
    """Accounts 1:2, the second with users 1:3 and one who has no work: each gets the product, within 2 %."""
    policy = Policy(
        accounts={"x": Account(name="x"), "y": Account(name="y", weight=2.0, users={"bob": 1.0, "cy": 3.0})},
        fairshare=FairShare(half_life=Duration(200_000)),
    )
    workers = [("x", "ada", 20_000), ("y", "bob", 20_000), ("y", "cy", 20_000), ("y", "dan", 1)]
    delivered = saturated(policy, workers)
    assert delivered[:3] / delivered[:3].sum() == pytest.approx([1 / 3, 1 / 6, 1 / 2], abs=0.02)


def saturated(
    policy: Policy,
    workers: list[tuple[str, str, int]],
    backfill: Backfill = Backfill.EASY,
    beside: JobsSubmitted | None = None,
) -> Any:
    """Starts of each (account, user, tasks) on four cpus whose tasks of a second never run out."""
    state, sink, scheduler = cluster(policy, cpus=4, backfill=backfill)
    for number, (account, user, tasks) in enumerate(workers, start=1):
        scheduler.feed(job(number, account=account, user=user, tasks=tasks, walltime_ms=2_000))
    if beside is not None:
        scheduler.feed(beside)
    now = 0
    scheduler.run(now)
    while now < 2_000_000:
        now += 1_000
        for run in running(state):
            scheduler.feed(end(int(run["job"]), int(run["task"]), at_ms=now))
        scheduler.run(now)
    return np.bincount(sink.jobs(), minlength=len(workers) + 1)[1:]


def test_a_newcomer_starts_before_the_heavy_users_next_job() -> None:
    """With default weights: ada has used the machine for a week and has more waiting; bob's first job goes first."""
    state, sink, scheduler = cluster(Policy(), cpus=1)
    scheduler.feed(job(1, user="ada", tasks=50, walltime_ms=10 * HOUR_MS))
    now = 0
    for task in range(10):
        scheduler.run(now)
        now += 10 * HOUR_MS
        if task < 9:
            scheduler.feed(end(1, task, at_ms=now))
    scheduler.feed(job(2, user="bob", submit_ms=now, eligible_ms=now, walltime_ms=HOUR_MS))
    scheduler.feed(end(1, 9, at_ms=now))
    scheduler.run(now)
    assert sink.jobs()[-1] == 2
    assert state.running_attempts == 1


def test_shares_decide_nothing_under_another_order() -> None:
    """First come, first served: ada has used more than bob; many users have gone; her job is still before his."""
    state, sink, scheduler = engine(EngineConfig(order="fcfs", policy=Policy()), NodeSpec("n1", {"cpu": 1}))
    scheduler.feed(job(1, user="ada", walltime_ms=HOUR_MS))
    run_all(scheduler, state, HOUR_MS)
    for number, user in ((2, "operator"), (3, "ada"), (4, "bob")):
        scheduler.feed(job(number, user=user, submit_ms=HOUR_MS))
        scheduler.run(HOUR_MS)
    guests = range(100, 200)
    for number in guests:
        scheduler.feed(job(number, user=f"guest{number}", submit_ms=HOUR_MS))
    scheduler.feed(JobsCancelled(np.array(guests)))
    scheduler.feed(job(5, user="somebody new", submit_ms=HOUR_MS))
    for number in (2, 3, 4, 5):
        scheduler.run(HOUR_MS + number)
        assert sink.jobs()[-1] == number
        scheduler.feed(end(number, at_ms=HOUR_MS + number))


def test_users_below_one_account_share_what_it_gets() -> None:
    """Two accounts alike, one with two users: each account half, each of the two users a quarter."""
    policy = Policy(accounts={"x": Account(name="x"), "y": Account(name="y")})
    state, sink, scheduler = cluster(policy, cpus=1)
    for number, (account, user) in enumerate([("x", "ann"), ("y", "bo"), ("y", "cy")], start=1):
        scheduler.feed(job(number, account=account, user=user, tasks=200, walltime_ms=1_000))
    now = 0
    scheduler.run(now)
    for _ in range(200):
        (run,) = running(state)
        now += 1_000
        scheduler.feed(end(int(run["job"]), int(run["task"]), at_ms=now))
        scheduler.run(now)
    count = np.bincount(sink.jobs(), minlength=4)[1:]
    assert count / count.sum() == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


def test_use_decays_by_half_in_a_half_life_and_survives_a_change_of_policy() -> None:
    """An hour of one cpu is 3,600 units; a half-life later half of it, also when the policy changed in between."""
    policy = Policy(fairshare=FairShare(half_life=Duration(HOUR_MS)))
    state, _sink, scheduler = cluster(policy)
    cpu = 1_000
    scheduler.feed(job(1, cpu, user="ada", walltime_ms=HOUR_MS))
    scheduler.feed(NodesChanged((NodeSpec("big", {"cpu": cpu}),)))
    scheduler.run(0)
    scheduler.feed(end(1, at_ms=HOUR_MS))
    scheduler.feed(ConfigChanged(EngineConfig(order="priority", policy=policy)))
    scheduler.feed(job(2, cpu, user="bob", submit_ms=HOUR_MS))
    scheduler.run(HOUR_MS)
    (ada,) = [row for row in share_rows(state) if row.user == "ada"]
    assert ada.units == pytest.approx(1_800, rel=0.01)


def test_use_from_before_a_restart_is_loaded() -> None:
    """SharesLoaded puts back what accounts and users had used; who used more goes later."""
    _state, sink, scheduler = cluster(Policy(), cpus=1)
    scheduler.feed(SharesLoaded((("", "ada", 5_000.0), ("", "bob", 10.0)), at_ms=0))
    scheduler.feed(job(1, user="ada"))
    scheduler.feed(job(2, user="bob"))
    scheduler.run(0)
    assert sink.jobs() == [2]


def test_points_add_up_and_age_never_stops() -> None:
    """A QOS is worth its points; a job that waited longer than that is worth in hours goes first."""
    policy = Policy(qos={"high": Qos(name="high", priority=1)}, weights=Weights(age=10.0, qos=100.0))
    for waited_hours, first in ((9, 2), (11, 1)):
        state = new_state(EngineConfig(order="priority", policy=policy))
        sink = Starts()
        scheduler = Scheduler(state, sink)
        scheduler.feed(NodesChanged((NodeSpec("n", {"cpu": 1}),)))
        later = waited_hours * HOUR_MS
        scheduler.feed(job(1))
        rows = submit_rows(1)
        rows["job"], rows["submit_ms"], rows["eligible_ms"] = 2, later, later
        scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 1}),), (OwnerSpec(qos="high"),)))
        scheduler.run(later)
        assert sink.jobs() == [first]


@pytest.mark.parametrize(("points", "first"), [(9.0, 2), (11.0, 1)])
def test_a_deadline_is_worth_half_as_much_for_each_hour_that_is_left(points: float, first: int) -> None:
    """Both come at 1 h. The second must start at 5 h - 1 h = 4 h, in 3 hours: 80 / 2^3 = 10 points."""
    weights = Weights(age=0.0, fairshare=0.0, priority=points, deadline=80.0)
    _, sink, scheduler = cluster(Policy(weights=weights), cpus=1)
    times = {"submit_ms": HOUR_MS, "eligible_ms": HOUR_MS, "walltime_ms": HOUR_MS}
    scheduler.feed(job(1, priority=1, **times))
    scheduler.feed(job(2, deadline_ms=5 * HOUR_MS, **times))
    scheduler.run(HOUR_MS)
    assert sink.jobs() == [first]


@pytest.mark.parametrize(("points", "first"), [(5.0, 1), (3.0, 2)])
def test_a_large_job_has_points_for_each_cpu(points: float, first: int) -> None:
    """2 points a cpu: 3 x 2 = 6 for the second, 2 and those of its priority for the first."""
    weights = Weights(age=0.0, fairshare=0.0, priority=points, size=2.0)
    _, sink, scheduler = cluster(Policy(weights=weights), cpus=3_000)
    scheduler.feed(job(1, cpu=1_000, priority=1))
    scheduler.feed(job(2, cpu=3_000))
    scheduler.run(0)
    assert sink.jobs() == [first]


def test_the_shortest_goes_first_among_jobs_of_one_priority_only() -> None:
    """Under sjf priority is above planned time."""
    state = new_state(EngineConfig(order="sjf"))
    sink = Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged((NodeSpec("n", {"cpu": 1}),)))
    scheduler.feed(job(1, walltime_ms=2_000))
    scheduler.feed(job(2, walltime_ms=1_000))
    scheduler.feed(job(3, walltime_ms=9_000, priority=1))
    run_all(scheduler, state)
    assert order_of(sink) == [3, 2, 1]


def disciplined(order: Discipline, **queue: Any) -> Policy:
    """A policy whose default queue has this order."""
    return Policy(queues={"default": Queue(name="default", order=order, **queue)})


def test_round_robin_gives_each_user_a_turn() -> None:
    """Ada came first with five jobs, bob and cy with two: turns go round; nobody saves turns up."""
    state, sink, scheduler = cluster(disciplined(Discipline.ROUND_ROBIN), cpus=1)
    for number, user in enumerate("aaaaabbcc", start=1):
        scheduler.feed(job(number, user=user, walltime_ms=1_000))
    run_all(scheduler, state)
    users = ["aaaaabbcc"[number - 1] for number in order_of(sink)]
    assert "".join(users) == "abcabcaaa"


def test_deadline_queues_start_the_earliest_deadline_first() -> None:
    """Whatever the order of submission; without a deadline comes last."""
    state, sink, scheduler = cluster(disciplined(Discipline.DEADLINE), cpus=1)
    scheduler.feed(job(1))
    scheduler.feed(job(2, deadline_ms=9 * HOUR_MS))
    scheduler.feed(job(3, deadline_ms=4 * HOUR_MS))
    run_all(scheduler, state)
    assert order_of(sink) == [3, 2, 1]


def test_fifo_queues_do_not_look_at_priority() -> None:
    """Strictly by submission."""
    state, sink, scheduler = cluster(disciplined(Discipline.FIFO), cpus=1)
    scheduler.feed(job(1, priority=-5))
    scheduler.feed(job(2, submit_ms=1, priority=100))
    run_all(scheduler, state)
    assert order_of(sink) == [1, 2]


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_overtakes_the_first_job_of_a_strict_queue(strict: bool) -> None:
    """A short job that backfill would start beside the promise waits when its queue is strict; other queues do not."""
    policy = Policy(
        queues={"default": Queue(name="default", strict=strict), "other": Queue(name="other")},
        weights=Weights(fairshare=0.0),
    )
    _state, sink, scheduler = cluster(policy, cpus=8)
    scheduler.feed(job(1, 5, walltime_ms=10_000))
    scheduler.feed(job(2, 8, walltime_ms=10_000))
    scheduler.feed(job(3, 1, walltime_ms=1_000))
    scheduler.feed(job(4, 1, walltime_ms=1_000, queue="other"))
    scheduler.run(0)
    assert sorted(sink.jobs()) == ([1, 4] if strict else [1, 3, 4])
    scheduler.feed(job(5, 1, walltime_ms=1_000))
    scheduler.run(1)
    assert (5 in sink.jobs()) is not strict


def test_queues_start_jobs_in_their_hours_only() -> None:
    """Shut at noon on a Thursday, the queue opens at 18:00: the engine asks to be called then."""
    policy = Policy(queues={"default": Queue(name="default", hours=("mon-fri 18:00-08:00",))})
    noon = 12 * HOUR_MS
    _state, sink, scheduler = cluster(policy)
    scheduler.run(noon)
    scheduler.feed(job(1, submit_ms=noon))
    step = scheduler.run(noon)
    assert (sink.jobs(), step.wake_ms) == ([], 18 * HOUR_MS)
    scheduler.run(step.wake_ms)
    assert sink.jobs() == [1]


def test_many_starts_at_once_are_shared_too() -> None:
    """On an empty machine one account does not get everything because its jobs came first."""
    policy = Policy(accounts={"x": Account(name="x"), "y": Account(name="y")})
    _state, sink, scheduler = cluster(policy, cpus=64)
    scheduler.feed(job(1, account="x", tasks=100, walltime_ms=1_000))
    scheduler.feed(job(2, account="y", tasks=100, walltime_ms=1_000))
    scheduler.run(0)
    count = np.bincount(sink.jobs(), minlength=3)[1:]
    assert count.sum() == 64
    assert abs(int(count[0]) - 32) <= 2


def test_dominant_charge_counts_the_largest_part() -> None:
    """A job of half the cpus and all gpus is charged as all of the machine."""
    policy = Policy(fairshare=FairShare(dominant=True, charge={"cpu": 1.0, "gpu": 1.0}))
    state, _sink, scheduler = cluster(policy, cpus=8)
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 10_000
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 4, "gpu": 8}),), (OwnerSpec(user="ada"),)))
    scheduler.run(0)
    (ada,) = [row for row in share_rows(state) if row.user == "ada"]
    assert ada.units == pytest.approx(10.0)


def test_what_is_counted_beside_a_resource_is_charged_with_it_alone() -> None:
    """A quarter of the GPUs, in parts: the node has one amount of what is left of one GPU, and that is not all GPUs."""
    policy = Policy(fairshare=FairShare(dominant=True, charge={"cpu": 1.0, "gpu": 1.0}))
    state, _sink, scheduler = cluster(policy, cpus=8)
    capacity = {"cpu": 8, "gpu": 4_000, "gpu-whole": 4_000, "gpu-part": 1_000, "cpu-beside-gpus": 1}
    scheduler.feed(NodesChanged((NodeSpec("g", capacity),), removed=tuple(state.nodes.by_name)))
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 10_000
    request = {"gpu": 1_000, "gpu-part": 1_000, "cpu-beside-gpus": 1}
    scheduler.feed(JobsSubmitted(rows, (ClassSpec(request),), (OwnerSpec(user="ada"),)))
    scheduler.run(0)
    (ada,) = [row for row in share_rows(state) if row.user == "ada"]
    assert ada.units == pytest.approx(2.5)


def test_the_whole_cluster_has_had_all_that_was_used() -> None:
    """Nothing of nothing before the first job starts, all of it afterwards; its siblings are nobody."""
    state, _sink, scheduler = cluster(Policy(), cpus=1)
    scheduler.feed(job(1, user="ada", walltime_ms=10_000))
    assert share_rows(state)[0].used == 0.0
    scheduler.run(0)
    whole = share_rows(state)[0]
    assert (whole.path, whole.user, whole.used, whole.target) == ((), None, 1.0, 1.0)


def test_ends_settle_what_was_charged_too_much() -> None:
    """Charged for ten seconds at its start, one second in the end."""
    state, _sink, scheduler = cluster(Policy(fairshare=FairShare(charge={"cpu": 1_000.0})), cpus=1)
    scheduler.feed(job(1, user="ada", walltime_ms=10_000))
    scheduler.run(0)
    rows = np.zeros(1, END)
    rows["job"], rows["attempt"], rows["ended_ms"] = 1, 1, 1_000
    scheduler.feed(AttemptsEnded(rows))
    (ada,) = [row for row in share_rows(state) if row.user == "ada"]
    assert ada.units == pytest.approx(1.0)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_strict_queue_is_strict_under_every_backfill(backfill: Backfill) -> None:
    """Its second job would fit beside what the first one is promised; it starts when the first one has started."""
    policy = Policy(queues={"default": Queue(name="default", strict=True)}, weights=Weights(fairshare=0.0))
    state, sink, scheduler = cluster(policy, cpus=8, backfill=backfill)
    scheduler.feed(job(1, 5, walltime_ms=10_000))
    scheduler.feed(job(2, 8, walltime_ms=10_000))
    scheduler.feed(job(3, 1, walltime_ms=1_000))
    scheduler.run(0)
    scheduler.run(1)
    assert sink.jobs() == [1]
    scheduler.feed(end(1, at_ms=5_000))
    scheduler.run(5_000)
    assert sink.jobs() == [1, 2]
    scheduler.feed(end(2, at_ms=6_000))
    scheduler.run(6_000)
    assert sink.jobs() == [1, 2, 3]
    check_invariants(state)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_promise_to_another_queue_does_not_let_a_strict_queue_be_overtaken(backfill: Backfill) -> None:
    """Its first job waits behind what another queue's job is promised on node a; its second one fits on node b."""
    policy = Policy(
        queues={"default": Queue(name="default", strict=True), "other": Queue(name="other")},
        weights=Weights(fairshare=0.0),
    )
    state, sink, scheduler = cluster(policy, cpus=1, backfill=backfill)
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}, {"rack": "a"}), NodeSpec("b", {"cpu": 4}, {"rack": "b"}))))

    def on(number: int, cpu: int, rack: str, **columns: Any) -> JobsSubmitted:
        submitted = job(number, cpu, **columns)
        kind = ClassSpec({"cpu": cpu}, 1, (Requirement("rack", Match.IN, (rack,)),))
        return JobsSubmitted(submitted.rows, (kind,), submitted.owners)

    scheduler.feed(on(1, 3, "a", walltime_ms=100_000))
    scheduler.run(0)
    scheduler.feed(on(2, 4, "a", walltime_ms=100_000, queue="other"))
    scheduler.run(0)
    scheduler.feed(on(3, 1, "a", walltime_ms=1_000_000))
    scheduler.feed(on(4, 1, "b", walltime_ms=1_000))
    scheduler.run(0)
    assert sink.jobs() == [1]
    scheduler.feed(end(1, at_ms=100))
    scheduler.run(100)
    scheduler.feed(end(2, at_ms=200))
    scheduler.run(200)
    assert sink.jobs() == [1, 2, 3, 4]
    check_invariants(state)


@given(
    backfill=st.sampled_from(list(Backfill)),
    slice_work=st.sampled_from([1, 3, 1_000]),
    jobs=st.lists(
        st.tuples(
            st.sampled_from(["default", "default", "other"]),
            st.integers(1, 4),
            st.sampled_from(["a", "b", ""]),
            st.sampled_from([1_000, 5_000, 60_000]),
            st.sampled_from([1, 1, 3]),
        ),
        min_size=3,
        max_size=12,
    ),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_strict_queue_starts_in_its_order_whatever_others_do(
    backfill: Backfill, slice_work: int, jobs: list[tuple[str, int, str, int, int]]
) -> None:
    """Two queues on two nodes, jobs that fit on one or on both: the strict one starts strictly by submission."""
    policy = Policy(
        queues={"default": Queue(name="default", strict=True, order=Discipline.FIFO), "other": Queue(name="other")},
        weights=Weights(fairshare=0.0),
    )
    state, sink, scheduler = cluster(policy, cpus=1, backfill=backfill, slice_work=slice_work)
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}, {"rack": "a"}), NodeSpec("b", {"cpu": 4}, {"rack": "b"}))))
    for number, (queue, cpu, rack, walltime_ms, tasks) in enumerate(jobs, start=1):
        submitted = job(number, cpu, queue=queue, walltime_ms=walltime_ms, submit_ms=number, tasks=tasks)
        asked = (Requirement("rack", Match.IN, (rack,)),) if rack else (Requirement("rack", Match.EXISTS),)
        scheduler.feed(JobsSubmitted(submitted.rows, (ClassSpec({"cpu": cpu}, 1, asked),), submitted.owners))
        scheduler.run(number)
    now = len(jobs)
    while state.running_attempts:
        runs = sorted(running(state), key=lambda run: (int(run["end_ms"]), int(run["job"]), int(run["task"])))
        now = max(now + 1, int(runs[0]["end_ms"]))
        scheduler.feed(end(int(runs[0]["job"]), int(runs[0]["task"]), at_ms=now))
        scheduler.run(now)
        check_invariants(state)
    assert len(sink.jobs()) == sum(tasks for *_, tasks in jobs)
    strict = [number for number in sink.jobs() if jobs[number - 1][0] == "default"]
    assert strict == sorted(strict)
