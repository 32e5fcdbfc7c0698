"""A policy that answers wrongly while the engine runs is put out of use and HAL's own decides; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine import State
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import PolicyFault
from hal.core.engine.events import (
    ConfigChanged,
    Event,
    Health,
    JobsCancelled,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    update_rows,
)
from hal.core.engine.plugins.faults import is_out, without
from hal.core.engine.policies import register
from hal.core.engine.rules.configuration import new_state
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.state import FIRST_SLOTS
from hal.core.engine.views import running
from hal.core.engine.why.explain import explain
from hal.core.interfaces import NodeView, Request
from hal.core.kernels.structures.layout import RUN_ON
from hal.core.model import Reason
from hal.core.model.policy import Policy
from tests.core.engine.clusters import Starts, ended, job, places
from tests.core.engine.plugins.failing_policy import ENDLESS, RunsOut
from tests.core.engine.test_preempting import job as job_of_qos
from tests.core.engine.test_preempting import qos, taken

A, B, C = NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}), NodeSpec("c", {"cpu": 8})


KINDS = {"order": "order/2", "score": "score/1", "filter": "filter/1", "preempt": "preempt/1"}
POLICIES = {setting: RunsOut(f"test-fails-{setting}", interface, most_cpu=4) for setting, interface in KINDS.items()}
for _policy in POLICIES.values():
    register(_policy)
USED = {
    "order": EngineConfig(order="test-fails-order", backfill=Backfill.NONE),
    "score": EngineConfig(placement="test-fails-score"),
    "filter": EngineConfig(filters=("test-fails-filter",)),
    "preempt": EngineConfig(policy=qos(), preempt="test-fails-preempt"),
}


@pytest.fixture(autouse=True)
def _answer_again() -> Iterator[None]:
    yield
    for policy in POLICIES.values():
        policy.left = ENDLESS


class Told:
    """An engine that goes on without what fails, and the faults."""

    def __init__(self, config: EngineConfig, *nodes: NodeSpec) -> None:
        self.faults: list[PolicyFault] = []
        self.sink = Starts()
        self.state = new_state(config)
        self.scheduler = Scheduler(self.state, self.sink, self.faults.append)
        self.play(0, NodesChanged(nodes))

    def play(self, now: int, *events: Event) -> None:
        for event in events:
            self.scheduler.feed(event)
        self.scheduler.run(now)
        check_invariants(self.state)


def story(play: Callable[..., None], state: State) -> None:
    """Work comes, is edited, ends; a node joins; the policy changes; urgent work may take some back."""
    play(1, job_of_qos(1, 3), job_of_qos(2, 3))
    play(2_000, job_of_qos(3, 2), job_of_qos(4, 1))
    rows = update_rows(1)
    rows["job"], rows["priority"] = 3, 2
    play(3_000, JobsUpdated(rows), job_of_qos(5, 4, "urgent"))
    play(4_000, NodesChanged((C,)), job_of_qos(6, 8), job_of_qos(7, 3, "urgent"))
    going = [int(run["job"]) for run in running(state) if int(run["state"]) == RUN_ON]
    play(5_000, *(ended(number) for number in going[:1]))
    play(6_000, job_of_qos(8, 1), NodesChanged((NodeSpec("a", {"cpu": 4}, health=Health.DOWN),)))


@pytest.mark.parametrize("setting", list(KINDS))
@pytest.mark.parametrize("answers", range(12))
def test_whenever_it_fails_the_engine_goes_on_without_it(setting: str, answers: int) -> None:
    """Raising after 0, 1, 2 … answers: told once, named, out of use, every invariant holds, and all that fits runs."""
    POLICIES[setting].left = answers
    told = Told(USED[setting], A, B)
    story(told.play, told.state)
    config = told.state.config
    if not told.faults:
        assert POLICIES[setting].left >= 0
        return
    (fault,) = told.faults
    assert fault.message.startswith(f"{setting} 'test-fails-{setting}': ")
    assert "raised RuntimeError: out of answers (at " in fault.message
    assert is_out(config, setting, f"test-fails-{setting}")
    assert places(told.state) or (setting, answers) in (("filter", 0),)


@pytest.mark.parametrize("setting", list(KINDS))
@pytest.mark.parametrize("answers", [0, 1, 3])
def test_what_follows_a_failure_is_what_follows_the_event_that_it_becomes(setting: str, answers: int) -> None:
    """A policy that never fails, and ConfigChanged where the other one failed: equal states, byte for byte."""
    POLICIES[setting].left = answers
    told = Told(USED[setting], A, B)
    fed: list[tuple[str, Any]] = []

    def recorded(now: int, *events: Event) -> None:
        for event in events:
            before = len(told.faults)
            told.scheduler.feed(event)
            if len(told.faults) > before:
                fed.append(("feed", ConfigChanged(without(USED[setting], told.faults[-1]))))
            fed.append(("feed", event))
        for _ in range(100):
            before = len(told.faults)
            step = told.scheduler.step(now)
            if len(told.faults) > before:
                fed.append(("feed", ConfigChanged(without(USED[setting], told.faults[-1]))))
            fed.append(("step", now))
            if not step.more:
                break

    assert told.faults == []  # nothing is asked before work comes
    story(recorded, told.state)
    POLICIES[setting].left = ENDLESS
    again = Told(USED[setting], A, B)
    for what, value in fed:
        if what == "feed":
            again.scheduler.feed(value)
        else:
            again.scheduler.step(value)
    assert again.faults == []
    assert state_digest(again.state) == state_digest(told.state)
    assert again.sink.jobs() == told.sink.jobs()


def test_without_anybody_to_tell_a_failure_is_an_error() -> None:
    """A replay of a log, and whoever applies events by hand, want to know."""
    POLICIES["order"].left = 0
    state = new_state(USED["order"])
    with pytest.raises(PolicyFault, match="test-fails-order"):
        Scheduler(state, Starts()).feed(job(1, 1))


def test_jobs_that_a_failed_order_ranked_are_ranked_anew() -> None:
    """Last first until it fails; then by id, those that waited before as well."""
    told = Told(USED["order"], A)
    told.play(0, job(1, 4), job(2, 4), job(3, 4))
    assert told.sink.jobs() == [3]
    POLICIES["order"].left = 0
    told.play(1, ended(3))
    assert told.sink.jobs() == [3, 1]


def test_a_failed_filter_keeps_what_it_said_and_admits_nothing_new() -> None:
    """Never on c. What it had admitted still starts there; another kind of job, and a node that is new, wait for it."""
    told = Told(USED["filter"], C, A, B)
    told.play(0, job(1, 2))
    POLICIES["filter"].left = 0
    told.play(1, job(2, 3))
    assert [fault.policy for fault in told.faults] == ["test-fails-filter"]
    assert places(told.state) == {1: ["a"]}
    verdict = explain(told.state, 2, 1)
    assert verdict.reason is Reason.CONSTRAINTS
    assert verdict.message.startswith("filter 'test-fails-filter' failed before it decided where such jobs may run")
    told.play(2, job(3, 2), job(4, 2), job(5, 2))
    assert places(told.state) == {1: ["a"], 3: ["a"], 4: ["b"], 5: ["b"]}
    told.play(3, ended(4, 5), NodesChanged((NodeSpec("d", {"cpu": 4}),), ("b",)), job(6, 2))
    assert 6 not in places(told.state), "nobody has said that it may run on d, or on what takes the place of b"
    told.play(4, NodesChanged((NodeSpec("a", {"cpu": 6}),)))
    assert places(told.state)[6] == ["a"]


def test_what_a_failed_filter_said_holds_when_many_other_kinds_have_come_and_gone() -> None:
    """A job of 2 cpus has run; hundreds of other kinds were submitted and cancelled; the next one of 2 cpus starts.

    When the filter is asked again, what was kept of kinds that are gone is forgotten.
    """
    told = Told(USED["filter"], A, B)
    told.play(0, job(1, 2))
    told.play(1, ended(1))
    POLICIES["filter"].left = 0
    for number in range(2, 6 * FIRST_SLOTS):
        told.play(number, job(number, 5 + number))
        told.play(number, JobsCancelled(np.array([number])))
    assert len(told.state.catalogue.shape_ids) <= 3 * FIRST_SLOTS, "what is gone was swept"
    told.play(1_000, job(1_000, 2))
    assert places(told.state) == {1_000: ["a"]}
    told.play(1_001, ended(1_000))
    POLICIES["filter"].left = ENDLESS
    told.play(1_002, ConfigChanged(USED["filter"]))
    assert {key[1] for key in told.state.plugins.masks} <= set(told.state.catalogue.shape_ids)


def test_a_change_of_policy_asks_it_again() -> None:
    """What it says then holds; where it fails again it is put out again."""
    told = Told(USED["filter"], A)
    POLICIES["filter"].left = 0
    told.play(0, job(1, 2))
    assert places(told.state) == {}
    told.play(1, ConfigChanged(USED["filter"]))
    assert len(told.faults) == 2
    POLICIES["filter"].left = ENDLESS
    told.play(2, ConfigChanged(USED["filter"]))
    assert places(told.state) == {1: ["a"]}
    assert len(told.faults) == 2
    assert not is_out(told.state.config, "filter", "test-fails-filter")


def test_several_that_fail_at_once_are_all_put_out() -> None:
    """Order, score and filter raise from the first question on."""
    for setting in ("order", "score", "filter"):
        POLICIES[setting].left = 0
    config = EngineConfig(
        order="test-fails-order",
        placement="test-fails-score",
        filters=("test-fails-filter",),
        backfill=Backfill.NONE,
        policy=Policy(),
    )
    told = Told(config, A)
    told.play(0, job(1, 1))
    assert sorted(fault.setting for fault in told.faults) == ["filter", "order", "score"]
    assert told.state.config.order == "priority"
    told.play(1, ConfigChanged(config))
    assert len(told.faults) == 6


def test_hals_own_price_holds_where_a_price_fails() -> None:
    """It would take job 1; what is taken is job 2, which ran for less long."""
    told = Told(USED["preempt"], A, B)
    told.play(0, job_of_qos(1, 4))
    told.play(50_000, job_of_qos(2, 4))
    POLICIES["preempt"].left = 0
    told.play(100_000, job_of_qos(3, 4, "urgent"))
    assert taken(told.sink) == [(2, "requeue", 3)]


def test_a_policy_that_ends_the_program_does_not() -> None:
    """sys.exit() in a plugin is a wrong answer like any other."""

    class Leaves(RunsOut):
        def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
            raise SystemExit(3)

    register(Leaves("test-leaves", "score/1", most_cpu=4))
    told = Told(EngineConfig(placement="test-leaves"), A)
    told.play(0, job(1, 1))
    assert places(told.state) == {1: ["a"]}
    assert "raised SystemExit: 3" in told.faults[0].message
