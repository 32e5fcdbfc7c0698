"""The frames between an agent and its keeper: liveness, commands, reports, outputs.

The agent relays most of them to and from the controller (`controller_agent`). Values only; frames carry many items
each, payloads stay opaque.
"""

from __future__ import annotations

from enum import IntFlag, StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model import StepId
from hal.core.model.cpu_lists import MAX_CPUS
from hal.core.model.gate import MAX_JOB_GATES, GatePhase, GatePolicy
from hal.core.model.grace import DEFAULT_GRACE_MS
from hal.core.model.sandbox import MAX_WORDS
from hal.core.model.secret import MAX_JOB_SECRETS
from hal.core.model.service import MAX_IN_A_ROW, MAX_PROBE_WORDS, ProbeKind
from hal.wire.bounds import (
    MAX_COUNT,
    MAX_DEVICE_FILES,
    MAX_ITEMS,
    MAX_READS,
    MAX_STEP_CGROUPS,
    MAX_STEP_DEVICES,
    MAX_STEP_PORTS,
    Amount,
    Count,
    Cpu,
    ExitCode,
    LeaseMs,
    Load,
    Mark,
    Name,
    Offset,
    Pid,
    Port,
    SignalNumber,
    Text,
    Umask,
)
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.roles import Role

Steps = Annotated[tuple[StepId, ...], Meta(max_length=MAX_ITEMS)]

# ── liveness ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Heartbeat(Frame, frozen=True, kw_only=True):
    """Agent to controller, with the keeper's stamp. The agent asks its keeper for one with stamp 0; the keeper answers
    with its own heartbeat."""

    stamp_boot_ms: Count
    """The keeper's stamp when it was asked: its boot clock plus an offset that differs in each boot. The ack echoes
    it, and the lease runs from it; for others it is just a number above 0."""
    epoch: Count = 0
    """Highest leader epoch that the keeper has seen."""
    running: Count = 0
    """Number of steps that run on the node."""
    load: Load = 0.0
    """Load average of the node over a minute."""


class HeartbeatAck(Frame, frozen=True, kw_only=True):
    """Controller to agent to keeper: the lease is renewed and runs from `stamp_boot_ms`."""

    stamp_boot_ms: Count
    """As in the heartbeat that it answers."""
    epoch: Count
    """Epoch of the controller that renews; a keeper that saw a higher one ignores it."""
    lease_ms: LeaseMs = 0
    """How long the lease runs from the stamp; 0: the keeper's start-up default."""
    now_ms: Count = 0
    """The controller's clock when it answered; 0: not given."""


# ── commands: controller → agent → keeper ─────────────────────────────────────────────────────────────────────────


class TemplateGate(Struct, frozen=True, array_like=True, gc=False):
    """A gate that a job names: the node's agent asks its service."""

    name: Name
    """Of the service on the node: `HAL_HOME/gates/NAME.sock`."""
    phase: GatePhase
    deadline_ms: Amount
    """Longest wait, counted from entering the phase on the node."""
    policy: GatePolicy
    argument: Text = ""
    """For the service; opaque to HAL."""


class TemplateProbe(Struct, frozen=True, array_like=True, gc=False):
    """How the node's agent finds out whether a step is ready."""

    kind: ProbeKind
    interval_ms: Amount
    timeout_ms: Amount
    successes: Annotated[int, Meta(ge=1, le=MAX_IN_A_ROW)]
    """In a row that make it ready."""
    failures: Annotated[int, Meta(ge=1, le=MAX_IN_A_ROW)]
    """In a row after which it is not."""
    path: Text = ""
    """For `http`."""
    port: Count = 0
    """For `http` and `tcp`: position in the service's ports."""
    command: Annotated[tuple[Text, ...], Meta(max_length=MAX_PROBE_WORDS)] = ()
    """For `command`: program and arguments."""


class TemplateService(Struct, frozen=True, array_like=True, gc=False):
    """What a service is at its nodes; of a gang, on the node of rank 0."""

    ports: Annotated[tuple[tuple[Name, Port], ...], Meta(max_length=MAX_STEP_PORTS)] = ()
    """Name and number of each; 0: the keeper chooses a free one."""
    probe: TemplateProbe | None = None
    """nil: a step is ready when it runs."""


class StepTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What several steps of one start frame have in common."""

    command: tuple[str, ...] = ()
    """Program and arguments; of a script, its arguments alone (feature `arguments`)."""
    script: str = ""
    """Text of a script, beginning with `#!`."""
    env: dict[str, str] = {}
    """All variables of the step, except those that the keeper adds (HAL_* of the single step)."""
    workdir: str = ""
    """Absolute path; if empty, the home directory."""
    umask: Umask | None = None
    """Of its processes, and of the files that it names below; nil: 022. Feature `umask`."""
    stdin: str = ""
    """File that the step reads, with those patterns of docs/jobspec.md that differ from step to step; relative to the
    work directory; empty: /dev/null. Feature `step-files`, as the next three."""
    stdout: str = ""
    """File that gets its output, likewise; empty: the keeper keeps it."""
    stderr: str = ""
    """File that gets its errors, likewise; empty: the keeper keeps them."""
    append: bool = False
    """Add to these files; otherwise they are emptied when they are opened."""
    cpu_milli: Amount = 0
    """Thousandths of a cpu; 0: no limit."""
    memory_bytes: Amount = 0
    """0: no limit."""
    gpu_milli: Amount = 0
    """Thousandths of a GPU; 0: it may use none where devices are restricted."""
    walltime_ms: Amount = 0
    """How long it may run after its spawn; 0: no limit."""
    signal: Name = ""
    """Sent `signal_before_ms` before the walltime ends (`USR1`); empty: none."""
    signal_before_ms: Amount = 0
    grace_ms: Amount = DEFAULT_GRACE_MS
    """Between SIGTERM and SIGKILL."""
    output_bytes: Amount = 64 << 20
    """How much of each of stdout and stderr is kept; older output is rotated away."""
    guard: bool = False
    """True for on_node_lost=requeue: the step ends with its keeper and with its lease."""
    sandbox: Annotated[tuple[Text, ...], Meta(max_length=MAX_WORDS)] = ()
    """Words of `hal.core.model.sandbox`. A node gets them only if its facts say that it has sandboxes."""
    interactive: Name = ""
    """`terminal` or `pipes`: its first process holds the input and output of its program for those who attach, which it
    waits for; empty: it is not interactive. Feature `interactive`."""
    continues: bool = False
    """If it is interactive: it neither waits for anybody to attach, nor ends when nobody is attached any more."""
    user: Name = ""
    """The user who submitted the job; empty: not given."""
    key: Name = ""
    """Together with the attempt's token, the step's credential HAL_STEP_TOKEN; empty: it has none."""
    dialect: Name = ""
    """`slurm` or `pbs`: the steps get that scheduler's variables of a single step, too. Feature `dialects`."""
    gates: Annotated[tuple[TemplateGate, ...], Meta(max_length=MAX_JOB_GATES)] = ()
    """Feature `job-gates`: for the agent, which passes the template on to the keeper without them."""
    secrets: Annotated[tuple[Name, ...], Meta(max_length=MAX_JOB_SECRETS)] = ()
    """Feature `secrets`: names of those that the agent puts into a directory of each step; it passes the template on
    to the keeper without them. Values are never in a template."""
    secrets_dir: Text = ""
    """Set by the agent: the steps' directories of secrets are in this one, each named by its step; empty: none."""
    service: TemplateService | None = None
    """Feature `services`: the steps serve others; nil: they do not."""
    hostfile: Amount = 0
    """Feature `hostfiles`: of the step of rank 0, the agent keeps a file of the nodes that its job has, with so many
    ranks on each; 0: it has none. For the agent."""
    hostfile_dir: Text = ""
    """Set by the agent: the file is `hosts` in a directory in this one, named by the step; empty: there is none."""
    ranks: bool = False
    """Each step is one rank of a parallel program, on a node of its own."""


class StepDevice(Struct, frozen=True, array_like=True, gc=False):
    """A GPU of the node, or a part of it, that a step may use."""

    index: Annotated[int, Meta(ge=-1, le=MAX_COUNT)]
    """As the node reported it; -1: it does not report it any more."""
    uuid: Name = ""
    milli: Amount = 1_000
    """Thousandths of it."""
    vendor: Name = ""
    files: Annotated[tuple[Name, ...], Meta(max_length=MAX_DEVICE_FILES)] = ()
    """Device files that are its own; empty: not known."""
    memory_bytes: Amount = 0
    """Its own memory; 0: not known."""
    cpus: Text = ""
    """Logical processors that are near it, as ranges; empty: not known."""


class StepStart(Struct, frozen=True, array_like=True, gc=False):
    """One step to start."""

    step: StepId
    template: Count
    """Index into the frame's `templates`."""
    token: Text
    """The attempt's token, for fencing effects outside HAL."""
    nodes: tuple[Name, ...]
    """All nodes of the attempt, in rank order."""
    array_index: Amount
    """The value of HAL_ARRAY_INDEX."""
    array_count: Count
    """The number of tasks of the job."""
    started_at_ms: Count
    """When the controller allocated it; the walltime counts from the spawn."""
    credit_ms: LeaseMs = 0
    """0: it has a slot and begins at once. Otherwise it waits this long for the slot of a step of its job that ends
    on this node, and is then refused (`credit-over`)."""
    addresses: tuple[Name, ...] = ()
    """Where each of `nodes` is reached, in the same order; empty unless there are several."""
    item: Text = ""
    """The value of HAL_ITEM; empty: it has none."""
    ports: Annotated[tuple[Port, ...], Meta(max_length=MAX_STEP_PORTS)] = ()
    """Set by the keeper: the numbers of its service's ports, in their order."""
    devices: Annotated[tuple[StepDevice, ...], Meta(max_length=MAX_STEP_DEVICES)] = ()
    """GPUs that are its own on this node; empty: it asked for none, or they are only counted."""
    master_port: Port = 0
    """At which the ranks of the attempt meet, on its first node; 0: it has none."""


class Start(Frame, frozen=True, kw_only=True):
    """Start these steps. A keeper without a current lease, or that saw a higher epoch, refuses them all.

    A step that the keeper holds, or whose exit it has reported, is not started again, so the frame may be repeated.
    Steps on credit (`credit_ms`) wait in the order of the frames. A step that ends passes its slot to the first waiting
    step of its job, which its exit names, unless it was stopped for other work (`preempted`).
    """

    epoch: Count
    """Epoch of the commanding controller; a keeper that saw a higher one refuses. The same in every command."""
    stamp_boot_ms: Count
    """Lease stamp: the newest keeper stamp that the controller has acknowledged."""
    lease_ms: LeaseMs = 0
    """How long that lease runs; 0: the keeper's start-up default."""
    templates: Annotated[tuple[StepTemplate, ...], Meta(max_length=MAX_ITEMS)]
    """What steps have in common, each sent once."""
    steps: Annotated[tuple[StepStart, ...], Meta(max_length=MAX_ITEMS)]


class Signal(Frame, frozen=True, kw_only=True):
    """Send a signal to every process of these steps."""

    epoch: Count
    steps: Steps
    name: Name
    """Its name without SIG: `USR1`."""


class StopReason(StrEnum):
    """Why a step is ended."""

    CANCELLED = "cancelled"
    """A person asked for it."""
    TIMED_OUT = "timed-out"
    """Its walltime is over by the controller's clock."""
    PREEMPTED = "preempted"
    """Other work needs its resources."""
    UNKNOWN = "unknown"
    """The database does not know this attempt."""
    SIBLING = "sibling"
    """Another step of the gang has failed."""
    FENCED = "fenced"
    """Set by a keeper, for guarded steps: its lease has lapsed, or the keeper that started them is dead."""


class Stop(Frame, frozen=True, kw_only=True):
    """End these steps: SIGTERM, `grace_ms`, SIGKILL of the whole tree. Repeating it is harmless."""

    epoch: Count
    steps: Steps
    reason: StopReason
    grace_ms: Amount = DEFAULT_GRACE_MS


class Recall(Frame, frozen=True, kw_only=True):
    """Return those of these steps that wait on credit; each is refused (`recalled`). The others are not affected."""

    epoch: Count
    steps: Steps


class Suspend(Frame, frozen=True, kw_only=True):
    """Suspend these steps; they keep their memory, and their walltime does not count meanwhile."""

    epoch: Count
    steps: Steps


class Resume(Frame, frozen=True, kw_only=True):
    """Resume suspended steps."""

    epoch: Count
    steps: Steps


class Resize(Frame, frozen=True, kw_only=True):
    """Change the limits of running steps."""

    epoch: Count
    steps: Steps
    cpu_milli: Amount = 0
    """0 leaves it unchanged."""
    memory_bytes: Amount = 0
    """0 leaves it unchanged."""
    walltime_ms: Amount = 0
    """New walltime, counted from the step's start; 0 leaves it unchanged."""


class Checkpoint(Frame, frozen=True, kw_only=True):
    """End these steps for other work (`preempted`), after they had time to save their state: the signal `name` asks
    for it. SIGTERM follows after `grace_ms`, SIGKILL `last_grace_ms` later. What is being ended already can only be
    ended sooner; what does not run is ended as by `Stop`, within the two together. Repeating it is harmless."""

    epoch: Count
    steps: Steps
    name: Name = "USR2"
    grace_ms: Amount = 60_000
    """How long saving may take; a step that has saved its state ends earlier by itself."""
    last_grace_ms: Amount = DEFAULT_GRACE_MS


class Prepare(Frame, frozen=True, kw_only=True):
    """Create these steps' work directories and output files before they start."""

    epoch: Count
    steps: Steps


class Done(Frame, frozen=True, kw_only=True):
    """The result of a command without a report of its own (signal, suspend, resume, resize, checkpoint, prepare)."""

    command: Name
    """Type of the frame that it answers."""
    steps: Steps = ()
    """Steps for which it succeeded."""
    failed: Annotated[tuple[tuple[StepId, Text], ...], Meta(max_length=MAX_ITEMS)] = ()
    """Steps for which it failed, and why."""


# ── reports: keeper → agent → controller ──────────────────────────────────────────────────────────────────────────


class StepStarted(Struct, frozen=True, array_like=True, gc=False):
    """A process was spawned."""

    step: StepId
    pid: Pid
    """Process id of its first process."""
    at_ms: Count
    """When it was spawned."""
    serves: bool = False
    """It is of a service and of rank 0: its agent finds out whether it is ready."""


class Started(Frame, frozen=True, kw_only=True):
    """These steps have started."""

    steps: Annotated[tuple[StepStarted, ...], Meta(max_length=MAX_ITEMS)]


class Refusal(Struct, frozen=True, array_like=True, gc=False):
    """A step that was not started; no process of it exists."""

    step: StepId
    code: Name
    """`no-lease`, `old-epoch`, `overloaded`, `stopping`, `journal-full`, `not-supported`, `malformed` (it names a
    template that the frame lacks), `not-started` (the keeper died before it spawned it, or this node could not create
    a process), `not-held` (it was stopped before it arrived, or a stop names an unknown step), `already-ended` (its
    exit was acknowledged), `credit-over` (no slot came free for it in time), `recalled` (on request), `prolog-failed`
    (the node's prolog failed; the node must be closed), `gate-elsewhere` (a gate that its job names was not satisfied;
    the task must not use this node again), `gate-failed` (the same; the attempt has failed), `no-account` (the node
    does not know the user, or does not serve them; the task must not use this node again), `foreign-user` (the same: it
    runs only its owner's steps), `secrets-elsewhere` (this node cannot hold secrets; the task must not use it
    again), `secrets-undelivered` (they could not be put there now), `secret-missing` (there is none of a name that the
    job uses, or no longer; the attempt has failed), `node-too-old` (the keeper does not know what the template asks
    for; the task must not use this node again)."""
    message: Text
    """For people."""


class Refused(Frame, frozen=True, kw_only=True):
    """These steps were not started, and no process of them exists. The same attempt may be sent again, except after
    `not-held`, `already-ended`, `credit-over`, `recalled`, `prolog-failed`, `gate-elsewhere`, `gate-failed`,
    `no-account`, `foreign-user`, `secrets-elsewhere`, `secret-missing` and `node-too-old`."""

    steps: Annotated[tuple[Refusal, ...], Meta(max_length=MAX_ITEMS)]


class ExitCause(StrEnum):
    """Why a step ended."""

    EXITED = "exited"
    """It ended by itself, with an exit code."""
    SIGNALLED = "signalled"
    """A signal that HAL did not send ended it."""
    TIMED_OUT = "timed-out"
    """Its walltime was over."""
    CANCELLED = "cancelled"
    """A stop requested it."""
    PREEMPTED = "preempted"
    """A stop requested it, for other work."""
    OUT_OF_MEMORY = "out-of-memory"
    """It exceeded its memory limit, or the node ran out of memory."""
    LOST = "lost"
    """The keeper cannot know how it ended (its helper died too, or the host rebooted)."""
    SPAWN_FAILED = "spawn-failed"
    """There is no such program or directory, or it is not executable; `code` is 127 or 126."""
    GATE_FAILED = "gate-failed"
    """Its processes succeeded, but a gate of its job for which it was finalised did not, as `message` says."""


class Counted(IntFlag):
    """What was counted by a cgroup: the parts of a `Usage`."""

    CPU = 1
    MEMORY = 2
    IO = 4


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """What a step used: all its processes where a cgroup counts them, else its first process and those it waited for
    (wait4)."""

    user_ms: Count = 0
    """CPU time in the program."""
    system_ms: Count = 0
    """CPU time in the kernel."""
    max_rss_bytes: Count = 0
    """Peak of memory: of all processes together with the files that they had cached; else of the largest process (of
    steps older than a second, all of them in samples)."""
    read_bytes: Count = 0
    written_bytes: Count = 0
    cgroup: Annotated[int, Meta(ge=0, le=7)] = 0
    """Which of these a cgroup has counted, the sum of: 1 CPU time, 2 memory, 4 I/O."""


class StepExit(Struct, frozen=True, array_like=True, gc=False):
    """A step has ended: no process of it is left."""

    step: StepId
    cause: ExitCause
    code: ExitCode
    """Exit code; 128 + signal if a signal ended it."""
    signal: SignalNumber
    """Number of the signal that ended it, or 0."""
    started_ms: Count
    """When it was spawned; 0 if it never was."""
    ended_ms: Count
    usage: Usage
    message: Text
    """For people: why the spawn failed, which limit was hit; or empty."""
    next: StepId | None = None
    """The step on credit that got its slot; nil: the slot is free."""


class Exits(Frame, frozen=True, kw_only=True):
    """These steps ended, in this order. Repeated until acknowledged."""

    exits: Annotated[tuple[StepExit, ...], Meta(max_length=MAX_ITEMS)]


class ExitsAck(Frame, frozen=True, kw_only=True):
    """These exits are durable; the keeper forgets them."""

    steps: Steps


class Sample(Struct, frozen=True, array_like=True, gc=False):
    """Current use of a running step."""

    step: StepId
    rss_bytes: Count
    """Resident memory of all its processes."""
    cpu_ms: Count
    """CPU time of all its processes so far."""
    cpus: Text = ""
    """The CPUs on which it is bound, as ranges of the kernel's numbers; empty: all of the node."""


class Samples(Frame, frozen=True, kw_only=True):
    """Current use of running steps. Lossy: may be dropped at any time."""

    samples: Annotated[tuple[Sample, ...], Meta(max_length=MAX_ITEMS)]


# ── logs: controller → agent → keeper and back ────────────────────────────────────────────────────────────────────


class Stream(StrEnum):
    """An output of a step."""

    STDOUT = "stdout"
    STDERR = "stderr"


class ReadLog(Frame, frozen=True, kw_only=True):
    """Read a part of a step's output."""

    request: Count
    """Chosen by the sender, echoed in the answer."""
    step: StepId
    stream: Stream
    offset: Offset
    """Counted from the start of all output ever written; negative: from its end."""
    limit: Count = 1 << 18
    """Maximum number of bytes in the answer."""


class LogChunk(Frame, frozen=True, kw_only=True):
    """The answer to `ReadLog`."""

    request: Count
    step: StepId
    stream: Stream
    offset: Count
    """Where `data` begins; larger than requested if older output was rotated away."""
    data: bytes
    size: Count
    """Bytes ever written so far."""
    ended: bool
    """The step has ended and nothing will be added."""
    error: Text = ""
    """For people: why there is no data; or empty."""
    deleted_ms: Count = 0
    """There is no data, and at that instant the node's own bounds deleted outputs of the job; 0: they did not."""
    deleted_by: Text = ""
    """The bound, for people."""


class ReadOutputs(Frame, frozen=True, kw_only=True):
    """Read the outputs of several steps, each from the same offset. Feature `outputs`: to another node, `ReadLog` is
    sent for each of them."""

    request: Count
    """Chosen by the sender, echoed in the answer."""
    steps: Annotated[tuple[StepId, ...], Meta(max_length=MAX_READS)]
    stream: Stream
    offset: Offset
    """As in `ReadLog`."""
    limit: Count
    """Maximum number of bytes of each in the answer."""


class OutputPart(Struct, frozen=True, array_like=True, gc=False):
    """A part of the output of one step, as in `LogChunk`."""

    offset: Count
    data: bytes
    size: Count
    error: Text = ""
    deleted_ms: Count = 0
    deleted_by: Text = ""


class OutputParts(Frame, frozen=True, kw_only=True):
    """The answer to `ReadOutputs`: of its first steps, in their order; at least of one. The others are asked for
    again."""

    request: Count
    parts: Annotated[tuple[OutputPart, ...], Meta(max_length=MAX_READS)]


class ForgetPiece(Struct, frozen=True, array_like=True, gc=False):
    """Files of one job that are not needed any more. Every attempt that it names has ended."""

    job: Amount
    attempt: Amount = 0
    """Number of the attempt of each of these tasks; 0: everything of the job, which never runs again."""
    first: Amount = 0
    """First task."""
    count: Amount = 0
    """Number of tasks from there on; some may never have run on this node."""


class Forget(Frame, frozen=True, kw_only=True):
    """Controller to agent to keeper, feature `forget`: delete these files (outputs, scripts). Repeated until it is
    answered; files that are not there are no error."""

    request: Count
    """Chosen by the sender, echoed in the answer."""
    pieces: Annotated[tuple[ForgetPiece, ...], Meta(max_length=MAX_ITEMS)]


class Forgotten(Frame, frozen=True, kw_only=True):
    """The answer to `Forget`: nothing of it is left on the node."""

    request: Count


# ── where a step is: agent → keeper and back ──────────────────────────────────────────────────────────────────────


class FindStep(Frame, frozen=True, kw_only=True):
    """Ask where a running step is on this node, so that a stream can be opened to it."""

    request: Count
    """Chosen by the sender, echoed in the answer."""
    step: StepId


class StepFound(Frame, frozen=True, kw_only=True):
    """The answer to `FindStep`."""

    request: Count
    error: Text = ""
    """For people: why it is nowhere, and nothing else is said; or empty."""
    later: bool = False
    """It has not begun here: ask again."""
    pid: Pid = 0
    """Its first process."""
    started_boot_ms: Count = 0
    """When that was spawned, by the boot clock: another process may have its pid later."""
    mark: Mark = 0
    """The hard limit (RLIMIT_RTTIME) that all its processes have; 0: none."""
    user: Name = ""
    """As whom it runs; empty: as whoever runs the keeper."""
    least_uid: Pid = 0
    """Smallest user id that is served, if it runs as another user."""
    no_new_privileges: bool = False
    sandboxed: bool = False
    """Its program is in a sandbox, which its first process may be outside of."""
    interactive: bool = False
    """Its first process holds its input and output for those who attach."""
    cgroups: Annotated[tuple[Text, ...], Meta(max_length=MAX_STEP_CGROUPS)] = ()
    """The `cgroup.procs` files of its own cgroups."""
    cpus: Annotated[tuple[Cpu, ...], Meta(max_length=MAX_CPUS)] = ()
    """The CPUs on which it is bound, by the kernel's numbers; none: all of the node."""
    service: TemplateService | None = None
    """What it serves, if it is of a service and of rank 0."""
    ports: Annotated[tuple[Port, ...], Meta(max_length=MAX_STEP_PORTS)] = ()
    """The numbers of its ports, in the order of `service`."""


AgentKeeperFrame = (
    Hello
    | Welcome
    | Goodbye
    | Heartbeat
    | HeartbeatAck
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
    | Exits
    | ExitsAck
    | Samples
    | ReadLog
    | LogChunk
    | ReadOutputs
    | OutputParts
    | Forget
    | Forgotten
    | FindStep
    | StepFound
)
"""What an agent and its keeper may send each other."""
AGENT_KEEPER: Final[Conversation[AgentKeeperFrame]] = Conversation("agent-keeper", Role.KEEPER, AgentKeeperFrame)
