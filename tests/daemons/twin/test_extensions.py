"""Elastic jobs and terms of affinity in the twin, judged by sums of their own over nodes and seconds."""

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
from hal.core.model.policy import Policy, PreemptMode, Qos, Queue
from hal.core.model.units import Duration
from hal.daemons.twin.cluster import cluster_of
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.policy_replay import PolicyRun, replay_under
from hal.daemons.twin.site_admission import Site
from tests.examples import examples

NODES: dict[str, dict[str, Any]] = {"a[1-3]": {"cpus": 4, "gpus": 2}, "b1": {"cpus": 2}}
QOS = {
    "high": Qos(name="high", priority=50, preempts=("spot", "pause")),
    "spot": Qos(name="spot", preempt_mode=PreemptMode.REQUEUE, grace=Duration(2_000)),
    "pause": Qos(name="pause", preempt_mode=PreemptMode.SUSPEND),
}
JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 40),
        "run": st.integers(1, 40),
        "walltime": st.sampled_from(["40s", "1m"]),
        "cpus": st.integers(1, 3),
        "gpus": st.sampled_from([0, 0, 0, 0.5, 1]),
        "nodes": st.sampled_from([1, 1, 2]),
        "extensions": st.sampled_from([0, 0, 1, 3]),
        "labels": st.sampled_from([{}, {}, {"app": "web"}]),
        "qos": st.sampled_from(["", "", "spot", "pause", "high"]),
    }
).map(lambda job: job | ({"apart": ["app@node"]} if job["labels"] else {}))


def replayed(
    jobs: list[dict[str, Any]], *, backfill: Backfill = Backfill.EASY, policy: Policy | None = None
) -> PolicyRun:
    """These jobs on three nodes of four cores and two GPUs and one of two, with all checks of the engine and limits."""
    text = "\n".join(map(json.dumps, jobs)).encode()
    _, load, people = read_jobs("jobs", io.BytesIO(text), None, 1.0)
    parts = any(spec.request.get("gpu", 0) % 1000 for spec in load.asked)
    engine = EngineConfig(order="priority", backfill=backfill, gpu_parts=parts, policy=policy or Policy(qos=QOS))
    machine = Machine.of_cluster(cluster_of("cluster.toml", NODES, None))
    return replay_under(load, machine, people, Site(label="x", engine=engine), check=True)


@given(jobs=st.lists(JOB, min_size=1, max_size=20), backfill=st.sampled_from(list(Backfill)))
@settings(max_examples=examples(80), deadline=None)
def test_no_node_is_over_packed_and_extensions_run_beside_their_base_alone(
    jobs: list[dict[str, Any]], backfill: Backfill
) -> None:
    """By seconds and nodes, of each job's last leg and of all extensions; what is apart never shares a node."""
    run = replayed(jobs, backfill=backfill)
    asked = [jobs[line - 1] for line in run.id.tolist()]
    used: Counter[tuple[int, str]] = Counter()
    apart: Counter[tuple[int, str]] = Counter()
    legs: dict[int, list[tuple[int, int]]] = {}
    for at, begin, end in zip(
        *(column.tolist() for column in (run.held.job, run.held.begin_s, run.held.end_s)), strict=True
    ):
        legs.setdefault(at, []).append((begin, end))
    grown = run.grown
    assert grown.procs.tolist() == [asked[at]["cpus"] for at in grown.held.job.tolist()]
    beside: dict[int, list[tuple[int, int, str]]] = {}
    for at, begin, end, node in zip(
        grown.held.job.tolist(), grown.held.begin_s.tolist(), grown.held.end_s.tolist(), grown.nodes, strict=True
    ):
        assert any(first <= begin and end <= last for first, last in legs[at]), "an extension without its base"
        beside.setdefault(at, []).append((begin, end, node))
    for at, job in enumerate(asked):
        if run.start_s[at] < 0:
            assert not job.get("extensions") or at not in beside
            continue
        begin, end = max(legs[at])
        where = [(begin, end, node) for node in run.places[at]]
        assert len({node for *_, node in where}) == job["nodes"]
        assert (
            max(Counter(n for b, e, n in beside.get(at, []) if b <= begin < e).values(), default=0) <= job["extensions"]
        )
        for first, last, node in where + beside.get(at, []):
            for second in range(first, last):
                used[second, node] += job["cpus"]
        for first, last, node in where if job["labels"] else ():
            for second in range(first, last):
                apart[second, node] += 1
    for (_, node), cpus in used.items():
        assert cpus <= NODES["b1" if node == "b1" else "a[1-3]"]["cpus"]
    assert max(apart.values(), default=0) <= 1
    assert set(run.waiting) <= {"impossible"}
    if run.extensions is not None:
        assert run.extensions.starts >= run.extensions.left


@given(jobs=st.lists(JOB, min_size=1, max_size=15), backfill=st.sampled_from(list(Backfill)))
@settings(max_examples=examples(40), deadline=None)
def test_a_queue_that_allows_no_extensions_replays_as_if_nobody_asked_for_any(
    jobs: list[dict[str, Any]], backfill: Backfill
) -> None:
    """Such jobs are refused by admission; the others start as when they were never in the file."""
    for job in jobs:
        job["gpus"] = 0
    none = Policy(qos=QOS, queues={"default": Queue(name="default", max_extensions=0)})
    run = replayed(jobs, backfill=backfill, policy=none)
    plain = [job for job in jobs if not job["extensions"]]
    assert run.extensions is None
    if plain:
        alone = replayed(plain, backfill=backfill)
        assert run.start_s[run.reason < 0].tolist() == alone.start_s.tolist()


def test_a_job_with_extensions_is_done_sooner() -> None:
    """30 s on its base; the three extensions that find room beside it start in the same second: four nodes, 8 s."""
    (job,) = [{"submit": 0, "run": 30, "walltime": "1m", "cpus": 2, "extensions": 3}]
    run = replayed([job])
    assert (run.start_s.tolist(), run.end_s.tolist()) == ([0], [8])  # 30 / 4 = 7.5, in whole seconds
    assert run.run_s.tolist() == [8]
    assert run.extensions is not None
    assert (run.extensions.jobs, run.extensions.starts, run.extensions.left) == (1, 3, 0)
    assert run.extensions.core_hours == pytest.approx(3 * 2 * 8 / 3600)


def test_others_take_the_nodes_of_extensions_and_the_job_is_slower_from_then_on() -> None:
    """120 s of work: 30 are done in 10 s on the three large nodes. Another job needs one: an extension leaves it within
    30 s, and does nothing more; the other 90 take 45 s on two nodes."""
    elastic = {"submit": 0, "run": 120, "walltime": "3m", "cpus": 4, "extensions": 3}
    other = {"submit": 10, "run": 600, "walltime": "10m", "cpus": 4}
    run = replayed([elastic, other])
    assert run.end_s[0] == 10 + 45
    assert run.start_s[1] == 10 + 30
    assert run.extensions is not None
    assert (run.extensions.starts, run.extensions.left) == (2, 1)


def test_extensions_end_with_a_base_that_is_preempted_and_start_again_beside_it() -> None:
    """An urgent job takes all large nodes after 5 s, and the base leaves in 2 s; nothing of it runs meanwhile."""
    elastic = {"submit": 0, "run": 40, "walltime": "1m", "cpus": 4, "extensions": 2, "qos": "spot"}
    urgent = {"submit": 5, "run": 10, "walltime": "10s", "cpus": 4, "nodes": 3, "qos": "high"}
    run = replayed([elastic, urgent])
    assert run.preemptions == 1
    ends = sorted(zip(run.grown.held.begin_s.tolist(), run.grown.held.end_s.tolist(), strict=True))
    assert len(ends) == 4
    assert all(end <= 7 for _, end in ends[:2])
    assert all(begin >= run.end_s[1] for begin, _ in ends[2:])
    assert run.end_s[0] == ends[-1][1]


def test_together_waits_for_its_neighbour_in_the_twin() -> None:
    """The cache starts only beside the database, which begins 10 s later, and on its node."""
    cache = {"submit": 0, "run": 5, "walltime": "5s", "cpus": 1, "together": ["app=db@node"]}
    base = {"submit": 10, "run": 20, "walltime": "20s", "cpus": 1, "labels": {"app": "db"}}
    run = replayed([cache, base])
    assert run.start_s.tolist() == [10, 10]
    assert run.places[0] == run.places[1]
