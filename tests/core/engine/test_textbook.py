"""The engine on one pool of processors starts what the textbook algorithms start: plain-Python references beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from tests.examples import examples

MACHINE = 6


class Work(NamedTuple):
    """A job: submitted, asks for `procs` and `limit`, runs for `run` (<= limit)."""

    submit: int
    procs: int
    limit: int
    run: int


works = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, MACHINE), st.integers(1, 20), st.integers(1, 20)),
    min_size=1,
    max_size=40,
).map(
    lambda rows: [
        Work(sum(gap for gap, *_ in rows[: k + 1]), procs, limit, min(run, limit))
        for k, (_gap, procs, limit, run) in enumerate(rows)
    ]
)


def textbook(jobs: list[Work], backfill: Backfill) -> list[int]:
    """Start times by the definitions, everything computed anew at each instant. O(jobs^2 x instants)."""
    start = [-1] * len(jobs)
    now = 0
    while min(start) < 0:
        ended = [s >= 0 and s + jobs[k].run <= now for k, s in enumerate(start)]
        running = [k for k, s in enumerate(start) if s >= 0 and not ended[k]]
        queue = [k for k, job in enumerate(jobs) if start[k] < 0 and job.submit <= now]
        free = MACHINE - sum(jobs[k].procs for k in running)
        while queue and jobs[queue[0]].procs <= free:
            free -= jobs[queue[0]].procs
            start[queue[0]] = now
            running.append(queue.pop(0))
        if queue and backfill is not Backfill.NONE:
            head = queue.pop(0)
            there = free
            shadow = now
            for end, procs in sorted((start[k] + jobs[k].limit, jobs[k].procs) for k in running):
                if there >= jobs[head].procs and end > shadow:
                    break
                there += procs
                shadow = end
            extra = there - jobs[head].procs
            if backfill is Backfill.EASY_SJBF:
                queue.sort(key=lambda k: (jobs[k].limit, k))
            for k in queue:
                short = now + jobs[k].limit <= shadow
                if jobs[k].procs <= free and (short or jobs[k].procs <= extra):
                    free -= jobs[k].procs
                    extra -= 0 if short else jobs[k].procs
                    start[k] = now
        now += 1
    return start


def conservative_textbook(jobs: list[Work]) -> list[int]:
    """Conservative with compression: when work changes, each job in turn gives up its place for the earliest one."""
    start = [-1] * len(jobs)
    place: dict[int, int] = {}
    now = 0
    while min(start) < 0:
        ended_now = any(s >= 0 and s + jobs[k].run == now for k, s in enumerate(start))
        running = [k for k, s in enumerate(start) if s >= 0 and s + jobs[k].run > now]
        waiting = [k for k, job in enumerate(jobs) if start[k] < 0 and job.submit <= now]
        for k in waiting:
            if k in place and not ended_now:
                continue
            place.pop(k, None)
            spans = [(now, start[r] + jobs[r].limit, jobs[r].procs) for r in running]
            spans += [(t, t + jobs[o].limit, jobs[o].procs) for o, t in place.items()]
            for at in sorted({now, *(end for _b, end, _p in spans if end > now)}):
                edges = [at, *(begin for begin, _e, _p in spans if at < begin < at + jobs[k].limit)]
                if all(
                    sum(p for begin, end, p in spans if begin <= edge < end) + jobs[k].procs <= MACHINE
                    for edge in edges
                ):
                    place[k] = at
                    break
            if place[k] == now:
                start[k] = now
                running.append(k)
                del place[k]
        now += 1
    return start


def engine(jobs: list[Work], backfill: Backfill, *, nodes: bool = False, parking: bool = True) -> list[int]:
    """Start times by the engine, driven as a replay drives it."""
    state = new_state(EngineConfig(backfill=backfill, parking=parking))
    if nodes:
        apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 1}) for k in range(MACHINE))))
        classes = tuple(ClassSpec({"cpu": 1}, nodes=k + 1) for k in range(MACHINE))
    else:
        apply(state, NodesChanged((NodeSpec("pool", {"cpu": MACHINE}),)))
        classes = tuple(ClassSpec({"cpu": k + 1}) for k in range(MACHINE))
    start = [-1] * len(jobs)
    now = 0
    while min(start) < 0:
        gone = [k for k, s in enumerate(start) if s >= 0 and s + jobs[k].run == now]
        new = [k for k, job in enumerate(jobs) if job.submit == now]
        if gone:
            ends = np.zeros(len(gone), END)
            ends["job"] = gone
            ends["attempt"] = 1
            apply(state, AttemptsEnded(ends))
        if new:
            rows = submit_rows(len(new))
            rows["job"] = new
            rows["class_index"] = [jobs[k].procs - 1 for k in new]
            rows["submit_ms"] = rows["eligible_ms"] = now
            rows["walltime_ms"] = [jobs[k].limit for k in new]
            apply(state, JobsSubmitted(rows, classes))
        if gone or new:
            plan = cycle(state, now)
            if plan.changes:
                apply(state, PlanAssumed(plan))
            check_invariants(state)
            for job in plan.starts["job"].tolist():
                start[job] = now
        now += 1
    return start


@pytest.mark.parametrize("backfill", [Backfill.NONE, Backfill.EASY, Backfill.EASY_SJBF])
@given(jobs=works)
@settings(max_examples=examples(60), deadline=None)
def test_the_pool_starts_what_the_textbook_starts(backfill: Backfill, jobs: list[Work]) -> None:
    """Strict order, EASY and EASY-SJBF on one node with all processors equal their definitions."""
    assert engine(jobs, backfill) == textbook(jobs, backfill)


@pytest.mark.parametrize("backfill", [Backfill.NONE, Backfill.EASY, Backfill.EASY_SJBF])
@given(jobs=works)
@settings(max_examples=examples(40), deadline=None)
def test_gangs_of_single_processors_start_like_the_pool(backfill: Backfill, jobs: list[Work]) -> None:
    """A job of p processors starts at the same time as a gang of p one-processor nodes."""
    assert engine(jobs, backfill, nodes=True) == textbook(jobs, backfill)


@given(jobs=works)
@settings(max_examples=examples(60), deadline=None)
def test_conservative_starts_what_its_definition_starts(jobs: list[Work]) -> None:
    """On the pool, conservative backfill with compression equals its definition."""
    assert engine(jobs, Backfill.CONSERVATIVE) == conservative_textbook(jobs)


@pytest.mark.parametrize("backfill", list(Backfill))
@given(jobs=works)
@settings(max_examples=examples(30), deadline=None)
def test_parking_changes_no_start(backfill: Backfill, jobs: list[Work]) -> None:
    """What is not looked at again could not have started."""
    assert engine(jobs, backfill, parking=False) == engine(jobs, backfill)


def test_a_backfilled_job_may_end_exactly_at_the_shadow() -> None:
    """4 of 6 run until 10; the head needs 6; a job of 2 for exactly 10 starts at once, one for 11 waits."""
    jobs = [Work(0, 4, 10, 10), Work(0, 6, 5, 5), Work(0, 2, 10, 10)]
    assert engine(jobs, Backfill.EASY) == [0, 10, 0]
    jobs[2] = Work(0, 2, 11, 11)
    assert engine(jobs, Backfill.EASY) == [0, 10, 15]


def test_extra_counts_every_release_up_to_and_including_the_shadow() -> None:
    """Two jobs of 3 end at 10; the head needs 4, so 2 are extra there: a long job of 2 may not start (none is free),
    but once the first of them ended early a long job of 2 may, and one of 3 may not."""
    jobs = [Work(0, 3, 10, 2), Work(0, 3, 10, 10), Work(0, 4, 5, 5), Work(0, 3, 30, 30), Work(0, 2, 30, 30)]
    assert engine(jobs, Backfill.EASY) == [0, 0, 10, 15, 2]
