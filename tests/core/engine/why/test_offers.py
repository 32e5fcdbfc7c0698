"""Machines that could be rented: what they let wait, and what is said of it. They decide nothing."""

from __future__ import annotations

import pytest

from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import NodesOffered
from hal.core.engine.why.explain import explain
from hal.core.engine.why.feasible import fits_ever, offers_needed
from hal.core.model.offer import Offer
from hal.core.model.verdict import Reason
from tests.core.engine.why.test_answers import NODES, engine, job

LARGE = Offer(name="large", resources={"cpu": 8_000}, labels={"rack": "r9"}, count=2, expires_ms=1)
SMALL = Offer(name="small", resources={"cpu": 1_000}, expires_ms=1)


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (ClassSpec({"cpu": 8_000}), ("large",)),
        (ClassSpec({"cpu": 8_000}, 2), ("large",)),
        (ClassSpec({"cpu": 3_000}, 3), ("large",)),
        (ClassSpec({"cpu": 1_000}, 5), ("large", "small")),
        (ClassSpec({"cpu": 1}, 1, (Requirement("rack", Match.IN, ("r9",)),)), ("large",)),
        (ClassSpec({"cpu": 4_000}), ()),
    ],
)  # fmt: skip
def test_offers_count_only_where_the_nodes_do_not_do(spec: ClassSpec, needed: tuple[str, ...]) -> None:
    """Two nodes of 4 and 2 cpu, two machines of 8 and one of 1: `needed` are those that could hold a part."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(NodesOffered((LARGE, SMALL)))
    assert (fits_ever(state, spec), offers_needed(state, spec)) == (None, needed)


@pytest.mark.parametrize(
    "spec",
    [
        ClassSpec({"cpu": 8_000}, 3),
        ClassSpec({"cpu": 9_000}),
        ClassSpec({"cpu": 8_000, "gpu": 1_000}),
        ClassSpec({"cpu": 8_000}, 1, (Requirement("rack", Match.IN, ("r1",)),)),
    ],
)  # fmt: skip
def test_what_no_offer_holds_either_is_refused_as_without_one(spec: ClassSpec) -> None:
    """One machine too many, too large, of another kind, in another rack: the answer names the nodes alone."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    without = fits_ever(state, spec)
    scheduler.feed(NodesOffered((LARGE, SMALL)))
    assert fits_ever(state, spec) == without
    assert (without is not None, offers_needed(state, spec)) == (True, ("large",) if spec.nodes == 3 else ())


def test_work_that_only_an_offer_could_hold_waits_and_names_it() -> None:
    """When the offer goes, the same work says that nothing is offered."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(NodesOffered((LARGE,)))
    scheduler.feed(job(1, 8_000))
    scheduler.run(0)
    waits = explain(state, 1, 0)
    assert (waits.reason, waits.message) == (
        Reason.OFFER,
        "waits for a machine that could be rented: offer large",
    )
    scheduler.feed(NodesOffered())
    gone = explain(state, 1, 0)
    assert gone.reason is Reason.IMPOSSIBLE
    assert gone.message.endswith("until a node that large joins or is offered for rent")
