"""What one node event costs on 10,000 nodes in a tree of five levels, with 1,000 shapes of waiting gangs, half of which
are to be within a level: a node that joins, closes, opens, returns in another rack, leaves.

A full cluster of 8-GPU nodes, with gangs of four waiting in each of 1,000 classes. Timed apart: the event itself
(`apply`), and the pass that follows it. Beside it the same classes without a topology.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from _clusters import (
    ACCOUNTS,
    MINUTE_MS,
    NODE,
    emit,
    fill,
    jobs,
    load_kernels,
    median,
    owners,
    run_pass,
    small_classes,
    timed,
)
from engine_topology import LEVELS, NODES, path_of
from hal.core.engine import State, apply, new_state
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import Health, JobsSubmitted, NodesChanged, NodeSpec

SHAPES: Final = 1_000
ROUNDS: Final = 9
FIRST_JOB: Final = 200_000
EVENT_MS: Final = 1.0


def main() -> int:
    load_kernels()
    inside, outside = measured(crowded(LEVELS)), measured(crowded(()))
    for kind, (event_ms, pass_ms) in inside.items():
        emit(
            f"topology-node-event-{kind}", event_ms, "ms", EVENT_MS, pass_ms=round(pass_ms, 3),
            without=round(outside[kind][0], 4), pass_without=round(outside[kind][1], 3), nodes=NODES, shapes=SHAPES,
        )  # fmt: skip
    return 0


def measured(state: State) -> dict[str, tuple[float, float]]:
    """By kind of event: the median milliseconds of the event, and of the pass that follows it."""
    at = NODES // 2
    name, here, there = f"n{at:05d}", path_of(at), path_of(0)
    events: tuple[tuple[str, Callable[[], NodesChanged]], ...] = (
        ("cordon", lambda: NodesChanged((NodeSpec(name, NODE, {}, Health.CORDONED, domains=here),))),
        ("uncordon", lambda: NodesChanged((NodeSpec(name, NODE, domains=here),))),
        ("join", lambda: NodesChanged((NodeSpec("spare", NODE, domains=here),))),
        ("leave", lambda: NodesChanged(removed=("spare",))),
        ("return-elsewhere", lambda: NodesChanged((NodeSpec(name, NODE, domains=there),))),
        ("return", lambda: NodesChanged((NodeSpec(name, NODE, domains=here),))),
    )
    took: dict[str, list[tuple[float, float]]] = {kind: [] for kind, _ in events}
    now_ms = MINUTE_MS
    for _ in range(ROUNDS):
        for kind, event in events:
            now_ms += 1
            change = event()
            event_s = timed(lambda change=change: apply(state, change))  # type: ignore[misc]
            pass_s = timed(lambda at_ms=now_ms: run_pass(state, at_ms))  # type: ignore[misc]
            took[kind].append((1e3 * event_s, 1e3 * pass_s))
    return {
        kind: (median([event for event, _ in found]), median([after for _, after in found]))
        for kind, found in took.items()
    }


def crowded(levels: tuple[str, ...]) -> State:
    """All GPUs are taken; in each class a gang waits, every second one within one of the levels."""
    state = new_state(EngineConfig(levels=levels))
    places = (path_of(node) if levels else () for node in range(NODES))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{at:05d}", NODE, domains=place) for at, place in enumerate(places))))
    fill(state, 8 * NODES)
    waiting = tuple(gang(spec, at, levels) for at, spec in enumerate(small_classes(SHAPES)))
    apply(state, JobsSubmitted(jobs(FIRST_JOB, 2 * SHAPES, SHAPES, ACCOUNTS), waiting, owners()))
    run_pass(state, 0)
    return state


def gang(spec: ClassSpec, at: int, levels: tuple[str, ...]) -> ClassSpec:
    """The same of four nodes."""
    return replace(spec, nodes=4, within=levels[1 + at // 2 % (len(levels) - 1)] if levels and at % 2 else "")


if __name__ == "__main__":
    sys.exit(main())
