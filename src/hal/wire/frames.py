"""The frames of HAL's one internal wire: what controllers, agents and keepers say to each other.

Values only; `codec` turns them into bytes, `connection` moves them. Every frame is a msgspec Struct tagged by its type
name; frames carry many items each, payloads stay opaque. Times: `*_ms` is milliseconds since 1970 unless the name says
boot (milliseconds since the host booted, suspended time included). spec/frames.md is the description for other
languages; a test decodes its examples.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from hal.core.lifecycle.gates import GateState
from hal.core.model import AttemptId, StepId
from hal.core.model.facts import Facts
from hal.wire.bounds import (
    MAX_CHECKS,
    MAX_FEATURES,
    MAX_HELD,
    MAX_ITEMS,
    MAX_LABELS,
    MAX_NOTES,
    MAX_RESOURCES,
    Amount,
    Count,
    ExitCode,
    LeaseMs,
    Load,
    Name,
    Note,
    Offset,
    Pem,
    Pid,
    SignalNumber,
    Text,
    Version,
)

WIRE_VERSION = 1
WIRE_VERSION_MIN = 1
MAX_FRAME_BYTES = 8 << 20
"""A longer frame is refused before it is read."""


def _tag(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class Frame(Struct, frozen=True, kw_only=True, tag_field="t", tag=_tag):
    """Base of all frames."""


# ── agreeing ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Role(StrEnum):
    """Who is speaking."""

    CONTROLLER = "controller"
    AGENT = "agent"
    KEEPER = "keeper"


class HeldStep(Struct, frozen=True, array_like=True, gc=False):
    """A step that a keeper holds, as told at hello."""

    step: StepId
    running: bool
    """False: it waits to be spawned, or its exit waits to be acknowledged."""
    pid: Pid
    """Of its first process; 0 when not spawned yet."""
    started_ms: Count
    """When it was spawned; 0 when not yet."""
    allocated_ms: Count = 0
    """`started_at_ms` of its start: of two attempts of one id, which a store that was restored may give, it says which
    this is. 0: not told."""


Capacity = Annotated[dict[Name, Amount], Meta(max_length=MAX_RESOURCES)]
Labels = Annotated[dict[Name, Note], Meta(max_length=MAX_LABELS)]
Notes = Annotated[tuple[Note, ...], Meta(max_length=MAX_NOTES)]
Held = Annotated[tuple[HeldStep, ...], Meta(max_length=MAX_HELD)]
Steps = Annotated[tuple[StepId, ...], Meta(max_length=MAX_ITEMS)]


class Hello(Frame, frozen=True, kw_only=True):
    """First frame of the side that dialled."""

    role: Role
    """Who dials."""
    versions: tuple[Version, Version]
    """Lowest and highest wire version it speaks."""
    features: Annotated[tuple[Name, ...], Meta(max_length=MAX_FEATURES)] = ()
    """Names of what it can do beyond its wire versions."""
    name: Name = ""
    """The node's name (agent, keeper)."""
    boot_id: Name = ""
    """Another one after each boot of the node: what ran in an earlier one is lost."""
    pid: Pid = 0
    """Of the speaker."""
    epoch: Count = 0
    """Highest leader epoch it has seen."""
    capacity: Capacity = {}
    """What the node offers, by resource name, in base units."""
    labels: Labels = {}
    """Of the node, for constraints."""
    facts: Facts = Facts()
    """What an agent's node is made of."""
    notes: Notes = ()
    """What this node cannot do, in words for people (`cpu limits: cgroup not writable`)."""
    held: Held = ()
    """An agent tells the controller what its keeper holds."""


class Welcome(Frame, frozen=True, kw_only=True):
    """The answer: versions agreed, times to keep to. The fields from `name` on are a keeper's, as in `Hello`."""

    role: Role
    """Who answers."""
    version: Version
    """The wire version that both sides speak from now on."""
    features: Annotated[tuple[Name, ...], Meta(max_length=MAX_FEATURES)] = ()
    """Those that both sides named."""
    epoch: Count = 0
    """A controller's own; of a keeper, the highest that it has seen."""
    heartbeat_ms: LeaseMs = 2_000
    """How often the agent sends `Heartbeat`."""
    lease_ms: LeaseMs = 60_000
    """How long a keeper's lease runs from its stamp."""
    name: Name = ""
    boot_id: Name = ""
    pid: Pid = 0
    capacity: Capacity = {}
    labels: Labels = {}
    notes: Notes = ()
    held: Held = ()
    """A keeper tells the agent that dialled it what it holds."""


class Goodbye(Frame, frozen=True, kw_only=True):
    """The speaker closes, and why."""

    code: Name = ""
    """Stable name of an error (`denied`, `version`, `malformed-frame`, `frame-too-long`, `overloaded`), or `removed`
    (the node was; its agent dials again only when it is started again), `stopping` (a keeper that takes its agent
    along), `quarantined` (the node told what cannot be), `not-leader` (another controller leads), or empty."""
    reason: Text = ""
    """For people; with `not-leader` the `HOST:PORT` of the controller that leads, or empty where that is not known."""
    hint: Text = ""
    """What a person may do about it."""


# ── joining: the only frames of a side that shows no certificate ─────────────────────────────────────────────────────


class ReadAuthority(Frame, frozen=True, kw_only=True):
    """Which authority do your certificates come from? Asked on a connection of its own, before anything is believed."""


class Authority(Frame, frozen=True, kw_only=True):
    """The answer to `ReadAuthority`. Whoever asked compares the SHA-256 of its DER form with the fingerprint in the
    join token, closes, and dials again, now believing this authority only."""

    certificate: Pem
    """Of the authority, in PEM."""


class Join(Frame, frozen=True, kw_only=True):
    """A machine asks to become a node; first frame of a connection whose other end was verified."""

    versions: tuple[Version, Version]
    """Lowest and highest wire version it speaks."""
    name: Name
    """The node that it wants to be."""
    token: Name
    """ID and secret of the join token (`ID.SECRET`), without its fingerprint."""
    request: Pem
    """A certificate signing request (PKCS #10) in PEM; of it only the public key is used."""


class Joined(Frame, frozen=True, kw_only=True):
    """The answer to `Join` and to `Renew`: from now on this certificate is shown when dialling."""

    name: Name
    """The only name under which it may speak."""
    certificate: Pem
    """In PEM."""
    authority: Pem
    """Certificate of the authority, in PEM."""
    expires_ms: Count
    """When the certificate ends. It is renewed when two thirds of its time are over."""


class Renew(Frame, frozen=True, kw_only=True):
    """An agent asks for its next certificate, over its live connection; answered with `Joined`. The former one stays
    valid until it ends."""

    request: Pem
    """As in `Join`, with a fresh key."""


# ── liveness ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Heartbeat(Frame, frozen=True, kw_only=True):
    """Agent to controller, with the keeper's stamp. The agent asks its keeper for one with stamp 0; the keeper answers
    with its own heartbeat."""

    stamp_boot_ms: Count
    """The keeper's stamp when it was asked: its boot clock, and an offset that is another one in each boot. The ack
    echoes it, and the lease runs from it; to others it is a number above 0."""
    epoch: Count = 0
    """Highest leader epoch that the keeper has seen."""
    running: Count = 0
    """Steps that run on the node."""
    load: Load = 0.0
    """Load average of the node over a minute."""


class HeartbeatAck(Frame, frozen=True, kw_only=True):
    """Controller to agent to keeper: the lease that counts from `stamp_boot_ms` is renewed."""

    stamp_boot_ms: Count
    """As in the heartbeat that it answers."""
    epoch: Count
    """Of the controller that renews; a keeper that saw a higher one takes no lease from it."""
    lease_ms: LeaseMs = 0
    """How long the lease runs from the stamp; 0: as the keeper was started."""
    now_ms: Count = 0
    """The controller's clock when it answered; 0 from one that does not tell."""


class FailingCheck(Struct, frozen=True, array_like=True, gc=False):
    """A health check of a node that fails."""

    name: Name
    reason: Text
    """For people, of the moment in which it began to fail."""
    since_ms: Count
    """When that was, by the node's clock."""


class Health(Frame, frozen=True, kw_only=True):
    """Agent to controller, feature `health`: all checks of the node that fail; what is not named passes. Sent after
    each hello once every check was run, and when something has changed. While one fails nothing new starts there."""

    failing: Annotated[tuple[FailingCheck, ...], Meta(max_length=MAX_CHECKS)] = ()


# ── commands: controller → agent → keeper ─────────────────────────────────────────────────────────────────────────


class StepTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What many steps of one start frame share."""

    command: tuple[str, ...] = ()
    """Program and arguments; empty when there is a script."""
    script: str = ""
    """Text of a script, beginning with `#!`."""
    env: dict[str, str] = {}
    """Everything the step sees beside what the keeper adds (HAL_* of the single step)."""
    workdir: str = ""
    """Absolute; the step's own directory when empty."""
    cpu_milli: Amount = 0
    """Thousandths of a cpu; 0: no limit."""
    memory_bytes: Amount = 0
    """0: no limit."""
    walltime_ms: Amount = 0
    """How long it may run from its spawn; 0: no limit."""
    signal: Name = ""
    """Sent `signal_before_ms` before the walltime ends (`USR1`); empty: none."""
    signal_before_ms: Amount = 0
    grace_ms: Amount = 10_000
    """Between SIGTERM and SIGKILL."""
    output_bytes: Amount = 64 << 20
    """Largest kept size of each of stdout and stderr; older output is rotated away."""
    guard: bool = False
    """True for on_node_lost=requeue: the step dies with the keeper and with its lease."""
    user: Name = ""
    """On whose behalf; empty: the controller does not say."""
    key: Name = ""
    """With the attempt's token it is the step's credential, HAL_STEP_TOKEN; empty: it has none."""


class StepStart(Struct, frozen=True, array_like=True, gc=False):
    """One step to start."""

    step: StepId
    template: Count
    """Position in the frame's `templates`."""
    token: Text
    """The attempt's token, for fencing of outside effects."""
    nodes: tuple[Name, ...]
    """All nodes of the attempt, in rank order."""
    array_index: Amount
    """What HAL_ARRAY_INDEX says."""
    array_count: Count
    """How many tasks the job has."""
    started_at_ms: Count
    """When the controller allocated it; the walltime counts from the spawn."""
    credit_ms: LeaseMs = 0
    """0: it has a place and begins at once. Else it waits for the place of a step of its job that ends on this node;
    when none has come after so long it is refused (`credit-over`)."""


class Start(Frame, frozen=True, kw_only=True):
    """Start these steps. A keeper without a current lease, or that saw a higher epoch, refuses them all.

    A step that the keeper already holds, or has reported the exit of, is not started again: the frame may be repeated.
    Steps on credit (`credit_ms`) wait in the order of the frames; a step that ends passes its place to the first of its
    job, unless it was stopped for other work (`preempted`), and its exit says to which.
    """

    epoch: Count
    """Of the controller that commands; a keeper that saw a higher one refuses. So in every command."""
    stamp_boot_ms: Count
    """Lease stamp: the newest keeper stamp that the controller acknowledged."""
    lease_ms: LeaseMs = 0
    """How long that lease runs; 0: as the keeper was started."""
    templates: Annotated[tuple[StepTemplate, ...], Meta(max_length=MAX_ITEMS)]
    """What steps have in common, each said once."""
    steps: Annotated[tuple[StepStart, ...], Meta(max_length=MAX_ITEMS)]


class Signal(Frame, frozen=True, kw_only=True):
    """Send a signal to every process of these steps."""

    epoch: Count
    steps: Steps
    name: Name
    """Without SIG: `USR1`."""


class StopReason(StrEnum):
    """Why a step is being ended."""

    CANCELLED = "cancelled"
    """A person asked for it."""
    TIMED_OUT = "timed-out"
    """The controller's clock says that its walltime is over."""
    PREEMPTED = "preempted"
    """Other work takes its place."""
    UNKNOWN = "unknown"
    """The database does not know this attempt."""
    SIBLING = "sibling"
    """Another step of the gang has ended badly."""
    FENCED = "fenced"
    """A keeper's own, of guarded steps: its lease has lapsed, or the keeper that started them is dead."""


class Stop(Frame, frozen=True, kw_only=True):
    """End these steps: SIGTERM, `grace_ms`, SIGKILL of the whole tree. Repeating it is harmless."""

    epoch: Count
    steps: Steps
    reason: StopReason
    grace_ms: Amount = 10_000


class Recall(Frame, frozen=True, kw_only=True):
    """Give back those of these steps that wait on credit; each is refused (`recalled`). The others are left alone."""

    epoch: Count
    steps: Steps


class Suspend(Frame, frozen=True, kw_only=True):
    """Stop these steps from running, keeping their memory. Their walltime does not count meanwhile."""

    epoch: Count
    steps: Steps


class Resume(Frame, frozen=True, kw_only=True):
    """Let suspended steps run again."""

    epoch: Count
    steps: Steps


class Resize(Frame, frozen=True, kw_only=True):
    """Change the limits of running steps."""

    epoch: Count
    steps: Steps
    cpu_milli: Amount = 0
    """0 leaves it as it is."""
    memory_bytes: Amount = 0
    """0 leaves it as it is."""
    walltime_ms: Amount = 0
    """New walltime, from the step's start; 0 leaves it as it is."""


class Checkpoint(Frame, frozen=True, kw_only=True):
    """End these steps for other work (`preempted`), but let them save their state before: `name` is the signal that
    means it. SIGTERM follows after `grace_ms`, SIGKILL after the grace of the step's template."""

    epoch: Count
    steps: Steps
    name: Name = "USR2"
    grace_ms: Amount = 60_000
    """How long saving may take; a step that has saved its state ends before by itself."""


class Prepare(Frame, frozen=True, kw_only=True):
    """Make these steps' work directories and output files ready before they start."""

    epoch: Count
    steps: Steps


class Done(Frame, frozen=True, kw_only=True):
    """What became of a command that has no report of its own (signal, suspend, resume, resize, checkpoint, prepare)."""

    command: Name
    """Tag of the frame it answers."""
    steps: Steps = ()
    """Steps it was done for."""
    failed: Annotated[tuple[tuple[StepId, Text], ...], Meta(max_length=MAX_ITEMS)] = ()
    """Steps it could not be done for, and why."""


# ── reports: keeper → agent → controller ──────────────────────────────────────────────────────────────────────────


class StepStarted(Struct, frozen=True, array_like=True, gc=False):
    """A process was spawned."""

    step: StepId
    pid: Pid
    """Of its first process."""
    at_ms: Count
    """When."""


class Started(Frame, frozen=True, kw_only=True):
    """These steps run now."""

    steps: Annotated[tuple[StepStarted, ...], Meta(max_length=MAX_ITEMS)]


class Refusal(Struct, frozen=True, array_like=True, gc=False):
    """A step that was not started; no process of it exists."""

    step: StepId
    code: Name
    """`no-lease`, `old-epoch`, `overloaded`, `stopping`, `journal-full`, `not-supported`, `malformed` (it names a
    template that the frame lacks), `not-started` (the keeper died before it spawned it, or this
    node could make no process), `not-held` (it was stopped before it came, or a stop names a step never seen),
    `already-ended` (its exit was acknowledged), `credit-over` (no place came free for it in time), `recalled` (as it
    was asked), `prolog-failed` (the node's prolog did; the node is to be closed), `foreign-user` (steps run as root
    there, and its user is another)."""
    message: Text
    """For people."""


class Refused(Frame, frozen=True, kw_only=True):
    """These steps were not started, and no process of them exists. The same attempt may be sent again, except after
    `not-held`, `already-ended`, `credit-over`, `recalled`, `prolog-failed` and `foreign-user`."""

    steps: Annotated[tuple[Refusal, ...], Meta(max_length=MAX_ITEMS)]


class StepGate(Struct, frozen=True, array_like=True, gc=False):
    """A step that stands at a gate of its node."""

    step: StepId
    gate: Name
    """`prolog` (no process of it began yet) or `epilog` (all of them are gone)."""
    state: GateState
    """`waiting`: its script is to run now; `failed`: it ended badly, took too long, or could not be started."""
    reason: Text = ""
    """For people, of one that failed."""


class Gates(Frame, frozen=True, kw_only=True):
    """Agent to controller, feature `gates`: told before the `Refused` or `Exits` of the same steps, and again after
    each hello. A node of which a prolog or an epilog failed is to be closed."""

    gates: Annotated[tuple[StepGate, ...], Meta(max_length=MAX_ITEMS)]


class ExitCause(StrEnum):
    """Why a step ended."""

    EXITED = "exited"
    """By itself, with an exit code."""
    SIGNALLED = "signalled"
    """By a signal that HAL did not send."""
    TIMED_OUT = "timed-out"
    """Its walltime was over."""
    CANCELLED = "cancelled"
    """A stop asked for it."""
    PREEMPTED = "preempted"
    """A stop asked for it, for other work."""
    OUT_OF_MEMORY = "out-of-memory"
    """Its memory limit, or the node's memory, ended it."""
    LOST = "lost"
    """The keeper cannot know how it ended (its helper died too, or the host rebooted)."""
    SPAWN_FAILED = "spawn-failed"
    """There is no such program or directory, or it may not be run; `code` is 127 or 126."""


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """What a step used, from wait4 (and from samples for steps older than a second)."""

    user_ms: Count = 0
    """CPU time in the program."""
    system_ms: Count = 0
    """CPU time in the kernel."""
    max_rss_bytes: Count = 0
    read_bytes: Count = 0
    written_bytes: Count = 0


class StepExit(Struct, frozen=True, array_like=True, gc=False):
    """A step has ended: no process of it is left."""

    step: StepId
    cause: ExitCause
    code: ExitCode
    """Exit code; 128 + signal when signalled."""
    signal: SignalNumber
    """Number of the signal that ended it, or 0."""
    started_ms: Count
    """When it was spawned; 0 when it never was."""
    ended_ms: Count
    usage: Usage
    message: Text
    """For people: why the spawn failed, which limit was hit; or empty."""
    next: StepId | None = None
    """The step on credit that got its place; without one the place is free."""


class Exits(Frame, frozen=True, kw_only=True):
    """These steps ended, in the order in which they did. Repeated until acknowledged."""

    exits: Annotated[tuple[StepExit, ...], Meta(max_length=MAX_ITEMS)]


class ExitsAck(Frame, frozen=True, kw_only=True):
    """These exits are durable; the keeper forgets them."""

    steps: Steps


class Sample(Struct, frozen=True, array_like=True, gc=False):
    """What a running step uses now."""

    step: StepId
    rss_bytes: Count
    """Resident memory of all its processes."""
    cpu_ms: Count
    """CPU time of all its processes so far."""


class Samples(Frame, frozen=True, kw_only=True):
    """Lossy: may be dropped at any time."""

    samples: Annotated[tuple[Sample, ...], Meta(max_length=MAX_ITEMS)]


# ── logs: controller → agent → keeper and back ────────────────────────────────────────────────────────────────────


class Stream(StrEnum):
    """Which output."""

    STDOUT = "stdout"
    STDERR = "stderr"


class ReadLog(Frame, frozen=True, kw_only=True):
    """Read a part of a step's output."""

    request: Count
    """Chosen by the asker, echoed in the answer."""
    step: StepId
    stream: Stream
    offset: Offset
    """From the start of the output ever written; negative counts from its end."""
    limit: Count = 1 << 18
    """Most bytes to answer with."""


class LogChunk(Frame, frozen=True, kw_only=True):
    """The answer to `ReadLog`."""

    request: Count
    step: StepId
    stream: Stream
    offset: Count
    """Where `data` begins; larger than asked when older output was rotated away."""
    data: bytes
    size: Count
    """Bytes ever written so far."""
    ended: bool
    """The step has ended and nothing will be added."""
    error: Text = ""
    """Why there is no data, for people; or empty."""


class Forget(Frame, frozen=True, kw_only=True):
    """The outputs of these attempts may be deleted."""

    attempts: Annotated[tuple[AttemptId, ...], Meta(max_length=MAX_ITEMS)]


AnyFrame = (
    Hello
    | Welcome
    | Goodbye
    | ReadAuthority
    | Authority
    | Join
    | Joined
    | Renew
    | Heartbeat
    | HeartbeatAck
    | Health
    | Start
    | Signal
    | Stop
    | Recall
    | Suspend
    | Resume
    | Resize
    | Checkpoint
    | Prepare
    | Done
    | Started
    | Refused
    | Gates
    | Exits
    | ExitsAck
    | Samples
    | ReadLog
    | LogChunk
    | Forget
)
"""Every frame that may cross the wire."""
