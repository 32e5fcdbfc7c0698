"""A strict queue waits for the first in rank of all its jobs that a slice does not come by, whoever was seen first."""

from __future__ import annotations

from itertools import permutations

import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import JobsSubmitted, NodesChanged, NodeSpec, PlanAssumed, submit_rows
from hal.core.kernels.passes.strict_queues import close_passed_queues, close_queue, wait_strictly, waits_behind
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.model.policy import Policy, Queue

PRIORITIES = {1: 0, 2: 5, 3: 5, 4: -5}
"""Of jobs; 2 and 3 are alike but for their number, so the order is 2, 3, 1, 4."""
RANKED = [2, 3, 1, 4]
STAMP = 40


def queue_of_four(*, strict: bool = True) -> State:
    """Four jobs of one queue, each in a bucket of its own."""
    policy = Policy(queues={"default": Queue(), "line": Queue(name="line", strict=strict)})
    state = new_state(EngineConfig(order="fcfs", policy=policy))
    apply(state, NodesChanged((NodeSpec("n", {"cpu": 8}),)))
    for job, priority in PRIORITIES.items():
        rows = submit_rows(1)
        rows["job"], rows["priority"] = job, priority
        apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": job}),), (OwnerSpec(queue="line"),)))
    state.pass_record[L.PASS_STAMP] = STAMP
    return state


def entry_of(state: State, job: int) -> int:
    return [int(one) for one in state.work.entries[:4, L.E_JOB]].index(job)


def queue_index(state: State) -> int:
    bucket = int(state.work.entries[0, L.E_BUCKET])
    return int(state.shares.owners[state.work.buckets[bucket, L.B_OWNER], L.O_QUEUE])


def wait(state: State, job: int) -> None:
    entry = entry_of(state, job)
    plain(wait_strictly)(state.tables(), int(state.work.entries[entry, L.E_BUCKET]), queue_index(state), entry)


def stand_at(state: State, job: int) -> None:
    """The cursor is at a job."""
    state.pass_record[L.PASS_KEY] = state.work.entries[entry_of(state, job), L.E_KEY]
    state.pass_record[L.PASS_JOB] = job


def behind(state: State, job: int) -> bool:
    stand_at(state, job)
    return bool(plain(waits_behind)(state.tables(), queue_index(state)))


@pytest.mark.parametrize("seen", [order for count in (1, 2, 3) for order in permutations(RANKED, count)])
def test_who_ranks_behind_the_first_that_waits_is_held_back(seen: tuple[int, ...]) -> None:
    """Some jobs wait, in the order in which they were seen: the first of them in rank may go on, what is behind not."""
    state = queue_of_four()
    for job in seen:
        wait(state, job)
    first = min(RANKED.index(job) for job in seen)
    assert [behind(state, job) for job in RANKED] == [rank > first for rank in range(4)]


def test_what_waited_in_an_earlier_slice_holds_nobody_back() -> None:
    state = queue_of_four()
    wait(state, 2)
    state.pass_record[L.PASS_STAMP] = STAMP + 1
    assert not any(behind(state, job) for job in RANKED)


def test_a_worse_job_of_this_slice_replaces_a_better_one_of_an_earlier_slice() -> None:
    state = queue_of_four()
    wait(state, 2)
    state.pass_record[L.PASS_STAMP] = STAMP + 1
    wait(state, 1)
    assert [behind(state, job) for job in RANKED] == [False, False, False, True]


@pytest.mark.parametrize("strict", [True, False])
def test_a_queue_is_closed_to_all_only_where_it_is_strict(strict: bool) -> None:
    state = queue_of_four(strict=strict)
    plain(close_queue)(state.tables(), queue_index(state))
    assert [behind(state, job) for job in RANKED] == [strict] * 4


@pytest.mark.parametrize(("cursor", "closed"), [(2, False), (3, True), (1, True)])
def test_a_resumed_pass_finds_closed_what_it_has_passed(cursor: int, closed: bool) -> None:
    """The first job of the queue still waits: it is behind the cursor, or just at it."""
    state = queue_of_four()
    stand_at(state, cursor)
    plain(close_passed_queues)(state.tables())
    assert bool(state.shares.queues[queue_index(state), L.Y_CLOSED_STAMP] == STAMP) == closed


def test_rank_is_the_key_and_how_far_a_bucket_stands_from_it() -> None:
    """An order plugin moves the bucket of the first job behind all others: while it waits, nobody is held back."""
    state = queue_of_four()
    first, last = entry_of(state, 2), entry_of(state, 4)
    offset = int(state.work.entries[last, L.E_KEY] - state.work.entries[first, L.E_KEY]) + 1
    state.work.buckets[state.work.entries[first, L.E_BUCKET], L.B_OFFSET] = offset
    wait(state, 2)
    assert [behind(state, job) for job in (3, 1, 4)] == [False] * 3


@pytest.mark.parametrize("budget", [1, 1_000])
def test_buckets_that_stand_apart_from_their_keys_take_turns(budget: int) -> None:
    """Of two buckets of three jobs each one is moved back by one and a half jobs: all start, in the order of both."""
    state = new_state(EngineConfig(order="fcfs"))
    apply(state, NodesChanged((NodeSpec("n", {"cpu": 8, "memory": 8}),)))
    rows = submit_rows(6)
    rows["job"], rows["class_index"] = range(1, 7), [0, 0, 0, 1, 1, 1]
    rows["priority"] = [20, 10, 0] * 2
    apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 1}), ClassSpec({"cpu": 1, "memory": 1})), (OwnerSpec(),)))
    keys = {int(one[L.E_JOB]): int(one[L.E_KEY]) for one in state.work.entries[:6]}
    moved = state.work.entries[[int(one) for one in state.work.entries[:6, L.E_JOB]].index(4), L.E_BUCKET]
    state.work.buckets[moved, L.B_OFFSET] = (keys[2] - keys[1]) * 3 // 2
    started: list[int] = []
    plan = cycle(state, 5_000, budget=budget)
    while True:
        started += [int(one) for one in plan.starts["job"]]
        apply(state, PlanAssumed(plan))
        if plan.cursor is None:
            break
        plan = cycle(state, 5_000, budget=budget, cursor=plan.cursor)
    assert started == [1, 2, 4, 3, 5, 6]
