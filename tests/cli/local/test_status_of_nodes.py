"""What `hal status` advises about nodes that are not heard."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hal.cli.local.status import _node_problems
from hal.client.rest.views import NodeInfo
from hal.core.model import NodeState

AWAY = (NodeState.UNREACHABLE, NodeState.STOPPED)


@pytest.mark.parametrize("state", AWAY)
@pytest.mark.parametrize(
    ("own", "advice"),
    [
        ({"w1": True}, "its agent runs here and connects again; if it does not: hal down --leave, then hal up"),
        ({"w1": False}, "start it again: hal up"),
        ({"n1": True}, "start it on its machine: hal agent"),
        (None, "start it on its machine: hal agent"),
    ],
)
def test_the_advice_is_true_where_it_is_read(own: Mapping[str, bool] | None, advice: str, state: NodeState) -> None:
    """For a second after a controller has come back, its own nodes are not heard, and nothing needs to be started."""
    (problem,) = _node_problems([NodeInfo(name="w1", state=state, reason="not heard")], own)
    assert (problem.what, problem.do) == (f"node w1 is {state}: not heard", advice)
