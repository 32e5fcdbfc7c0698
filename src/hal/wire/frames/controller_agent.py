"""The frames between a controller and an agent: those of the agent's keeper, health, gates, and joining.

Values only. The port on which a controller serves agents is the one on which machines join, so a connection of this
conversation may begin with joining.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.lifecycle.gates import GateState
from hal.core.model import StepId
from hal.core.model.gate import GatePhase
from hal.core.model.secret import MAX_JOB_SECRETS, MAX_SECRET_BYTES
from hal.wire.bounds import MAX_CHECKS, MAX_ITEMS, Amount, Count, Name, Text
from hal.wire.frames.agent_keeper import AgentKeeperFrame
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.joining import Authority, Join, Joined, ReadAuthority, Renew
from hal.wire.roles import Role


class FailingCheck(Struct, frozen=True, array_like=True, gc=False):
    """A failing health check of a node."""

    name: Name
    reason: Text
    """For people: why it failed when it began to fail."""
    since_ms: Count
    """When it began to fail, by the node's clock."""


class Health(Frame, frozen=True, kw_only=True):
    """Agent to controller, feature `health`: all failing checks of the node; all others pass. Sent after each hello
    once every check has run, and after each change. While a check fails, nothing new starts there."""

    failing: Annotated[tuple[FailingCheck, ...], Meta(max_length=MAX_CHECKS)] = ()


class StepGate(Struct, frozen=True, array_like=True, gc=False):
    """A step at a gate of its node."""

    step: StepId
    gate: Name
    """`prolog`, `epilog`, or the name of a gate of its job."""
    state: GateState
    """`waiting`: it is not satisfied yet; `passed`: it is, after it was reported as waiting; `failed`: it failed, took
    too long, or could not be asked."""
    reason: Text = ""
    """For people: why it failed, or for what it waits."""
    phase: GatePhase | None = None
    """`preparing`: no process of the step has begun; `finalising`: all of them are gone. nil, from earlier agents: the
    prolog is preparing, the epilog finalising."""


class Gates(Frame, frozen=True, kw_only=True):
    """Agent to controller, feature `gates`: sent before the `Refused` or `Exits` of the same steps, and again after
    each hello. The controller closes a node on which a prolog or an epilog failed. A gate of the job is reported only
    if it is not satisfied at once."""

    gates: Annotated[tuple[StepGate, ...], Meta(max_length=MAX_ITEMS)]


class JobSecrets(Struct, frozen=True, array_like=True, gc=False):
    """The secrets that one job names."""

    job: Amount
    files: Annotated[tuple[tuple[Name, Count], ...], Meta(max_length=MAX_JOB_SECRETS)]
    """Name of each, and the position of its value in the frame."""


class Secrets(Frame, frozen=True, kw_only=True):
    """Controller to agent, feature `secrets`: the secrets of the steps of the next `Start`, which follows in the same
    turn, sometimes after several of these frames. Sent over TLS or a Unix socket only, and after the commit of the
    starts. An agent keeps no value beyond that `Start`, whose steps get them as files."""

    values: Annotated[tuple[Annotated[bytes, Meta(max_length=MAX_SECRET_BYTES)], ...], Meta(max_length=MAX_ITEMS)]
    jobs: Annotated[tuple[JobSecrets, ...], Meta(max_length=MAX_ITEMS)]

    def __repr__(self) -> str:
        """Without values, wherever somebody prints a frame."""
        return f"Secrets(values={len(self.values)}, jobs={[one.job for one in self.jobs]})"


ControllerAgentFrame = AgentKeeperFrame | ReadAuthority | Authority | Join | Joined | Renew | Health | Gates | Secrets
"""What a controller and an agent may send each other."""
CONTROLLER_AGENT: Final[Conversation[ControllerAgentFrame]] = Conversation(
    "controller-agent", Role.CONTROLLER, ControllerAgentFrame
)
