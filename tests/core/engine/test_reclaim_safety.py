"""Safety of reclaim, on any small cluster: victims had borrowed, none is needless, one that would do is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.classes import OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import NodeSpec
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import running
from hal.core.kernels.structures.layout import RUN_CLAIM
from hal.core.model import Duration
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos, Reclaim
from hal.core.model.resources import Resources
from tests.core.engine.busy_cluster import ASKER, MIN_RUN_MS, Before, ask, clear, crowd, play, runs_of, work
from tests.core.engine.clusters import engine
from tests.core.engine.reference_victims import Running, Scene
from tests.examples import examples

GRACE = {"": int(Qos().grace), "low": 10, "idle": 10, "plain": 20}
QOS = {
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
    "idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND, grace=Duration(10)),
    "plain": Qos(name="plain", grace=Duration(20)),
}
COHORT = ("red", "blue", "grey", "pink")
"""Pink lends without taking back."""
WORK = work(
    st.builds(
        OwnerSpec,
        account=st.sampled_from(["red", "red", "grey", "green"]),
        qos=st.sampled_from(["", "low", "idle", "plain"]),
    ),
    st.fixed_dictionaries({"cpu": st.integers(1, 4)}),
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


@settings(max_examples=examples(300), deadline=None)
@given(
    nodes=st.lists(st.integers(1, 6), min_size=1, max_size=4), before=WORK,
    own=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4)),
    cpu=st.integers(1, 4), gang=st.integers(1, 2), pause=st.integers(0, 120),
    backfill=st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE, Backfill.NONE]),
)  # fmt: skip
def test_safety_reclaim_takes_what_was_borrowed_and_no_more(
    nodes: list[int], before: list[Before], own: tuple[int, int, int], cpu: int,
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
    state, sink, scheduler = engine(config, *(NodeSpec(f"n{k}", {"cpu": cpus}) for k, cpus in enumerate(nodes)))
    now = play(scheduler, before, pause)
    if any(len(plan.preemptions) for plan in sink.plans):
        return  # red and grey have taken back from each other already
    runs = runs_of(state, before, lambda qos: ("requeue", GRACE[qos]))
    account = {number + 1: job.owner.account for number, job in enumerate(before)}
    quotas = Quotas(owned, account, runs)
    scene = Lent(
        now, {f"n{k}": {"cpu": cpus} for k, cpus in enumerate(nodes)}, runs, {"cpu": cpu}, gang, set(GRACE), MIN_RUN_MS
    )
    scene.quotas = quotas
    quotas.leaving = [run for run in runs if scene.leaves(run) and quotas.borrowed(run)]
    sink.plans.clear()
    ask(scheduler, {"cpu": cpu}, gang, OwnerSpec(account="blue"), now)
    asked = cpu * gang
    mine = asked + quotas.used["blue"] <= owned["blue"]
    by_job = {run.job: run for run in runs}
    moves = [move for plan in sink.plans for move in plan.preemptions if int(move["for_job"]) == ASKER]
    victims = [by_job[int(move["job"])] for move in moves]
    started = {int(start["job"]) for plan in sink.plans for start in plan.starts}

    def enough(gone: Iterable[Running]) -> bool:
        gone = list(gone)
        return scene.fitting([*gone, *quotas.leaving]) >= gang and quotas.room(gone) >= asked

    if not victims:
        if mine and ASKER not in started and not enough(()):
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
    if gang == 1 and (scene.fitting(quotas.leaving) >= gang or quotas.room(()) >= asked):
        alone = [run for run in scene.candidates() if len(run.nodes) == 1 and quotas.borrowing([run]) and enough([run])]
        price = sum(scene.lost(run) for run in victims)
        assert all(price <= scene.lost(run) for run in alone), "one alone would have been cheaper"
    honour(state, scheduler, victims, owned, account)


def claimed(state: State) -> bool:
    return any(int(run["state"]) == RUN_CLAIM for run in running(state))


def honour(
    state: State, scheduler: Scheduler, victims: list[Running], own: dict[str, int], account: dict[int, str]
) -> None:
    """The victims leave one after the other while others ask for everything: blue's job gets what was its own, and what
    runs never exceeds what the cohort has together."""
    claim = next(run for run in running(state) if run["job"] == ASKER)
    due = max(int(claim["due_ms"]), state.clock_ms)
    crowd(scheduler, OwnerSpec(account="pink", qos="plain"), OwnerSpec(account="green", qos="plain"))
    account |= {ASKER: "blue", 200: "pink", 201: "green"}

    def within() -> None:
        used = sum(
            int(state.catalogue.class_specs[int(run["class_id"])].request["cpu"]) * int(run["nodes"])  # type: ignore[union-attr]
            for run in running(state)
            if run["state"] != RUN_CLAIM and account[int(run["job"])] in COHORT
        )
        assert used <= sum(own.values())

    clear(scheduler, victims, due, held=True, then=within)
