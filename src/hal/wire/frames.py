"""The frames of HAL's one internal wire: what controllers, agents and keepers say to each other.

Values only; `codec` turns them into bytes, `connection` moves them. Every frame is a msgspec Struct tagged by its type
name; frames carry many items each, payloads stay opaque. Times: `*_ms` is milliseconds since 1970 unless the name says
boot (milliseconds since the host booted, suspended time included). spec/frames.md is the description for other
languages; a test decodes its examples.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from hal.core.model import AttemptId, StepId

WIRE_VERSION = 1
WIRE_VERSION_MIN = 1
MAX_FRAME_BYTES = 8 << 20
"""A longer frame is refused before it is read."""


class Frame(Struct, frozen=True, kw_only=True, tag_field="t", tag=lambda name: name.lower()):
    """Base of all frames."""


# ── agreeing ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Role(StrEnum):
    """Who is speaking."""

    CONTROLLER = "controller"
    AGENT = "agent"
    KEEPER = "keeper"


class HeldStep(Struct, frozen=True, array_like=True):
    """A step that a keeper holds, as told at hello."""

    step: StepId
    running: bool
    pid: int
    started_ms: int


class Hello(Frame, frozen=True, kw_only=True):
    """First frame of the side that dialled."""

    role: Role
    versions: tuple[int, int]
    """Lowest and highest wire version it speaks."""
    features: tuple[str, ...] = ()
    name: str = ""
    """The node's name (agent, keeper)."""
    boot_id: str = ""
    pid: int = 0
    epoch: int = 0
    """Highest leader epoch it has seen."""
    capacity: dict[str, int] = {}
    """By resource name, base units."""
    labels: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    """What this node cannot do, in words for people (`cpu limits: cgroup not writable`)."""
    held: tuple[HeldStep, ...] = ()


class Welcome(Frame, frozen=True, kw_only=True):
    """The answer: versions agreed, times to keep to."""

    role: Role
    version: int
    features: tuple[str, ...] = ()
    epoch: int = 0
    heartbeat_ms: int = 2_000
    lease_ms: int = 60_000
    name: str = ""
    boot_id: str = ""
    pid: int = 0
    capacity: dict[str, int] = {}
    labels: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    held: tuple[HeldStep, ...] = ()
    """A keeper tells the agent that dialled it what it holds."""


class Goodbye(Frame, frozen=True, kw_only=True):
    """The speaker closes, and why; `code` is the stable name of an error, or empty."""

    code: str = ""
    reason: str = ""


# ── liveness ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Heartbeat(Frame, frozen=True, kw_only=True):
    """Agent to controller (the keeper's stamp passes through it)."""

    stamp_boot_ms: int
    """The keeper's own clock when it was asked; the ack echoes it, and the lease runs from it."""
    epoch: int = 0
    running: int = 0
    load: float = 0.0


class HeartbeatAck(Frame, frozen=True, kw_only=True):
    """Controller to agent to keeper: the lease that counts from `stamp_boot_ms` is renewed."""

    stamp_boot_ms: int
    epoch: int


# ── commands: controller → agent → keeper ─────────────────────────────────────────────────────────────────────────


class StepTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What many steps of one start frame share."""

    command: tuple[str, ...] = ()
    script: str = ""
    env: dict[str, str] = {}
    """Everything the step sees beside what the keeper adds (HAL_* of the single step)."""
    workdir: str = ""
    cpu_milli: int = 0
    """0: no limit."""
    memory_bytes: int = 0
    walltime_ms: int = 0
    """0: none."""
    signal: str = ""
    signal_before_ms: int = 0
    grace_ms: int = 10_000
    """Between SIGTERM and SIGKILL."""
    output_bytes: int = 64 << 20
    """Largest kept size of each of stdout and stderr; older output is rotated away."""
    guard: bool = False
    """True for on_node_lost=requeue: the step dies with the keeper and with its lease."""


class StepStart(Struct, frozen=True, array_like=True):
    """One step to start."""

    step: StepId
    template: int
    """Position in the frame's `templates`."""
    token: str
    """The attempt's token, for fencing of outside effects."""
    nodes: tuple[str, ...]
    """All nodes of the attempt, in rank order."""
    array_index: int
    array_count: int
    started_at_ms: int
    """When the controller allocated it; the walltime counts from the spawn."""


class Start(Frame, frozen=True, kw_only=True):
    """Start these steps. A keeper without a current lease, or that saw a higher epoch, refuses them all.

    A step that the keeper already holds, or has reported the exit of, is not started again: the frame may be repeated.
    """

    epoch: int
    stamp_boot_ms: int
    """Lease stamp: the newest keeper stamp that the controller acknowledged."""
    templates: tuple[StepTemplate, ...]
    steps: tuple[StepStart, ...]


class Signal(Frame, frozen=True, kw_only=True):
    """Send a signal to every process of these steps."""

    epoch: int
    steps: tuple[StepId, ...]
    name: str


class StopReason(StrEnum):
    """Why a step is being ended."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"
    """The database does not know this attempt."""
    SIBLING = "sibling"
    """Another step of the gang has ended badly."""


class Stop(Frame, frozen=True, kw_only=True):
    """End these steps: SIGTERM, `grace_ms`, SIGKILL of the whole tree. Repeating it is harmless."""

    epoch: int
    steps: tuple[StepId, ...]
    reason: StopReason
    grace_ms: int = 10_000


class Suspend(Frame, frozen=True, kw_only=True):
    """Stop these steps from running, keeping their memory."""

    epoch: int
    steps: tuple[StepId, ...]


class Resume(Frame, frozen=True, kw_only=True):
    """Let suspended steps run again."""

    epoch: int
    steps: tuple[StepId, ...]


class Resize(Frame, frozen=True, kw_only=True):
    """Change the limits of running steps."""

    epoch: int
    steps: tuple[StepId, ...]
    cpu_milli: int = 0
    memory_bytes: int = 0
    walltime_ms: int = 0
    """New walltime, from the step's start; 0 leaves it as it is."""


class Checkpoint(Frame, frozen=True, kw_only=True):
    """Ask these steps to save their state: `name` is the signal that means it."""

    epoch: int
    steps: tuple[StepId, ...]
    name: str = "USR2"
    grace_ms: int = 60_000


class Prepare(Frame, frozen=True, kw_only=True):
    """Make these steps' work directories and output files ready before they start."""

    epoch: int
    steps: tuple[StepId, ...]


class Done(Frame, frozen=True, kw_only=True):
    """What became of a command that has no report of its own (signal, suspend, resume, resize, checkpoint, prepare)."""

    command: str
    """Tag of the frame it answers."""
    steps: tuple[StepId, ...] = ()
    failed: tuple[tuple[StepId, str], ...] = ()
    """Steps it could not be done for, and why."""


# ── reports: keeper → agent → controller ──────────────────────────────────────────────────────────────────────────


class StepStarted(Struct, frozen=True, array_like=True):
    """A process was spawned."""

    step: StepId
    pid: int
    at_ms: int


class Started(Frame, frozen=True, kw_only=True):
    """These steps run now."""

    steps: tuple[StepStarted, ...]


class Refusal(Struct, frozen=True, array_like=True):
    """A step that was not started; no process of it exists."""

    step: StepId
    code: str
    """`no-lease`, `old-epoch`, `spawn-failed`, `bad-workdir`, `overloaded`."""
    message: str


class Refused(Frame, frozen=True, kw_only=True):
    """These steps were not started."""

    steps: tuple[Refusal, ...]


class ExitCause(StrEnum):
    """Why a step ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out-of-memory"
    LOST = "lost"
    """The keeper cannot know how it ended (its helper died too, or the host rebooted)."""
    SPAWN_FAILED = "spawn-failed"


class Usage(Struct, frozen=True, array_like=True):
    """What a step used, from wait4 (and from samples for steps older than a second)."""

    user_ms: int = 0
    system_ms: int = 0
    max_rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class StepExit(Struct, frozen=True, array_like=True):
    """A step has ended: no process of it is left."""

    step: StepId
    cause: ExitCause
    code: int
    """Exit code; 128 + signal when signalled."""
    signal: int
    started_ms: int
    ended_ms: int
    usage: Usage
    message: str
    """For people: why the spawn failed, which limit was hit; or empty."""


class Exits(Frame, frozen=True, kw_only=True):
    """These steps ended. Repeated until acknowledged."""

    exits: tuple[StepExit, ...]


class ExitsAck(Frame, frozen=True, kw_only=True):
    """These exits are durable; the keeper may forget them."""

    steps: tuple[StepId, ...]


class Sample(Struct, frozen=True, array_like=True):
    """What a running step uses now."""

    step: StepId
    rss_bytes: int
    cpu_ms: int


class Samples(Frame, frozen=True, kw_only=True):
    """Lossy: may be dropped at any time."""

    samples: tuple[Sample, ...]


# ── logs: controller → agent → keeper and back ────────────────────────────────────────────────────────────────────


class Stream(StrEnum):
    """Which output."""

    STDOUT = "stdout"
    STDERR = "stderr"


class ReadLog(Frame, frozen=True, kw_only=True):
    """Read a part of a step's output."""

    request: int
    """Chosen by the asker, echoed in the answer."""
    step: StepId
    stream: Stream
    offset: int
    """From the start of the output ever written; negative counts from its end."""
    limit: int = 1 << 18


class LogChunk(Frame, frozen=True, kw_only=True):
    """The answer to `ReadLog`."""

    request: int
    step: StepId
    stream: Stream
    offset: int
    """Where `data` begins; larger than asked when older output was rotated away."""
    data: bytes
    size: int
    """Bytes ever written so far."""
    ended: bool
    """The step has ended and nothing will be added."""
    error: str = ""


class Forget(Frame, frozen=True, kw_only=True):
    """The outputs of these attempts may be deleted."""

    attempts: tuple[AttemptId, ...]


AnyFrame = (
    Hello
    | Welcome
    | Goodbye
    | Heartbeat
    | HeartbeatAck
    | Start
    | Signal
    | Stop
    | Suspend
    | Resume
    | Resize
    | Checkpoint
    | Prepare
    | Done
    | Started
    | Refused
    | Exits
    | ExitsAck
    | Samples
    | ReadLog
    | LogChunk
    | Forget
)
"""Every frame that may cross the wire."""
