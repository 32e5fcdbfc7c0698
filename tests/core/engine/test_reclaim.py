"""Reclaim of lent quota: who lent gets it back when it has work, from those who borrow, and from nobody else."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from hal.core.engine import State, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsCancelled, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import ledger_rows
from hal.core.engine.why.explain import explain
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos, Queue, Reclaim
from hal.core.model.resources import Resources
from hal.core.model.units import Duration
from tests.core.engine.clusters import Starts, places
from tests.core.engine.test_preempting import over, play, taken

SECOND = 1_000


def policy(reclaim: Reclaim = Reclaim.PREEMPT, **qos: Qos) -> Policy:
    """Accounts red, blue and grey own 4 cpus each of one cohort; green has a limit of its own."""
    named = {
        name: Limit(name=name, account=name, resources=Resources({"cpu": 4}), cohort="colours", reclaim=reclaim)
        for name in ("red", "blue", "grey")
    }
    return Policy(limits={**named, "green": Limit(name="green", account="green", running=100)}, qos=qos)


def job(number: int, cpu: int, account: str, *, gang: int = 1, qos: str = "", **columns: Any) -> JobsSubmitted:
    rows = submit_rows(1)
    rows["job"] = number
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, gang),), (OwnerSpec(account=account, qos=qos),))


def cluster(rules: Policy, *cpus: int, **config: Any) -> tuple[State, Starts, Scheduler]:
    """Nodes of so many cpus."""
    state = new_state(EngineConfig(order="fcfs", policy=rules, **config))
    sink = Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged(tuple(NodeSpec(f"n{place}", {"cpu": cpu}) for place, cpu in enumerate(cpus))))
    return state, sink, scheduler


def used(state: State) -> dict[str, int]:
    """By limit, "" for the cohort."""
    return {row.name.limit: row.used for row in ledger_rows(state) if row.name.what == "resources"}


def lent(**config: Any) -> tuple[State, Starts, Scheduler]:
    """Red borrows all: jobs 1, 2 and 3 of 4 cpus each, since 0, 10 and 20 s; there are cpus to spare. It is 100 s."""
    state, sink, scheduler = cluster(policy(**config.pop("rules", {})), 16, 16, **config)
    for number in range(3):
        play(scheduler, number * 10 * SECOND, job(number + 1, 4, "red"))
    play(scheduler, 100 * SECOND)
    assert used(state) == {"red": 12, "": 12}
    return state, sink, scheduler


@pytest.mark.parametrize("backfill", list(Backfill))
def test_what_was_lent_comes_back_from_who_would_lose_least(backfill: Backfill) -> None:
    """Blue asks for its 4 cpus: job 3, the youngest of red's, leaves, and blue starts when it has left, not before,
    though nodes are free all the time. Nobody else gets the quota meanwhile."""
    state, sink, scheduler = lent(backfill=backfill)
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    assert taken(sink) == [(3, "requeue", 4)]
    assert sink.jobs() == [1, 2, 3]
    play(scheduler, 101 * SECOND, job(5, 1, "grey", priority=-1), job(6, 1, "red"))
    assert 6 not in sink.jobs(), "red borrows: what comes free is not for it"
    play(scheduler, 105 * SECOND, over((3, 1), requeue=True))
    assert sink.jobs()[:4] == [1, 2, 3, 4]
    assert used(state)["blue"] == 4
    play(scheduler, 200 * SECOND)
    assert used(state)[""] <= 12


def test_a_single_cpu_comes_back_too() -> None:
    """The least that can be asked for: one of red's jobs leaves for it."""
    _state, sink, scheduler = lent()
    play(scheduler, 100 * SECOND, job(4, 1, "blue"))
    assert taken(sink) == [(3, "requeue", 4)]


def test_without_it_what_was_lent_comes_back_as_tasks_end() -> None:
    """The default."""
    _state, sink, scheduler = lent(rules={"reclaim": Reclaim.WAIT})
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    assert taken(sink) == []
    play(scheduler, 110 * SECOND, over((1, 1)))
    assert sink.jobs() == [1, 2, 3, 4]


def test_nobody_who_stays_within_its_own_part_is_taken_back() -> None:
    """Red uses its 4, grey borrows 4: grey's second job leaves, however long it has run; red's never."""
    state, sink, scheduler = cluster(policy(), 32)
    play(scheduler, 0, job(1, 4, "grey"), job(2, 4, "grey"))
    play(scheduler, 90 * SECOND, job(3, 4, "red"))
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    assert [victim for victim, _, _ in taken(sink)] in ([1], [2])
    play(scheduler, 130 * SECOND, over((taken(sink)[0][0], 1), requeue=True))
    assert used(state) == {"red": 4, "blue": 4, "grey": 4, "": 12}
    play(scheduler, 200 * SECOND, job(5, 4, "blue"))
    assert len(taken(sink)) == 1, "blue asks for more than is its own"


def test_no_more_is_taken_than_was_borrowed() -> None:
    """Red uses 6 in three jobs, 2 of them borrowed; grey 4. Blue asks for 4: one of red's jobs is enough, with what is
    free; a second one would take red's own."""
    state, sink, scheduler = cluster(policy(), 32)
    play(scheduler, 0, job(1, 2, "red"), job(2, 2, "red"), job(3, 2, "red"), job(4, 4, "grey"))
    play(scheduler, 100 * SECOND, job(5, 4, "blue"))
    assert len(taken(sink)) == 1
    play(scheduler, 101 * SECOND, over((taken(sink)[0][0], 1), requeue=True))
    assert used(state) == {"red": 4, "blue": 4, "grey": 4, "": 12}


def test_one_job_that_gives_enough_leaves_rather_than_several() -> None:
    """Job 1 (4 cpus, 10 s old) loses 40, jobs 2 to 5 (1 cpu, 15 s) 15 each: 60 together."""
    _state, sink, scheduler = cluster(policy(), 32)
    play(scheduler, 0, *(job(number, 1, "red") for number in range(2, 6)), job(6, 4, "red"))
    play(scheduler, 5 * SECOND, job(7, 4, "red"))
    play(scheduler, 15 * SECOND, job(8, 4, "blue"))
    assert taken(sink) == [(7, "requeue", 8)]


def test_nodes_that_borrowers_hold_are_cleared_too() -> None:
    """The cohort has room, the nodes have not: red holds both, green's work is nobody's to take."""
    state, sink, scheduler = cluster(policy(), 4, 4, 4)
    play(scheduler, 0, job(1, 4, "green"))
    play(scheduler, 10 * SECOND, job(2, 4, "red"))
    play(scheduler, 20 * SECOND, job(3, 4, "red"))
    assert used(state) == {"red": 8, "": 8}
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    assert taken(sink) == [(3, "requeue", 4)]
    play(scheduler, 105 * SECOND, over((3, 1), requeue=True))
    assert places(state)[4] == ["n2"]


def test_quota_and_nodes_are_taken_back_together() -> None:
    """A gang of two needs two nodes and 4 cpus of quota: the two whole nodes that red holds, not its small jobs."""
    state, sink, scheduler = cluster(policy(), 2, 2, 8)
    play(scheduler, 0, job(1, 2, "red", gang=2), job(2, 8, "red"))
    assert used(state) == {"red": 12, "": 12}
    play(scheduler, 100 * SECOND, job(3, 2, "blue", gang=2))
    assert taken(sink) == [(1, "requeue", 3)]


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        (PreemptMode.OFF, "requeue"),
        (PreemptMode.REQUEUE, "requeue"),
        (PreemptMode.CANCEL, "cancel"),
        (PreemptMode.CHECKPOINT, "checkpoint"),
        (PreemptMode.SUSPEND, "requeue"),
    ],
)
def test_the_borrowers_qos_says_how(mode: PreemptMode, how: str) -> None:
    """What stands still would keep its quota, and what says nothing has still borrowed: both are requeued."""
    rules = policy(slow=Qos(name="slow", preempt_mode=mode, grace=Duration(5_000)))
    _state, sink, scheduler = cluster(rules, 32)
    play(scheduler, 0, job(1, 12, "red", qos="slow"))
    play(scheduler, 100 * SECOND, job(2, 4, "blue"))
    assert taken(sink) == [(1, how, 2)]
    grace = [int(move["grace_ms"]) for plan in sink.plans for move in plan.preemptions]
    assert grace == [15_000 if mode is PreemptMode.CHECKPOINT else 5_000]
    assert [int(move["lent"]) for plan in sink.plans for move in plan.preemptions] == [1]


def test_work_without_a_qos_gets_the_grace_of_one() -> None:
    """Thirty seconds, as where a QOS says nothing else."""
    _state, sink, scheduler = lent()
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    assert [int(move["grace_ms"]) for plan in sink.plans for move in plan.preemptions] == [int(Qos().grace)]


def test_what_was_taken_back_is_protected_next_time() -> None:
    """Red's job runs again on what blue leaves; blue is back after ten seconds and waits until it ran one minute."""
    _state, sink, scheduler = cluster(policy(), 32)
    play(scheduler, 0, job(1, 12, "red"))
    play(scheduler, 100 * SECOND, job(2, 4, "blue"))
    play(scheduler, 110 * SECOND, over((1, 1), requeue=True))
    play(scheduler, 120 * SECOND, over((2, 1)))
    assert sink.jobs() == [1, 2, 1]
    play(scheduler, 130 * SECOND, job(3, 4, "blue"))
    assert len(taken(sink)) == 1
    wake = scheduler.step(130 * SECOND).wake_ms
    assert wake == 180 * SECOND
    play(scheduler, wake)
    assert taken(sink)[1:] == [(1, "requeue", 3)]


def test_nobody_leaves_where_the_quota_comes_back_by_itself_within_the_grace() -> None:
    """Red's job 1 ends by its limit in 20 s; its grace is 30."""
    _state, sink, scheduler = cluster(policy(), 32)
    play(scheduler, 0, job(1, 4, "red", walltime_ms=120 * SECOND), job(2, 8, "red"))
    play(scheduler, 100 * SECOND, job(3, 4, "blue"))
    assert taken(sink) == []
    play(scheduler, 120 * SECOND, over((1, 1)))
    assert sink.jobs() == [1, 2, 3]


def test_a_promise_to_a_job_that_ranks_before_is_kept() -> None:
    """Green waits for all of node n0 (promised when job 1 ends, at 200 s); blue, behind it, may have back its quota but
    not that node beyond its promise: its job without a limit goes to the other one."""
    state, sink, scheduler = cluster(policy(), 8, 4)
    play(scheduler, 0, job(1, 8, "red", walltime_ms=200 * SECOND), job(2, 4, "red", walltime_ms=900 * SECOND))
    play(scheduler, 50 * SECOND, job(3, 8, "green"))
    play(scheduler, 60 * SECOND, job(4, 4, "blue"))
    assert taken(sink) == [(2, "requeue", 4)]
    play(scheduler, 70 * SECOND, over((2, 1), requeue=True))
    assert places(state)[4] == ["n1"]


def test_why_tells_who_has_to_give_back() -> None:
    """The lender: whose work is taken back, and until when."""
    state, _sink, scheduler = lent()
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    told = explain(state, 4, 101 * SECOND)
    assert told.message == (
        "reclaims quota that its cohort has borrowed: 1 attempt (job 3) is preempted for it, gone within 29s"
    )
    assert told.starts_at_ms == 130 * SECOND


def test_why_tells_that_what_was_lent_is_protected() -> None:
    """Nobody may be taken back now: the message of the limit says so, and what is this job's own."""
    state, _sink, scheduler = cluster(policy(), 32)
    play(scheduler, 0, job(1, 12, "red", attempt=3))
    play(scheduler, 10 * SECOND, job(2, 4, "blue"))
    told = explain(state, 2, 11 * SECOND)
    assert told.message.startswith("cohort 'colours' together may use ")
    assert told.helps == ("others have borrowed this job's own quota; it is reclaimed as soon as possible",)


def test_a_claim_that_falls_gives_the_quota_back() -> None:
    """The lender is cancelled while red's job leaves: the quota is anybody's again."""
    state, sink, scheduler = lent()
    play(scheduler, 100 * SECOND, job(4, 4, "blue"))
    play(scheduler, 101 * SECOND, JobsCancelled(np.array([4])))
    play(scheduler, 105 * SECOND, over((3, 1), requeue=True))
    assert sink.jobs() == [1, 2, 3, 3]
    assert used(state) == {"red": 12, "": 12, "blue": 0}


def borrowed_until(end_s: int, **config: Any) -> tuple[State, Starts, Scheduler]:
    """Red borrows all, in jobs that end by themselves then: whoever looks for it within their grace does so in vain."""
    state, sink, scheduler = cluster(policy(), 32, **config)
    play(scheduler, 0, *(job(number, 6, "red", walltime_ms=end_s * SECOND) for number in (1, 2)))
    return state, sink, scheduler


def test_two_lenders_search_once_each_at_an_instant() -> None:
    """Jobs 100 and 5832 once pushed each other out of what was remembered: an instant comes to its end all the same."""
    ids = (100, 5832)
    _state, sink, scheduler = borrowed_until(120)
    scheduler.feed(job(ids[0], 4, "blue"))
    scheduler.feed(job(ids[1], 4, "grey"))
    assert not scheduler.run(100 * SECOND, 10).more
    for now in range(101, 120):
        assert not scheduler.run(now * SECOND, 10).more, "the next instants too"
    assert taken(sink) == []
    play(scheduler, 120 * SECOND, over((1, 1), (2, 1)))
    assert sorted(sink.jobs()) == [1, 2, *ids]


def test_many_lenders_search_once_each_at_an_instant() -> None:
    """Over a thousand kinds of jobs, and a search may follow the last one at once: each remembers its own."""
    jobs = range(100, 1_300)
    state, sink, scheduler = borrowed_until(120, preempt_every_ms=1)
    for number in jobs:
        rows = submit_rows(1)
        rows["job"] = number
        owner = OwnerSpec(account="blue", user=f"u{number}")
        scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 4}),), (owner,)))
    for now in (100 * SECOND, 100 * SECOND, 100 * SECOND + 1):
        assert not scheduler.run(now, 2 * len(jobs) + 4).more
    assert taken(sink) == []
    check_invariants(state)


def test_a_lender_of_a_strict_queue_is_served_when_it_is_first() -> None:
    """Job 3, whose account may run nothing, stands before job 4; then it is gone."""
    rules = msgspec.structs.replace(policy(), queues={"line": Queue(name="line", strict=True)})
    rules = msgspec.structs.replace(
        rules, limits={**rules.limits, "none": Limit(name="none", account="white", running=0)}
    )
    _state, sink, scheduler = cluster(rules, 32)
    play(scheduler, 0, job(1, 12, "red"))
    for number, account in ((3, "white"), (4, "blue"), (5, "grey")):
        rows = submit_rows(1)
        rows["job"] = number
        owner = OwnerSpec(account=account, queue="line")
        play(scheduler, 50 * SECOND, JobsSubmitted(rows, (ClassSpec({"cpu": 4}),), (owner,)))
    play(scheduler, 100 * SECOND)
    assert taken(sink) == []
    play(scheduler, 101 * SECOND, JobsCancelled(np.array([3])))
    assert taken(sink) == [(1, "requeue", 4)]


@pytest.mark.parametrize("size", [10, 40])
def test_a_search_that_finds_nothing_counts_what_it_walks_over(size: int) -> None:
    """Red borrows on many small nodes, blue needs a large one, which green holds: each attempt and each node is looked
    at a bounded number of times, and each time counts as work."""
    _state, sink, scheduler = cluster(policy(), 8, *([1] * size))
    play(scheduler, 0, job(1, 8, "green"))
    play(scheduler, 0, *(job(number, 1, "red") for number in range(2, 10)))
    play(scheduler, 100 * SECOND, job(100, 4, "blue"))
    work = sum(plan.work for plan in sink.plans if len(plan.moves))
    assert taken(sink) == []
    attempts, nodes = 9, size + 1
    assert 6 * attempts + 2 * nodes < work <= 12 * (attempts + nodes)
