"""The built-in placements take the nodes that their definitions say; GPUs keep cores and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec, Requirement
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import INF, ConfigChanged, JobsSubmitted, NodesChanged, NodeSpec, PlanAssumed, submit_rows
from hal.core.engine.policies import PLACEMENT_KERNELS
from hal.core.engine.state import State
from hal.core.engine.why.scores import score_of_nodes
from hal.core.engine.why.shadow import Shadow
from hal.core.model.devices import GPU_PART, GPU_WHOLE
from tests.examples import examples

Amounts = Mapping[str, int]
Score = Callable[[Amounts, Amounts, Amounts], Fraction]

KINDS = (
    {"cpu": 64_000, "memory": 512, "gpu": 8_000},
    {"cpu": 96_000, "memory": 384, "gpu": 4_000},
    {"cpu": 48_000, "memory": 256},
    {"cpu": 32_000, "memory": 512},
)
REQUESTS = (
    {"cpu": 4_000, "memory": 16},
    {"cpu": 12_000, "memory": 100},
    {"cpu": 6_000, "memory": 32, "gpu": 1_000},
    {"cpu": 2_000, "memory": 8, "gpu": 2_000},
    {"cpu": 20_000, "memory": 8, "gpu": 500},
)


def shares(free: Amounts, asked: Amounts, capacity: Amounts) -> dict[str, Fraction]:
    """What would be left of each resource that the node has."""
    return {name: Fraction(free[name] - asked.get(name, 0), whole) for name, whole in capacity.items()}


def tightest(free: Amounts, asked: Amounts, capacity: Amounts) -> Fraction:
    left = shares(free, asked, capacity)
    return 1 - min(left[name] for name in asked)


def worst_fit(free: Amounts, asked: Amounts, capacity: Amounts) -> Fraction:
    return 1 - tightest(free, asked, capacity)


def least_loaded(free: Amounts, asked: Amounts, capacity: Amounts) -> Fraction:
    left = shares(free, asked, capacity)
    return sum(left.values(), Fraction()) / len(left)


def dot_product(free: Amounts, asked: Amounts, capacity: Amounts) -> Fraction:
    parts = [Fraction(asked[name], capacity[name]) * Fraction(free[name], capacity[name]) for name in asked]
    return sum(parts, Fraction()) / len(parts)


def gpu_packing(free: Amounts, asked: Amounts, capacity: Amounts) -> Fraction:
    if "gpu" not in capacity:
        return Fraction(1, 2) + tightest(free, asked, capacity) / 2
    left = shares(free, asked, capacity)
    stranded = max(left["gpu"] - left["cpu"], Fraction()) + max(left["gpu"] - left["memory"], Fraction())
    return (1 - (max(left["gpu"], left["cpu"]) + 4 * stranded) / 9) / 2


PLACEMENTS: dict[str, Score] = {
    "best-fit": tightest,
    "worst-fit": worst_fit,
    "least-loaded": least_loaded,
    "dot-product": dot_product,
    "gpu-packing": gpu_packing,
}


def cluster(placement: str, kinds: tuple[Amounts, ...]) -> State:
    state = new_state(EngineConfig(placement=placement))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{at}", dict(kind)) for at, kind in enumerate(kinds))))
    return state


def submit(state: State, job: int, request: Amounts, *constraints: Requirement) -> None:
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = job, INF
    apply(state, JobsSubmitted(rows, (ClassSpec(dict(request), constraints=constraints),), (OwnerSpec(),)))


def started_on(state: State) -> list[int]:
    """The nodes of what starts now, in the order decided."""
    plan = cycle(state, 0)
    apply(state, PlanAssumed(plan))
    return [int(node) for node in plan.rows]


@pytest.mark.parametrize("placement", PLACEMENTS)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=100),
    requests=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=40),
)
@settings(max_examples=examples(25), deadline=None)
def test_each_start_is_on_the_node_that_the_definition_puts_first(
    placement: str, kinds: list[Amounts], requests: list[Amounts]
) -> None:
    """Of the nodes that hold it: the highest score, to a millionth, then the lowest node."""
    state = cluster(placement, tuple(kinds))
    free = [dict(kind) for kind in kinds]
    for job, asked in enumerate(requests, start=1):
        submit(state, job, asked)
        fitting = [
            at for at, there in enumerate(free) if all(there.get(name, 0) >= amount for name, amount in asked.items())
        ]
        scores = {at: float(PLACEMENTS[placement](free[at], asked, kinds[at])) for at in fitting}
        chosen = started_on(state)
        assert len(chosen) == min(len(fitting), 1)
        if chosen:
            best = max(scores.values())
            assert scores[chosen[0]] >= best - 2e-6  # two roundings to a millionth
            clearly = [at for at in fitting if scores[at] == best and at < chosen[0]]
            assert not clearly, "of equals it is the first"
            for name, amount in asked.items():
                free[chosen[0]][name] -= amount


Kinds = list[tuple[int, int, int]]
"""Cores, GPUs and share of typical work."""


def typical(live: list[Amounts]) -> Kinds:
    """The most frequent kinds of live work that make up 95 % of it; shares in parts of 128."""
    counts = Counter((asked.get("gpu", 0), asked["cpu"]) for asked in live)
    most: list[tuple[int, tuple[int, int]]] = []
    for kind, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        if 100 * sum(count for count, _kind in most) < 95 * len(live):
            most.append((count, kind))
    total = sum(count for count, _kind in most)
    found = [(cores, gpus, (2 * 128 * count + total) // (2 * total)) for count, (gpus, cores) in most]
    return [kind for kind in found if kind[2] > 0]


def useless(kinds: Kinds, cores: int, gpus: list[int]) -> int:
    """What of single GPUs typical work cannot use, as published."""
    lost = 0
    for cpu, asked, share in kinds:
        enough = max(gpus, default=0) >= asked if asked < 1_000 else gpus.count(1_000) * 1_000 >= asked
        fits = cores >= cpu and asked > 0 and enough
        lost += share * sum(left for left in gpus if not fits or left < min(asked, 1_000))
    return lost


def each(gpus: int) -> list[int]:
    """Single GPUs where what is left beside whole ones is one GPU's."""
    return [1_000] * (gpus // 1_000) + [gpus % 1_000]


def descent(kinds: Kinds, free: Amounts, asked: Amounts) -> int:
    """In millionths: how much less would be lost, a half where nothing changes."""
    if "gpu" not in free:
        return 500_000
    before = useless(kinds, free["cpu"], each(free["gpu"]))
    after = useless(kinds, free["cpu"] - asked["cpu"], each(free["gpu"] - asked.get("gpu", 0)))
    return 500_000 + (before - after) * 500_000 // (64 * 1_000 * 128)


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=100),
    requests=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=60),
)
@settings(max_examples=examples(50), deadline=None)
def test_each_start_is_where_the_fewest_gpus_become_useless_to_work_that_is_live(
    kinds: list[Amounts], requests: list[Amounts]
) -> None:
    """Single GPUs are listed, and what is typical is counted anew before each start; of equals it is the first node."""
    state = cluster("fgd", tuple(kinds))
    free = [dict(kind) for kind in kinds]
    for job, asked in enumerate(requests, start=1):
        submit(state, job, asked)
        live = typical(requests[:job])
        scores = {
            at: descent(live, there, asked)
            for at, there in enumerate(free)
            if all(there.get(name, 0) >= amount for name, amount in asked.items())
        }
        chosen = started_on(state)
        assert chosen == ([max(scores, key=lambda at: (scores[at], -at))] if scores else [])
        for at in chosen:
            for name, amount in asked.items():
                free[at][name] -= amount


SHARED = (
    {"cpu": 1_000, "gpu": 500},
    {"cpu": 3_000, "gpu": 300},
    {"cpu": 2_000, "gpu": 1_000},
    {"cpu": 1_000, "gpu": 2_000},
)


def with_parts(asked: Amounts) -> dict[str, int]:
    return dict(asked) | {GPU_WHOLE if asked["gpu"] >= 1_000 else GPU_PART: asked["gpu"]}


@given(
    mix=st.lists(st.sampled_from(SHARED), min_size=1, max_size=12),
    asked=st.sampled_from(SHARED),
    nodes=st.lists(
        st.tuples(
            st.integers(0, 4), st.sampled_from((0, 0, 200, 300, 500, 800)), st.sampled_from((1_000, 3_000, 64_000))
        ),
        min_size=1, max_size=6,
    ),
)  # fmt: skip
@settings(max_examples=examples(100), deadline=None)
def test_where_one_gpu_is_shared_scores_are_those_of_single_gpus(
    mix: list[Amounts], asked: Amounts, nodes: list[tuple[int, int, int]]
) -> None:
    """Nodes have so many unused GPUs, a rest of another one, and cores. Where a part has to be taken of an unused GPU
    although there is a rest, both rests count as one GPU's, of which the larger one is the most that can be had."""
    state = new_state(EngineConfig(placement="fgd"))
    whole = {"cpu": 64_000, "gpu": 5_000, GPU_WHOLE: 5_000, GPU_PART: 1_000}
    specs = []
    for at, (unused, rest, cores) in enumerate(nodes):
        free = {"cpu": cores, "gpu": 1_000 * unused + rest, GPU_WHOLE: 1_000 * unused}
        free[GPU_PART] = 1_000 if unused else rest
        specs.append(NodeSpec(f"n{at}", whole, withheld={name: whole[name] - left for name, left in free.items()}))
    apply(state, NodesChanged(tuple(specs)))
    for job, one in enumerate(mix, start=2):
        submit(state, job, with_parts(one), Requirement("nowhere"))
    submit(state, 1, with_parts(asked))
    live = typical([*mix, asked])
    for found in score_of_nodes(state, 1, len(nodes)).nodes:
        unused, rest, cores = nodes[int(found.node[1:])]
        before = useless(live, cores, [1_000] * unused + [rest])
        cores -= asked["cpu"]
        if asked["gpu"] >= 1_000:
            after = useless(live, cores, [1_000] * (unused - asked["gpu"] // 1_000) + [rest])
        elif rest >= asked["gpu"]:
            after = useless(live, cores, [1_000] * unused + [rest - asked["gpu"]])
        elif rest == 0:
            after = useless(live, cores, [1_000] * (unused - 1) + [1_000 - asked["gpu"]])
        else:
            after = useless_of_rests(live, cores, unused - 1, rest, 1_000 - asked["gpu"])
        assert found.score == (500_000 + (before - after) * 500_000 // (64 * 1_000 * 128)) / 1_000_000


def useless_of_rests(kinds: Kinds, cores: int, unused: int, one: int, other: int) -> int:
    """The same where the rests of two GPUs are known by their sum, and the larger one if no GPU is unused."""
    lost, both, most = 0, one + other, max(one, other)
    for cpu, asked, share in kinds:
        if cores < cpu or (unused * 1_000 < asked if asked >= 1_000 else not unused and most < asked):
            lost += share * (unused * 1_000 + both)
        elif asked >= 1_000 or both < asked:
            lost += share * both
        elif not unused:
            lost += share * (both - most if both - most < asked else 0)
    return lost


def test_half_a_gpu_comes_from_one_that_is_shared_already() -> None:
    """A half of one of n1's two GPUs is in use. On n0 the next half would leave a GPU of no use to whole ones."""
    whole = {"cpu": 8_000, "gpu": 2_000, GPU_WHOLE: 2_000, GPU_PART: 1_000}
    chosen = {}
    for placement in ("fgd", "first-fit"):
        state = cluster(placement, (whole,))
        apply(state, NodesChanged((NodeSpec("n1", whole, {"shared": ""}),)))
        half = {"cpu": 1_000, "gpu": 500, GPU_PART: 500}
        submit(state, 1, half, Requirement("shared"))
        assert started_on(state) == [1]
        withheld = {GPU_WHOLE: 1_000, GPU_PART: -500}
        apply(state, NodesChanged((NodeSpec("n1", whole, {"shared": ""}, withheld=withheld),)))
        submit(state, 2, {"cpu": 1_000, "gpu": 1_000, GPU_WHOLE: 1_000}, Requirement("nowhere"))
        submit(state, 3, half)
        chosen[placement] = started_on(state)
    assert chosen == {"fgd": [1], "first-fit": [0]}


def test_a_copy_and_a_question_about_scores_count_the_same_work_as_typical() -> None:
    """Before any pass has counted it: n1 has a GPU that the job would leave without a core, n0 one more core."""
    state = cluster("fgd", ({"cpu": 3_000, "gpu": 2_000}, {"cpu": 2_000, "gpu": 2_000}))
    submit(state, 1, {"cpu": 2_000, "gpu": 1_000})
    submit(state, 2, {"cpu": 1_000, "gpu": 1_000})
    found = score_of_nodes(state, 1, 2)
    assert (found.placement, found.fits) == ("fgd", 2)
    best = found.nodes[0]
    assert best.score > found.nodes[1].score
    shadow = Shadow().of(state)
    assert started_on(shadow) == started_on(state)
    assert best.node == "n0"


def test_with_auto_what_asks_for_no_gpu_leaves_the_nodes_that_have_some() -> None:
    """The only node without GPUs is the last one; the next job, for which it has no room, goes where GPUs are."""
    state = cluster("auto", ({"cpu": 8_000, "gpu": 2_000}, {"cpu": 8_000}))
    for job in (1, 2, 3):
        submit(state, job, {"cpu": 4_000})
    assert started_on(state) == [1, 1, 0]


def test_with_auto_gpus_are_given_where_cores_would_be_left_for_the_others() -> None:
    """Each node would have one GPU left: the first one no core for it, the second one two. First-fit takes it."""
    kinds = ({"cpu": 4_000, "gpu": 2_000}, {"cpu": 6_000, "gpu": 2_000})
    chosen = {}
    for placement in ("auto", "first-fit"):
        state = cluster(placement, kinds)
        submit(state, 1, {"cpu": 4_000, "gpu": 1_000})
        chosen[placement] = started_on(state)
    assert chosen == {"auto": [1], "first-fit": [0]}


def test_without_gpus_auto_decides_as_first_fit() -> None:
    """One way to choose among nodes that have none, and the one that it costs nothing to look for."""
    draw = np.random.default_rng(1)
    kinds = tuple({"cpu": int(cores)} for cores in draw.integers(1, 9, 200) * 1_000)
    asked = (draw.integers(1, 9, 300) * 500).tolist()
    nodes = []
    for placement in ("auto", "first-fit"):
        state = cluster(placement, kinds)
        for job, cores in enumerate(asked, start=1):
            submit(state, job, {"cpu": cores})
        nodes.append(started_on(state))
    assert len(nodes[0]) > 200
    assert nodes[0] == nodes[1]


def test_auto_follows_the_nodes_that_there_are() -> None:
    """The first GPU of a site, and the last one that leaves, change what it means; nobody restarts anything."""
    state = cluster("auto", ({"cpu": 4_000}, {"cpu": 2_000}))
    apply(state, NodesChanged((NodeSpec("g0", {"cpu": 4_000, "gpu": 1_000}),)))
    submit(state, 1, {"cpu": 1_000})
    assert started_on(state) == [1], "the tighter one of the nodes without"
    apply(state, NodesChanged((), removed=("g0",)))
    submit(state, 2, {"cpu": 1_000})
    assert started_on(state) == [0], "the first one"


def test_another_placement_holds_from_the_next_pass_on() -> None:
    state = cluster("gpu-packing", ({"cpu": 4_000, "gpu": 1_000}, {"cpu": 4_000}))
    submit(state, 1, {"cpu": 1_000})
    assert started_on(state) == [1]
    apply(state, ConfigChanged(EngineConfig(placement="least-loaded")))
    submit(state, 2, {"cpu": 1_000})
    assert started_on(state) == [0]


def test_the_names_that_plugins_have_in_the_documents_are_free() -> None:
    """A built-in of the name of somebody's plugin would keep HAL from starting: the example's `spread` is not taken."""
    assert not {"spread", "cheapest"} & set(PLACEMENT_KERNELS)
