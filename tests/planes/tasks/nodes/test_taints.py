"""Taints of nodes in the plane: what the engine hears, what is stored, what returns with the node."""

from __future__ import annotations

import pytest

from hal.core.engine.events import NodesChanged
from hal.core.model import NotFoundError, SpecError
from hal.core.model.taint import MAX_TAINTS
from hal.planes.tasks import Arrival, Change
from hal.store import PutNodes
from tests.planes.tasks.small_plane import BY, SmallPlane


def told(change: Change) -> list[dict[str, str]]:
    """The taints of each node that the engine heard of."""
    return [node.taints for event in change.engine if isinstance(event, NodesChanged) for node in event.nodes]


def test_the_engine_hears_of_taints_and_they_are_stored() -> None:
    """A second one stands beside the first; another value takes its place; a key takes it away."""
    plane = SmallPlane()
    plane.plane.taint("n1", {"team": "bio"}, BY)
    change = plane.commit()
    assert told(change) == [{"team": "bio"}]
    assert [row.about.taints for op in change.operations if isinstance(op, PutNodes) for row in op.rows] == [
        {"team": "bio"}
    ]
    plane.plane.taint("n1", {"spot": "", "team": "geo"}, BY)
    assert told(plane.commit()) == [{"spot": "", "team": "geo"}]
    plane.plane.untaint("n1", ["team", "never"], BY)
    assert told(plane.commit()) == [{"spot": ""}]


def test_a_taint_that_is_there_changes_nothing() -> None:
    """Nothing is staged, and the engine hears nothing."""
    plane = SmallPlane()
    plane.plane.taint("n1", {"team": "bio"}, BY)
    plane.commit()
    plane.plane.taint("n1", {"team": "bio"}, BY)
    plane.plane.untaint("n1", ["other"], BY)
    assert told(plane.commit()) == []


def test_a_node_that_returns_keeps_its_taints() -> None:
    """As it does its closures."""
    plane = SmallPlane()
    plane.plane.taint("n1", {"team": "bio"}, BY)
    plane.commit()
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 8_000}, boot_id="another"), plane.now_ms)
    assert told(plane.commit())[-1] == {"team": "bio"}


def test_what_is_no_node_or_no_taint_is_refused() -> None:
    """And nothing is changed."""
    plane = SmallPlane()
    with pytest.raises(NotFoundError):
        plane.plane.taint("n9", {"a": ""}, BY)
    with pytest.raises(SpecError):
        plane.plane.taint("n1", {"a b": ""}, BY)
    plane.plane.taint("n1", {f"k{number}": "" for number in range(MAX_TAINTS)}, BY)
    with pytest.raises(SpecError, match="at most"):
        plane.plane.taint("n1", {"one-more": ""}, BY)


def test_what_a_job_tolerates_is_part_of_its_class() -> None:
    """Two jobs that differ in nothing else are of two classes."""
    plane = SmallPlane()
    one, other = plane.submit({}, {"tolerate": ["team=bio"]})
    assert plane.live(one).request.tolerates == ()
    assert plane.live(other).request.tolerates == ("team=bio",)
