"""What one node event costs: 5,000 nodes, 5,000 shapes of waiting work, and one node that joins, closes, opens, leaves.

A full cluster of 8-GPU nodes with a job waiting in each of 5,000 classes. Timed apart: the event itself (`apply`), and
the pass that follows it. `again` tells of a node what is known already. Then, for each kind of backfill, how the pass
after a node event compares with the one after the end of an attempt, in CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from _clusters import (
    ACCOUNTS,
    MINUTE_MS,
    NODE,
    emit,
    empty_cluster,
    fill,
    jobs,
    load_kernels,
    median,
    owners,
    run_pass,
    small_classes,
    timed,
)
from hal.core.engine import State, apply
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import END, AttemptsEnded, Event, Health, JobsSubmitted, NodesChanged, NodeSpec

NODES = 5_000
SHAPES = 5_000
ROUNDS = 5
FIRST_JOB = 100_000
EVENT_MS = 5.0
"""A turn of the controller's loop."""
PASSES = (
    (Backfill.EASY, 5_000, 5_000, 10_000),
    (Backfill.TOP_K, 1_000, 5_000, 10_000),
    (Backfill.CONSERVATIVE, 1_000, 1_000, 1_000),
)
"""Backfill, nodes, shapes, jobs that wait."""


def main() -> int:
    load_kernels()
    state = crowded()
    name = f"n{NODES // 2:05d}"
    spare = NodeSpec("spare", NODE)
    events: tuple[tuple[str, Callable[[], NodesChanged]], ...] = (
        ("cordon", lambda: NodesChanged((NodeSpec(name, NODE, {}, Health.CORDONED),))),
        ("uncordon", lambda: NodesChanged((NodeSpec(name, NODE),))),
        ("add", lambda: NodesChanged((spare,))),
        ("remove", lambda: NodesChanged(removed=("spare",))),
        ("again", lambda: NodesChanged((NodeSpec(name, NODE),))),
    )
    took: dict[str, list[float]] = {kind: [] for kind, _ in events}
    passes: dict[str, list[float]] = {kind: [] for kind, _ in events}
    now_ms = MINUTE_MS
    for _ in range(ROUNDS):
        for kind, event in events:
            now_ms += 1
            change = event()
            took[kind].append(timed(lambda change=change: apply(state, change)))  # type: ignore[misc]
            passes[kind].append(timed(lambda at=now_ms: run_pass(state, at)))  # type: ignore[misc]
    for kind, _ in events:
        emit(
            f"node-event-{kind}", 1e3 * median(took[kind]), "ms", EVENT_MS,
            pass_ms=round(1e3 * median(passes[kind]), 3), nodes=NODES, shapes=SHAPES,
        )  # fmt: skip
    for backfill, nodes, shapes, waiting in PASSES:
        compare(backfill, nodes, shapes, waiting)
    return 0


def compare(backfill: Backfill, nodes: int, shapes: int, waiting: int) -> None:
    """The longest pass after a node event, against the one after an attempt has ended."""
    state, spare = crowded(nodes, shapes, waiting, backfill), NodeSpec("spare", {"cpu": 400})
    name = f"n{nodes // 2:05d}"
    passes: dict[str, list[float]] = {}
    now_ms = MINUTE_MS
    for round_ in range(ROUNDS):
        end = np.zeros(1, END)
        end["job"], end["attempt"] = 1 + round_, 1
        events: tuple[tuple[str, Event], ...] = (
            ("cordon", NodesChanged((NodeSpec(name, NODE, {}, Health.CORDONED),))),
            ("uncordon", NodesChanged((NodeSpec(name, NODE),))),
            ("add", NodesChanged((spare,))),
            ("remove", NodesChanged(removed=("spare",))),
            ("end", AttemptsEnded(end)),
        )
        for kind, event in events:
            now_ms += 1
            apply(state, event)
            began_s = time.process_time()
            run_pass(state, now_ms)
            passes.setdefault(kind, []).append(1e3 * (time.process_time() - began_s))
    took = {kind: round(median(ms), 2) for kind, ms in passes.items()}
    after_end = took.pop("end")
    emit(
        f"node-event-pass-{backfill.value}", max(took.values()) / after_end, "of the pass after an end", 1.0,
        after_end_ms=after_end, pass_ms=took, nodes=nodes, shapes=shapes, waiting=waiting,
    )  # fmt: skip


def crowded(
    nodes: int = NODES, shapes: int = SHAPES, waiting: int = 2 * SHAPES, backfill: Backfill = Backfill.EASY
) -> State:
    """All GPUs are taken; in each class a job waits."""
    state = empty_cluster(nodes, EngineConfig(backfill=backfill))
    fill(state, 8 * nodes)
    apply(state, JobsSubmitted(jobs(FIRST_JOB, waiting, shapes, ACCOUNTS), small_classes(shapes), owners()))
    run_pass(state, 0)
    return state


if __name__ == "__main__":
    sys.exit(main())
