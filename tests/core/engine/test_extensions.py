"""Extensions of jobs: they take what nobody else wants, leave before anybody else has to, and take from nobody."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    UPDATE,
    AttemptsEnded,
    Event,
    JobsCancelled,
    JobsSubmitted,
    JobsUpdated,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import rows_of_run, running
from hal.core.kernels.structures.layout import KEEP, RUN_ON
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos, Queue
from tests.core.engine.clusters import Starts, engine
from tests.core.engine.test_preempting import A, B, config, job, over, play, taken
from tests.core.engine.why.test_wants import asked

SECOND = 1_000
ORDERS = ("fcfs", "sjf", "priority")


def extensions(number: int, count: int, cpu: int = 4, *, attempt: int = 1, first: int = 1, **columns: int) -> Event:
    """The extensions of a job, from task 1 on, each of one node."""
    rows = submit_rows(1)
    rows["job"], rows["first_task"], rows["tasks"], rows["attempt"] = number, first, count, attempt
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu, "memory": 0}),), (OwnerSpec(extension=True),))


def left(task: int, attempt: int = 1, number: int = 1) -> AttemptsEnded:
    """An extension has left, and waits again."""
    rows = np.zeros(1, END)
    rows["job"], rows["task"], rows["attempt"], rows["requeue"] = number, task, attempt, 1
    return AttemptsEnded(rows)


def tasks_of(state: State, number: int) -> set[int]:
    return {int(run["task"]) for run in running(state) if run["job"] == number}


def grown(**values: object) -> tuple[State, Starts, Scheduler]:
    """Two nodes, each full with one extension of job 1; one more of it waits."""
    state, sink, scheduler = engine(EngineConfig(policy=Policy(), **values), A, B)  # type: ignore[arg-type]
    play(scheduler, 0, extensions(1, 3))
    assert tasks_of(state, 1) == {1, 2}
    return state, sink, scheduler


@pytest.mark.parametrize("backfill", list(Backfill))
@pytest.mark.parametrize("order", ORDERS)
def test_extensions_leave_for_any_other_work_and_come_back(order: str, backfill: Backfill) -> None:
    """Job 2 has the lowest priority there is and no QOS: one extension leaves for it, and grows again when it ends."""
    state, sink, scheduler = grown(order=order, backfill=backfill)
    play(scheduler, 1 * SECOND, job(2, 4, "", priority=-100_000))
    ((number, mode, for_job),) = taken(sink)
    assert (number, mode, for_job) == (1, "shrink", 2)
    (gone,) = [int(move["task"]) for plan in sink.plans for move in plan.preemptions]
    play(scheduler, 2 * SECOND, left(gone))
    assert 2 in sink.jobs()
    assert tasks_of(state, 1) == {1, 2} - {gone}
    play(scheduler, 3 * SECOND, over((2, 1)))
    assert len(tasks_of(state, 1)) == 2


def array_with_extensions() -> Event:
    """An array of job 1 whose first task is like other work and whose last three are extensions."""
    rows = submit_rows(2)
    rows["job"], rows["attempt"] = 1, 1
    rows["first_task"], rows["tasks"], rows["owner_index"] = (0, 1), (1, 3), (0, 1)
    return JobsSubmitted(rows, (ClassSpec({"cpu": 4, "memory": 0}),), (OwnerSpec(), OwnerSpec(extension=True)))


@pytest.mark.parametrize("order", ORDERS)
def test_of_an_array_only_the_extensions_leave(order: str) -> None:
    """Its first task and one extension run on two nodes: of the two jobs that come, one starts and one waits."""
    state, sink, scheduler = engine(EngineConfig(policy=Policy(), order=order), A, B)
    play(scheduler, 0, array_with_extensions())
    assert tasks_of(state, 1) == {0, 1}
    play(scheduler, 1 * SECOND, job(2, 4, ""), job(3, 4, ""))
    assert taken(sink) == [(1, "shrink", 2)]
    play(scheduler, 2 * SECOND, left(1))
    assert (tasks_of(state, 1), tasks_of(state, 2), tasks_of(state, 3)) == ({0}, {0}, set())


def test_tasks_of_an_array_and_its_extensions_are_withdrawn_and_changed_together() -> None:
    """One range over both: what waits of it is gone, and what is left has the new priority."""
    state, _sink, scheduler = engine(EngineConfig(policy=Policy()), A)
    play(scheduler, 0, job(9, 4, "", walltime_ms=100 * SECOND))
    play(scheduler, 0, array_with_extensions())
    assert tasks_of(state, 1) == set()
    gone = JobsCancelled(np.array([1]), np.array([0]), np.array([3]))
    changed = np.zeros(1, UPDATE)
    changed["job"], changed["priority"], changed["walltime_ms"], changed["planned_ms"] = 1, 7, KEEP, KEEP
    play(scheduler, 1 * SECOND, gone, JobsUpdated(changed))
    play(scheduler, 2 * SECOND, over((9, 1)))
    assert tasks_of(state, 1) == {3}


@pytest.mark.parametrize("order", ORDERS)
def test_extensions_rank_behind_all_other_work(order: str) -> None:
    """They waited long and ask for a higher priority and less time; the job that comes last starts first."""
    _state, sink, scheduler = engine(EngineConfig(policy=Policy(), order=order), A)
    play(scheduler, 0, job(1, 4, "", walltime_ms=100 * SECOND))
    play(scheduler, 1 * SECOND, extensions(2, 1, priority=1_000, walltime_ms=1 * SECOND))
    play(scheduler, 2 * SECOND, job(3, 4, "", priority=-1_000, walltime_ms=100 * SECOND))
    play(scheduler, 100 * SECOND, over((1, 1)))
    assert sink.jobs() == [1, 3]


def test_extensions_leave_before_any_other_victim() -> None:
    """An urgent job may take from low work that has just begun and loses next to nothing: the extension leaves, which
    has been there for an hour."""
    _state, sink, scheduler = engine(config(), A, B)
    play(scheduler, 0, extensions(1, 1))
    play(scheduler, 3_600 * SECOND, job(2, 4))
    play(scheduler, 3_600 * SECOND + 1, job(3, 4, "urgent"))
    assert taken(sink) == [(1, "shrink", 3)]


def test_extensions_are_not_protected_however_often_they_left() -> None:
    """The fourth attempt of one has just begun; other work in its place would have eight minutes."""
    _state, sink, scheduler = engine(EngineConfig(policy=Policy()), A)
    play(scheduler, 0, extensions(1, 1, attempt=4))
    play(scheduler, 1, job(2, 4, ""))
    assert taken(sink) == [(1, "shrink", 2)]


def test_extensions_take_from_nobody() -> None:
    """Neither from low work nor from the extensions of another job, also where limits lend."""
    _state, sink, scheduler = engine(config(), A, B)
    play(scheduler, 0, job(1, 4), extensions(2, 1))
    play(scheduler, 100 * SECOND, extensions(3, 2, priority=100))
    play(scheduler, 900 * SECOND)
    assert taken(sink) == []


def test_no_extension_leaves_where_its_leaving_would_not_help() -> None:
    """A job of two nodes waits for job 1, from which it may not take."""
    _state, sink, scheduler = engine(EngineConfig(policy=Policy()), A, B)
    play(scheduler, 0, job(1, 4, "", walltime_ms=600 * SECOND), extensions(2, 1))
    play(scheduler, 1 * SECOND, job(3, 4, "", gang=2))
    assert taken(sink) == []


def test_extensions_want_no_machine() -> None:
    """One waits beside a job that does, too: what could be rented for is the job's node alone."""
    state, _sink, scheduler = engine(EngineConfig(policy=Policy()), A)
    play(scheduler, 0, job(1, 4, ""), extensions(2, 3), job(3, 4, ""))
    assert [(row.jobs, row.tasks) for row in asked(state)] == [(1, 1)]


def test_without_extensions_nobody_has_a_standing_more() -> None:
    """And nothing is searched for: the table of standings is as it was."""
    state, _sink, scheduler = engine(EngineConfig(policy=Policy()), A)
    play(scheduler, 0, job(1, 4, ""), job(2, 4, ""))
    assert state.shares.qos.shape[0] == 1
    play(scheduler, 1, extensions(3, 1))
    assert state.shares.qos.shape[0] == 2


def test_suspended_work_resumes_before_others_start_though_there_are_extensions() -> None:
    """Low work was suspended for job 3; when that ends, a plain job that ranks first does not get the place."""
    _state, sink, scheduler = engine(config(PreemptMode.SUSPEND), A, B)
    play(scheduler, 0, job(1, 4), extensions(2, 1))
    play(scheduler, 100 * SECOND, job(3, 4, "urgent", gang=2))
    play(scheduler, 101 * SECOND, left(1, number=2))
    assert 3 in sink.jobs()
    play(scheduler, 200 * SECOND, over((3, 1)), job(4, 4, "plain", priority=50), extensions(5, 1))
    resumed = [int(move["job"]) for plan in sink.plans for move in plan.resumes]
    assert resumed == [1]


def test_what_is_kept_free_for_an_extension_is_not_kept_from_others() -> None:
    """An extension has waited for twenty minutes for the node of job 1, which has no limit; job 3 takes what is free
    there at once."""
    _state, sink, scheduler = engine(EngineConfig(policy=Policy()), A)
    play(scheduler, 0, job(1, 3, ""), extensions(2, 1))
    play(scheduler, 700 * SECOND)
    play(scheduler, 1_200 * SECOND, job(3, 1, "", walltime_ms=3_600 * SECOND))
    assert sink.jobs() == [1, 3]


@pytest.mark.parametrize("seed", range(40))
def test_safety_other_work_leaves_only_where_extensions_would_not_do(seed: int) -> None:
    """On random small clusters, whatever leaves for a job: if any of it is no extension, then clearing all extensions
    alone would not have made enough room."""
    r = Random(seed)
    nodes = [NodeSpec(f"n{k}", {"cpu": 4, "memory": 8}) for k in range(r.randint(1, 4))]
    state, sink, scheduler = engine(config(), *nodes)
    cpus: dict[int, int] = {}
    extending: set[int] = set()
    for number in range(1, r.randint(3, 8)):
        cpus[number] = r.randint(1, 4)
        if r.random() < 0.5:
            extending.add(number)
            play(scheduler, number * SECOND, extensions(number, r.randint(1, 3), cpus[number]))
        else:
            play(scheduler, number * SECOND, job(number, cpus[number]))
    cleared = state.nodes.free[: len(nodes), state.nodes.resources.index("cpu")].tolist()
    for run in running(state):
        if int(run["job"]) in extending and run["state"] == RUN_ON:
            for row in rows_of_run(state, int(run["run"])):
                cleared[row] += cpus[int(run["job"])]
    cpu, gang = r.randint(1, 4), r.randint(1, len(nodes))
    play(scheduler, 100 * SECOND, job(99, cpu, "urgent", gang=gang))
    victims = {number for number, _mode, for_job in taken(sink) if for_job == 99}
    if victims - extending:
        assert sum(have >= cpu for have in cleared) < gang


def test_an_extension_has_the_grace_of_its_qos_or_else_of_its_queue() -> None:
    """Four cpus each: one of a QOS with 5 s, one of a queue with 90 s, one of neither, which has 30 s, and one of that
    queue and a QOS that says nothing of it."""
    policy = Policy(
        qos={"quick": Qos(name="quick", grace=Duration(5_000)), "plain": Qos(name="plain")},
        queues={"slow": Queue(name="slow", grace=Duration(90_000))},
    )
    nodes = [NodeSpec(name, {"cpu": 4}) for name in ("a", "b", "c", "d")]
    state, sink, scheduler = engine(EngineConfig(policy=policy, order="priority"), *nodes)
    owners = OwnerSpec(qos="quick"), OwnerSpec("slow"), OwnerSpec(), OwnerSpec("slow", qos="plain")
    for number, owner in enumerate(owners, 1):
        rows = submit_rows(1)
        rows["job"], rows["first_task"] = number, 1
        play(scheduler, 0, JobsSubmitted(rows, (ClassSpec({"cpu": 4}),), (replace(owner, extension=True),)))
    play(scheduler, SECOND, job(9, 4, "plain", gang=4))
    told = {int(move["job"]): int(move["grace_ms"]) for plan in sink.plans for move in plan.preemptions}
    assert told == {1: 5_000, 2: 90_000, 3: 30_000, 4: 90_000}
    check_invariants(state)
