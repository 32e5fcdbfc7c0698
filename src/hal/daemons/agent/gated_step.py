"""One step at a gate of its node: its progress, and the environment of its scripts. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from hal.core.lifecycle.gates import GateVerdict
from hal.core.model import StepId
from hal.core.model.gate import GatePhase
from hal.daemons.agent.device_env import device_env
from hal.wire.frames.agent_keeper import Refusal, StepExit, StepStart, StepTemplate, StopReason, TemplateGate
from hal.wire.frames.controller_agent import StepGate

TOLD: Final[tuple[str, ...]] = ("HAL_JOB_NAME", "HAL_QUEUE", "HAL_ACCOUNT", "HAL_USER")
"""Variables of a job that HAL itself has set. The job's own are not passed to the site's programs: PATH may be one
of them."""


class Phase(Enum):
    """The progress of a gated step."""

    ENTERING = "entering"
    """Its prolog runs or its gates are asked, or that is about to happen."""
    PASSED = "passed"
    """They are satisfied, but no controller was connected to confirm the start."""
    HELD = "held"
    """The keeper has received its start."""
    LEAVING = "leaving"
    """Its finalising gates are asked or its epilog runs, or that is about to happen."""


class Asked(NamedTuple):
    """A start that the connected controller requested."""

    template: StepTemplate
    start: StepStart


class Burial(NamedTuple):
    """A step that must never begin: the keeper is told first, and its refusal goes to the controller."""

    reason: StopReason
    code: str
    """Sent in place of the keeper's own code and message."""
    message: str


class GatedStep:
    """What the agent knows about a gated step."""

    __slots__ = (
        "_env",
        "_make_env",
        "abandoned",
        "arrived_ms",
        "asked",
        "ends",
        "gates",
        "noted",
        "passage",
        "phase",
        "script",
        "step",
        "told",
        "user",
        "waits",
        "work",
    )

    def __init__(
        self,
        step: StepId,
        make_env: Callable[[], dict[str, str]],
        phase: Phase,
        *,
        gates: tuple[TemplateGate, ...] = (),
        user: str = "",
        arrived_ms: int = 0,
    ) -> None:
        """Args:
        make_env: the environment of its scripts, asked for at most once; of most steps nobody needs it.
        """
        self.step = step
        self._make_env = make_env
        self._env: dict[str, str] | None = None
        self.phase = phase
        self.gates = gates
        """Those that its job names."""
        self.user = user
        self.arrived_ms = arrived_ms
        """When its start came, by the monotonic clock."""
        self.noted = False
        """A note of it was saved."""
        self.told = False
        """Services of its preparing gates were asked, and have not been told how that ended."""
        self.waits: dict[tuple[GatePhase, str], StepGate] = {}
        """Gates of its job that were reported as waiting."""
        self.passage: asyncio.Task[GateVerdict] | None = None
        """Asks the finalising gates."""
        self.abandoned = False
        """These are not waited for any more: a person cancelled it."""
        self.asked: Asked | None = None
        """None if the connected controller has not requested it (again)."""
        self.ends: StepExit | Refusal | Burial | None = None
        """What to report when it has left; None: nothing, because nobody asks."""
        self.script = ""
        """The gate whose script runs."""
        self.work: asyncio.Task[None] | None = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of its scripts."""
        if self._env is None:
            self._env = self._make_env()
        return self._env

    @property
    def on_credit(self) -> bool:
        """Whether it may begin only when another step of its job ends."""
        return self.asked is not None and self.asked.start.credit_ms > 0

    def gates_of(self, phase: GatePhase) -> tuple[TemplateGate, ...]:
        """The gates of its job for that phase."""
        return tuple(gate for gate in self.gates if gate.phase is phase)


def bare_env(step: StepId, node: str, home: str) -> dict[str, str]:
    """Build the environment of scripts for a step of which only the id is known."""
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
    """Build the environment of a step's scripts: the step's own variables, by the same names, but neither its token
    (by which its processes are found) nor anything set by its job."""
    template, start = asked
    env = {name: template.env[name] for name in TOLD if name in template.env}
    for name, there in (
        ("HAL_CPUS", template.cpu_milli),
        ("HAL_MEMORY_BYTES", template.memory_bytes),
        ("HAL_WALLTIME_S", template.walltime_ms),
    ):
        if there and name in template.env:
            env[name] = template.env[name]
    if start.addresses:
        env["HAL_NODE_ADDRESSES"] = ",".join(start.addresses)
    if start.item:
        env["HAL_ITEM"] = start.item
    if start.devices:
        env |= device_env(start.devices)
    return env | bare_env(start.step, node, home) | {
        "HAL_ARRAY_INDEX": str(start.array_index),
        "HAL_ARRAY_COUNT": str(start.array_count),
        "HAL_NODES": ",".join(start.nodes),
        "HAL_NODE_COUNT": str(len(start.nodes)),
    }  # fmt: skip
