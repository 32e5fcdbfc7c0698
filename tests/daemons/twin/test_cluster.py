"""A cluster of a file: jobs with GPUs, domains and taints on it, judged by sums of their own over nodes and GPUs."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.cli.simulation.job_file import read_jobs
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import SpecError
from hal.core.model.devices import WHOLE
from hal.core.model.policy import Policy, PreemptMode, Qos, Queue
from hal.core.model.resources import Resources
from hal.core.model.topology.tree import Domain, Topology
from hal.core.model.units import Duration
from hal.daemons.twin.cluster import Cluster, cluster_of
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.policy_replay import PolicyRun, replay_under
from hal.daemons.twin.site_admission import Site
from tests.examples import examples

RACKS = Topology(
    levels=("rack",),
    domains=(Domain("r1", 0, -1), Domain("r2", 0, -1)),
    places={"a1": 0, "a2": 0, "a3": 1, "b1": 1},
)
NODES: dict[str, dict[str, Any]] = {
    "a[1-3]": {"cpus": 8, "gpus": "a100:4", "gpus_linked": 2, "taints": ["gpu=yes"]},
    "b1": {"cpus": 8, "gpus": "h100:2", "labels": {"tier": "new"}},
    "c1": {"cpus": 4},
    "s1": {"cpus": 8, "gpus": "h200:2", "gpu_slices": ["1g.18gb", "1g.18gb", "2g.35gb"], "taints": ["gpu=yes"]},
}
TYPES = {"0": "1g.18gb", "1": "1g.18gb", "2": "2g.35gb"}
"""Of slices, by the last digit of their uuids."""
QOS = {
    "high": Qos(name="high", priority=50, preempts=("spot",)),
    "spot": Qos(name="spot", preempt_mode=PreemptMode.REQUEUE, grace=Duration(2_000)),
}
JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 60),
        "run": st.integers(1, 30),
        "walltime": st.sampled_from(["30s", "1m"]),
        "cpus": st.integers(1, 4),
        "gpus": st.sampled_from(
            [0, 0.3, 0.5, 1, 2, "a100:1", "a100:3", "h100:1", 4, "2@island", "1g.18gb:3", "2g.35gb:1"]
        ),
        "nodes": st.sampled_from([1, 1, 1, 2, 2, 3]),
        "within": st.sampled_from(["", "rack"]),
        "tolerate": st.sampled_from([[], ["gpu"], ["gpu=yes"], ["gpu=no"]]),
        "pack": st.sampled_from(["", "", "rack:3s", "rack:20s"]),
        "qos": st.sampled_from(["", "spot", "high"]),
    }
).map(lambda job: job | {"pack": ""} if job["within"] else job)  # a job says one of them


def cluster() -> Cluster:
    return cluster_of("cluster.toml", NODES, RACKS)


def replayed(jobs: list[dict[str, Any]], *, backfill: Backfill = Backfill.EASY, compact: bool = True) -> PolicyRun:
    """These jobs on that cluster, with all checks of the engine and of limits."""
    text = "\n".join(map(json.dumps, jobs)).encode()
    _, load, people = read_jobs("jobs", io.BytesIO(text), None, 1.0)
    parts = any(spec.request.get("gpu", 0) % WHOLE for spec in load.asked)
    engine = EngineConfig(
        order="priority", backfill=backfill, compact=compact, gpu_parts=parts, gpu_islands=True, policy=Policy(qos=QOS)
    )
    return replay_under(load, Machine.of_cluster(cluster()), people, Site(label="x", engine=engine), check=True)


def held(text: str) -> dict[tuple[str, str], float]:
    """What `held_gpus` says, by node and GPU."""
    found = {}
    for part in text.split(", ") if text else ():
        node, _, gpus = part.partition(": ")
        for gpu in gpus.split():
            name, _, share = gpu.partition(":")
            found[node, name] = float(share or 1)
    return found


@given(jobs=st.lists(JOB, min_size=1, max_size=25), backfill=st.sampled_from(list(Backfill)), compact=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_no_node_or_gpu_is_over_packed_and_domains_and_taints_are_kept(
    jobs: list[dict[str, Any]], backfill: Backfill, compact: bool
) -> None:
    """Whatever was started, by nodes and GPUs of each job's last start; what never starts fits nowhere."""
    run = replayed(jobs, backfill=backfill, compact=compact)
    rows = {row.name: row for row in cluster().rows}
    asked = [jobs[line - 1] for line in run.id.tolist()]
    used: Counter[tuple[int, str, str]] = Counter()
    for at, job in enumerate(asked):
        if run.start_s[at] < 0:
            continue
        nodes, gpus = run.places[at], held(run.held_gpus[at])
        assert len(set(nodes)) == job["nodes"]
        kind, _, count = str(job["gpus"]).rpartition(":")
        count, _, island = count.partition("@")
        for node in nodes:
            row = rows[node]
            assert not row.about.taints or {"gpu", "gpu=yes"} & set(job["tolerate"])
            if "gb" in kind:
                assert {TYPES[name[-1]] for where, name in gpus if where == node} == {kind}
            else:
                assert not kind or row.labels["hal.gpu"] == kind
            assert not island or len({int(name) // 2 for where, name in gpus if where == node}) == 1
            assert sum(share for (where, _), share in gpus.items() if where == node) == pytest.approx(float(count))
        if job["within"] and job["nodes"] > 1:
            racks = {RACKS.domains_of(node, {}) for node in nodes}
            assert len(racks) == 1
            assert racks != {("",)}
        # The last leg alone: an earlier one may have been elsewhere.
        begin = max(int(run.held.begin_s[leg]) for leg in range(run.held.job.size) if run.held.job[leg] == at)
        for second in range(begin, int(run.end_s[at])):
            for node in nodes:
                used[second, node, "cpu"] += 1000 * job["cpus"]
            for (node, gpu), share in gpus.items():
                used[second, node, gpu] += round(1000 * share)
    for (second, node, what), amount in used.items():
        most = rows[node].capacity["cpu"] if what == "cpu" else WHOLE
        assert amount <= most, (second, node, what)
    assert set(run.waiting) <= {"impossible"}
    assert run.gpus is not None
    assert 0 <= run.gpus.allocated <= 1


def test_gpu_time_is_counted_by_model_and_while_jobs_wait_for_gpus() -> None:
    """12 A100s and 2 H100s for 20 s: 8 A100s are held for 10 s, in which the second job waits, then all 12 for 10 s."""
    both = {"cpus": 1, "tolerate": ["gpu"], "run": 10, "walltime": "10s", "submit": 0}
    run = replayed([both | {"gpus": "a100:4", "nodes": 2}, both | {"gpus": "a100:4", "nodes": 3}])
    assert run.start_s.tolist() == [0, 10]
    assert run.gpus is not None
    assert run.gpus.gpus == 16
    assert run.gpus.by_model == {"a100": pytest.approx((8 + 12) / 24), "h200": 0.0, "h100": 0.0}
    sliced = 2 * 4 / 7  # four of seven compute slices of each H200
    assert run.gpus.allocated == pytest.approx((8 + 12) / 2 / (14 + sliced), rel=0.001)
    assert run.gpus.allocated_in_demand == pytest.approx(8 / (14 + sliced), rel=0.001)
    assert run.gpus.islands == 2.0


def test_two_halves_share_a_gpu_and_three_parts_wait_for_one_another() -> None:
    """Parts that start in one plan and do not fit on the same GPU are bound one after the other."""
    part = {"cpus": 1, "run": 10, "walltime": "10s", "submit": 0, "constraints": ["tier=new"]}
    halves = replayed([part | {"gpus": 0.5} for _ in range(4)])
    assert sorted(halves.held_gpus) == ["b1: 0:0.5", "b1: 0:0.5", "b1: 1:0.5", "b1: 1:0.5"]
    most = replayed([part | {"gpus": 0.6} for _ in range(3)])
    assert sorted(most.start_s.tolist()) == [0, 0, 10]


def test_queues_leave_to_gpus_what_they_say() -> None:
    """Of eight cores beside two GPUs at three each two are left, in the queue `lax` at one each six."""
    lax = Queue(name="lax", gpu_reserve=Resources({"cpu": 1_000}))
    policy = Policy(queues={"default": Queue(), "lax": lax})
    engine = EngineConfig(order="priority", gpu_reserve={"cpu": 3_000}, policy=policy)
    job = {"submit": 0, "run": 5, "walltime": 5, "cpus": 4, "constraints": ["tier=new"]}
    text = "\n".join(json.dumps(job | {"queue": queue}) for queue in ("default", "lax")).encode()
    _, load, people = read_jobs("jobs", io.BytesIO(text), None, 1.0)
    site = Site(label="x", engine=engine)
    run = replay_under(load, Machine.of_cluster(cluster()), people, site, check=True)
    assert run.start_s.tolist() == [-1, 0]


def test_slices_are_bound_and_counted_by_their_compute() -> None:
    """Three of four small ones for 10 s, then two of them: of 8 compute slices for 20 s 5/16."""
    part = {"cpus": 1, "run": 10, "walltime": "10s", "submit": 0, "tolerate": ["gpu"]}
    run = replayed([part | {"gpus": "1g.18gb:3"}, part | {"gpus": "1g.18gb:2", "run": 10}])
    assert run.start_s.tolist() == [0, 10]
    assert run.held_gpus == ("s1: MIG-0-0 MIG-0-1 MIG-1-0", "s1: MIG-0-0 MIG-0-1")
    assert run.gpus is not None
    assert run.gpus.by_model["h200"] == pytest.approx((3 + 2) / 16, rel=0.01)


def test_whole_nodes_and_node_pools_are_those_of_the_file() -> None:
    """`exclusive` takes all that nodes of one size have."""
    run = replayed([{"submit": 0, "run": 5, "walltime": 5, "exclusive": True, "constraints": ["tier=new"]}])
    assert run.places == (("b1",),)
    assert run.held_gpus == ("b1: 0 1",)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"n1": {"cpus": 1, "gpu": 1}}, "gpu"),
        ({"n1": {"cpus": 1, "gpus": "a100:x"}}, "is no number of GPUs"),
        ({"n1": {"cpus": 1}, "n[1-2]": {"cpus": 2}}, "'n1' is described twice"),
        ({"n1": {"cpus": 1, "labels": {"hal.node": "x"}}}, "one that HAL makes"),
        ({"n1": {"cpus": 1, "taints": ["="]}}, "is not a taint"),
        ({"n[1-": {"cpus": 1}}, "brackets"),
        ({"n1": {}}, "cpus"),
        ({}, "describes no node"),
    ],
)
def test_a_mistake_names_the_file_and_what_is_wrong(nodes: dict[str, Any], message: str) -> None:
    """One line each."""
    with pytest.raises(SpecError, match=r"cluster\.toml: ") as error:
        cluster_of("cluster.toml", nodes, None)
    assert message in error.value.message


def test_a_packed_job_waits_for_one_domain_and_then_starts_anywhere() -> None:
    """a1 is taken for 30 s: a2 and a3 are free, in two racks. Within 20 s none has both, so it starts there at 21."""
    one = {"submit": 0, "run": 30, "walltime": 30, "cpus": 8, "constraints": ["hal.node=a1"], "tolerate": ["gpu"]}
    pair = {"submit": 1, "run": 5, "walltime": 5, "gpus": "a100:1", "nodes": 2, "tolerate": ["gpu"]}
    assert replayed([one, pair | {"pack": "rack:20s"}]).start_s.tolist() == [0, 21]
    assert replayed([one, pair | {"pack": "rack:1m"}]).start_s.tolist() == [0, 30]
    assert replayed([one, pair]).start_s.tolist() == [0, 1]


def test_what_is_taken_back_after_its_wait_is_no_longer_packed() -> None:
    """The pair starts packed and is taken back when its wait is over: it then starts on what is free, in two racks."""
    pair = {"submit": 0, "run": 40, "walltime": 40, "gpus": "a100:1", "nodes": 2, "tolerate": ["gpu"], "qos": "spot"}
    urgent = {"submit": 10, "run": 30, "walltime": 30, "cpus": 8, "tolerate": ["gpu"], "qos": "high"}
    urgent["constraints"] = ["hal.node=a1"]
    run = replayed([pair | {"pack": "rack:5s"}, urgent])
    assert run.preemptions == 1
    assert set(run.places[0]) == {"a2", "a3"}
    assert run.end_s[0] < 60
