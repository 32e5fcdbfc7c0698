"""Limits: no start goes beyond a ledger, whatever happens in between; what is given back wakes who waits for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    ClockAdvanced,
    ConfigChanged,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    StartsRefused,
    submit_rows,
)
from hal.core.engine.rules.owners import owner_ids_in_use
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import ledger_rows, reservations, running
from hal.core.kernels.structures.layout import REASON_LEDGER
from hal.core.model.policy import Account, Limit, Policy
from hal.core.model.resources import Resources
from hal.core.model.units import Duration
from tests.core.engine.clusters import Starts
from tests.examples import examples

HOUR_MS = 3_600_000


def cluster(policy: Policy, cpus: int = 8, **config: Any) -> tuple[State, Starts, Scheduler]:
    """One node of this many cpus."""
    state = new_state(EngineConfig(order="priority", policy=policy, **config))
    sink = Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged((NodeSpec("n", {"cpu": cpus, "gpu": cpus}),)))
    return state, sink, scheduler


def job(
    number: int, cpu: int = 1, *, account: str = "", user: str = "", queue: str = "default", tasks: int = 1,
    nodes: int = 1, **columns: Any,
) -> JobsSubmitted:  # fmt: skip
    """One job of somebody."""
    rows = submit_rows(1)
    rows["job"], rows["tasks"] = number, tasks
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, nodes),), (OwnerSpec(queue, account, user),))


def end(job: int, task: int = 0, *, at_ms: int = 0, attempt: int = 1, requeue: int = 0) -> AttemptsEnded:
    """One attempt has ended."""
    rows = np.zeros(1, END)
    rows["job"], rows["task"], rows["attempt"], rows["ended_ms"], rows["requeue"] = job, task, attempt, at_ms, requeue
    return AttemptsEnded(rows)


def limits(**named: Limit) -> Policy:
    """A policy of these limits."""
    return Policy(limits=named)


def test_running_tasks_of_a_user_stay_below_the_limit_and_others_pass() -> None:
    """Of ada's five tasks two start; bob, who came later, takes what is left."""
    state, sink, scheduler = cluster(limits(few=Limit(user="*", running=2)))
    scheduler.feed(job(1, user="ada", tasks=5))
    scheduler.feed(job(2, user="bob"))
    scheduler.run(0)
    assert sorted(sink.jobs()) == [1, 1, 2]
    check_invariants(state)


def test_what_is_given_back_starts_the_next() -> None:
    """When one of ada's two ends, her third starts in the next pass, though no row that she needs was short."""
    _state, sink, scheduler = cluster(limits(few=Limit(user="ada", running=2)))
    scheduler.feed(job(1, user="ada", tasks=3))
    scheduler.run(0)
    scheduler.feed(end(1, 0, at_ms=10))
    scheduler.run(10)
    assert sink.jobs() == [1, 1, 1]


def test_resources_in_use_count_over_all_nodes_and_below_an_account() -> None:
    """An organisation's four cpus hold for its projects together."""
    policy = Policy(
        accounts={
            "org": Account(name="org"),
            "a": Account(name="a", parent="org"),
            "b": Account(name="b", parent="org"),
        },
        limits={"org": Limit(account="org", resources=Resources({"cpu": 4}))},
    )
    _state, sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 2, account="a"))
    scheduler.feed(job(2, 3, account="b"))
    scheduler.feed(job(3, 2, account="b"))
    scheduler.feed(job(4, 4, account="c"))
    scheduler.run(0)
    assert sorted(sink.jobs()) == [1, 3, 4]


def test_a_full_ledger_earns_no_reservation() -> None:
    """A job that its limit keeps waiting holds up nobody: the one behind it takes all rows."""
    state, sink, scheduler = cluster(limits(tight=Limit(user="ada", resources=Resources({"cpu": 2}))))
    scheduler.feed(job(1, 4, user="ada"))
    scheduler.feed(job(2, 8, user="bob"))
    scheduler.run(0)
    assert sink.jobs() == [2]
    assert len(reservations(state)) == 0


def test_hours_of_a_period_are_charged_at_the_start_and_settled_at_the_end() -> None:
    """Two cpu-hours: a job of one hour on two cpus uses them up; ending after half an hour it gives half back."""
    policy = limits(month=Limit(user="ada", hours=Resources({"cpu": 2}), period=Duration(100 * HOUR_MS)))
    state, sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 2, user="ada", walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 1, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(0)
    assert sink.jobs() == [1]
    scheduler.feed(end(1, at_ms=HOUR_MS // 2))
    scheduler.run(HOUR_MS // 2)
    assert sink.jobs() == [1, 2]
    (entry,) = ledger_rows(state)
    assert (entry.used, entry.limit) == (2 * 3600, 2 * 3600)


def test_a_new_period_begins_with_nothing_used() -> None:
    """The engine asks to be called when the period ends, and then the job starts."""
    policy = limits(day=Limit(user="ada", hours=Resources({"cpu": 1}), period=Duration(24 * HOUR_MS)))
    _state, sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 1, user="ada", walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 1, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(0)
    scheduler.feed(end(1, at_ms=HOUR_MS))
    step = scheduler.run(HOUR_MS)
    assert (sink.jobs(), step.wake_ms) == ([1], 24 * HOUR_MS)
    scheduler.run(step.wake_ms)
    assert sink.jobs() == [1, 2]


def test_what_was_used_is_not_forgotten_with_its_owner() -> None:
    """Ada's hour is spent and she has no work; a hundred others come and go, so that her name is dropped; when she
    returns within the period she has nothing left."""
    policy = limits(day=Limit(user="*", hours=Resources({"cpu": 1}), period=Duration(24 * HOUR_MS)))
    state, sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 1, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(0)
    scheduler.feed(end(1, at_ms=HOUR_MS))
    for number in range(2, 202):
        scheduler.feed(job(number, 1, user=f"u{number}", walltime_ms=1_000))
        scheduler.run(HOUR_MS)
        scheduler.feed(end(number, at_ms=HOUR_MS))
    assert "ada" not in {owner.user for _row, owner in owner_ids_in_use(state)}
    scheduler.feed(job(500, 1, user="ada", walltime_ms=1_000))
    scheduler.feed(job(501, 1, user="bob", walltime_ms=1_000))
    scheduler.run(HOUR_MS)
    assert sink.jobs()[-1] == 501
    assert 500 not in sink.jobs()
    scheduler.run(24 * HOUR_MS)
    assert sink.jobs()[-1] == 500


def test_hours_need_a_walltime() -> None:
    """What a job without a walltime would use cannot be told: it waits."""
    policy = limits(month=Limit(user="ada", hours=Resources({"cpu": 10})))
    _state, sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 1, user="ada"))
    scheduler.run(0)
    assert sink.jobs() == []


def test_a_cohort_lends_what_is_not_used() -> None:
    """Four of eight cpus are each project's own; one alone may use all eight, and no more than it may borrow."""
    named = {
        name: Limit(account=name, resources=Resources({"cpu": 4}), cohort="lab", borrow=borrow)
        for name, borrow in (("a", None), ("b", Resources({"cpu": 1})))
    }
    _state, sink, scheduler = cluster(limits(**named), cpus=16)
    scheduler.feed(job(1, account="b", tasks=9))
    scheduler.run(0)
    assert len(sink.jobs()) == 5
    scheduler.feed(job(2, account="a", tasks=9))
    scheduler.run(1)
    assert len(sink.jobs()) == 8


def test_limits_that_change_are_counted_anew() -> None:
    """A limit lowered below what runs ends nothing and starts nothing; raised, it lets the next start."""
    state, sink, scheduler = cluster(limits(few=Limit(user="ada", running=2)))
    scheduler.feed(job(1, user="ada", tasks=4))
    scheduler.run(0)
    config = state.config
    for running_now, expected in ((1, 2), (3, 3)):
        policy = limits(few=Limit(user="ada", running=running_now))
        scheduler.feed(ConfigChanged(EngineConfig(order=config.order, policy=policy)))
        scheduler.run(1)
        assert len(sink.jobs()) == expected
    check_invariants(state)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_refusal_names_its_reason_and_a_refused_start_gives_back(backfill: Backfill) -> None:
    """A start that did not happen leaves the ledger as it was."""
    _state, sink, scheduler = cluster(limits(few=Limit(user="ada", running=1)), backfill=backfill)
    scheduler.feed(job(1, user="ada", tasks=2))
    scheduler.run(0)
    plan = sink.plans[0]
    if backfill not in (Backfill.CONSERVATIVE, Backfill.TOP_K):
        assert REASON_LEDGER in plan.verdicts["reason"].tolist()
    scheduler.feed(StartsRefused(plan.starts))
    scheduler.run(1)
    assert len(sink.jobs()) == 2


class Told:
    """A plain count of what every limit holds."""

    def __init__(self) -> None:
        self.live: dict[tuple[int, int], tuple[str, str, int]] = {}

    def running(self, user: str) -> int:
        return sum(who == user for who, _account, _cpu in self.live.values())

    def cpu(self, account: str) -> int:
        return sum(cpu for _who, named, cpu in self.live.values() if named == account)


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE])
@given(data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_no_interleaving_exceeds_a_limit(backfill: Backfill, data: st.DataObject) -> None:
    """Submits, ends, requeues, refusals and changes of policy in any order, in slices of any size: never above it, and
    ledgers equal what a plain count of running attempts says."""
    state, sink, scheduler = cluster(
        limits(u=Limit(user="*", running=3), a=Limit(account="*", resources=Resources({"cpu": 5}))),
        cpus=12, backfill=backfill, slice_work=data.draw(st.sampled_from([1, 7, 1 << 40])),
    )  # fmt: skip
    told, number, seen = Told(), 0, 0
    owners: dict[int, tuple[str, str, int]] = {}
    attempts: dict[tuple[int, int], int] = {}
    for now in range(data.draw(st.integers(3, 20))):
        what = data.draw(st.sampled_from(["submit", "submit", "end", "requeue", "refuse", "policy"]))
        if what == "submit":
            number += 1
            owners[number] = (
                data.draw(st.sampled_from("ab")), data.draw(st.sampled_from("xy")), data.draw(st.integers(1, 3))
            )  # fmt: skip
            user, account, cpu = owners[number]
            scheduler.feed(
                job(number, cpu, user=user, account=account, tasks=data.draw(st.integers(1, 4)), walltime_ms=5_000)
            )
        elif what == "policy":
            scheduler.feed(ConfigChanged(state.config))
        elif told.live:
            key = data.draw(st.sampled_from(sorted(told.live)))
            del told.live[key]
            scheduler.feed(end(*key, at_ms=now, attempt=attempts[key], requeue=int(what == "requeue")))
        scheduler.run(now)
        for plan in sink.plans[seen:]:
            refused = what == "refuse" and data.draw(st.booleans())
            for start in plan.starts:
                key = (int(start["job"]), int(start["task"]))
                told.live[key] = owners[key[0]]
                attempts[key] = int(start["attempt"])
                assert told.running(owners[key[0]][0]) <= 3
                assert told.cpu(owners[key[0]][1]) <= 5
            if refused and plan is sink.plans[-1]:
                scheduler.feed(StartsRefused(plan.starts))
                for start in plan.starts:
                    del told.live[(int(start["job"]), int(start["task"]))]
        seen = len(sink.plans)
        check_invariants(state)
        assert len(running(state)) == len(told.live)
        for entry in ledger_rows(state):
            name = entry.name
            expected = told.running(name.user) if name.what == "running" else told.cpu(name.account)
            assert entry.used == expected


def test_the_clock_alone_changes_no_ledger() -> None:
    """ClockAdvanced inside a period leaves what was used."""
    policy = limits(day=Limit(user="ada", hours=Resources({"cpu": 4}), period=Duration(24 * HOUR_MS)))
    state, _sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 1, user="ada", walltime_ms=HOUR_MS))
    scheduler.run(0)
    scheduler.feed(ClockAdvanced(5))
    assert [entry.used for entry in ledger_rows(state)] == [3600]


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.TOP_K, Backfill.CONSERVATIVE])
def test_who_waits_for_a_limit_and_for_nodes_is_promised_nothing(backfill: Backfill) -> None:
    """Ada's second job fits neither her limit nor the node; bob's long job does not wait for it."""
    state, sink, scheduler = cluster(limits(few=Limit(user="ada", running=1)), backfill=backfill)
    scheduler.feed(job(1, 5, user="ada", walltime_ms=1_000))
    scheduler.feed(job(2, 8, user="ada", walltime_ms=1_000))
    scheduler.feed(job(3, 3, user="bob", walltime_ms=100_000))
    scheduler.run(0)
    assert sorted(sink.jobs()) == [1, 3]
    assert len(reservations(state)) == 0
    check_invariants(state)
