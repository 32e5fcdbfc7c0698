"""A replay under a policy: every start within its limits, whose the jobs are, what each account got."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.policies import register
from hal.core.interfaces import PolicyInfo, RunView
from hal.core.model import InternalError
from hal.core.model.policy import Account, Booking, Limit, Policy, PreemptMode, Qos, Queue, Reclaim
from hal.core.model.resources import Resources
from hal.core.model.units import Duration
from hal.daemons.twin.account_figures import Used, by_account, waiting_periods
from hal.daemons.twin.limit_watch import LimitWatch
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.policy_replay import replay_under
from hal.daemons.twin.population import Population, assign_accounts, of_log, parse_assignment
from hal.daemons.twin.replay import replay
from hal.daemons.twin.site_admission import Site
from hal.daemons.twin.swf import Workload
from tests.daemons.twin.test_replay import generated
from tests.examples import examples

MACHINE = 8
JOBS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 30), st.integers(0, 30), st.integers(1, MACHINE), st.integers(0, 2)),
    min_size=1, max_size=30,
)  # fmt: skip


def workload(jobs: list[tuple[int, int, int, int, int]]) -> tuple[Workload, Population]:
    """Jobs (gap, run, slack, processors, account) of three accounts a, b, c."""
    gap, run, slack, procs, account = (np.array(column, np.int64) for column in zip(*jobs, strict=True))
    number = np.arange(1, len(jobs) + 1)
    log = Workload(number, np.cumsum(gap), run, run + slack, procs, number % 3, {})
    nobody = np.zeros(len(jobs), np.int64)
    return log, Population(("default",), ("a", "b", "c"), ("u",), nobody, account, nobody)


def site(policy: Policy | None = None, order: str = "priority", backfill: Backfill = Backfill.EASY) -> Site:
    return Site(label="site", engine=EngineConfig(order=order, backfill=backfill, policy=policy or Policy()))


@given(jobs=JOBS, begin=st.integers(1, 60), length=st.integers(1, 60))
@settings(max_examples=examples(40))
def test_nothing_runs_in_maintenance(jobs: list[tuple[int, int, int, int, int]], begin: int, length: int) -> None:
    """Both nodes, for a while: whatever may run into it starts afterwards, and everything starts."""
    log, people = workload(jobs)
    upkeep = Booking(
        name="upkeep", start_ms=begin * 1_000, duration=Duration(length * 1_000), count=2, maintenance=True
    )
    run = replay_under(log, Machine(2, 4), people, site(Policy(bookings={"upkeep": upkeep})), check=True)
    start_s = run.start_s
    assert (start_s >= 0).all()
    assert ((start_s + log.limit_s <= begin) | (start_s >= begin + length)).all()


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
@settings(max_examples=examples(40))
@given(jobs=JOBS, order=st.sampled_from(["fcfs", "priority"]), reclaim=st.sampled_from(list(Reclaim)))
def test_every_start_is_within_the_limits(
    backfill: Backfill, jobs: list[tuple[int, int, int, int, int]], order: str, reclaim: Reclaim
) -> None:
    """Running tasks, resources and a cohort that lends, judged by a count of their own; all jobs run in the end."""
    log, people = workload(jobs)
    policy = Policy(
        limits={
            "each": Limit(name="each", account="*", running=2),
            "a": Limit(name="a", account="a", resources=Resources({"cpu": 3_000}), cohort="x", reclaim=reclaim),
            "b": Limit(name="b", account="b", resources=Resources({"cpu": 5_000}), cohort="x", reclaim=reclaim),
        }
    )
    run = replay_under(log, Machine(2, 4), people, site(policy, order, backfill), check=True)
    assert run.started.all()
    assert (run.start_s >= log.submit_s).all()
    assert run.preemptions == 0 or reclaim is Reclaim.PREEMPT


@pytest.mark.parametrize(("backfill", "plain"), [(Backfill.EASY, "easy"), (Backfill.CONSERVATIVE, "conservative")])
def test_without_a_word_of_policy_it_is_the_plain_replay(backfill: Backfill, plain: str) -> None:
    """First come first served, nobody limited: the same starts as `--policy`."""
    log = generated(300, 32, 1.0, seed=5)
    run = replay_under(log, Machine.pool(32), of_log(log, {}, {}), site(order="fcfs", backfill=backfill))
    assert run.start_s.tolist() == replay(log, Machine.pool(32), plain).start_s.tolist()


def test_a_replay_that_is_cut_short_counts_what_was_done_by_then() -> None:
    """At second 15 of three jobs of ten seconds on one processor: one has run, one is half done, one waits."""
    log, people = workload([(0, 10, 0, 1, 0), (0, 10, 0, 1, 0), (0, 10, 0, 1, 1), (20, 10, 0, 1, 1)])
    run = replay_under(log, Machine.pool(1), people, site(order="fcfs"), until_s=15)
    parties = {party.name: party for party in by_account(run)}
    assert (run.arrived, run.until_s, run.waiting) == (3, 15, {"resources": 1})
    assert parties["a"].core_hours * 3600 == pytest.approx(15)
    assert (parties["b"].jobs, parties["b"].waiting, parties["b"].delivered) == (1, 1, 0.0)


@pytest.mark.slow
def test_what_can_never_start_does_not_keep_the_replay_going() -> None:
    """A limit of none: its job is refused, the others ran, although a period of hours goes on for ever."""
    never = Limit(name="never", account="b", hours=Resources({"cpu": 1}), period=Limit().period)
    log, people = workload([(0, 10, 0, 1, 0), (0, 10, 0, 1, 1), (5, 10, 0, 1, 2)])
    run = replay_under(log, Machine.pool(4), people, site(Policy(limits={"never": never})), check=True)
    assert run.started.tolist() == [True, False, True]
    assert (run.waiting, [one.jobs for one in run.refused]) == ({}, [1])


def test_the_watch_finds_a_start_beyond_a_limit() -> None:
    """It counts by itself: a second start of ada's, and one at the wrong time, are faults."""
    policy = Policy(
        queues={"night": Queue(name="night", hours=("18:00-24:00",))},
        limits={"one": Limit(name="one", user="*", running=1)},
    )
    watch, one = LimitWatch(policy), ClassSpec({"cpu": 1_000})
    watch.started(OwnerSpec(user="ada"), one, 0)
    watch.started(OwnerSpec(user="bob"), one, 0)
    with pytest.raises(InternalError, match="limit 'one'"):
        watch.started(OwnerSpec(user="ada"), one, 0)
    with pytest.raises(InternalError, match="outside of its hours"):
        watch.started(OwnerSpec(queue="night"), one, 0)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20))
def test_waiting_spans_are_the_instants_at_which_somebody_waits(jobs: list[tuple[int, int]]) -> None:
    """Second by second, against a plain count."""
    submit = np.array([submit for submit, _ in jobs], np.int64)
    start = submit + np.array([wait for _, wait in jobs], np.int64)
    spans = waiting_periods(submit, start)
    by_span, by_job = (
        {second for begin, end in pairs.tolist() for second in range(begin, end)}
        for pairs in (spans.astype(np.int64), np.stack([submit, start], axis=1))
    )
    assert by_span == by_job
    assert (spans[1:, 0] > spans[:-1, 1]).all()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 5)), min_size=1, max_size=20))
def test_what_was_used_by_an_instant_is_the_sum_second_by_second(jobs: list[tuple[int, int, int]]) -> None:
    """An integral, exactly."""
    start, run, procs = (np.array(column, np.int64) for column in zip(*jobs, strict=True))
    used = Used(start, start + run, procs).by(np.arange(80, dtype=np.float64))
    plain = [sum(p * min(max(t - s, 0), r) for s, r, p in jobs) for t in range(80)]
    assert used.tolist() == pytest.approx(plain)


def test_made_up_users_are_those_that_the_policy_declares() -> None:
    """An account's own users, else all of the policy's, else made-up ones."""
    policy = Policy(accounts={"x": Account(name="x", users={"ada": 1.0}), "y": Account(name="y", parent="x")})
    assert parse_assignment("policy", policy).parts == {"y": 1.0}
    assert parse_assignment("x,y", policy).users == {"x": ("ada",), "y": ("u1", "u2", "u3", "u4", "u5")}


def test_names_of_a_log_are_told_apart() -> None:
    """A header that calls two groups alike, or one that is no name, falls back to the numbers."""
    log, _people = workload([(0, 1, 0, 1, 0)] * 4)
    log = Workload(log.id, log.submit_s, log.run_s, log.limit_s, log.procs, log.user, {}, np.array([1, 2, 3, -1]))
    people = of_log(log, {1: "bio", 2: "bio", 3: "no name!"}, {})
    assert [people.accounts[place] for place in people.account] == ["bio", "g2", "g3", ""]
    again = assign_accounts(log, people, parse_assignment("2", Policy()), seed=1)
    assert set(again.accounts) == {"a1", "a2"}


@pytest.mark.parametrize(
    ("mode", "low", "urgent", "lost_s"),
    [
        (PreemptMode.REQUEUE, [(0, 105), (125, 1125)], (105, 125), 105),
        (PreemptMode.CHECKPOINT, [(0, 115), (135, 1020)], (115, 135), 0),  # 10 s more: see docs/preemption.md
        (PreemptMode.SUSPEND, [(0, 100), (120, 1020)], (100, 120), 0),
        (PreemptMode.CANCEL, [(0, 105)], (105, 125), 0),
    ],
)
def test_what_is_taken_back_runs_in_legs(
    mode: PreemptMode, low: list[tuple[int, int]], urgent: tuple[int, int], lost_s: int
) -> None:
    """A job of 1,000 s leaves at the end of its grace, or stands still, for one of 20 s that comes at second 100."""
    policy = Policy(
        queues={"low": Queue(name="low", default_qos="low"), "urgent": Queue(name="urgent", default_qos="urgent")},
        qos={
            "low": Qos(name="low", preempt_mode=mode, grace=Duration(5_000)),
            "urgent": Qos(name="urgent", priority=10, preempts=("low",)),
        },
    )
    number = np.arange(2)
    run_s = np.array([1_000, 20])
    log = Workload(number, np.array([0, 100]), run_s, run_s, np.array([4, 4]), number, {})
    people = Population(("low", "urgent"), ("a", "b"), ("u",), number, number, 0 * number)
    run = replay_under(log, Machine.pool(4), people, site(policy), check=True)
    spans = list(zip(run.held.job.tolist(), run.held.begin_s.tolist(), run.held.end_s.tolist(), strict=True))
    assert spans == [*((0, *leg) for leg in low), (1, *urgent)]
    assert (run.preemptions, run.lost_s) == (1, 4 * lost_s)
    a, b = by_account(run)
    assert a.core_hours * 3600 == pytest.approx(4 * sum(end - begin for begin, end in low))
    assert b.mean_wait_s == urgent[0] - 100
    assert a.mean_wait_s == low[-1][1] - (105 if mode is PreemptMode.CANCEL else 1_000)


class OldestFirst:
    """Whoever has run longest leaves."""

    info = PolicyInfo("test-oldest-first", "preempt/1")

    def price(self, runs: RunView, now_ms: int) -> NDArray[np.float64]:
        return 1e6 / (1.0 + now_ms - runs.start_ms)


@pytest.mark.parametrize(("preempt", "leaves"), [("least-lost", 1), ("test-oldest-first", 0)])
def test_a_plugin_says_who_is_taken_back(preempt: str, leaves: int) -> None:
    """Two long jobs fill the machine, the second since second 50; an urgent one comes at second 100."""
    register(OldestFirst())
    policy = Policy(
        queues={"low": Queue(name="low", default_qos="low"), "urgent": Queue(name="urgent", default_qos="urgent")},
        qos={
            "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(5_000)),
            "urgent": Qos(name="urgent", priority=10, preempts=("low",)),
        },
    )
    number = np.arange(3)
    run_s = np.array([1_000, 1_000, 20])
    log = Workload(number, np.array([0, 50, 100]), run_s, run_s, np.array([2, 2, 2]), number, {})
    people = Population(("low", "urgent"), ("a",), ("u",), np.array([0, 0, 1]), 0 * number, 0 * number)
    under = Site(label="site", engine=EngineConfig(order="priority", policy=policy, preempt=preempt))
    run = replay_under(log, Machine.pool(4), people, under, check=True)
    assert run.held.end_s[(run.held.job == leaves) & (run.held.begin_s < 100)].tolist() == [105]


@pytest.mark.parametrize(("compaction", "begins"), [(2.0, 130), (0.0, 2_000)])
def test_work_of_a_movable_queue_makes_room_for_a_gang(compaction: float, begins: int) -> None:
    """At second 100 two of three nodes have a job of one core each. A gang of two nodes waits for the first to end, or
    for the grace of the one that is moved beside the other."""
    policy = Policy(queues={"small": Queue(name="small", movable=True), "wide": Queue(name="wide")})
    number = np.arange(5)
    run_s = np.array([2_000, 50, 2_000, 50, 100])
    log = Workload(number, np.array([0, 0, 0, 0, 100]), run_s, run_s, np.array([1, 3, 1, 3, 8]), number, {})
    people = Population(("small", "wide"), ("a",), ("u",), np.array([0, 0, 0, 0, 1]), 0 * number, 0 * number)
    engine = EngineConfig(order="priority", policy=policy, compaction=compaction, compaction_nodes=2)
    run = replay_under(log, Machine(3, 4), people, Site(label="site", engine=engine), check=True)
    assert run.preemptions == (1 if compaction else 0)
    assert run.held.begin_s[run.held.job == 4].tolist() == [begins]


@settings(max_examples=examples(40))
@given(
    jobs=JOBS, mode=st.sampled_from(list(PreemptMode)), grace_ms=st.sampled_from([0, 1_500, 30_000]),
    backfill=st.sampled_from([Backfill.EASY, Backfill.TOP_K]),
)  # fmt: skip
def test_whatever_is_taken_back_the_machine_is_not_overfull_and_all_that_ends_has_run(
    jobs: list[tuple[int, int, int, int, int]], mode: PreemptMode, grace_ms: int, backfill: Backfill
) -> None:
    """Low, middle and urgent queues, a limit; every slice checked. Times are a hundred times those of JOBS."""
    policy = Policy(
        queues={name: Queue(name=name, default_qos=name) for name in ("low", "mid", "urgent")},
        qos={
            "low": Qos(name="low", preempt_mode=mode, grace=Duration(grace_ms)),
            "mid": Qos(name="mid", preempt_mode=PreemptMode.REQUEUE, preempts=("low",), priority=3),
            "urgent": Qos(name="urgent", preempts=("mid",), priority=9),
        },
        limits={"few": Limit(name="few", queue="*", running=3)},
    )
    log, people = workload([(100 * gap, 100 * run, slack, procs, 0) for gap, run, slack, procs, _ in jobs])
    queue = np.array([number for *_, number in jobs], np.int64)
    people = Population(("low", "mid", "urgent"), people.accounts, people.users, queue, queue, people.user)
    run = replay_under(log, Machine.pool(MACHINE), people, site(policy, backfill=backfill), check=True)
    assert run.started.all()
    procs = run.procs[run.held.job]
    change = sorted([*zip(run.held.end_s, -procs, strict=True), *zip(run.held.begin_s, procs, strict=True)])
    assert np.cumsum([amount for _, amount in change]).max() <= MACHINE
    ran = np.bincount(run.held.job, weights=run.held.end_s - run.held.begin_s, minlength=len(jobs))
    assert (ran >= run.run_s).all()
    assert (run.wait_s >= 0).all()
    assert by_account(run)
