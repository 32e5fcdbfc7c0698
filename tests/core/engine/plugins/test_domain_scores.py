"""Domain scores of other people: gangs go where they say among the domains that hold them, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine import EngineError, State, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.domain_scoring import GANGS_A_SLICE
from hal.core.engine.errors import PolicyFault
from hal.core.engine.events import ConfigChanged, Health, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.plugins.faults import is_out, without
from hal.core.engine.policies import register
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.why.scores import score_of_nodes
from hal.core.interfaces import DomainView, Gang, NodeView, PolicyInfo
from tests.core.engine.clusters import Starts, ended, engine, places

ALL = pytest.mark.parametrize("backfill", list(Backfill))
LEVELS = ("zone", "rack")
Answer = Callable[[Gang, NodeView, DomainView], Any]


class Taste:
    """Answers as the test says, and remembers what it was shown."""

    info = PolicyInfo("test-taste", "domain-score/1")

    def __init__(self) -> None:
        self.answer: Answer = nothing_in_particular
        self.shown: list[tuple[Gang, NodeView, DomainView]] = []

    def score(self, request: Gang, view: NodeView, domains: DomainView) -> NDArray[np.float32]:
        self.shown.append((request, view, domains))
        return self.answer(request, view, domains)


def nothing_in_particular(gang: Gang, view: NodeView, domains: DomainView) -> Any:
    return np.zeros(domains.domains)


def named(*names: str) -> Answer:
    """These domains, in this order, before all others."""
    return lambda gang, view, domains: np.array(
        [1 - names.index(name) / len(names) if name in names else 0.0 for name in domains.name.tolist()]
    )


TASTE = Taste()
register(TASTE)


@pytest.fixture(autouse=True)
def _no_taste() -> None:
    TASTE.answer = nothing_in_particular
    TASTE.shown.clear()


def racks(*sizes: int, cpu: int = 4) -> list[NodeSpec]:
    """Racks r1, r2 … of so many nodes: n1, n2 … in this order."""
    of = [f"r{rack}" for rack, size in enumerate(sizes, start=1) for _ in range(size)]
    return [NodeSpec(f"n{at}", {"cpu": cpu}, domains=("z1", rack)) for at, rack in enumerate(of, start=1)]


def cluster(*nodes: NodeSpec, **config: Any) -> tuple[State, Scheduler]:
    state, _sink, scheduler = engine(EngineConfig(levels=LEVELS, domains="test-taste", **config), *nodes)
    return state, scheduler


def gang(job: int, nodes: int, *, within: str = "", cpu: int = 4, owner: OwnerSpec | None = None) -> JobsSubmitted:
    rows = submit_rows(1)
    rows["job"] = job
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, nodes, within=within),), (owner or OwnerSpec(),))


def placed(state: State, scheduler: Scheduler, *jobs: JobsSubmitted) -> dict[int, list[str]]:
    for one in jobs:
        scheduler.feed(one)
    scheduler.run(0)
    check_invariants(state)
    return places(state)


@ALL
def test_a_gang_goes_to_the_domain_with_the_highest_score(backfill: Backfill) -> None:
    """The smallest that holds two nodes is r2; r1 is the policy's."""
    TASTE.answer = named("z1/r1")
    state, scheduler = cluster(*racks(4, 2, 3), backfill=backfill)
    assert placed(state, scheduler, gang(1, 2)) == {1: ["n1", "n2"]}


@ALL
def test_a_domain_without_enough_room_is_passed_over(backfill: Backfill) -> None:
    """Three nodes: r2 has two, so the second choice takes them."""
    TASTE.answer = named("z1/r2", "z1/r1")
    state, scheduler = cluster(*racks(4, 2, 3), backfill=backfill)
    assert placed(state, scheduler, gang(1, 3)) == {1: ["n1", "n2", "n3"]}


@ALL
@pytest.mark.parametrize("within", ["", "rack"])
def test_of_equals_the_narrowest_and_smallest_is_taken(backfill: Backfill, within: str) -> None:
    """As without a policy: two to r2, three to r3."""
    state, scheduler = cluster(*racks(4, 2, 3), backfill=backfill)
    jobs = (gang(1, 2, within=within), gang(2, 3, within=within))
    assert placed(state, scheduler, *jobs) == {1: ["n5", "n6"], 2: ["n7", "n8", "n9"]}


def two_zones() -> list[NodeSpec]:
    """A rack of five, n1 to n5, in z1; two racks of two, n6 to n9, in z2."""
    of = [("z1", "r1")] * 5 + [("z2", "r2")] * 2 + [("z2", "r3")] * 2
    return [NodeSpec(f"n{at}", {"cpu": 4}, domains=path) for at, path in enumerate(of, start=1)]


@ALL
def test_a_gang_that_must_be_in_a_rack_is_in_one_whatever_the_policy_prefers(backfill: Backfill) -> None:
    """Four nodes of z2 would do, if they need not be in one rack."""
    TASTE.answer = named("z2")
    for within, nodes in (("rack", ["n1", "n2", "n3", "n4"]), ("zone", ["n6", "n7", "n8", "n9"])):
        state, scheduler = cluster(*two_zones(), backfill=backfill)
        assert placed(state, scheduler, gang(1, 4, within=within)) == {1: nodes}


@ALL
def test_of_equals_a_rack_comes_before_a_zone_that_is_smaller(backfill: Backfill) -> None:
    """z2 has four nodes and r1 five; for three it is r1, as without a policy."""
    for taste in ("test-taste", "smallest"):
        state, _sink, scheduler = engine(EngineConfig(levels=LEVELS, domains=taste, backfill=backfill), *two_zones())
        assert placed(state, scheduler, gang(1, 3)) == {1: ["n1", "n2", "n3"]}


def test_in_a_wide_domain_that_is_preferred_a_gang_is_on_as_few_narrow_ones_as_can_be() -> None:
    """Six of the zone: the four of r3, and the two that are enough for the rest."""
    TASTE.answer = named("z1")
    state, scheduler = cluster(*racks(3, 2, 4, 1))
    assert placed(state, scheduler, gang(1, 6)) == {1: ["n4", "n5", "n6", "n7", "n8", "n9"]}


def test_a_gang_that_no_domain_holds_is_placed_as_without_a_policy() -> None:
    """Two zones of two nodes, and three are asked for."""
    nodes = [NodeSpec(f"n{at}", {"cpu": 4}, domains=(f"z{at // 2}", "r")) for at in range(4)]
    state, scheduler = cluster(*nodes)
    assert len(placed(state, scheduler, gang(1, 3))[1]) == 3


def test_work_of_one_node_is_not_asked_about_and_nothing_without_domains() -> None:
    """Nor is a gang where gangs are not placed by domain."""
    state, scheduler = cluster(*racks(2, 2))
    placed(state, scheduler, gang(1, 1))
    bare, other = cluster(NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}))
    placed(bare, other, gang(1, 2))
    loose, third = cluster(*racks(2, 2), compact=False)
    placed(loose, third, gang(1, 2))
    assert TASTE.shown == []


def test_without_compactness_gangs_that_ask_for_a_domain_are_asked_about() -> None:
    """The first of the two by score."""
    TASTE.answer = named("z1/r2")
    state, scheduler = cluster(*racks(2, 2), compact=False)
    assert placed(state, scheduler, gang(1, 2, within="rack")) == {1: ["n3", "n4"]}


def test_a_policy_sees_whose_the_gang_is_and_what_is_in_each_domain() -> None:
    """r1: two nodes, one in use by a gang of r1 and r2, one down; r2: three, one in use by it, one by a small job."""
    state, scheduler = cluster(*racks(2, 3))
    placed(state, scheduler, gang(1, 1), gang(2, 1), gang(3, 1), gang(4, 2, cpu=1))
    scheduler.feed(ended(1, 2, 3))
    scheduler.run(1)
    on = places(state)[4]
    scheduler.feed(gang(5, 1, cpu=4))
    scheduler.run(2)
    TASTE.shown.clear()
    owner = OwnerSpec(queue="long", account="physics", user="ann", qos="")
    scheduler.feed(NodesChanged((NodeSpec("n5", {"cpu": 4}, {}, Health.DOWN, domains=("z1", "r2")),)))
    scheduler.feed(gang(6, 2, cpu=3, owner=owner))
    scheduler.run(3)
    asked, nodes, domains = TASTE.shown[0]
    assert (asked.nodes, asked.within, asked.amounts.tolist(), asked.wanted) == (2, "", [3], (0,))
    assert (asked.queue, asked.account, asked.user) == ("long", "physics", "ann")
    index = {name: at for at, name in enumerate(domains.name.tolist())}
    assert set(index) == {"z1", "z1/r1", "z1/r2"}
    assert [domains.levels[at] for at in domains.level.tolist()] == ["zone", "rack", "rack"]
    down = {"n5"}
    busy = {*on, *places(state)[5]}
    for name, members in (
        ("z1/r1", {"n1", "n2"}),
        ("z1/r2", {"n3", "n4", "n5"}),
        ("z1", {f"n{k}" for k in range(1, 6)}),
    ):
        at = index[name]
        assert int(domains.last[at] - domains.first[at]) == len(members)
        assert int(domains.nodes[at]) == len(members - down)
        assert int(domains.idle[at]) == len(members - down - busy)
        assert int(domains.gang_nodes[at]) == len(members & set(on))
        room = {n for n in members - down if n not in places(state)[5]}
        assert int(domains.fits[at]) == len(room)
        assert domains.total(nodes.capacity[0])[at] == 4 * len(members)
    with pytest.raises(ValueError, match="read-only"):
        domains.fits[0] = 9


def test_a_policy_is_asked_once_a_slice_about_each_kind_that_has_room() -> None:
    """Two jobs of one kind and one of another; what fits nowhere is not asked about."""
    state, scheduler = cluster(*racks(4, 4))
    placed(state, scheduler, gang(1, 2), gang(2, 2), gang(3, 3), gang(4, 9))
    slices = {id(view) for _gang, view, _domains in TASTE.shown}
    assert slices
    assert {one.nodes for one, _view, _domains in TASTE.shown} == {2, 3}


def test_beyond_so_many_kinds_the_smallest_domain_is_taken() -> None:
    """By rank: the last of 101 kinds is not asked about in the first slice."""
    TASTE.answer = named("z1/r1")
    wide = [NodeSpec(f"n{at}", {"cpu": 4 * GANGS_A_SLICE}, domains=("z1", f"r{1 + at // 4}")) for at in range(7)]
    state, scheduler = cluster(*wide)
    jobs = [gang(at, 2, cpu=1, owner=OwnerSpec(user=f"u{at}")) for at in range(1, GANGS_A_SLICE + 2)]
    found = placed(state, scheduler, *jobs)
    assert all(set(found[at]) <= {"n0", "n1", "n2", "n3"} for at in range(1, GANGS_A_SLICE + 1))
    assert set(found[GANGS_A_SLICE + 1]) <= {"n4", "n5", "n6"}


def test_another_configuration_asks_nobody() -> None:
    """What it said of gangs that wait is forgotten."""
    TASTE.answer = named("z1/r1")
    state, scheduler = cluster(*racks(4, 2))
    scheduler.feed(gang(1, 2))
    scheduler.step(0)
    scheduler.feed(gang(2, 2))
    scheduler.feed(ConfigChanged(EngineConfig(levels=LEVELS)))
    TASTE.shown.clear()
    scheduler.run(1)
    assert places(state) == {1: ["n1", "n2"], 2: ["n3", "n4"]}
    assert TASTE.shown == []
    assert not state.scratch.domain_lines.any()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda gang, view, domains: np.zeros(1), r"test-taste.*score\(\) returned an array of shape \(1,\)"),
        (lambda gang, view, domains: np.full(domains.domains, np.nan), r"test-taste.*NaN for domain z1"),
        (lambda gang, view, domains: np.full(domains.domains, "high"), r"test-taste.*dtype"),
        (lambda gang, view, domains: domains.fits.sort(), "test-taste.*read-only"),
    ],
)
def test_scores_that_are_none_are_refused(answer: Answer, says: str) -> None:
    """The policy is named by the cycle that asked."""
    TASTE.answer = answer
    _state, scheduler = cluster(*racks(2, 2))
    scheduler.feed(gang(1, 2))
    with pytest.raises(EngineError, match=says):
        scheduler.run(0)


def test_where_it_fails_gangs_go_to_the_smallest_domain_as_after_the_event_that_it_becomes() -> None:
    """Raising from the second job on: told once, out of use, and equal to ConfigChanged at that instant."""
    faults: list[PolicyFault] = []
    config = EngineConfig(levels=LEVELS, domains="test-taste")
    states = []
    for fails in (True, False):
        TASTE.answer = named("z1/r1")
        state = new_state(config)
        scheduler = Scheduler(state, Starts(), faults.append)
        scheduler.feed(NodesChanged(tuple(racks(5, 2))))
        scheduler.feed(gang(1, 2))
        scheduler.run(0)
        scheduler.feed(gang(2, 2))
        if fails:
            TASTE.answer = lambda gang, view, domains: 1 / 0
        else:
            scheduler.feed(ConfigChanged(without(config, faults[0])))
        scheduler.run(1)
        assert places(state) == {1: ["n1", "n2"], 2: ["n6", "n7"]}
        check_invariants(state)
        states.append(state_digest(state))
    (fault,) = faults
    assert (fault.setting, fault.policy) == ("domain-score", "test-taste")
    assert "raised ZeroDivisionError" in fault.message
    assert is_out(without(config, fault), "domain-score", "test-taste")
    assert states[0] == states[1]


def test_the_best_domains_are_shown_with_their_scores() -> None:
    """As the job would get them: three nodes are in r1 and in r3; r2 has a high score, and two."""
    TASTE.answer = named("z1/r2", "z1/r3")
    state, scheduler = cluster(*racks(4, 2, 3))
    scheduler.feed(gang(1, 3))
    scheduler.feed(gang(2, 3, within="rack"))
    scheduler.feed(gang(3, 1))
    shown = [(one.domain, one.level, one.score, one.fits) for one in score_of_nodes(state, 1, 10).domains]
    assert shown == [("z1/r3", "rack", 0.5, 3), ("z1/r1", "rack", 0.0, 4), ("z1", "zone", 0.0, 9)]
    assert [one.domain for one in score_of_nodes(state, 2, 1).domains] == ["z1/r3"]
    assert [one.level for one in score_of_nodes(state, 2, 10).domains] == ["rack", "rack"]
    assert score_of_nodes(state, 3, 10).domains == ()
    scheduler.run(0)
    assert places(state)[1] == ["n7", "n8", "n9"]


def test_a_policy_that_is_not_there_is_named() -> None:
    """With those that are."""
    with pytest.raises(
        EngineError, match=r"\[engine\] domains: no policy 'quite' for domain-score/1: known are smallest, .*test-taste"
    ):
        new_state(EngineConfig(levels=LEVELS, domains="quite"))
