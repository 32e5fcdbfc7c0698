"""From orders to frames: many steps in one frame, each frame well below the wire's limit.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model import StepId
from hal.core.model.grace import DEFAULT_GRACE_MS
from hal.planes.tasks import NodesNow, Orders
from hal.wire.bounds import MAX_ITEMS
from hal.wire.frames.agent_keeper import (
    AgentKeeperFrame,
    Checkpoint,
    ExitsAck,
    Recall,
    Resize,
    Resume,
    Start,
    StepStart,
    StepTemplate,
    Stop,
    StopReason,
    Suspend,
)
from hal.wire.frames.controller_agent import JobNodes

STEPS_A_FRAME = 500
START_BYTES = 4 << 20
"""Bytes of templates and steps of one start frame, about; half of what a frame may have."""
STEP_BYTES = 200
NAME_BYTES = 8


class StartLease(NamedTuple):
    """By what right steps are started."""

    epoch: int
    """Of the controller."""
    stamp_boot_ms: int
    """The newest stamp of the keeper that was acknowledged to it."""
    lease_ms: int
    """How long the keeper's lease runs from that."""


def start_frames(templates: dict[int, StepTemplate], starts: Sequence[StepStart], lease: StartLease) -> Iterator[Start]:
    """Frames that start these steps; `template` of each is a key of `templates`."""
    places: dict[int, int] = {}
    used: list[StepTemplate] = []
    steps: list[StepStart] = []
    size = 0
    for start in starts:
        key = start.template
        more = (
            STEP_BYTES + 4 * len(start.item) + sum(len(name) + NAME_BYTES for name in (*start.nodes, *start.addresses))
        )
        if key not in places:
            more += template_bytes(templates[key])
        if steps and (size + more > START_BYTES or len(steps) >= STEPS_A_FRAME):
            yield Start(**lease._asdict(), templates=tuple(used), steps=tuple(steps))
            places, used, steps, size = {}, [], [], 0
            more += template_bytes(templates[key])
        if key not in places:
            places[key] = len(used)
            used.append(templates[key])
        size += more
        steps.append(replace(start, template=places[key]))
    if steps:
        yield Start(**lease._asdict(), templates=tuple(used), steps=tuple(steps))


def other_frames(orders: Orders, epoch: int) -> Iterator[AgentKeeperFrame]:
    """Stops, recalls, suspensions and new walltimes."""
    for part in _parts(orders.lost):
        yield Stop(epoch=epoch, steps=part, reason=StopReason.UNKNOWN, grace_ms=DEFAULT_GRACE_MS)
    for part in _parts(orders.recalls):
        yield Recall(epoch=epoch, steps=part)
    for reason, steps in orders.stops.items():
        for part in _parts(steps):
            yield Stop(epoch=epoch, steps=part, reason=reason, grace_ms=DEFAULT_GRACE_MS)
    for how, steps in orders.evictions.items():
        for part in _parts(steps):
            if how.signal:
                grace_ms, last_ms = how.grace_ms, how.last_grace_ms
                yield Checkpoint(epoch=epoch, steps=part, name=how.signal, grace_ms=grace_ms, last_grace_ms=last_ms)
            else:
                yield Stop(epoch=epoch, steps=part, reason=StopReason.PREEMPTED, grace_ms=how.grace_ms)
    for part in _parts(orders.suspends):
        yield Suspend(epoch=epoch, steps=part)
    for part in _parts(orders.resumes):
        yield Resume(epoch=epoch, steps=part)
    for walltime_ms, steps in orders.walltimes.items():
        for part in _parts(steps):
            yield Resize(epoch=epoch, steps=part, walltime_ms=min(walltime_ms, INF))


def resize_frames(resized: Mapping[StepId, NodesNow], epoch: int) -> Iterator[JobNodes]:
    """What the bases of elastic jobs are told of their nodes."""
    for step, now in resized.items():
        yield JobNodes(epoch=epoch, step=step, nodes=now.nodes[:MAX_ITEMS], slots=now.slots, signal=now.signal)


def ack_frames(orders: Orders) -> Iterator[AgentKeeperFrame]:
    """Acknowledgements of exits."""
    for part in _parts(orders.acks):
        yield ExitsAck(steps=part)


def template_bytes(template: StepTemplate) -> int:
    """About how many bytes it takes in a frame."""
    words: Iterable[str] = (*template.command, template.script, template.workdir, *template.env, *template.env.values())
    arguments = (gate.argument for gate in template.gates)
    return STEP_BYTES + sum(4 * len(word) if not word.isascii() else len(word) + 5 for word in chain(words, arguments))


def _parts(steps: Sequence[StepId]) -> Iterator[tuple[StepId, ...]]:
    for first in range(0, len(steps), STEPS_A_FRAME):
        yield tuple(steps[first : first + STEPS_A_FRAME])
