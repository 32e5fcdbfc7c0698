"""A start that did not happen: its task waits again where it stood, as its job is now."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsCancelled, JobsHeld, NodesChanged, NodeSpec, PlanAssumed, StartsRefused
from hal.core.engine.plan import START
from hal.core.engine.views import pending, running
from tests.core.engine.clusters import job

CPUS = 2


def started(tasks: int, backfill: Backfill) -> tuple[State, StartsRefused]:
    """An array of single cpus of which as many run as the node has; and that all these starts are refused."""
    state = new_state(EngineConfig(backfill=backfill))
    apply(state, NodesChanged((NodeSpec("n", {"cpu": CPUS}),)))
    apply(state, job(1, 1, tasks=tasks, walltime_ms=100))
    plan = cycle(state, 0)
    apply(state, PlanAssumed(plan))
    block = np.zeros(len(plan.starts), START)
    for name in ("job", "task", "attempt"):
        block[name] = plan.starts[name]
    block["entry"] = -1
    return state, StartsRefused(block)


def waiting(state: State) -> list[tuple[int, int, int, bool]]:
    """(first task, tasks, attempt, held) of each run of waiting tasks, by task."""
    found = [tuple(row[name] for name in ("first_task", "tasks", "attempt", "held")) for row in pending(state)]
    return sorted((int(first), int(tasks), int(attempt), bool(held)) for first, tasks, attempt, held in found)


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE])
def test_refused_tasks_are_one_run_with_those_that_follow(backfill: Backfill) -> None:
    state, refused = started(5, backfill)
    assert waiting(state) == [(2, 3, 1, False)]
    apply(state, refused)
    assert waiting(state) == [(0, 5, 1, False)]
    assert len(running(state)) == 0
    check_invariants(state)


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE])
def test_refused_tasks_of_a_job_that_was_held_are_held(backfill: Backfill) -> None:
    state, refused = started(5, backfill)
    apply(state, JobsHeld(np.array([1])))
    apply(state, refused)
    assert waiting(state) == [(0, 1, 1, True), (1, 1, 1, True), (2, 3, 1, True)]
    check_invariants(state)


def test_refused_tasks_wait_though_nothing_of_their_job_does() -> None:
    state, refused = started(5, Backfill.EASY)
    apply(state, JobsCancelled(np.array([1])))
    apply(state, refused)
    assert waiting(state) == [(0, 2, 1, False)]
    check_invariants(state)


def test_refused_tasks_may_count_as_tried() -> None:
    """Then they are not alike with those that have not been tried."""
    state, refused = started(3, Backfill.EASY)
    apply(state, StartsRefused(refused.starts, new_attempt=True))
    assert waiting(state) == [(0, 2, 2, False), (2, 1, 1, False)]
    check_invariants(state)


def test_all_that_is_refused_starts_again_in_the_same_order() -> None:
    state, refused = started(5, Backfill.EASY)
    apply(state, refused)
    assert cycle(state, 0).starts["task"].tolist() == [0, 1]
