"""The engine's replay starts every job when an independent simulator does (see oracle.py)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hal.core.engine.config import Backfill, EngineConfig
from hal.daemons.twin.machine import POLICIES, Machine
from hal.daemons.twin.replay import CONFIGS, config_of, replay
from hal.daemons.twin.swf import Workload
from hal.daemons.twin.workload import WorkloadSpec, generate
from tests.daemons.twin.oracle import oracle_starts
from tests.examples import examples

MACHINE = 8
GANG_POLICIES = ["fcfs", "easy", "easy-sjbf"]
"""Conservative promises keep to their nodes, so gangs do not start as in a pool."""
ALSO = {"none": "fcfs", "top-k": "top-10"}
"""Other names for a policy that the oracle defines."""
NAMED = (*(name for name in POLICIES if name != "sjf"), "top-1", "top-2", "top-3")
"""Policies that the oracle defines."""

Job = tuple[int, int, int, int]
"""(gap to the submit before, run, slack of the limit, processors)"""

JOBS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 30), st.integers(0, 30), st.integers(1, MACHINE)),
    min_size=1,
    max_size=40,
)


def workload(jobs: list[Job]) -> Workload:
    gap, run, slack, procs = (np.array(column, np.int64) for column in zip(*jobs, strict=True))
    number = np.arange(1, len(jobs) + 1)
    return Workload(number, np.cumsum(gap), run, run + slack, procs, number % 3, {})


def generated(jobs: int, cpus: int, load: float, seed: int) -> Workload:
    made = generate(WorkloadSpec(jobs=jobs, cpus=cpus, load=load, seed=seed, users=5))
    number = np.arange(1, jobs + 1)
    return Workload(number, made.submit_s, made.run_s, made.limit_s, made.procs, made.user, {})


def expected(jobs: Workload, machine: int, policy: str, clairvoyant: bool) -> list[int]:
    planned = jobs.run_s if clairvoyant else jobs.limit_s
    return oracle_starts(
        jobs.submit_s.tolist(),
        jobs.run_s.tolist(),
        planned.tolist(),
        jobs.procs.tolist(),
        machine,
        ALSO.get(policy, policy),
    )


def test_every_policy_that_people_can_name_has_a_configuration() -> None:
    """The names of the command line and the engine's configurations are the same."""
    assert tuple(CONFIGS) == POLICIES


def test_top_2_is_the_top_k_of_hal_toml_with_two_reservations() -> None:
    """The engine's own backfill: nothing of the simulation's."""
    assert config_of("top-2") == EngineConfig(order="fcfs", backfill=Backfill.TOP_K, reservations=2)


@pytest.mark.parametrize(("policy", "starts"), [("easy", [0, 10, 30, 0]), ("top-2", [0, 10, 20, 30])])
def test_easy_delays_the_second_blocked_job_and_top_2_does_not(policy: str, starts: list[int]) -> None:
    """Of 4 processors 2 are busy until 10; 3, then 4 are wanted for 10 each; 1 for 30 fits beside the first."""
    log = workload([(0, 10, 0, 2), (0, 10, 0, 3), (0, 10, 0, 4), (0, 30, 0, 1)])
    assert replay(log, Machine.pool(4), policy, check=True).start_s.tolist() == starts


@pytest.mark.parametrize(("policy", "starts"), [("top-2", [0, 10, 20, 60, 0]), ("top-3", [0, 10, 20, 30, 40])])
def test_top_2_promises_the_third_blocked_job_nothing(policy: str, starts: list[int]) -> None:
    """Of 4 processors 2 are busy until 10; 3, 3, then 4 are wanted for 10 each; 1 for 60 fits beside the first two."""
    log = workload([(0, 10, 0, 2), (0, 10, 0, 3), (0, 10, 0, 3), (0, 10, 0, 4), (0, 60, 0, 1)])
    assert replay(log, Machine.pool(4), policy, check=True).start_s.tolist() == starts


@pytest.mark.parametrize("policy", NAMED)
@settings(max_examples=examples(40))
@given(jobs=JOBS, clairvoyant=st.booleans())
@example(jobs=[(0, 30, 0, 5), (0, 10, 0, 8), (1, 29, 0, 3), (0, 28, 1, 3)], clairvoyant=False)
def test_the_pool_starts_jobs_when_the_oracle_does(policy: str, jobs: list[Job], clairvoyant: bool) -> None:
    """Random small logs with many ties, tight and loose limits, and jobs as large as the machine."""
    log = workload(jobs)
    result = replay(log, Machine.pool(MACHINE), policy, clairvoyant=clairvoyant, check=True)
    assert result.start_s.tolist() == expected(log, MACHINE, policy, clairvoyant)


@pytest.mark.parametrize("policy", GANG_POLICIES)
@settings(max_examples=examples(30))
@given(jobs=JOBS, clairvoyant=st.booleans())
def test_gangs_on_single_processor_nodes_start_as_in_the_pool(policy: str, jobs: list[Job], clairvoyant: bool) -> None:
    """Nodes of one processor are as good as a pool; only conservative promises keep to their rows."""
    log = workload(jobs)
    result = replay(log, Machine(MACHINE, 1), policy, clairvoyant=clairvoyant, check=True)
    assert result.start_s.tolist() == expected(log, MACHINE, policy, clairvoyant)


@settings(max_examples=examples(60))
@given(jobs=JOBS)
def test_fcfs_on_nodes_of_two_never_overtakes_and_never_oversubscribes(jobs: list[Job]) -> None:
    """Jobs start in submit order, and gangs never hold more nodes than there are."""
    log = workload(jobs)
    machine = Machine(4, 2)
    result = replay(log, machine, "fcfs", check=True)
    assert (np.diff(result.start_s) >= 0).all()
    nodes_held = np.array([machine.shape_of(procs)[0] if procs > 2 else 0 for procs in log.procs.tolist()])
    for instant in result.start_s.tolist():
        running = (result.start_s <= instant) & (instant < result.end_s)
        assert nodes_held[running].sum() <= 4
        assert log.procs[running].sum() <= 8


@settings(max_examples=examples(60))
@given(jobs=JOBS)
def test_conservative_on_nodes_leaves_nothing_waiting(jobs: list[Job]) -> None:
    """Every job of the log runs, and none before its submit."""
    log = workload(jobs)
    result = replay(log, Machine(4, 2), "conservative", check=True)
    assert (result.start_s >= log.submit_s).all()


@pytest.mark.parametrize("policy", NAMED)
@pytest.mark.parametrize("load", [0.7, 1.1])
def test_a_lublin_log_is_replayed_as_the_oracle_does(policy: str, load: float) -> None:
    """600 jobs of the model, below and above saturation."""
    log = generated(600, 64, load, seed=7)
    result = replay(log, Machine.pool(64), policy)
    assert result.start_s.tolist() == expected(log, 64, policy, clairvoyant=False)


@pytest.mark.parametrize("policy", GANG_POLICIES)
def test_a_lublin_log_runs_the_same_as_gangs(policy: str) -> None:
    """64 nodes of one processor: the same starts as one pool of 64."""
    log = generated(600, 64, 0.95, seed=8)
    pool = replay(log, Machine.pool(64), policy)
    gangs = replay(log, Machine(64, 1), policy)
    assert gangs.start_s.tolist() == pool.start_s.tolist()


def test_a_replay_is_the_same_every_time() -> None:
    """Equal inputs, equal starts."""
    log = generated(300, 32, 1.0, seed=9)
    starts = [replay(log, Machine(8, 4), "easy").start_s.tolist() for _ in range(2)]
    assert starts[0] == starts[1]


def test_progress_is_reported_in_rising_numbers_of_submitted_jobs() -> None:
    """About every REPORT_EVERY cycles."""
    log = generated(6000, 64, 0.8, seed=10)
    seen: list[int] = []
    result = replay(log, Machine.pool(64), "easy", report=seen.append)
    assert seen == sorted(seen)
    assert len(seen) == result.cycles // 4096 > 1
    assert result.peak_live <= 6000


@pytest.mark.parametrize(
    ("procs", "shape"), [(1, (1, 1)), (4, (1, 4)), (5, (2, 4)), (8, (2, 4)), (10, (3, 4))]
)  # fmt: skip
def test_a_job_lies_on_one_node_or_on_whole_ones(procs: int, shape: tuple[int, int]) -> None:
    """Nodes of 4: up to 4 processors share a node, more take whole nodes, rounded up."""
    assert Machine(16, 4).shape_of(procs) == shape


@pytest.mark.slow
@pytest.mark.parametrize("policy", NAMED)
@settings(max_examples=examples(1500))
@given(jobs=JOBS, clairvoyant=st.booleans())
def test_the_pool_starts_many_more_logs_as_the_oracle_does(policy: str, jobs: list[Job], clairvoyant: bool) -> None:
    """The property above for many times the examples, without the state check."""
    log = workload(jobs)
    result = replay(log, Machine.pool(MACHINE), policy, clairvoyant=clairvoyant)
    assert result.start_s.tolist() == expected(log, MACHINE, policy, clairvoyant)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "machine"),
    [(policy, Machine.pool(MACHINE)) for policy in NAMED] + [(policy, Machine(MACHINE, 1)) for policy in GANG_POLICIES],
)
@settings(max_examples=examples(150))
@given(jobs=JOBS, clairvoyant=st.booleans())
def test_the_state_holds_in_more_logs(policy: str, machine: Machine, jobs: list[Job], clairvoyant: bool) -> None:
    """The state is checked after every cycle, in a pool and on nodes of one processor; the starts are the oracle's."""
    log = workload(jobs)
    result = replay(log, machine, policy, clairvoyant=clairvoyant, check=True)
    assert result.start_s.tolist() == expected(log, MACHINE, policy, clairvoyant)


@pytest.mark.slow
@pytest.mark.parametrize("policy", NAMED)
@pytest.mark.parametrize("clairvoyant", [False, True])
def test_long_lublin_logs_are_replayed_as_the_oracle_does(policy: str, clairvoyant: bool) -> None:
    """5,000 jobs for 256 processors, busy but not saturated."""
    log = generated(5000, 256, 0.9, seed=11)
    result = replay(log, Machine.pool(256), policy, clairvoyant=clairvoyant)
    assert result.start_s.tolist() == expected(log, 256, policy, clairvoyant)
