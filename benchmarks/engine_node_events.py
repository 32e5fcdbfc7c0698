"""What one node event costs: 5,000 nodes, 5,000 shapes of waiting work, and one node that joins, closes, opens, leaves.

A full cluster of 8-GPU nodes with a job waiting in each of 5,000 classes. Timed apart: the event itself (`apply`), and
the pass that follows it. `again` tells of a node what is known already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

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
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import Health, JobsSubmitted, NodesChanged, NodeSpec

NODES = 5_000
SHAPES = 5_000
ROUNDS = 5
FIRST_JOB = 100_000
EVENT_MS = 5.0
"""A turn of the controller's loop."""


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
    return 0


def crowded() -> State:
    """All GPUs are taken; in each class a job waits."""
    state = empty_cluster(NODES, EngineConfig())
    fill(state, 8 * NODES)
    apply(state, JobsSubmitted(jobs(FIRST_JOB, 2 * SHAPES, SHAPES, ACCOUNTS), small_classes(SHAPES), owners()))
    run_pass(state, 0)
    return state


if __name__ == "__main__":
    sys.exit(main())
