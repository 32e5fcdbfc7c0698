"""An event that contradicts the state is refused with one clear error and changes nothing, whichever row is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.engine import EngineError, State, apply, cycle, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    END,
    START,
    SUBMIT,
    UPDATE,
    AllocationsAdopted,
    AttemptsEnded,
    ConfigChanged,
    JobsCancelled,
    JobsEligible,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    StartsRefused,
    submit_rows,
    update_rows,
)
from hal.core.engine.views import running
from tests.examples import examples

NODES = tuple(NodeSpec(name, {"cpu": 4}) for name in "abc")
CLASSES = (ClassSpec({"cpu": 1}), ClassSpec({"cpu": 2}, 2))
OWNERS = (OwnerSpec(account="x"), OwnerSpec(account="y"))
HIGH = 1 << 17


def some_engine(tasks: list[int], backfill: Backfill, started: bool) -> State:
    """Jobs 10, 20, … of these many tasks, some of which run, some of which wait."""
    state = new_state(EngineConfig(backfill=backfill))
    apply(state, NodesChanged(NODES))
    rows = submit_rows(len(tasks))
    rows["job"] = 10 * np.arange(1, len(tasks) + 1)
    rows["tasks"], rows["class_index"], rows["walltime_ms"] = tasks, np.arange(len(tasks)) % 2, 5
    apply(state, JobsSubmitted(rows, CLASSES, OWNERS))
    if started:
        apply(state, PlanAssumed(cycle(state, 1)))
    return state


STATES = st.builds(
    some_engine, st.lists(st.integers(1, 9), min_size=2, max_size=6), st.sampled_from(list(Backfill)), st.booleans()
)


def refused(state: State, event: Any) -> None:
    """The event is not applied, and the error says so."""
    before = state_digest(state)
    with pytest.raises(EngineError):
        apply(state, event)
    assert state_digest(state) == before
    check_invariants(state)


def submitted(**columns: list[int]) -> JobsSubmitted:
    """Three good jobs, then some of their numbers are made bad."""
    rows = submit_rows(3)
    rows["job"] = [1_000, 1_001, 1_002]
    for name, values in columns.items():
        rows[name] = values
    return JobsSubmitted(rows, CLASSES, OWNERS)


SUBMISSIONS: dict[str, Callable[[int], JobsSubmitted]] = {
    "class": lambda bad: submitted(class_index=spoilt(0, [-1, 2, 1 << 40], bad)),
    "owner": lambda bad: submitted(owner_index=spoilt(1, [-1, 2, 1 << 40], bad)),
    "tasks": lambda bad: submitted(tasks=spoilt(1, [0, -1, -(1 << 62)], bad)),
    "first task": lambda bad: submitted(first_task=spoilt(0, [-1, -2, -(1 << 62)], bad)),
    "attempt": lambda bad: submitted(attempt=spoilt(1, [0, -1, -(1 << 62)], bad)),
    "priority": lambda bad: submitted(priority=spoilt(0, [HIGH, -HIGH - 1, 1 << 62], bad)),
    "walltime": lambda bad: submitted(walltime_ms=spoilt(5, [-1, -2, -(1 << 62)], bad)),
    "order of jobs": lambda bad: submitted(job=[[1_001, 1_000, 1_002], [-1, 1_000, 1_001], [7_000, 7_001, 7]][bad]),
    "overlap in the block": lambda bad: submitted(job=[1_000] * 3, tasks=[2] * 3, first_task=[0, 1, 2 + bad]),
    "negative amount": lambda bad: replace(submitted(), classes=(ClassSpec({"cpu": -1 - bad}),)),
    "no nodes": lambda bad: replace(submitted(), classes=(ClassSpec({"cpu": 1}, -bad),)),
}


def spoilt(good: int, bad: list[int], place: int) -> list[int]:
    """Three values of which one is bad."""
    return [bad[place] if k == place else good for k in range(3)]


@pytest.mark.parametrize("what", SUBMISSIONS)
@given(state=STATES, bad=st.integers(0, 2))
@settings(max_examples=8, deadline=None)
def test_a_submission_with_one_bad_row_is_refused_whole(what: str, state: State, bad: int) -> None:
    """Indices, counts, priority, times, order, amounts."""
    refused(state, SUBMISSIONS[what](bad))


@given(state=STATES, pick=st.integers(0, 50))
@settings(max_examples=examples(30), deadline=None)
def test_what_waits_or_runs_is_not_submitted_again(state: State, pick: int) -> None:
    """A row of any task that is live, behind a good row of an older job, and before a newer one."""
    rows = submit_rows(3)
    rows["job"] = [1, 10 * (1 + pick % 2), 5_000]
    rows["tasks"][1] = 9
    refused(state, JobsSubmitted(rows, CLASSES, OWNERS))


def ended(state: State, dtype: Any) -> Any:
    """Good rows for all that runs."""
    runs = running(state)
    rows = np.zeros(len(runs), dtype)
    for name in ("job", "task", "attempt"):
        rows[name] = runs[name]
    return rows


@pytest.mark.parametrize("what", ["another attempt", "another task", "another job", "twice", "twice, negative", "zero"])
@pytest.mark.parametrize("refusal", [False, True])
@given(state=STATES, place=st.integers(0, 50))
@settings(max_examples=8, deadline=None)
def test_the_end_of_what_does_not_run_is_refused_with_its_block(
    what: str, refusal: bool, state: State, place: int
) -> None:
    """Of several attempts one is not running, or is named twice: none of them ends."""
    rows = ended(state, START if refusal else END)
    if not len(rows):
        rows = np.zeros(1, rows.dtype)
    k = place % len(rows)
    match what:
        case "another attempt":
            rows["attempt"][k] += 1
        case "another task":
            rows["task"][k] += 1_000
        case "another job":
            rows["job"][k] = 7
        case "zero":
            rows["attempt"][k] = 0
        case _:
            rows = np.concatenate([rows, rows[k : k + 1]])
            if what == "twice, negative":
                rows["attempt"][-1] *= -1
    refused(state, StartsRefused(rows) if refusal else AttemptsEnded(rows))


def adopted(state: State, **columns: list[int]) -> AllocationsAdopted:
    """A good gang and two single attempts, with some of their numbers made bad."""
    rows = np.zeros(3, ADOPT)
    rows["job"], rows["attempt"], rows["class_index"] = [1_000, 1_001, 1_002], 1, [1, 0, 0]
    rows["walltime_ms"], rows["planned_ms"] = 10, -1
    rows["row_offset"], rows["row_count"] = [0, 2, 3], [2, 1, 1]
    for name, values in columns.items():
        rows[name] = values
    return AllocationsAdopted(rows, np.array([0, 1, 2, 0], np.int64), ("a", "b", "c"), CLASSES, OWNERS)


ADOPTIONS: dict[str, Callable[[State], AllocationsAdopted]] = {
    "class": lambda s: adopted(s, class_index=[1, 0, 2]),
    "owner": lambda s: adopted(s, owner_index=[0, 0, -1]),
    "attempt": lambda s: adopted(s, attempt=[1, 1, 0]),
    "task": lambda s: adopted(s, task=[0, 0, -1]),
    "job": lambda s: adopted(s, job=[1_000, 1_001, -1]),
    "priority": lambda s: adopted(s, priority=[0, 0, HIGH]),
    "walltime": lambda s: adopted(s, walltime_ms=[1, 1, -1]),
    "more nodes than its class has": lambda s: adopted(s, row_count=[2, 1, 0]),
    "other nodes than its class has": lambda s: adopted(s, class_index=[1, 0, 1]),
    "outside the nodes": lambda s: adopted(s, row_offset=[0, 2, 4]),
    "before the nodes": lambda s: adopted(s, row_offset=[0, 2, -1]),
    "one node twice": lambda s: replace(adopted(s), node_index=np.array([1, 1, 2, 0], np.int64)),
    "an index of no node": lambda s: replace(adopted(s), node_index=np.array([0, 1, 2, 3], np.int64)),
    "an unknown node": lambda s: replace(adopted(s), nodes=("a", "b", "z")),
    "a task twice": lambda s: adopted(s, job=[1_000, 1_002, 1_002]),
    "a task that waits or runs": lambda s: adopted(s, job=[1_000, 1_001, 20]),
}


@pytest.mark.parametrize("what", ADOPTIONS)
@given(state=STATES)
@settings(max_examples=5, deadline=None)
def test_an_adoption_with_one_bad_row_is_refused_whole(what: str, state: State) -> None:
    """Nothing of the block holds rows afterwards."""
    refused(state, ADOPTIONS[what](state))


def edited(**columns: int) -> JobsUpdated:
    rows = update_rows(3)
    rows["job"], rows["priority"] = [10, 20, 30], 7
    for name, value in columns.items():
        rows[name][2] = value
    return JobsUpdated(rows)


OTHERS: dict[str, Callable[[State], Any]] = {
    "eligible: fewer times than jobs": lambda s: JobsEligible(np.array([10, 20]), np.array([5])),
    "cancel: fewer ranges than jobs": lambda s: JobsCancelled(np.array([10, 20]), np.array([0]), np.array([1])),
    "cancel: negative": lambda s: JobsCancelled(np.array([10, 20]), np.array([0, -1]), np.array([1, 1])),
    "cancel: negative count": lambda s: JobsCancelled(np.array([10, 20]), np.array([0, 0]), np.array([1, -1])),
    "update: priority": lambda s: edited(priority=HIGH),
    "update: low priority": lambda s: edited(priority=-HIGH - 1),
    "update: walltime": lambda s: edited(walltime_ms=-5),
    "update: another dtype": lambda s: JobsUpdated(np.zeros(1, END)),
    "submit: another dtype": lambda s: JobsSubmitted(np.zeros(1, UPDATE), CLASSES, OWNERS),
    "submit: a table": lambda s: JobsSubmitted(np.zeros((1, 1), SUBMIT), CLASSES, OWNERS),
    "end: another dtype": lambda s: AttemptsEnded(np.zeros(1, START)),
    "refuse: another dtype": lambda s: StartsRefused(np.zeros(1, END)),
    "adopt: another dtype": lambda s: replace(adopted(s), rows=np.zeros(1, END)),
    "nodes: leaves twice": lambda s: NodesChanged(removed=("a", "a")),
    "nodes: leaves and comes": lambda s: NodesChanged((NODES[0],), ("a",)),
    "nodes: comes twice": lambda s: NodesChanged((NODES[0], NODES[0])),
    "nodes: leaves unknown": lambda s: NodesChanged((NodeSpec("new", {"cpu": 1}),), ("z",)),
    "nodes: negative": lambda s: NodesChanged((NodeSpec("new", {"cpu": 1}), NodeSpec("a", {"cpu": -1}))),
    "nodes: too large": lambda s: NodesChanged((NodeSpec("new", {"cpu": 1}), NodeSpec("a", {"cpu": 1 << 60}))),
    "config: no such order": lambda s: ConfigChanged(EngineConfig(order="best-first")),
    "config: no such placement": lambda s: ConfigChanged(EngineConfig(placement="no-such-fit")),
    "config: no such filter": lambda s: ConfigChanged(EngineConfig(order="sjf", filters=("none",))),
    "plan: an older one": lambda s: _older_plan(s),
}


def _older_plan(state: State) -> PlanAssumed:
    plan = cycle(state, 2)
    apply(state, NodesChanged((NodeSpec("new", {"cpu": 1}),)))
    return PlanAssumed(plan)


@pytest.mark.parametrize("what", OTHERS)
@given(state=STATES)
@settings(max_examples=5, deadline=None)
def test_any_other_event_with_one_bad_part_is_refused_whole(what: str, state: State) -> None:
    """Changes of jobs, nodes, policy, and plans of another state."""
    refused(state, OTHERS[what](state))
