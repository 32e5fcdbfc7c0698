"""One step that stands at a gate of its node: how far it has come, and what its scripts see. Pure."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final, NamedTuple

from hal.core.model import StepId
from hal.wire.frames import Refusal, StepExit, StepStart, StepTemplate, StopReason

TOLD: Final[tuple[str, ...]] = ("HAL_JOB_NAME", "HAL_QUEUE", "HAL_ACCOUNT", "HAL_USER")
"""Of a job's variables those that HAL itself has set. Its own are not for programs of the site: PATH may be one."""


class Phase(Enum):
    """How far it has come."""

    ENTERING = "entering"
    """Its prolog runs, or is about to."""
    PASSED = "passed"
    """Its prolog has succeeded while no controller was there to confirm the start."""
    HELD = "held"
    """The keeper has its start."""
    LEAVING = "leaving"
    """Its epilog runs, or is about to."""


class Asked(NamedTuple):
    """A start, by the controller that is there."""

    template: StepTemplate
    start: StepStart


class Burial(NamedTuple):
    """It is never to begin: the keeper is told so first, and its refusal goes to the controller."""

    reason: StopReason
    code: str
    """Told in place of the keeper's own code and words."""
    message: str


class GatedStep:
    """What the agent knows of it."""

    __slots__ = ("asked", "ends", "env", "phase", "script", "step", "work")

    def __init__(self, step: StepId, env: dict[str, str], phase: Phase) -> None:
        self.step = step
        self.env = env
        self.phase = phase
        self.asked: Asked | None = None
        """None where the controller that is there has not asked for it (again)."""
        self.ends: StepExit | Refusal | Burial | None = None
        """What is told when it has left; None: nothing, nobody asks."""
        self.script = ""
        """The gate whose script runs."""
        self.work: asyncio.Task[None] | None = None


def bare_env(step: StepId, node: str, home: str) -> dict[str, str]:
    """What scripts see of a step of which nothing but its id is known."""
    return {
        "HAL_NODE": node,
        "HAL_HOME": home,
        "HAL_JOB_ID": str(step.job),
        "HAL_TASK": str(step.task),
        "HAL_ATTEMPT": str(step.attempt),
        "HAL_RESTART": str(step.attempt - 1),
        "HAL_NODE_RANK": str(step.rank),
    }


def step_env(asked: Asked, node: str, home: str) -> dict[str, str]:
    """What scripts see of a step: variables of the step itself, by the same names, but not its token (by which its
    processes are found) and nothing that its job brings along."""
    template, start = asked
    env = {name: template.env[name] for name in TOLD if name in template.env}
    for name, there in (
        ("HAL_CPUS", template.cpu_milli),
        ("HAL_MEMORY_BYTES", template.memory_bytes),
        ("HAL_WALLTIME_S", template.walltime_ms),
    ):
        if there and name in template.env:
            env[name] = template.env[name]
    return env | bare_env(start.step, node, home) | {
        "HAL_ARRAY_INDEX": str(start.array_index),
        "HAL_ARRAY_COUNT": str(start.array_count),
        "HAL_NODES": ",".join(start.nodes),
        "HAL_NODE_COUNT": str(len(start.nodes)),
    }  # fmt: skip
