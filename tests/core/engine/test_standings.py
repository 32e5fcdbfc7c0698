"""Preemption by queue and by QOS: whose work may be taken back for whose, and that it never goes round in a circle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.engine import new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.engine.events import JobsSubmitted, NodeSpec, submit_rows
from hal.core.engine.tables.qos import MODE_NAMES, Standings
from hal.core.kernels.structures import layout as L
from hal.core.model import Duration, SpecError
from hal.core.model.policy import Policy, PreemptMode, Qos, Queue
from hal.core.model.policy_check import MAX_STANDINGS, check_policy
from tests.core.engine.clusters import engine

NAMES = ["a", "b", "c", "d"]
EDGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda edge: edge[0] < edge[1]), max_size=6)
MODES = st.lists(st.sampled_from(list(PreemptMode)), min_size=4, max_size=4)


def policy_of(queues: list[tuple[int, int]], qos: list[tuple[int, int]], modes: list[PreemptMode]) -> Policy:
    """Four queues and four QOS that take from later ones of their kind."""

    def named(edges: list[tuple[int, int]], at: int) -> tuple[str, ...]:
        return tuple(sorted({NAMES[other] for one, other in edges if one == at}))

    return Policy(
        queues={
            name: Queue(name=name, preempts=named(queues, at), preempt_mode=modes[at]) for at, name in enumerate(NAMES)
        },
        qos={
            name: Qos(name=name, preempts=named(qos, at), preempt_mode=modes[3 - at]) for at, name in enumerate(NAMES)
        },
    )


@given(queues=EDGES, qos=EDGES, modes=MODES)
def test_nobody_takes_from_himself_through_others(
    queues: list[tuple[int, int]], qos: list[tuple[int, int]], modes: list[PreemptMode]
) -> None:
    """Whatever queues and QOS say, as long as neither goes in a circle by itself: their table has no circle."""
    state = new_state(EngineConfig(order="priority", policy=policy_of(queues, qos, modes)))
    takes = state.shares.qos[:, L.STANDING_TAKES :] != 0
    reach = takes.copy()
    for _ in range(len(takes).bit_length()):
        reach |= reach @ reach
    assert not reach.diagonal().any()


@given(queues=EDGES, modes=MODES)
def test_by_queue_alone_taking_is_transitive(queues: list[tuple[int, int]], modes: list[PreemptMode]) -> None:
    """Who may take from b may take from all that b may take from, whatever their QOS."""
    standings = Standings(policy_of(queues, [], modes))
    for one in standings.all:
        for other in standings.all:
            for third in standings.all:
                if standings.takes(one, other) and standings.takes(other, third):
                    assert standings.takes(one, third)


def job(number: int, cpu: int, queue: str, qos: str = "", priority: int = 0) -> JobsSubmitted:
    rows = submit_rows(1)
    rows["job"], rows["priority"] = number, priority
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu}),), (OwnerSpec(queue, qos=qos),))


QUEUES = Policy(
    queues={
        "default": Queue(name="default"),
        "fast": Queue(name="fast", priority=10, preempts=("slow",)),
        "slow": Queue(name="slow", preempt_mode=PreemptMode.SUSPEND, grace=Duration(5_000)),
    },
    qos={
        "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(7_000)),
        "high": Qos(name="high", priority=10, preempts=("low",)),
        "kept": Qos(name="kept"),
    },
)


@pytest.mark.parametrize(
    ("victim", "taker", "mode", "grace_ms"),
    [
        (("slow", ""), ("fast", ""), "suspend", 0),
        (("slow", "low"), ("fast", ""), "requeue", 7_000),
        (("slow", "kept"), ("fast", ""), "suspend", 0),
        (("slow", "low"), ("default", "high"), "requeue", 7_000),
        (("default", "low"), ("slow", "high"), "requeue", 7_000),
        (("fast", "low"), ("slow", "high"), None, 0),
        (("default", ""), ("fast", ""), None, 0),
        (("slow", ""), ("default", "high"), None, 0),
    ],
)
def test_work_of_a_queue_is_taken_back_for_a_queue_that_may(
    victim: tuple[str, str], taker: tuple[str, str], mode: str | None, grace_ms: int
) -> None:
    """By its QOS if that says how, else by its queue; a QOS takes nothing from a queue that ranks higher."""
    state, sink, scheduler = engine(EngineConfig(order="priority", policy=QUEUES), NodeSpec("n", {"cpu": 4}))
    scheduler.feed(job(1, 4, *victim))
    scheduler.run(0)
    scheduler.feed(job(2, 4, *taker, priority=100))
    scheduler.run(100_000)
    moves = [move for plan in sink.plans for move in plan.preemptions]
    told = [(int(move["job"]), MODE_NAMES[int(move["mode"])], int(move["grace_ms"])) for move in moves]
    assert told == ([(1, mode, grace_ms)] if mode else [])
    check_invariants(state)


def test_a_queue_that_takes_from_itself_is_refused() -> None:
    """With the circle named, where the policy is checked and by the engine."""
    policy = Policy(queues={"a": Queue(name="a", preempts=("b",)), "b": Queue(name="b", preempts=("a",))})
    with pytest.raises(SpecError, match=r"queues\.\w\.preempts: a queue may not preempt itself: (a > b > a|b > a > b)"):
        check_policy(policy)
    with pytest.raises(EngineError, match="queue 'a' preempts itself"):
        new_state(EngineConfig(order="priority", policy=policy))


def test_too_many_pairs_of_queues_and_qos_are_refused() -> None:
    """What would make the table large is said with what to do."""
    many = int(np.sqrt(MAX_STANDINGS)) + 1
    mode = PreemptMode.REQUEUE
    policy = Policy(
        queues={f"q{k}": Queue(name=f"q{k}", preempt_mode=mode) for k in range(many)},
        qos={f"s{k}": Qos(name=f"s{k}", preempt_mode=mode) for k in range(many)},
    )
    with pytest.raises(SpecError, match="take part in preemption"):
        check_policy(policy)
