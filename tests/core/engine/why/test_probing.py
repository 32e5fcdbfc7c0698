"""The smallest change that lets a job start: tried by the engine on a copy, true when it is made, and nothing moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Elsewhere, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import INF, JobsUpdated, NodesChanged, NodeSpec, update_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import pending, running
from hal.core.engine.why.playing import MOST_INSTANTS
from hal.core.engine.why.probing import MAX_PROBES, Prober
from hal.core.engine.why.shadow import Shadow
from hal.core.model.policy import Limit, Policy, Queue
from hal.core.model.resources import Resources
from hal.core.model.units import Duration, parse_duration
from hal.core.model.verdict import Sooner
from tests.core.engine.clusters import Starts
from tests.core.engine.rules.test_limits import HOUR_MS, cluster, end, job
from tests.core.engine.why.test_foresight import JOBS, busy, submission
from tests.examples import examples


def nodes_of(count: int, cpus: int = 4) -> NodesChanged:
    """Equal nodes beside the one of `cluster`, which goes."""
    return NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": cpus}) for k in range(count)), removed=("n",))


def changes(state: State, number: int, *elsewhere: Elsewhere) -> tuple[Sooner, ...]:
    """What the prober answers at time 0, and that the state is as it was."""
    before = state_digest(state), state.version
    seen = Prober().look(state, number, 0, elsewhere)
    assert (state_digest(state), state.version) == before
    check_invariants(state)
    assert seen is not None
    return seen.sooner


def test_a_gang_hears_with_how_many_nodes_it_would_start() -> None:
    """Four of five nodes asked for, two are busy: three would do now."""
    state, _sink, scheduler = cluster(Policy())
    scheduler.feed(nodes_of(5))
    scheduler.feed(job(1, 4, nodes=2, walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 4, nodes=4, walltime_ms=HOUR_MS))
    scheduler.run(0)
    assert changes(state, 2) == (Sooner(field="nodes", value="3"),)


def test_a_long_job_hears_the_walltime_with_which_it_would_start() -> None:
    """All eight cpus are promised to job 2 in three hours; what ends by then may use the two that are free."""
    state, _sink, scheduler = cluster(Policy())
    scheduler.feed(job(1, 6, walltime_ms=3 * HOUR_MS))
    scheduler.feed(job(2, 8, walltime_ms=HOUR_MS))
    scheduler.feed(job(3, 2, walltime_ms=9 * HOUR_MS))
    scheduler.run(0)
    assert changes(state, 3) == (Sooner(field="walltime", value="3h"),)
    assert changes(state, 2) == ()


def test_what_is_free_and_promised_is_not_offered() -> None:
    """Two of three nodes are free and promised to job 2: a gang of three with no walltime would not start on them."""
    state, _sink, scheduler = cluster(Policy())
    scheduler.feed(nodes_of(3))
    scheduler.feed(job(1, 4, walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 4, nodes=3, walltime_ms=HOUR_MS))
    scheduler.feed(job(3, 4, nodes=3))
    scheduler.run(0)
    assert changes(state, 3) == ()


def test_a_limit_of_hours_leaves_room_for_a_shorter_walltime() -> None:
    """Of two cpu-hours one is used: an hour instead of two."""
    two = Resources({"cpu": 2_000})
    policy = Policy(limits={"day": Limit(name="day", user="ada", hours=two, period=Duration(24 * HOUR_MS))})
    state, _sink, scheduler = cluster(policy, cpus=4_000)
    scheduler.feed(job(1, 1_000, user="ada", walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 1_000, user="ada", walltime_ms=2 * HOUR_MS))
    scheduler.run(0)
    assert changes(state, 2) == (Sooner(field="walltime", value="1h"),)


@pytest.mark.parametrize(("full", "found"), [(False, (Sooner(field="queue", value="other"),)), (True, ())])
def test_another_queue_is_offered_where_it_would_start(full: bool, found: tuple[Sooner, ...]) -> None:
    """Its own queue allows one task at once; the other allows one, too, and has it or not."""
    one = {name: Limit(name=name, queue=name, running=1) for name in ("default", "other")}
    policy = Policy(queues={name: Queue(name=name) for name in ("default", "other")}, limits=one)
    state, _sink, scheduler = cluster(policy)
    scheduler.feed(job(1))
    scheduler.feed(job(2))
    if full:
        scheduler.feed(job(3, queue="other"))
    scheduler.run(0)
    assert changes(state, 2, Elsewhere("other", ClassSpec({"cpu": 1}), OwnerSpec("other"), INF)) == found


def test_a_job_that_starts_anyway_needs_no_change() -> None:
    """Submitted since the last pass."""
    state, _sink, scheduler = cluster(Policy())
    scheduler.feed(job(1, 2, walltime_ms=HOUR_MS))
    assert changes(state, 1) == ()


def test_a_copy_is_equal_and_shares_nothing() -> None:
    """What runs on the copy, and what is submitted there, is not seen by the state; its memory is used again."""
    state, _sink, scheduler = cluster(Policy(limits={"x": Limit(name="x", user="*", running=3)}))
    scheduler.feed(job(1, 2, user="ada", tasks=6))
    scheduler.run(0)
    shadow = Shadow()
    digests = []
    for number in (2, 3):
        other = shadow.of(state)
        digests.append((state_digest(other), state_digest(state)))
        mine = Scheduler(other, Starts())
        mine.feed(job(number, 1, user="bob", tasks=2))
        mine.run(0)
        check_invariants(other)
        assert other.running_attempts == 5
    assert digests == [(state_digest(state),) * 2] * 2
    assert state.running_attempts == 3


@pytest.mark.parametrize("backfill", list(Backfill))
def test_nothing_that_changes_in_place_is_in_both(backfill: Backfill) -> None:
    """No array, list, dict or part with fields of its own of a state is also one of its copy.

    But for the names of keys of advice: they change only where advice is fed, and to a copy none is.
    """
    state = busy([(1, 0, 0, 2), (2, 1, 0, 3), (1, 1, 0, 1)], EngineConfig(backfill=backfill, policy=Policy()))
    other = Shadow().of(state)
    parts = {name: (value, getattr(other, name)) for name, value in vars(state).items()}
    for name, (mine, its) in list(parts.items()):
        if type(mine).__module__.startswith(("hal.core.engine", "hal.core.kernels")) and hasattr(mine, "__dict__"):
            parts |= {f"{name}.{field}": (value, getattr(its, field)) for field, value in vars(mine).items()}
    for name, (mine, its) in parts.items():
        if name not in ("calls", "_kernels", "advice.names") and (
            isinstance(mine, list | dict) or hasattr(mine, "__dict__")
        ):
            assert mine is its if callable(mine) else mine is not its, name
        if isinstance(mine, np.ndarray):
            assert not np.shares_memory(mine, its), name


@settings(max_examples=examples(60))
@given(
    jobs=JOBS,
    backfill=st.sampled_from([Backfill.EASY, Backfill.EASY_SJBF, Backfill.NONE, Backfill.CONSERVATIVE]),
    order=st.sampled_from(["fcfs", "priority"]),
)
def test_a_shorter_walltime_that_is_offered_starts_the_job(
    jobs: list[tuple[int, int, int, int]], backfill: Backfill, order: str
) -> None:
    """`hal update --walltime` with it, and the next pass starts the job; the question itself changes nothing."""
    config = EngineConfig(order=order, backfill=backfill, policy=Policy())
    waiting = [int(entry["job"]) for entry in pending(busy(jobs, config))]
    prober = Prober()
    for number in waiting[:6]:
        state = busy(jobs, config)
        before = state_digest(state)
        seen = prober.look(state, number, 0)
        assert state_digest(state) == before
        assert seen is not None
        assert len(seen.sooner) <= MAX_PROBES
        for change in seen.sooner:
            if change.field == "walltime":
                rows = update_rows(1)
                rows["job"], rows["walltime_ms"] = number, int(parse_duration(change.value))
                sink = Starts()
                scheduler = Scheduler(state, sink)
                scheduler.feed(JobsUpdated(rows))
                scheduler.run(0)
                assert number in sink.jobs()


def test_an_answer_is_the_same_every_time() -> None:
    """Whatever was asked before."""
    state = busy([(2, 0, 0, 3), (1, 1, 0, 2), (2, 0, 0, 5), (5, 1, 0, 1), (2, 1, 0, 4)], EngineConfig())
    prober = Prober()
    numbers = np.unique(pending(state)["job"]).tolist()
    first = [prober.look(state, number, 0) for number in numbers]
    assert [prober.look(state, number, 0) for number in numbers] == first


@settings(max_examples=examples(60))
@given(jobs=JOBS, backfill=st.sampled_from(list(Backfill)), order=st.sampled_from(["fcfs", "priority"]))
def test_the_forecast_comes_true_when_walltimes_do(
    jobs: list[tuple[int, int, int, int]], backfill: Backfill, order: str
) -> None:
    """Each job starts when it was said to, if everything runs for its walltime and nobody submits anything."""
    config = EngineConfig(order=order, backfill=backfill, policy=Policy())
    state = busy(jobs, config)
    prober = Prober()
    foreseen = {int(entry["job"]): prober.look(state, int(entry["job"]), 0) for entry in pending(state)}
    began = {}
    scheduler = Scheduler(state, Starts())
    now = 0
    while state.running_attempts:
        now = int(running(state)["end_ms"].min())
        for run in running(state):
            if run["end_ms"] == now:
                scheduler.feed(end(int(run["job"]), int(run["task"]), at_ms=now))
        scheduler.run(now)
        began |= {int(run["job"]): now for run in running(state) if run["start_ms"] == now}
    for number, seen in foreseen.items():
        assert seen is not None
        if seen.started:
            assert began[number] == seen.starts_at_ms
        else:
            assert number not in began


@settings(max_examples=examples(60))
@given(jobs=JOBS, new=JOBS, backfill=st.sampled_from(list(Backfill)), order=st.sampled_from(["fcfs", "priority"]))
def test_what_is_foreseen_of_jobs_is_what_is_foreseen_once_they_are_submitted(
    jobs: list[tuple[int, int, int, int]], new: list[tuple[int, int, int, int]], backfill: Backfill, order: str
) -> None:
    """All of them at once; the question changes nothing."""
    config = EngineConfig(order=order, backfill=backfill, policy=Policy())
    state = busy(jobs, config)
    submitted = submission(new, first=len(jobs) + 1)
    numbers = submitted.rows["job"].tolist()
    before = state_digest(state), state.version
    prober = Prober()
    foreseen = prober.foresee(state, (submitted,), numbers, 0)
    assert (state_digest(state), state.version) == before
    assert foreseen is not None
    starts, last_ms = foreseen
    assert prober.foresee(state, (submitted,), numbers, 0) == foreseen
    scheduler = Scheduler(state, Starts())
    scheduler.feed(submitted)
    scheduler.run(0)
    at_once = {int(run["job"]) for run in running(state)}
    waiting = {int(entry["job"]) for entry in pending(state)}
    for number in numbers:
        assert (starts.get(number) == 0) == (number in at_once)
        seen = prober.look(state, number, 0) if number in waiting else None
        if seen is not None and seen.started:
            assert starts[number] == seen.starts_at_ms <= last_ms
        elif seen is not None:
            assert number not in starts


def test_nothing_is_foreseen_where_no_node_comes_free() -> None:
    """What runs has no walltime; and 200 jobs that end do not hide that one may start later."""
    state, _sink, scheduler = cluster(Policy())
    scheduler.feed(job(1, 8))
    scheduler.run(0)
    assert Prober().foresee(state, (job(2, 8),), (2,), 0) == ({}, INF)
    assert Prober().foresee(state, (job(2, 8, eligible_ms=5, walltime_ms=HOUR_MS),), (2,), 0) == ({}, INF)
    state, _sink, scheduler = cluster(Policy(), cpus=1)
    for number in range(1, 301):
        scheduler.feed(job(number, walltime_ms=HOUR_MS))
    scheduler.run(0)
    assert Prober().foresee(state, (job(301, walltime_ms=HOUR_MS),), (301,), 0) == ({}, MOST_INSTANTS * HOUR_MS)


def test_what_a_long_queue_hides_is_told_as_a_bound() -> None:
    """Of 300 jobs of an hour on one cpu the last starts after 299; 200 of them are played."""
    state, _sink, scheduler = cluster(Policy(), cpus=1)
    for number in range(1, 301):
        scheduler.feed(job(number, walltime_ms=HOUR_MS))
    scheduler.run(0)
    prober = Prober()
    first, last = prober.look(state, 101, 0), prober.look(state, 300, 0)
    assert first is not None
    assert last is not None
    assert (first.starts_at_ms, first.started) == (100 * HOUR_MS, True)
    assert (last.starts_at_ms, last.started) == (MOST_INSTANTS * HOUR_MS, False)
