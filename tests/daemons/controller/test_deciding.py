"""The engine as the controller holds it, begun anew."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import ADOPT, AllocationsAdopted, Event, NodesChanged, NodeSpec, SharesLoaded
from hal.core.model.policy import Policy
from hal.daemons.controller.deciding import Engine

NOW_MS = 1_767_225_600_000


def what_runs() -> tuple[Event, ...]:
    """One node, and ada's cpu of it, since a second before `NOW_MS`."""
    rows = np.zeros(1, ADOPT)
    rows["job"], rows["attempt"], rows["start_ms"], rows["walltime_ms"], rows["row_count"] = (
        1,
        1,
        NOW_MS - 1_000,
        60_000,
        1,
    )
    classes, owners = (ClassSpec({"cpu": 1_000}, 1),), (OwnerSpec(user="ada"),)
    adopted = AllocationsAdopted(rows, np.zeros(1, np.int64), ("n",), classes, owners)
    return (NodesChanged((NodeSpec("n", {"cpu": 2_000}),)), adopted)


def test_what_was_used_is_kept_however_often_it_begins_anew() -> None:
    """Commits that fail one after another right after a start: no cycle has told the time in between."""
    engine = Engine(EngineConfig(order="priority", policy=Policy()))
    engine.begin(what_runs(), NOW_MS, SharesLoaded((("", "ada", 50.0), ("", "bob", 7.0)), at_ms=NOW_MS - 10))
    for later_ms in range(3):
        engine.begin(what_runs(), NOW_MS + later_ms)
        settled = engine.settled_use()
        assert settled is not None
        assert settled.at_ms == NOW_MS + later_ms
        assert {user: units for _, user, units in settled.use} == pytest.approx({"ada": 50.0, "bob": 7.0}, rel=1e-3)


def test_a_controller_without_memory_begins_with_no_use() -> None:
    """The first of all: what runs is charged, nothing has been settled, and that can be told at once."""
    engine = Engine(EngineConfig(order="priority", policy=Policy()))
    engine.begin(what_runs(), NOW_MS)
    settled = engine.settled_use()
    assert settled is not None
    assert settled.use == ()
