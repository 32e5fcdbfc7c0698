"""Position and forecast of waiting jobs: as a plain count, job by job and node by node, says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State, new_state
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import pending, rows_of_run, running
from hal.core.engine.why.explain import explain
from hal.core.engine.why.foresight import BY_WALLTIMES
from hal.core.kernels.structures import layout as L
from hal.core.model.policy import Limit, Policy
from hal.core.model.resources import Resources
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import Starts
from tests.examples import examples

HOUR_MS = 3_600_000
NODES = (
    NodeSpec("a1", {"cpu": 4}, {"rack": "a"}), NodeSpec("a2", {"cpu": 4}, {"rack": "a"}),
    NodeSpec("b1", {"cpu": 8, "gpu": 2}, {"rack": "b"}),
)  # fmt: skip
IN_A, IN_B = (Requirement("rack", Match.IN, (rack,)) for rack in "ab")
CLASSES = (
    ClassSpec({"cpu": 1}), ClassSpec({"cpu": 4}), ClassSpec({"cpu": 3}, 2), ClassSpec({"cpu": 2}, 1, (IN_A,)),
    ClassSpec({"cpu": 2, "gpu": 1}), ClassSpec({"cpu": 6}, 1, (IN_B,)),
)  # fmt: skip
OWNERS = (OwnerSpec(user="ann"), OwnerSpec(user="bob"))
JOBS = st.lists(
    st.tuples(st.integers(0, len(CLASSES) - 1), st.integers(0, 1), st.integers(-1, 1), st.integers(1, 5)),
    min_size=4, max_size=24,
)  # fmt: skip


def busy(jobs: list[tuple[int, int, int, int]], config: EngineConfig) -> State:
    """These jobs (class, owner, priority, hours) on three nodes, after one pass."""
    state = new_state(config)
    scheduler = Scheduler(state, Starts())
    scheduler.feed(NodesChanged(NODES))
    scheduler.feed(submission(jobs))
    scheduler.run(0)
    return state


def submission(jobs: list[tuple[int, int, int, int]], first: int = 1) -> JobsSubmitted:
    """These jobs, numbered from `first` on."""
    rows = submit_rows(len(jobs))
    rows["job"] = np.arange(first, first + len(jobs))
    rows["class_index"], rows["owner_index"], rows["priority"], hours = zip(*jobs, strict=True)
    rows["walltime_ms"] = np.array(hours) * HOUR_MS
    return JobsSubmitted(rows, CLASSES, OWNERS)


def spec_of(state: State, class_id: int) -> ClassSpec:
    """The class of a row of `pending` or `running`."""
    spec = state.catalogue.class_specs[class_id]
    assert spec is not None
    return spec


def could(node: NodeSpec, spec: ClassSpec, amounts: dict[str, int]) -> bool:
    """Whether a node with these amounts left takes one part of a job."""
    labels = all(part.holds(node.labels) for part in spec.constraints)
    return labels and all(amounts.get(name, 0) >= asked for name, asked in spec.request.items())


def plain_position(state: State, job: int) -> int:
    """Those that come first, among those that share a node with the job."""
    where = {int(entry["job"]): entry for entry in pending(state)}
    place = {}
    for slot in np.flatnonzero(state.work.entries[:, L.E_WHERE] == L.WHERE_BUCKET).tolist():
        key = int(
            state.work.entries[slot, L.E_KEY] + state.work.buckets[state.work.entries[slot, L.E_BUCKET], L.B_OFFSET]
        )
        place[int(state.work.entries[slot, L.E_JOB])] = (key, int(state.work.entries[slot, L.E_JOB]))
    nodes = {
        other: {node.name for node in NODES if could(node, spec_of(state, entry["class_id"]), node.capacity)}
        for other, entry in where.items()
    }
    return sum(place[other] < place[job] and bool(nodes[other] & nodes[job]) for other in where)


def plain_forecast(state: State, spec: ClassSpec) -> int | None:
    """Releases in order until enough nodes take the job."""
    left = {node.name: dict(node.capacity) for node in NODES}
    ends = []
    for run in running(state):
        given = spec_of(state, run["class_id"])
        for row in rows_of_run(state, int(run["run"])):
            ends.append((int(run["end_ms"]), state.node_name(row), given.request))
            for name, amount in given.request.items():
                left[state.node_name(row)][name] -= amount
    for end in sorted({end for end, _, _ in ends}):
        for at, name, request in ends:
            if at == end:
                for resource, amount in request.items():
                    left[name][resource] += amount
        if sum(could(node, spec, left[node.name]) for node in NODES) >= spec.nodes:
            return end
    return None


@settings(max_examples=examples(80))
@given(jobs=JOBS, backfill=st.sampled_from([Backfill.EASY, Backfill.NONE]), policy=st.booleans())
def test_position_and_forecast_are_those_of_a_plain_count(
    jobs: list[tuple[int, int, int, int]], backfill: Backfill, policy: bool
) -> None:
    """Labels, gangs, GPUs, priorities and shares; what has a reservation is forecast by it."""
    config = EngineConfig(
        order="priority" if policy else "fcfs", backfill=backfill, policy=Policy() if policy else None
    )
    state = busy(jobs, config)
    for entry in pending(state):
        verdict = explain(state, int(entry["job"]), 0)
        if verdict.reason in (Reason.RESOURCES, Reason.PRIORITY):
            assert verdict.position == plain_position(state, int(entry["job"]))
        if verdict.basis == BY_WALLTIMES:
            assert verdict.starts_at_ms == plain_forecast(state, spec_of(state, entry["class_id"]))


def test_a_full_limit_counts_only_what_is_charged_to_it() -> None:
    """Bob's tasks end first and give nothing back to ann's limit; hers end after two and three hours."""
    policy = Policy(limits={"ann": Limit(name="ann", user="ann", resources=Resources({"cpu": 5}))})
    state = busy(
        [(0, 1, 0, 1), (1, 0, 0, 3), (0, 0, 0, 2), (1, 0, 0, 1)], EngineConfig(order="priority", policy=policy)
    )
    verdict = explain(state, 4, 0)
    assert (verdict.reason, verdict.starts_at_ms) == (Reason.LIMIT, 3 * HOUR_MS)
    assert "0.005 come free in 3h" in verdict.message
