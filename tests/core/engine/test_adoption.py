"""AllocationsAdopted: an engine that is told what runs and what waits decides as the one that had decided it."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import EngineError, State, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    INF,
    AllocationsAdopted,
    ClockAdvanced,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import pending, rows_of_run, running
from tests.core.engine.clusters import Starts, ended, engine, job, places

NODES = (NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}), NodeSpec("c", {"cpu": 2}))


def adopted(old: State) -> AllocationsAdopted:
    """All that runs in `old`, as a restarting controller reads it from its store."""
    runs = running(old)
    rows = np.zeros(len(runs), ADOPT)
    node_index: list[int] = []
    classes = []
    for row, run in zip(rows, runs, strict=True):
        for name in ("job", "task", "attempt", "priority", "submit_ms", "start_ms", "walltime_ms", "planned_ms"):
            row[name] = run[name]
        row["class_index"] = len(classes)
        classes.append(old.catalogue.class_specs[run["class_id"]])
        row["owner_index"] = run["owner_id"]
        held = [[node.name for node in NODES].index(old.node_name(r)) for r in rows_of_run(old, int(run["run"]))]
        row["row_offset"], row["row_count"] = len(node_index), len(held)
        node_index += held
    names = tuple(node.name for node in NODES)
    kinds = tuple(spec for spec in classes if spec is not None)
    return AllocationsAdopted(rows, np.array(node_index, np.int64), names, kinds, tuple(old.shares.owner_specs))


def submitted(old: State) -> JobsSubmitted:
    """All that waits in `old`."""
    entries = pending(old)
    rows = submit_rows(len(entries))
    for name in ("job", "first_task", "tasks", "attempt", "priority", "submit_ms", "eligible_ms", "held"):
        rows[name] = entries[name]
    rows["walltime_ms"], rows["planned_ms"] = entries["walltime_ms"], entries["planned_ms"]
    rows["class_index"] = np.arange(len(entries))
    rows["owner_index"] = entries["owner_id"]
    specs = [old.catalogue.class_specs[class_id] for class_id in entries["class_id"]]
    return JobsSubmitted(rows, tuple(spec for spec in specs if spec is not None), tuple(old.shares.owner_specs))


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_restarted_engine_goes_on_as_the_first_would_have(backfill: Backfill) -> None:
    """At 2 s the engine is made anew from what runs and waits; both start the same work until the line is empty."""
    config = EngineConfig(backfill=backfill)
    old, sink, scheduler = engine(config, *NODES)
    for number in range(1, 25):
        scheduler.feed(
            job(
                number,
                1 + number % 4,
                gang=1 + (number % 6 == 0),
                tasks=1 + (number % 4 == 0),
                account=str(number % 2),
                priority=number % 2,
                walltime_ms=INF if number == 1 else 1_000 * (1 + number * 5 % 7),
                held=number == 20,
                eligible_ms=5_000 if number == 21 else 0,
            )
        )
    scheduler.run(1_000)
    scheduler.run(2_000)
    scheduler.feed(ClockAdvanced(2_000))
    new = new_state(config)
    new_sink = Starts()
    restarted = Scheduler(new, new_sink)
    for event in (NodesChanged(NODES), ClockAdvanced(2_000), adopted(old), submitted(old)):
        restarted.feed(event)
        check_invariants(new)
    assert places(new) == places(old)
    before = len(sink.jobs())
    restarted.run(2_000)
    assert new_sink.jobs() == []
    assert state_digest(new) == state_digest(old)
    for now_ms in range(3_000, 60_000, 1_000):
        # Not the arrays (every fourth): theirs go on.
        gone = [number for number, nodes in places(old).items() if nodes and number % 4]
        if gone:
            scheduler.feed(ended(gone[0]))
            restarted.feed(ended(gone[0]))
        scheduler.run(now_ms)
        restarted.run(now_ms)
        check_invariants(new)
        assert places(new) == places(old)
    assert new_sink.jobs() == sink.jobs()[before:]
    assert new_sink.jobs()


def test_attempts_on_nodes_that_are_not_here_are_not_adopted() -> None:
    """The nodes are named and nothing has changed."""
    old, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    new, _sink, restarted = engine(EngineConfig(), NODES[1])
    before = state_digest(new)
    with pytest.raises(EngineError, match="unknown nodes a, c"):
        restarted.feed(adopted(old))
    assert state_digest(new) == before
