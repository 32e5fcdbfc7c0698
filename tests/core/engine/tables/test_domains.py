"""Domains follow what nodes say, and the counts of shapes that ask for one follow the nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from hal.core.engine import State, apply, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ConfigChanged,
    Health,
    JobsCancelled,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.kernels.nodes.domains import add_to_domain, begin_domains, first_domain, last_domain, level_within
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from tests.examples import examples

LEVELS = ("zone", "rack", "switch")
DOMAINS: tuple[tuple[str, ...], ...] = (
    ("z1", "r1", "s1"), ("z1", "r1", "s2"), ("z1", "r2", "s1"), ("z1", "", "s1"), ("z2", "r1"), ("z2",), ("", "r1"), (),
)  # fmt: skip


def of(*domains: tuple[str, ...], levels: tuple[str, ...] = LEVELS, **config: Any) -> State:
    """An engine of nodes n0, n1 … in these domains, four cpus each."""
    state = new_state(EngineConfig(levels=levels, **config))
    nodes = (NodeSpec(f"n{k}", {"cpu": 4}, domains=path) for k, path in enumerate(domains))
    apply(state, NodesChanged(tuple(nodes)))
    return state


def ask(state: State, job: int, nodes: int, within: str, cpu: int = 4) -> None:
    """A job that waits."""
    rows = submit_rows(1)
    rows["job"] = job
    apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, nodes, within=within),)))


def order(state: State) -> list[str]:
    """Names of nodes in topological order."""
    return [state.node_name(node) for node in state.domains.node_order[: len(state.nodes.names)].tolist()]


def counts(state: State) -> tuple[int, int]:
    """On how many nodes of one domain the first shape fits now, and ever could."""
    return int(state.catalogue.shapes[0, L.S_FIT]), int(state.catalogue.shapes[0, L.S_EVER])


def test_nodes_come_domain_by_domain_as_people_count() -> None:
    """r2 before r10, and a node in no rack before both."""
    state = of(("z1", "r10"), ("z1", "r2"), ("z2", "r1"), ("z1",), ("z1", "r10"), levels=("zone", "rack"))
    assert order(state) == ["n3", "n1", "n0", "n4", "n2"]
    check_invariants(state)


def test_racks_of_one_name_in_two_zones_are_two() -> None:
    """Two nodes in each: no more than two are in one rack."""
    state = of(("z1", "r1"), ("z2", "r1"), ("z1", "r1"), ("z2", "r1"), levels=("zone", "rack"))
    ask(state, 1, 3, "rack")
    assert counts(state) == (2, 2)


def test_what_has_no_node_gives_its_number_back() -> None:
    """Two racks that come one after the other have one number, and the zone keeps its own."""
    state = of(("z1", "r1"), levels=("zone", "rack"))
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4}, domains=("z1", "r2")),)))
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4}, domains=("z1", "r3")),)))
    assert sorted(name for name in state.domains.names if name) == [("z1",), ("z1", "r3")]
    assert len(state.domains.names) == 3


def test_levels_that_keep_their_names_keep_their_domains() -> None:
    """A topology that is told anew without switches: racks are known still, and `room` has no node yet."""
    state = of(("z1", "r1", "s1"), ("z1", "r1", "s2"), ("z1", "r2", "s3"))
    ask(state, 1, 2, "switch")
    assert counts(state) == (1, 1)
    apply(state, ConfigChanged(EngineConfig(levels=("room", "rack"))))
    assert state.domains.path_of(0) == ("", "r1")
    assert counts(state) == (0, 0)
    apply(state, ConfigChanged(EngineConfig(levels=("room", "rack", "switch"))))
    check_invariants(state)


def test_a_level_that_nobody_named_holds_nothing() -> None:
    """The class is taken, and fits nowhere."""
    state = of(("z1", "r1", "s1"))
    ask(state, 1, 1, "row")
    assert counts(state) == (0, 0)


def test_a_line_is_used_again_when_its_shape_is_forgotten() -> None:
    """Many shapes that come and go take no more lines than live at once."""
    state = of(("z1", "r1", "s1"), ("z1", "r1", "s1"))
    for job in range(1, 400):
        ask(state, job, 2, "rack", cpu=job)
        apply(state, JobsCancelled(np.array([job], np.int64)))
    check_invariants(state)
    assert state.meta[L.M_WITHIN] < 300


def test_a_node_that_leaves_and_returns_keeps_its_place_and_nobody_else_moves() -> None:
    """While it is away it is of no domain, though it stands among the nodes of its rack."""
    state = of(("z1", "r1"), ("z1", "r2"), ("z1", "r1"), ("z1", "r2"), levels=("zone", "rack"))
    ask(state, 1, 2, "rack")
    before = order(state)
    apply(state, NodesChanged(removed=("n0",)))
    check_invariants(state)
    assert (state.domains.path_of(0), counts(state)) == (("", ""), (2, 2))
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4}, domains=("z1", "r1")),)))
    check_invariants(state)
    assert (order(state), counts(state)) == (before, (2, 2))


def test_a_row_that_is_used_again_elsewhere_moves_there() -> None:
    """The order is the one that a fresh engine has of the same nodes."""
    paths = (("z1", "r1"), ("z1", "r2"), ("z1", "r1"), ("z1", "r2"))
    state = of(*paths, levels=("zone", "rack"))
    apply(state, NodesChanged(removed=("n0",)))
    apply(state, NodesChanged((NodeSpec("m", {"cpu": 4}, domains=("z1", "r2")),)))
    check_invariants(state)
    assert order(state) == ["n2", "m", "n1", "n3"]


def test_what_the_most_is_after_the_only_domain_that_had_it_lost_a_node() -> None:
    """How many domains have as many is counted late, and right: two more must lose a node until the most is one."""
    state = of(("z1", "r1"), ("z1", "r1"), ("z1", "r1"), ("z1", "r2"), ("z1", "r2"), levels=("zone", "rack"))
    ask(state, 1, 2, "rack")
    for lost, left in (("n0", 2), ("n1", 2), ("n3", 1)):
        closed = NodeSpec(lost, {"cpu": 4}, {}, Health.CORDONED, domains=state.domains.path_of(int(lost[1])))
        apply(state, NodesChanged((closed,)))
        check_invariants(state)
        assert counts(state) == (left, left)


def test_the_most_is_one_domain_s_again_when_that_gets_another_node() -> None:
    """Of three racks with two nodes one loses a node, and two are counted; another gets its third, and loses it."""
    state = of(*(("z1", rack) for rack in ("r1", "r1", "r1", "r2", "r2", "r3", "r3")), levels=("zone", "rack"))
    set_health(state, "n2", Health.CORDONED)
    ask(state, 1, 2, "rack")
    for name, health, most in (("n5", Health.CORDONED, 2), ("n2", Health.UP, 3), ("n0", Health.CORDONED, 2)):
        set_health(state, name, health)
        check_invariants(state)
        assert counts(state) == (most, most)


def set_health(state: State, name: str, health: Health) -> None:
    """The same node, open or closed."""
    path = state.domains.path_of(int(name[1:]))
    apply(state, NodesChanged((NodeSpec(name, {"cpu": 4}, {}, health, domains=path),)))


def test_nodes_are_counted_by_domain_from_where_the_shape_fits_now() -> None:
    """Of two shapes the small one fits on two nodes of the one rack and one of the other; one more is tried there."""
    state = of(("z1", "r1"), ("z1", "r1"), ("z1", "r2"), levels=("zone", "rack"))
    ask(state, 1, 2, "rack", cpu=4)
    ask(state, 2, 2, "rack", cpu=8)
    t = state.tables()
    plain(begin_domains)(t, 0)
    there = {state.domains.names[domain]: int(t.domain_there[domain]) for domain in t.listed[first_and_last(t)]}
    assert there == {("z1", "r1"): 2, ("z1", "r2"): 1}
    assert plain(add_to_domain)(t, 0, 2) == 2
    assert plain(add_to_domain)(t, 0, 0) == 3


def first_and_last(t: Any) -> slice:
    """Where the domains of the first shape's level are listed."""
    level = plain(level_within)(t, 0)
    return slice(plain(first_domain)(t, level), plain(last_domain)(t, level))


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_safety_counts_by_domain_follow_nodes_that_join_move_close_and_leave(backfill: Backfill) -> None:
    """Counted apart, one node an event, and anew: the same."""
    for seed in range(examples(40)):
        r = Random(seed)
        state = of(*(r.choice(DOMAINS) for _ in range(r.randint(1, 40))), backfill=backfill)
        for job, level in enumerate(("zone", "rack", "switch", "row", "rack"), start=1):
            ask(state, job, r.randint(1, 3), level, cpu=r.choice((1, 2, 4, 8)))
        for step in range(16):
            name = f"n{r.randint(0, 45)}"
            if name in state.nodes.by_name and r.random() < 0.3:
                apply(state, NodesChanged(removed=(name,)))
            else:
                spec = NodeSpec(
                    name, {"cpu": r.choice((0, 2, 4, 8))}, {}, r.choice(tuple(Health)), domains=r.choice(DOMAINS)
                )
                more = NodeSpec(f"m{r.randint(0, 9)}", {"cpu": 4}, domains=r.choice(DOMAINS))
                apply(state, NodesChanged((spec, more) if r.random() < 0.2 else (spec,)))
            if step == 6:
                levels = r.choice((LEVELS, ("zone", "switch"), ("rack", "zone", "switch")))
                apply(state, ConfigChanged(EngineConfig(levels=levels, backfill=backfill)))
            check_invariants(state)
