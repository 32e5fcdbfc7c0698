"""Safety of taking back, on any small cluster: victims are lawful, none is needless, a way that exists is found."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hal.core.engine import State
from hal.core.engine.classes import OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import NodeSpec
from hal.core.engine.policies import LEAST_LOST, register
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables.qos import LAST_GRACE_MS
from hal.core.engine.views import rows_of_run, running
from hal.core.interfaces import PolicyInfo, RunView
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from tests.core.engine.busy_cluster import ASKER, MIN_RUN_MS, Before, ask, clear, crowd, play, runs_of, work
from tests.core.engine.clusters import Starts, engine, places
from tests.core.engine.reference_victims import Amounts, Running, Scene
from tests.examples import examples

QOS = {
    "urgent": Qos(name="urgent", preempts=("low", "spot", "idle")),
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
    "spot": Qos(name="spot", preempt_mode=PreemptMode.CHECKPOINT, grace=Duration(20)),
    "idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND, grace=Duration(10)),
    "plain": Qos(name="plain"),
}
NODES = st.lists(st.fixed_dictionaries({"cpu": st.integers(1, 6), "memory": st.integers(0, 6)}), min_size=1, max_size=4)
WORK = work(
    st.builds(OwnerSpec, qos=st.sampled_from(["low", "low", "spot", "idle", "plain"])),
    st.fixed_dictionaries({"cpu": st.integers(1, 4), "memory": st.integers(0, 3)}),
)


class Listed:
    """Prices by job, as a test lists them."""

    info = PolicyInfo("test-listed", "preempt/1")
    prices: tuple[float, ...] = ()

    def price(self, runs: RunView, now_ms: int) -> NDArray[np.float64]:
        return np.array(self.prices)[runs.job - 1]


LISTED = Listed()
register(LISTED)


def leave(quality: str) -> tuple[str, int]:
    """How work of a QOS is made to leave, and the milliseconds it gets."""
    qos = QOS[quality]
    last_ms = LAST_GRACE_MS if qos.preempt_mode is PreemptMode.CHECKPOINT else 0
    return qos.preempt_mode.value, int(qos.grace) + last_ms


def prepare(
    nodes: list[Amounts],
    before: list[Before],
    pause: int,
    backfill: Backfill,
    preempt: str,
    racks: list[str] | None = None,
) -> tuple[State, Starts, Scheduler, int]:
    """An engine of these nodes and `QOS` that is busy, and the time."""
    config = EngineConfig(
        policy=Policy(qos=QOS), min_run_ms=MIN_RUN_MS, backfill=backfill, preempt_every_ms=1, preempt=preempt,
        levels=() if racks is None else ("rack",),
    )  # fmt: skip
    specs = [
        NodeSpec(f"n{number}", amounts, domains=() if racks is None else (racks[number],))
        for number, amounts in enumerate(nodes)
    ]
    state, sink, scheduler = engine(config, *specs)
    return state, sink, scheduler, play(scheduler, before, pause)


@settings(max_examples=examples(200), deadline=None)
@given(
    nodes=NODES, before=WORK, cpu=st.integers(1, 5), memory=st.integers(0, 4), gang=st.integers(1, 3),
    pause=st.integers(0, 120), backfill=st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE, Backfill.NONE]),
    prices=st.none() | st.lists(st.sampled_from([0.0, 1.0, 2.5, 3.0, 7.0, np.inf]), min_size=7, max_size=7),
    racks=st.none() | st.lists(st.sampled_from(["a", "a", "b", ""]), min_size=4, max_size=4),
)  # fmt: skip
def test_safety_victims_are_lawful_needed_and_found_where_there_are_any(
    nodes: list[Amounts], before: list[Before], cpu: int, memory: int, gang: int, pause: int, backfill: Backfill,
    prices: list[float] | None, racks: list[str] | None,
) -> None:  # fmt: skip
    """Against every set of victims that there is, by HAL's own prices and a plugin's. What is freed then goes to whom
    it was freed for."""
    LISTED.prices = tuple(prices or ())
    preempt = LEAST_LOST if prices is None else "test-listed"
    state, sink, scheduler, now = prepare(nodes, before, pause, backfill, preempt, racks)
    request = {"cpu": cpu, "memory": memory}
    scene = Scene(
        now,
        {f"n{number}": dict(amounts) for number, amounts in enumerate(nodes)},
        runs_of(state, before, leave),
        {name: amount for name, amount in request.items() if amount},
        gang,
        {"low", "spot", "idle"},
        MIN_RUN_MS,
    )
    scene.racks = None if racks is None else {f"n{number}": racks[number] for number in range(len(nodes))}
    scene.prices = None if prices is None else {number + 1: price for number, price in enumerate(prices)}
    sink.plans.clear()
    ask(scheduler, request, gang, OwnerSpec(qos="urgent"), now, "" if racks is None else "rack")
    moves = [move for plan in sink.plans for move in plan.preemptions]
    by_job = {run.job: run for run in scene.running}
    victims = [by_job[int(move["job"])] for move in moves]
    started = {int(start["job"]) for plan in sink.plans for start in plan.starts}
    if not victims:
        possible = scene.sets() and not scene.enough(())
        if ASKER not in started and possible:
            # Only where it would start by itself as soon.
            soonest = min(
                max(now, *(now + r.grace_ms if r.mode != "suspend" else now for r in s)) for s in scene.sets()
            )
            longest = max(now + run.grace_ms for run in scene.running if run.quality in scene.takes)
            assert scene.fitting((), until_ms=longest) >= gang or soonest > longest, "a way was not found"
        return
    assert all(run in scene.candidates() for run in victims), "a victim that may not be taken"
    assert not scene.enough(()), "it fits without any"
    assert scene.enough(victims)
    for run in victims:
        assert not scene.enough([other for other in victims if other is not run]), f"job {run.job} was not needed"
    due = max(now + scene.grace(run) for run in victims)
    assert scene.fitting((), until_ms=due) < gang, "it would have started by itself"
    price = sum(scene.lost(run) for run in victims)
    if gang == 1:
        alone = [scene.lost(run) for run in scene.candidates() if len(run.nodes) == 1 and scene.enough([run])]
        assert all(price <= other for other in alone), "one alone would have been cheaper"
        held = [name for run in scene.candidates() for name in run.nodes]
        if len(set(held)) == len(held):
            assert price == min(sum(scene.lost(run) for run in chosen) for chosen in scene.sets())
    honour(state, scheduler, victims)


def honour(state: State, scheduler: Scheduler, victims: list[Running]) -> None:
    """The victims leave one after the other while others ask for everything: the claim's owner gets its nodes."""
    (claim,) = [run for run in running(state) if run["job"] == ASKER]
    promised = sorted(state.node_name(row) for row in rows_of_run(state, int(claim["run"])))
    crowd(scheduler, OwnerSpec(qos="plain"))
    ended = [run for run in victims if run.mode != "suspend"]
    clear(scheduler, ended, int(claim["due_ms"]), held=False, then=lambda: None)
    assert sorted(places(state)[ASKER]) == promised
