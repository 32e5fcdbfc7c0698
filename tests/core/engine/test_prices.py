"""A Preempt says who is taken back first; a wrong answer names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hal.core.engine import EngineError
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsSubmitted, NodeSpec, submit_rows
from hal.core.engine.policies import LEAST_LOST, register
from hal.core.engine.rules.configuration import new_state
from hal.core.interfaces import PolicyInfo, RunView
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos, Reclaim
from hal.core.model.resources import Resources
from tests.core.engine.busy_cluster import Before, ask
from tests.core.engine.reference_victims import Amounts
from tests.core.engine.test_preempting import SECOND, A, B, config, engine, full, job, over, play, taken
from tests.core.engine.test_preempting_safety import NODES, WORK, prepare
from tests.examples import examples


class Said:
    """What a test says."""

    info = PolicyInfo("test-said", "preempt/1")
    answer: Callable[[RunView, int], Any] = staticmethod(lambda runs, now_ms: runs.wasted)
    seen: RunView | None = None
    asked = 0

    def price(self, runs: RunView, now_ms: int) -> NDArray[np.float64]:
        self.seen, self.asked = runs, self.asked + 1
        return self.answer(runs, now_ms)


SAID = Said()
register(SAID)


@pytest.fixture
def said() -> Any:
    yield SAID
    SAID.answer = lambda runs, now_ms: runs.wasted


def test_the_cheapest_by_the_plugin_leaves_first_and_what_it_never_takes_stays(said: Said) -> None:
    """HAL would take job 2, which ran 100 s; priced by what is left to do, job 1 goes; with job 1 at inf, job 2."""
    for prices, victim in (({1: 1.0, 2: 2.0}, 1), ({1: np.inf, 2: 1e12}, 2)):
        said.answer = lambda runs, now_ms, prices=prices: np.array([prices[job] for job in runs.job.tolist()])
        _state, sink, scheduler = full(preempt="test-said")
        play(scheduler, 200 * SECOND, job(3, 4, "urgent"))
        assert taken(sink) == [(victim, "requeue", 3)]


def test_where_all_are_never_taken_nobody_is(said: Said) -> None:
    """And the search is not repeated before something has changed."""
    said.answer = lambda runs, now_ms: np.full(len(runs.job), np.inf)
    _state, sink, scheduler = full(preempt="test-said")
    play(scheduler, 200 * SECOND, job(3, 4, "urgent"))
    asked = said.asked
    play(scheduler, 300 * SECOND)
    assert (taken(sink), said.asked) == ([], asked)


def test_it_sees_names_amounts_and_what_would_be_lost(said: Said) -> None:
    """Job 1: both nodes, half of each cpu, 100 s: 100 node-seconds. Job 2: no limit. A plain job is not asked about."""
    _state, _sink, scheduler = engine(config(preempt="test-said"), A, B)
    play(scheduler, 0, job(1, 2, gang=2, walltime_ms=500 * SECOND, submit_ms=0))
    play(scheduler, 50 * SECOND, job(2, 1, memory=4, priority=3), job(5, 1, "plain"))
    play(scheduler, 100 * SECOND, job(3, 3, "urgent"))
    runs = said.seen
    assert runs is not None
    order = np.argsort(runs.job)
    assert runs.job[order].tolist() == [1, 2]
    assert runs.qos.tolist() == ["low", "low"]
    assert (runs.queue[0], runs.account[0]) == ("default", "")
    assert runs.wasted[order].tolist() == [100.0, 25.0]
    assert runs.nodes[order].tolist() == [2, 1]
    assert runs.amounts[:, order].tolist() == [[2, 1], [0, 4]]
    assert runs.resources == ("cpu", "memory")
    assert runs.end_ms[order].tolist() == [500 * SECOND, 1 << 60]


def test_it_is_asked_once_a_search_in_however_many_slices(said: Said) -> None:
    """A slice of one row check each."""
    said.asked = 0
    _state, sink, scheduler = full(preempt="test-said", slice_work=1)
    scheduler.feed(job(3, 4, "urgent"))
    scheduler.run(200 * SECOND, most_slices=1_000)
    assert (taken(sink), said.asked) == ([(2, "requeue", 3)], 1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda runs: np.zeros(7),
            r"preempt 'test-said': price\(\) returned an array of shape \(7,\); \(2,\) is needed",
        ),
        (lambda runs: runs.qos, "price.*dtype <U3; floats are needed"),
        (
            lambda runs: runs.wasted * np.nan,
            "price.*returned nan for job 1: a price is 0 or more, inf where it is never",
        ),
        (lambda runs: -runs.wasted, r"price.*returned -\d+.0 for job 1"),
        (lambda runs: runs.gpus, r"price\(\) raised AttributeError"),
    ],
)
def test_a_wrong_answer_names_the_plugin(said: Said, answer: Callable[[RunView], Any], says: str) -> None:
    """And changes nothing: with a right one the same search finds its victim."""
    said.answer = lambda runs, now_ms: answer(runs)
    _state, sink, scheduler = full(preempt="test-said")
    scheduler.feed(job(3, 4, "urgent"))
    with pytest.raises(EngineError, match=says):
        scheduler.run(200 * SECOND)
    said.answer = lambda runs, now_ms: runs.wasted
    play(scheduler, 200 * SECOND)
    assert taken(sink) == [(2, "requeue", 3)]


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    """As for every policy."""
    with pytest.raises(
        EngineError, match=r"\[engine\] preempt: no policy 'cheap' for preempt/1: known are .*least-lost"
    ):
        new_state(config(preempt="cheap"))


def test_a_plugin_may_not_hide_the_built_in() -> None:
    """Its name belongs to HAL."""

    class Hides(Said):
        info = PolicyInfo(LEAST_LOST, "preempt/1")

    with pytest.raises(EngineError, match="would hide the built-in"):
        register(Hides())


def test_prices_hold_for_suspension_too(said: Said) -> None:
    """Suspended work loses nothing, but a plugin may still spare one: job 2 is, job 1 stands still."""
    said.answer = lambda runs, now_ms: np.where(runs.job == 2, np.inf, runs.wasted)
    _state, sink, scheduler = full(PreemptMode.SUSPEND, preempt="test-said")
    play(scheduler, 200 * SECOND, job(3, 4, "urgent"))
    assert taken(sink) == [(1, "suspend", 3)]
    play(scheduler, 201 * SECOND, over((3, 1)))


@settings(max_examples=examples(100), deadline=None)
@given(
    nodes=NODES, before=WORK, cpu=st.integers(1, 5), memory=st.integers(0, 4), gang=st.integers(1, 3),
    pause=st.integers(0, 120),
)  # fmt: skip
def test_a_plugin_that_says_what_would_be_lost_decides_as_hal_does(
    nodes: list[Amounts], before: list[Before], cpu: int, memory: int, gang: int, pause: int
) -> None:
    """`wasted` is HAL's own price, to the last unit."""
    found = []
    for preempt in (LEAST_LOST, "test-said"):
        _state, sink, scheduler, now = prepare(nodes, before, pause, Backfill.EASY, preempt)
        ask(scheduler, {"cpu": cpu, "memory": memory}, gang, OwnerSpec(qos="urgent"), now)
        found.append(taken(sink))
    assert found[0] == found[1]


def test_a_plugin_that_says_what_would_be_lost_takes_back_what_was_lent_as_hal_does() -> None:
    """What a QOS would suspend is requeued there: job 1, which ran 100 s, loses them; job 2, of 10 s, goes."""
    limits = {
        name: Limit(name=name, account=name, resources=Resources({"cpu": 4}), cohort="colours", reclaim=Reclaim.PREEMPT)
        for name in ("red", "blue", "grey")
    }
    rules = Policy(limits=limits, qos={"idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND)})
    for preempt in (LEAST_LOST, "test-said"):
        _state, sink, scheduler = engine(EngineConfig(policy=rules, preempt=preempt), NodeSpec("n", {"cpu": 32}))
        for number, start_s, quality, account, cpu in (
            (1, 0, "idle", "red", 6), (2, 90, "", "red", 6), (3, 100, "", "blue", 4)
        ):  # fmt: skip
            rows = submit_rows(1)
            rows["job"] = number
            owner = OwnerSpec(account=account, qos=quality)
            play(scheduler, start_s * SECOND, JobsSubmitted(rows, (ClassSpec({"cpu": cpu}),), (owner,)))
        assert taken(sink) == [(2, "requeue", 3)]
