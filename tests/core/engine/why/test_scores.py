"""`hal why --score`: the nodes that a job would get, in the order in which it would get them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.classes import NODE, ClassSpec, Liking, OwnerSpec, Preference, Term, grouped
from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.engine.events import INF, JobsCancelled, JobsSubmitted, NodesChanged, NodeSpec, PlanAssumed, submit_rows
from hal.core.engine.policies import register
from hal.core.engine.why.scores import score_of_nodes
from hal.core.interfaces import NodeView, PolicyInfo, Request

NODES = tuple(
    NodeSpec(f"n{at}", {"cpu": cores * 1_000} | ({"gpu": gpus * 1_000} if gpus else {}))
    for at, (cores, gpus) in enumerate([(8, 0), (4, 0), (16, 2), (1, 0), (8, 2)])
)
PLACEMENTS = (
    "auto",
    "first-fit",
    "best-fit",
    "worst-fit",
    "least-loaded",
    "dot-product",
    "gpu-packing",
    "fgd",
    "by-cores",
)


class ByCores:
    """More free cores are better."""

    info = PolicyInfo(name="by-cores", interface="score/2", reads_free=True)

    def score(self, request: Request, view: NodeView) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return view.free[view.resources.index("cpu")] / np.float32(100_000)


def waiting(placement: str, request: dict[str, int], tasks: int = 1) -> State:
    register(ByCores())
    state = new_state(EngineConfig(placement=placement))
    apply(state, NodesChanged(NODES))
    rows = submit_rows(1)
    rows["job"], rows["tasks"], rows["walltime_ms"] = 1, tasks, INF
    apply(state, JobsSubmitted(rows, (ClassSpec(request),), (OwnerSpec(),)))
    return state


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("request_", [{"cpu": 2_000}, {"cpu": 2_000, "gpu": 1_000}])
def test_the_best_node_is_the_one_that_the_job_gets(placement: str, request_: dict[str, int]) -> None:
    """By every placement; one node is too small, and three have no GPU."""
    state = waiting(placement, request_)
    found = score_of_nodes(state, 1, 10)
    plan = cycle(state, 0)
    assert found.nodes[0].node == state.nodes.names[int(plan.rows[0])]
    assert found.fits == len(found.nodes) == (2 if "gpu" in request_ else 4)


def test_each_node_has_each_term() -> None:
    """Four cores, of which it would use three: best-fit 0.75, and a quarter would be left."""
    found = score_of_nodes(waiting("best-fit", {"cpu": 3_000}), 1, 1)
    (best,) = found.nodes
    assert (found.placement, best.node, best.score) == ("best-fit", "n1", 0.75)
    assert best.terms == {"best-fit": 0.75, "least-loaded": 0.25, "dot-product": 0.75, "gpu-packing": 0.875}


def test_auto_says_what_it_means_here() -> None:
    assert score_of_nodes(waiting("auto", {"cpu": 1_000}), 1, 1).placement == "gpu-packing"


def test_a_question_changes_nothing() -> None:
    state = waiting("gpu-packing", {"cpu": 1_000})
    before = state_digest(state)
    score_of_nodes(state, 1, 3)
    assert state_digest(state) == before


def test_what_does_not_wait_has_no_nodes_to_choose() -> None:
    state = waiting("best-fit", {"cpu": 1_000})
    apply(state, PlanAssumed(cycle(state, 0)))
    with pytest.raises(EngineError, match="no waiting task"):
        score_of_nodes(state, 1, 3)


def test_where_nothing_has_room_there_is_no_node() -> None:
    found = score_of_nodes(waiting("best-fit", {"cpu": 99_000}), 1, 3)
    assert (found.fits, found.nodes) == (0, ())


def test_of_a_job_with_groups_it_is_about_the_first() -> None:
    """The driver fits on four nodes, what has GPUs on two."""
    state = new_state(EngineConfig())
    apply(state, NodesChanged(NODES))
    parts = [ClassSpec({"cpu": 4_000}, group="driver"), ClassSpec({"gpu": 1_000}, 2, group="gpu")]
    rows = submit_rows(2)
    rows["job"], rows["first_task"], rows["class_index"] = 1, (0, 1), (0, 1)
    apply(state, JobsSubmitted(rows, grouped(parts), (OwnerSpec(),)))
    found = score_of_nodes(state, 1, 10)
    assert (found.group, found.fits) == ("driver", 4)


def test_nodes_of_a_job_that_is_spread_are_in_the_order_of_the_choice() -> None:
    """One task runs already: domains with fewer of its job come before better nodes; n3 is in none and comes last."""
    state = new_state(EngineConfig(placement="best-fit", levels=("zone",)))
    places = {"n0": "z1", "n1": "z3", "n2": "z2", "n4": "z2"}
    apply(state, NodesChanged(tuple(replace(node, domains=(places.get(node.name, ""),)) for node in NODES)))
    rows = submit_rows(1)
    rows["job"], rows["tasks"], rows["walltime_ms"] = 1, 3, INF
    apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 1_000}, preference=Preference("zone")),), (OwnerSpec(),)))
    apply(state, PlanAssumed(cycle(state, 0, max_starts=1)))
    found = score_of_nodes(state, 1, 9)
    assert found.spread == "zone"
    assert [(one.node, one.held) for one in found.nodes] == [("n0", 0), ("n4", 0), ("n2", 0), ("n1", 1), ("n3", None)]
    assert found.nodes[0].node == state.nodes.names[int(cycle(state, 0, max_starts=1).rows[0])]


def test_preferred_terms_are_a_part_of_the_score() -> None:
    """The web runs on n3, which is still the tightest by more than the term takes away."""
    state = waiting("best-fit", {"cpu": 1_000})
    rows = submit_rows(2)
    rows["job"], rows["class_index"], rows["walltime_ms"] = (2, 3), (0, 1), INF
    web = ClassSpec({"cpu": 500}, labels=("ann app=web",))
    far = ClassSpec({"cpu": 500}, preference=Preference(near=(Liking(Term("ann app=web", NODE), -60),)))
    apply(state, JobsCancelled(np.array([1])))
    apply(state, JobsSubmitted(rows, (web, far), (OwnerSpec(),)))
    apply(state, PlanAssumed(cycle(state, 0, max_starts=1)))
    found = score_of_nodes(state, 3, 9)
    best = found.nodes[0]
    assert best.node == "n3" == state.nodes.names[int(cycle(state, 0, max_starts=1).rows[0])]
    assert {one.node: one.parts["affinity"] for one in found.nodes} == {"n0": 0, "n1": 0, "n2": 0, "n3": -0.6, "n4": 0}
    assert (best.score, best.parts["placement"]) == (0.4, 1.0)
