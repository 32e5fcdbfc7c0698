"""The engine as the controller holds it, begun anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    AllocationsAdopted,
    Event,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    SharesLoaded,
    submit_rows,
)
from hal.core.engine.scheduler import MOST_IDLE
from hal.core.model.policy import Policy
from hal.daemons.controller.cycle.engine import Engine
from hal.runtime.call_watch import CallWatch
from hal.runtime.interface import Runtime

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


class Log:
    """A log in memory; `lines`: what was said, with its values."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def error(self, event: str, **values: Any) -> None:
        self.lines.append((event, values))


def test_an_engine_that_is_woken_for_nothing_is_reported_once() -> None:
    """One attempt outlives its plan; what waits is planned behind it again and again. The line says which policy."""
    log = Log()
    runtime = SimpleNamespace(log=log, watch=lambda late: CallWatch(late))
    engine = Engine(EngineConfig(backfill=Backfill.CONSERVATIVE), runtime=cast(Runtime, runtime))
    rows = submit_rows(3)
    rows["job"], rows["walltime_ms"] = (1, 2, 3), 2
    engine.begin((NodesChanged((NodeSpec("n", {"cpu": 1}),)), JobsSubmitted(rows, (ClassSpec({"cpu": 1}),))), 0)
    now_ms = 0
    for _ in range(MOST_IDLE + 20):
        step = engine.step(now_ms)
        now_ms = step.wake_ms
    engine.close()
    (line,) = log.lines
    assert "for nothing" in line[0]
    assert (line[1]["backfill"], line[1]["waiting"], line[1]["running"]) == ("conservative", 2, 1)
