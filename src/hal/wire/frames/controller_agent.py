"""The frames between a controller and an agent: those of the agent's keeper, health, gates, and joining.

Values only. The port on which a controller serves agents is the one on which machines join, so a connection of this
conversation may begin with joining; one of a node's file service begins with `OpenFiles`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.lifecycle.gates import GateState
from hal.core.model import StepId
from hal.core.model.gate import GatePhase
from hal.core.model.plane_addresses import MAX_ADDRESSES, MAX_ANNOUNCED
from hal.core.model.secret import MAX_JOB_SECRETS, MAX_SECRET_BYTES
from hal.wire.bounds import MAX_CHECKS, MAX_COUNT, MAX_ITEMS, MAX_STEP_PORTS, MAX_WORDS, Amount, Count, Name, Port, Text
from hal.wire.frames.agent_keeper import AgentKeeperFrame
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.files import (
    BundleManifest,
    BundleSegment,
    CollectBounds,
    CollectedEnd,
    CollectedPiece,
    CollectedStored,
    OpenFiles,
    ReadBundle,
    ReadSegments,
    StoreCollected,
)
from hal.wire.frames.joining import (
    Authority,
    CertificatesRefused,
    CheckCertificates,
    Join,
    Joined,
    ReadAuthority,
    Renew,
)
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


class StepReadiness(Struct, frozen=True, array_like=True, gc=False):
    """Whether a step of a service is ready."""

    step: StepId
    ready: bool
    since_ms: Count
    """Since when, by the node's clock."""
    reason: Text = ""
    """For people: why it is not."""
    ports: Annotated[tuple[Port, ...], Meta(max_length=MAX_STEP_PORTS)] = ()
    """The numbers of its ports, in the order of its job's."""


class Readiness(Frame, frozen=True, kw_only=True):
    """Agent to controller, feature `services`: sent after the report that these steps have begun, when whether they are
    ready is known or changes, and again after each hello. Steps that are not named are as they were reported before, or
    are starting."""

    steps: Annotated[tuple[StepReadiness, ...], Meta(max_length=MAX_ITEMS)]


class JobNodes(Frame, frozen=True, kw_only=True):
    """Controller to agent, feature `hostfiles`: the nodes that the elastic job of this step has now. If its file says
    something else, the agent replaces that and has its keeper send the signal. Repeating it is harmless; sent again
    after each hello."""

    epoch: Count
    """Of the controller, for the signal."""
    step: StepId
    nodes: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]
    """Those of the base first; without those of steps that were told to leave."""
    slots: Amount
    """Ranks of each."""
    signal: Name
    """Its name without SIG."""


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


class AnnouncedPlane(Struct, frozen=True, array_like=True, gc=False):
    """A plane that agents may dial."""

    name: Name
    wire: Annotated[tuple[Name, ...], Meta(max_length=MAX_ADDRESSES)]
    """`unix:/PATH` on the controller's host, or `HOST:PORT` for TLS; the first that the node can use."""


class Planes(Frame, frozen=True, kw_only=True):
    """Controller to agent, feature `planes`: all planes that have announced themselves. Sent after the welcome, and
    when that changes."""

    planes: Annotated[tuple[AnnouncedPlane, ...], Meta(max_length=MAX_ANNOUNCED)] = ()
    settled: bool = True
    """A plane that is not named is not there any more. False: the controller began lately, and may not have heard of
    all; what an agent knows of others holds."""


class StreamKind(StrEnum):
    """What a stream to a step is for."""

    EXEC = "exec"
    """A command that runs inside the step; its input and output."""
    FORWARD = "forward"
    """A connection to a TCP port that the step serves."""
    ATTACH = "attach"
    """The input and output of an interactive step itself."""
    LAUNCH = "launch"
    """Several processes of one command inside the step, each a rank of a parallel program; feature `ranks`."""


class OpenStream(Frame, frozen=True, kw_only=True):
    """Controller to agent, feature `streams`: let the holder of a ticket reach a step of this node. The bytes are on a
    connection of their own (*Streams to steps*), not on this one."""

    request: Count
    """Chosen by the sender, echoed in the answer."""
    step: StepId
    kind: StreamKind
    ticket: Name
    """Random; whoever shows it first is served. It expires after some seconds."""
    argv: Annotated[tuple[Text, ...], Meta(max_length=MAX_WORDS)] = ()
    """For `exec` and `launch`: program and arguments."""
    terminal: bool = False
    """For `exec`: on a terminal of its own, otherwise with pipes."""
    term: Name = ""
    """For `exec`: the value of TERM; empty: the step's own."""
    rows: Amount = 0
    columns: Amount = 0
    """Size of the terminal; 0: not known."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """For `forward`."""
    ranks: Amount = 0
    """For `launch`: how many processes to begin on this node."""
    first_rank: Amount = 0
    """For `launch`: the rank of the first of them; the others follow, `stride` apart."""
    size: Amount = 0
    """For `launch`: the number of ranks on all nodes together."""
    stride: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 1
    bind: bool = False
    """For `launch`: each rank keeps to its own part of the step's CPUs, if the step has CPUs of its own."""
    by: Name = ""
    """The user who asked."""
    listen: bool = False
    """The other end may be on another host: await the ticket on a TCP port, in TLS with the node's certificate.
    Otherwise at a Unix socket of this host."""
    relay: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Feature `relays`: meet the other end at this port of the controller's host instead, and be the serving side
    of TLS there; 0: not."""
    meeting: Name = ""
    """By which the relay knows the two that are to meet."""


class StreamOpened(Frame, frozen=True, kw_only=True):
    """The answer to `OpenStream`."""

    request: Count
    path: Text = ""
    """The Unix socket of this host at which the ticket is awaited; empty: at a port."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """The TCP port of this host at which it is awaited, if that was asked for."""
    fingerprint: Name = ""
    """SHA-256 of the certificate (DER) that is presented there, in hex."""
    code: Name = ""
    """Of the error, if it was not opened: as in problem documents."""
    error: Text = ""
    """For people."""


ControllerAgentFrame = (
    AgentKeeperFrame
    | ReadAuthority
    | Authority
    | Join
    | Joined
    | Renew
    | CheckCertificates
    | CertificatesRefused
    | Health
    | Gates
    | Readiness
    | JobNodes
    | Secrets
    | Planes
    | OpenStream
    | StreamOpened
    | OpenFiles
    | ReadBundle
    | BundleManifest
    | ReadSegments
    | BundleSegment
    | StoreCollected
    | CollectBounds
    | CollectedPiece
    | CollectedEnd
    | CollectedStored
)
"""What a controller and an agent may send each other."""
CONTROLLER_AGENT: Final[Conversation[ControllerAgentFrame]] = Conversation(
    "controller-agent", Role.CONTROLLER, ControllerAgentFrame
)
