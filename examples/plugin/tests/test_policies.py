"""ACME's policies keep HAL's contracts and do what they are for."""

import numpy as np
import pytest
from msgspec.structs import replace

from acme_policies.admit import Projects
from acme_policies.domain import Quiet
from acme_policies.filter import SpareGpus
from acme_policies.order import WideFirst
from acme_policies.preempt import NearTheEnd
from acme_policies.price import Cheapest
from acme_policies.score import Spread
from hal.conformance import check
from hal.core.engine.config import EngineConfig
from hal.core.interfaces import DomainView, Gang, Labels, NodeView, Request, RunView
from hal.core.model import Verdict, spec_from_plain
from hal.daemons.controller.startup.plugins import load_policies
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.replay import replay
from hal.daemons.twin.swf import Workload

NODES = NodeView(
    rows=2,
    resources=("cpu", "gpu"),
    free=np.array([[4_000, 1_000], [0, 2_000]], np.float32),
    capacity=np.array([[8_000, 8_000], [0, 2_000]], np.float32),
    up=np.array([True, True]),
    labels=Labels([{}, {}]),
)
"""Half of the first node's cpus are free, an eighth of the second's, which has two GPUs."""


def asks(cpu: int, gpu: int = 0) -> Request:
    return Request(amounts=np.array([cpu, gpu]), wanted=(0, 1) if gpu else (0,))


@pytest.mark.parametrize("policy", [WideFirst, SpareGpus, Spread, Cheapest, Quiet, NearTheEnd, Projects])
def test_it_conforms(policy: type) -> None:
    """HAL's own contract: shapes, ranges, the same answer for the same question."""
    check(policy())


def test_a_job_without_gpus_stays_off_gpu_nodes() -> None:
    """And one with GPUs may go anywhere; whether there is room is the engine's question."""
    assert SpareGpus().mask(asks(1), NODES).tolist() == [True, False]
    assert SpareGpus().mask(asks(1, gpu=1), NODES).tolist() == [True, True]


def test_the_emptier_node_is_better() -> None:
    """4 of 8 free is 0.5, 1 of 8 is 0.125."""
    assert Spread().score(asks(1), NODES).tolist() == [0.5, 0.125]


def test_the_cheaper_node_is_better() -> None:
    """1 / (1 + 0.25) is 0.8; the other's price is not known, so it counts as 1."""
    advised = replace(NODES, advice={"price": np.array([0.25, np.nan])})
    assert Cheapest().score(asks(1), advised).tolist() == [0.8, 0.5]


def test_the_domain_with_fewer_neighbours_that_use_the_network_is_better() -> None:
    """Of two nodes one is in use by a gang, of one none."""
    first, last = np.array([0, 1, 0]), np.array([1, 2, 2])
    view = DomainView(
        domains=3, levels=("row", "rack"), name=np.array(["a/r1", "a/r2", "a"]), level=np.array([1, 1, 0]),
        first=first, last=last, nodes=last - first, idle=np.array([1, 0, 1]), fits=np.array([1, 0, 1]),
        gang_nodes=np.array([0, 1, 1]),
    )  # fmt: skip
    gang = Gang(
        amounts=np.array([1, 0]), wanted=(0,), nodes=2, within="", queue="default", account="", user="ann", qos=""
    )
    assert Quiet().score(gang, NODES, view).tolist() == [1.0, 0.0, 0.5]


def test_what_is_about_to_end_is_never_taken_back() -> None:
    """At 1,000 s: job 1 has run half of 2,000 s; job 2 ends in 600 s, still too late; job 3 ends in 599 s."""
    count, second = np.ones(3, np.int64), 1_000
    texts, limits = np.array(["", "", ""]), np.array([2_000, 1_600, 1_599]) * second
    view = RunView(
        job=np.array([1, 2, 3]), task=0 * count, attempt=count, queue=texts, account=texts, user=texts, qos=texts,
        priority=0 * count, submit_ms=0 * count, start_ms=0 * count, walltime_ms=limits, end_ms=limits,
        taken=0 * count, wasted=np.array([100.0, 100.0, 100.0]),
        nodes=count, resources=("cpu",), amounts=np.array([[4_000, 4_000, 4_000]]),
    )  # fmt: skip
    assert NearTheEnd().price(view, 1_000 * second).tolist() == [150.0, 162.5, np.inf]


@pytest.mark.parametrize(
    ("job", "account"),
    [
        ({}, "commons"),
        ({"account": "mars"}, "mars"),
        ({"request": "gpu=1", "account": "mars", "walltime": "1h"}, "mars"),
    ],
)
def test_a_job_counts_for_its_project(job: dict[str, str], account: str) -> None:
    """Jobs without GPUs need not name one."""
    answer = Projects().check(spec_from_plain({"command": ["true"], **job}))
    assert not isinstance(answer, Verdict)
    assert answer.account == account


@pytest.mark.parametrize("job", [{}, {"account": "commons", "walltime": "1h"}, {"account": "mars"}])
def test_a_gpu_job_without_a_project_or_a_walltime_is_refused(job: dict[str, str]) -> None:
    """The refusal says what would be accepted."""
    answer = Projects().check(spec_from_plain({"command": ["true"], "request": "cpu=1,gpu=1", **job}))
    assert isinstance(answer, Verdict)
    assert answer.helps


def test_in_a_replay_the_wide_job_goes_first() -> None:
    """Job 1 fills the machine for 10 s; of 2 (one node) and 3 (two nodes) the wide one starts first, at 10; 2 at 20."""
    load_policies()
    columns = ([1, 2, 3], [0, 1, 2], [10, 10, 10], [10, 10, 10], [8, 4, 8], [1, 1, 1])
    log = Workload(*(np.array(column, np.int64) for column in columns), {})
    config = EngineConfig(order="wide-first", placement="spread", filters=("spare-gpus",))
    result = replay(log, Machine(nodes=2, cpus_per_node=4), "wide-first", config=config, check=True)
    assert result.start_s.tolist() == [0, 20, 10]
    assert replay(log, Machine(nodes=2, cpus_per_node=4), "easy").start_s.tolist() == [0, 10, 20]
