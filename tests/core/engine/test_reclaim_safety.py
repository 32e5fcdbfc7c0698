"""Safety of reclaim, on any small cluster: victims had borrowed, none is needless, one that would do is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import END, INF, AttemptsEnded, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.invariants import check_invariants
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import rows_of_run, running
from hal.core.kernels.layout import RUN_CLAIM
from hal.core.model import Duration
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos, Reclaim
from hal.core.model.resources import Resources
from tests.core.engine.clusters import Starts
from tests.core.engine.reference_victims import Running, Scene

MIN_RUN_MS = 50
GRACE = {"": int(Qos().grace), "low": 10, "idle": 10, "plain": 20}
QOS = {
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
    "idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND, grace=Duration(10)),
    "plain": Qos(name="plain", grace=Duration(20)),
}
Work = list[tuple[str, str, int, int, int, int | None, int]]
COHORT = ("red", "blue", "grey", "pink")
"""Pink lends without taking back."""
WORK = st.lists(
    st.tuples(
        st.sampled_from(["red", "red", "grey", "green"]),
        st.sampled_from(["", "low", "idle", "plain"]),
        st.integers(1, 4),  # cpu
        st.sampled_from([1, 1, 1, 2]),  # gang
        st.integers(0, 30),  # ms after the one before
        st.sampled_from([None, None, 40, 90, 400]),  # limit
        st.sampled_from([1, 1, 1, 2, 3]),  # attempt
    ),
    min_size=1,
    max_size=7,
)


class Quotas:
    """What each account owns, and what a set of attempts that leaves means for it."""

    def __init__(self, own: dict[str, int], account: dict[int, str], runs: list[Running]) -> None:
        self.own = own
        self.account = account
        self.used = {name: sum(self.cpus(run) for run in runs if account[run.job] == name) for name in COHORT}
        self.leaving: list[Running] = []
        """Who borrowed and ends by itself soon: counted as gone."""

    def borrowed(self, run: Running) -> bool:
        """Whether its account borrows, as all run."""
        name = self.account[run.job]
        return name in COHORT and self.used[name] > self.own[name]

    @staticmethod
    def cpus(run: Running) -> int:
        return dict(run.request)["cpu"] * len(run.nodes)

    def borrowing(self, gone: Iterable[Running]) -> bool:
        """Whether there is an order in which each left an account that borrowed then: the largest last."""
        gone = list(gone)
        for name in COHORT:
            mine = sorted(self.cpus(run) for run in gone if self.account[run.job] == name)
            anyway = sum(self.cpus(run) for run in self.leaving if self.account[run.job] == name)
            if mine and self.used[name] - anyway - sum(mine[:-1]) <= self.own[name]:
                return False
        return all(self.account[run.job] in COHORT for run in gone)

    def room(self, gone: Iterable[Running]) -> int:
        """What the cohort has left."""
        back = sum(self.cpus(run) for run in (*gone, *self.leaving) if self.account[run.job] in COHORT)
        return sum(self.own.values()) - sum(self.used.values()) + back


@dataclass
class Lent(Scene):
    """Only who borrowed is counted as gone where it ends by itself soon."""

    quotas: Quotas | None = None

    def leaves(self, run: Running) -> bool:
        return super().leaves(run) and (self.quotas is None or self.quotas.borrowed(run))


@settings(max_examples=300, deadline=None)
@given(
    nodes=st.lists(st.integers(1, 6), min_size=1, max_size=4), work=WORK,
    own=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4)),
    cpu=st.integers(1, 4), gang=st.integers(1, 2), pause=st.integers(0, 120),
    backfill=st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE, Backfill.NONE]),
)  # fmt: skip
def test_safety_reclaim_takes_what_was_borrowed_and_no_more(
    nodes: list[int], work: Work, own: tuple[int, int, int], cpu: int,
    gang: int, pause: int, backfill: Backfill,
) -> None:  # fmt: skip
    """Blue asks for something of its own while red and grey may borrow it."""
    owned = dict(zip(COHORT, (*own, 1), strict=True))
    limits = {
        name: Limit(
            name=name,
            account=name,
            resources=Resources({"cpu": amount}),
            cohort="colours",
            reclaim=Reclaim.WAIT if name == "pink" else Reclaim.PREEMPT,
        )
        for name, amount in owned.items()
    }
    config = EngineConfig(
        policy=Policy(qos=QOS, limits=limits), min_run_ms=MIN_RUN_MS, backfill=backfill, preempt_every_ms=1
    )
    state, sink = State(config), Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged(tuple(NodeSpec(f"n{number}", {"cpu": cpus}) for number, cpus in enumerate(nodes))))
    now = 0
    for number, (account, quality, cpus, wide, later, limit, attempt) in enumerate(work):
        now += later
        rows = submit_rows(1)
        rows["job"], rows["submit_ms"], rows["attempt"] = number + 1, now, attempt
        rows["walltime_ms"] = INF if limit is None else limit
        scheduler.feed(
            JobsSubmitted(rows, (ClassSpec({"cpu": cpus}, wide),), (OwnerSpec(account=account, qos=quality),))
        )
        scheduler.run(now)
    now += pause
    scheduler.run(now)
    if any(len(plan.preemptions) for plan in sink.plans):
        return  # red and grey have taken back from each other already
    runs, account = scene_runs(state, work)
    quotas = Quotas(owned, account, runs)
    scene = Lent(
        now, {f"n{k}": {"cpu": cpus} for k, cpus in enumerate(nodes)}, runs, {"cpu": cpu}, gang, set(GRACE), MIN_RUN_MS
    )
    scene.quotas = quotas
    quotas.leaving = [run for run in runs if scene.leaves(run) and quotas.borrowed(run)]
    sink.plans.clear()
    rows = submit_rows(1)
    rows["job"], rows["submit_ms"], rows["priority"], rows["walltime_ms"] = 100, now, 100, 50
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, gang),), (OwnerSpec(account="blue"),)))
    scheduler.run(now)
    check_invariants(state)
    ask = cpu * gang
    mine = ask + quotas.used["blue"] <= owned["blue"]
    by_job = {run.job: run for run in runs}
    moves = [move for plan in sink.plans for move in plan.preemptions if int(move["for_job"]) == 100]
    victims = [by_job[int(move["job"])] for move in moves]
    started = {int(start["job"]) for plan in sink.plans for start in plan.starts}

    def enough(gone: Iterable[Running]) -> bool:
        gone = list(gone)
        return scene.fitting([*gone, *quotas.leaving]) >= gang and quotas.room(gone) >= ask

    if not victims:
        if mine and 100 not in started and not enough(()):
            soon = any(other.end_ms <= now + max(GRACE.values()) for other in runs)  # it may start by itself as soon
            for run in scene.candidates():
                alone = quotas.borrowing([run]) and enough([run])
                assert not alone or soon or started or claimed(state), f"job {run.job} alone would have done"
        return
    assert mine, "it asked for more than its own"
    assert quotas.borrowing(victims), "a victim had not borrowed"
    assert all(scene.may_go(run) for run in victims), "a victim is protected, or leaves by itself"
    assert enough(victims)
    for run in victims:
        assert not enough([other for other in victims if other is not run]), f"job {run.job} was not needed"
    if gang == 1 and (scene.fitting(quotas.leaving) >= gang or quotas.room(()) >= ask):
        alone = [run for run in scene.candidates() if len(run.nodes) == 1 and quotas.borrowing([run]) and enough([run])]
        price = sum(scene.lost(run) for run in victims)
        assert all(price <= scene.lost(run) for run in alone), "one alone would have been cheaper"
    honour(state, scheduler, victims, owned, account)


def claimed(state: State) -> bool:
    return any(int(run["state"]) == RUN_CLAIM for run in running(state))


def scene_runs(state: State, work: Work) -> tuple[list[Running], dict[int, str]]:
    runs = []
    for run in running(state):
        _account, quality, cpus, *_ = work[int(run["job"]) - 1]
        held = tuple(state.row_name(row) for row in rows_of_run(state, int(run["run"])))
        runs.append(
            Running(
                int(run["job"]), quality, "requeue", GRACE[quality], (("cpu", cpus),), held, int(run["start_ms"]),
                int(run["end_ms"]), int(run["attempt"]),
            )
        )  # fmt: skip
    return runs, {number + 1: account for number, (account, *_) in enumerate(work)}


def honour(
    state: State, scheduler: Scheduler, victims: list[Running], own: dict[str, int], account: dict[int, str]
) -> None:
    """The victims leave one after the other while others ask for everything: blue's job gets what was its own, and what
    runs never exceeds what the cohort has together."""
    claim = next(run for run in running(state) if run["job"] == 100)
    due = max(int(claim["due_ms"]), scheduler.state.clock_ms)
    for number, name in enumerate(("pink", "green")):
        rows = submit_rows(1)
        rows["job"], rows["tasks"], rows["priority"], rows["walltime_ms"] = 200 + number, 20, 1000, 1
        scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 1}),), (OwnerSpec(account=name, qos="plain"),)))
        account[200 + number] = name
    account[100] = "blue"
    scheduler.run(due - 1 if due > scheduler.state.clock_ms else due)
    for run in victims:
        block = np.zeros(1, END)
        block["job"], block["attempt"], block["requeue"], block["held"] = run.job, run.attempt, 1, 1
        scheduler.feed(AttemptsEnded(block))
        scheduler.run(due)
        check_invariants(state)
        used = sum(
            int(state.class_specs[int(run["class_id"])].request["cpu"]) * int(run["nodes"])  # type: ignore[union-attr]
            for run in running(state)
            if run["state"] != RUN_CLAIM and account[int(run["job"])] in COHORT
        )
        assert used <= sum(own.values())
    for run in running(state):
        if int(run["end_ms"]) <= due and run["job"] != 100:
            block = np.zeros(1, END)
            block["job"], block["task"], block["attempt"] = run["job"], run["task"], run["attempt"]
            scheduler.feed(AttemptsEnded(block))
    scheduler.run(due)
    check_invariants(state)
    assert [int(run["state"]) for run in running(state) if run["job"] == 100] == [0], "it has its own and does not run"
