"""A small cluster that is busy when one more job comes: what may be drawn, how it got there, how its work leaves.

What runs is told in the words of `reference_victims`, so that it can say who may be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import END, INF, AttemptsEnded, JobsSubmitted, submit_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import rows_of_run, running
from tests.core.engine.reference_victims import Amounts, Running

MIN_RUN_MS: Final = 50
ASKER: Final = 100
"""The job that comes last; those before it are 1, 2, 3 …"""


@dataclass(frozen=True)
class Before:
    """One job of those that came before, `later_ms` after the one before it; limit_ms: None = no walltime."""

    owner: OwnerSpec
    request: Amounts
    gang: int
    later_ms: int
    limit_ms: int | None
    attempt: int
    movable: bool = False
    within: str = ""


def work(owners: st.SearchStrategy[OwnerSpec], requests: st.SearchStrategy[Amounts]) -> st.SearchStrategy[list[Before]]:
    """One to seven jobs; most are one node wide, without a limit and tried for the first time."""
    one = st.builds(
        Before,
        owner=owners,
        request=requests,
        gang=st.sampled_from([1, 1, 1, 2]),
        later_ms=st.integers(0, 30),
        limit_ms=st.sampled_from([None, None, 40, 90, 400]),
        attempt=st.sampled_from([1, 1, 1, 2, 3]),
    )
    return st.lists(one, min_size=1, max_size=7)


def kind_of(job: Before) -> ClassSpec:
    """What it asks for."""
    return ClassSpec(job.request, job.gang, within=job.within if job.gang > 1 else "", movable=job.movable)


def play(scheduler: Scheduler, jobs: Sequence[Before], pause_ms: int) -> int:
    """They come, and are scheduled, one by one as jobs 1, 2, 3 …; the time `pause_ms` after the last."""
    now = 0
    for number, job in enumerate(jobs):
        now += job.later_ms
        rows = submit_rows(1)
        rows["job"], rows["submit_ms"], rows["attempt"] = number + 1, now, job.attempt
        rows["walltime_ms"] = INF if job.limit_ms is None else job.limit_ms
        scheduler.feed(JobsSubmitted(rows, (kind_of(job),), (job.owner,)))
        scheduler.run(now)
    now += pause_ms
    scheduler.run(now)
    return now


def runs_of(state: State, jobs: Sequence[Before], leave: Callable[[str], tuple[str, int]]) -> list[Running]:
    """What runs. leave: how work of a QOS is made to leave, and how many milliseconds it gets for that."""
    runs = []
    for run in running(state):
        job = jobs[int(run["job"]) - 1]
        mode, grace_ms = leave(job.owner.qos)
        runs.append(
            Running(
                job=int(run["job"]),
                quality=job.owner.qos,
                mode=mode,
                grace_ms=grace_ms,
                request=tuple((name, amount) for name, amount in job.request.items() if amount),
                nodes=tuple(state.node_name(row) for row in rows_of_run(state, int(run["run"]))),
                start_ms=int(run["start_ms"]),
                end_ms=int(run["end_ms"]),
                attempt=int(run["attempt"]),
            )
        )
    return runs


def ask(scheduler: Scheduler, request: Amounts, gang: int, owner: OwnerSpec, now: int, within: str = "") -> None:
    """`ASKER` comes, before all others in rank, and is scheduled."""
    rows = submit_rows(1)
    rows["job"], rows["submit_ms"], rows["priority"], rows["walltime_ms"] = ASKER, now, 100, 50
    scheduler.feed(JobsSubmitted(rows, (ClassSpec(request, gang, within=within),), (owner,)))
    scheduler.run(now)
    check_invariants(scheduler.state)


def crowd(scheduler: Scheduler, *owners: OwnerSpec) -> None:
    """Jobs 200, 201 … of these come, each of twenty tasks that rank even before `ASKER`."""
    for number, owner in enumerate(owners):
        rows = submit_rows(1)
        rows["job"], rows["tasks"], rows["priority"], rows["walltime_ms"] = 200 + number, 20, 1000, 1
        scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 1}),), (owner,)))


def clear(
    scheduler: Scheduler, victims: Iterable[Running], due_ms: int, *, held: bool, then: Callable[[], None]
) -> None:
    """The victims leave one by one, and `then` is called after each; what is over by `due_ms` ends, and `ASKER` runs.

    held: their jobs do not come back at once.
    """
    state = scheduler.state
    scheduler.run(due_ms - 1 if due_ms > state.clock_ms else due_ms)
    for victim in victims:
        block = np.zeros(1, END)
        block["job"], block["attempt"], block["requeue"], block["held"] = victim.job, victim.attempt, 1, held
        scheduler.feed(AttemptsEnded(block))
        scheduler.run(due_ms)
        check_invariants(state)
        then()
    for run in running(state):
        if int(run["end_ms"]) <= due_ms and run["job"] != ASKER:
            block = np.zeros(1, END)
            block["job"], block["task"], block["attempt"] = run["job"], run["task"], run["attempt"]
            scheduler.feed(AttemptsEnded(block))
    scheduler.run(due_ms)
    check_invariants(state)
    assert [int(run["state"]) for run in running(state) if run["job"] == ASKER] == [0], "it does not run"
