"""Jobs with groups of nodes in the twin: what starts where is what the tasks plane of a controller would have started,
and what a plain judge of nodes and instants allows."""

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
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos
from hal.core.model.resources import Resources
from hal.core.model.topology.tree import Domain, Topology
from hal.core.model.units import Duration
from hal.daemons.twin.cluster import cluster_of
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.policy_replay import PolicyRun, replay_under
from hal.daemons.twin.site_admission import Site
from tests.examples import examples
from tests.planes.tasks.gpu_site import GpuSite

NODES = {"n[1-3]": {"cpus": 64, "gpus": 4, "gpus_linked": 2}}
PARTS = st.fixed_dictionaries(
    {"nodes": st.integers(1, 2), "cpus": st.sampled_from([1, 30, 64]), "gpus": st.sampled_from([0, 1, 4])}
)
JOB = st.fixed_dictionaries(
    {"submit": st.integers(0, 30), "run": st.integers(1, 15), "walltime": st.sampled_from(["15s", "1m"])},
    optional={"qos": st.sampled_from(["spot", "high"])},
)
JOBS = st.lists(st.tuples(JOB, st.lists(PARTS, min_size=1, max_size=3)), min_size=1, max_size=12).map(
    lambda jobs: [
        job
        | (parts[0] if len(parts) == 1 else {"groups": [{"name": f"g{at}"} | part for at, part in enumerate(parts)]})
        for job, parts in jobs
    ]
)
QOS = {
    "high": Qos(name="high", priority=50, preempts=("spot",)),
    "spot": Qos(name="spot", preempt_mode=PreemptMode.REQUEUE, grace=Duration(2_000)),
}


def replayed(
    jobs: list[dict[str, Any]],
    config: EngineConfig,
    nodes: dict[str, dict[str, Any]] = NODES,
    topology: Topology | None = None,
) -> PolicyRun:
    """These jobs on these nodes, with all checks of the engine and of limits."""
    _, load, people = read_jobs("jobs", io.BytesIO("\n".join(map(json.dumps, jobs)).encode()), None, 1.0)
    machine = Machine.of_cluster(cluster_of("cluster.toml", nodes, topology))
    return replay_under(load, machine, people, Site(label="x", engine=config), check=True)


def widths(job: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Cores and GPUs of each of its nodes in order, by group."""
    return [
        (group, part["cpus"], part["gpus"])
        for group, part in enumerate(job.get("groups", [job]))
        for _ in range(part["nodes"])
    ]


@pytest.mark.slow
@given(JOBS, st.sampled_from(list(Backfill)), st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_no_node_is_over_packed_and_groups_have_nodes_of_their_own(
    jobs: list[dict[str, Any]], backfill: Backfill, preempts: bool
) -> None:
    """By the nodes of each job's last start; whatever could run has run, however often it was preempted."""
    policy = Policy(qos=QOS if preempts else {"high": Qos(name="high", priority=50), "spot": Qos(name="spot")})
    run = replayed(jobs, EngineConfig(order="priority", backfill=backfill, policy=policy))
    used: Counter[tuple[int, str, str]] = Counter()
    for at, line in enumerate(run.id.tolist()):
        job = jobs[line - 1]
        wanted = widths(job)
        if run.start_s[at] < 0:
            assert len(wanted) > 3  # more than there are
            continue
        assert len(set(run.places[at])) == len(run.places[at]) == len(wanted)
        begin = max(int(run.held.begin_s[leg]) for leg in range(run.held.job.size) if run.held.job[leg] == at)
        gpus = {part.partition(": ")[0]: part.split()[1:] for part in run.held_gpus[at].split(", ") if part}
        for node, (_, cpus, count) in zip(run.places[at], wanted, strict=True):
            assert len(gpus.get(node, ())) == count
            for second in range(begin, int(run.end_s[at])):
                used[second, node, "cpu"] += cpus
                for gpu in gpus.get(node, ()):
                    used[second, node, gpu] += 1
    assert all(amount <= (64 if what == "cpu" else 1) for (_, _, what), amount in used.items())


@pytest.mark.slow
@given(JOBS, st.sampled_from(list(Backfill)))
@settings(max_examples=examples(20), deadline=None)
def test_the_tasks_plane_of_a_controller_starts_the_same_on_the_same_nodes(
    jobs: list[dict[str, Any]], backfill: Backfill
) -> None:
    """The plane is fed what the twin was fed, at the same instants."""
    jobs = sorted(({**job, "qos": ""} for job in jobs), key=lambda job: int(job["submit"]))
    config = EngineConfig(backfill=backfill)
    run = replayed(jobs, config)
    site = GpuSite(nodes=3, config=config)
    number: dict[int, int] = {}
    ends: dict[int, int] = {}
    seen: dict[int, tuple[int, tuple[str, ...]]] = {}
    for second in range(30 + 15 * len(jobs) + 1):
        site.now_ms = second * 1_000
        over = [at for at, end in ends.items() if end == second]
        for at in over:
            site.end(number[at])
            ends.pop(at)
        came = [at for at, job in enumerate(jobs) if job["submit"] == second]
        for at in came:
            number[at] = site.submit(wait_for_change=True, **plain(jobs[at]))
        if over or came or second == 0:
            site.turn()
        for at, job in number.items():
            found = site.running().get((job, 0))
            if found is not None and at not in seen:
                seen[at] = (second, found.nodes)
                ends[at] = second + int(run.run_s[at])
    started = {at: (start, run.places[at]) for at, start in enumerate(run.start_s.tolist()) if start >= 0}
    assert started == seen


def plain(job: dict[str, Any]) -> dict[str, Any]:
    """As a job file has it."""

    def request(part: dict[str, Any]) -> dict[str, Any]:
        return {"nodes": part["nodes"], "request": {"cpu": part["cpus"], "gpu": part["gpus"]}}

    if "groups" not in job:
        return {"walltime": job["walltime"], **request(job)}
    return {"walltime": job["walltime"], "groups": [{"name": part["name"], **request(part)} for part in job["groups"]]}


def test_all_groups_wait_for_the_last_node() -> None:
    """Three nodes, one taken for 10 s: a driver and two GPU nodes start at 10 s, and hold 1 + 2 x 30 cores."""
    groups = [{"name": "driver", "cpus": 1}, {"name": "gpu", "nodes": 2, "cpus": 30, "gpus": 4}]
    one = {"submit": 0, "run": 10, "walltime": "10s"}
    run = replayed([one | {"cpus": 64}, one | {"groups": groups}], EngineConfig())
    assert run.start_s.tolist() == [0, 10]
    assert run.procs.tolist() == [64, 61]
    assert run.places[1] == ("n1", "n2", "n3")
    assert run.held_gpus[1] == "n2: 0 1 2 3, n3: 0 1 2 3"


def test_a_limit_counts_all_groups() -> None:
    """61 cores of 90: the second one waits for the first."""
    policy = Policy(limits={"all": Limit(name="all", resources=Resources({"cpu": 90_000}))})
    groups = [{"name": "driver", "cpus": 1}, {"name": "more", "nodes": 2, "cpus": 30}]
    job = {"submit": 0, "run": 10, "walltime": "10s", "groups": groups}
    run = replayed([job, job], EngineConfig(order="priority", policy=policy))
    assert run.start_s.tolist() == [0, 10]


def test_groups_leave_together_for_urgent_work_and_start_again() -> None:
    """Urgent work needs one of its nodes: after 2 s of grace all are free, and it runs once more from 8 s on."""
    policy = Policy(qos=QOS)
    groups = [{"name": "driver", "cpus": 1}, {"name": "more", "nodes": 2, "cpus": 64}]
    low = {"submit": 0, "run": 10, "walltime": "20s", "groups": groups, "qos": "spot"}
    high = {"submit": 1, "run": 5, "walltime": "5s", "cpus": 64, "qos": "high"}
    run = replayed([low, high], EngineConfig(order="priority", policy=policy, min_run_ms=0))
    assert run.preemptions == 1
    assert run.start_s.tolist() == [0, 3]
    assert run.end_s.tolist() == [18, 8]


def test_the_groups_of_a_job_are_one_gang_of_a_topology() -> None:
    """Its three nodes are in two racks."""
    racks = Topology(
        levels=("rack",), domains=(Domain("r1", 0, -1), Domain("r2", 0, -1)), places={"n1": 0, "n2": 0, "n3": 1}
    )
    groups = [{"name": "driver", "cpus": 1}, {"name": "more", "nodes": 2, "cpus": 64}]
    run = replayed([{"submit": 0, "run": 10, "groups": groups}], EngineConfig(), topology=racks)
    assert run.gangs is not None
    assert (run.gangs.starts, run.gangs.domains) == (1, {"rack": 2.0})


def test_what_could_never_fit_is_reported_as_impossible() -> None:
    """Four nodes of three."""
    groups = [{"name": "driver", "nodes": 2, "cpus": 1}, {"name": "more", "nodes": 2, "cpus": 1}]
    run = replayed([{"submit": 0, "run": 10, "groups": groups}], EngineConfig())
    assert run.start_s.tolist() == [-1]
    assert set(run.waiting) == {"impossible"}
