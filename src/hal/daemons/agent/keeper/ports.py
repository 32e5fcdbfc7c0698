"""The interfaces of the keeper's core: a spawner of processes, a journal, output files; and the events that they
report.

Values and Protocols only. The real ones are in `spawner`, `journal` and `outputs`; the whole-system simulation supplies
its own, so the same core runs there under virtual time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from hal.core.model import StepId
from hal.runtime.step_users import Serving
from hal.wire.frames.agent_keeper import (
    ForgetPiece,
    Sample,
    StepExit,
    StepStart,
    StepTemplate,
    StopReason,
    Stream,
    Usage,
)


class Instant(NamedTuple):
    """One reading of both clocks; every call to the core carries one."""

    wall_ms: int
    """Since 1970; used in reports."""
    boot_ms: int
    """CLOCK_BOOTTIME, including suspended time; used for leases and limits."""


class KeeperConfig(Struct, frozen=True, kw_only=True):
    """The settings of one keeper."""

    node: str
    home: str
    """HAL_HOME, absolute."""
    capacity: Mapping[str, int]
    """By resource name, base units."""
    labels: Mapping[str, str] = {}
    lease_ms: int = 60_000
    """A start is refused if its lease stamp is older."""
    user: str = ""
    """The user that this keeper runs as."""
    serving: Serving = Serving.ALL_AS_OWNER
    """Whose steps run, and as whom."""
    least_uid: int = 1
    """Smallest user id of other users whose steps run as themselves."""
    no_new_privileges: bool = False
    """Steps of other users cannot gain rights by setuid programs, such as sudo."""
    hides_devices: bool = False
    """A step cannot open GPUs that are not its own."""

    def steps_user(self, template: StepTemplate) -> str:
        """Return whose helper runs the steps of a template: another user's, or '' for this keeper's own."""
        return template.user if self.serving is Serving.EACH_AS_ITSELF and template.user != self.user else ""


# ── what a spawner is asked ───────────────────────────────────────────────────────────────────────────────────────


class Streams(NamedTuple):
    """The files that a job has named for the standard streams of its steps; '' for a stream that HAL provides."""

    stdin: str
    stdout: str
    stderr: str
    append: bool


class Launch(Struct, frozen=True, array_like=True):
    """One step to spawn."""

    start: StepStart
    template: StepTemplate
    env: Mapping[str, str]
    """The HAL_* variables of this step alone; they override the template's env."""
    streams: Streams | None = None
    """None: HAL provides all of them."""

    @property
    def step(self) -> StepId:
        return self.start.step


class Adoption(Struct, frozen=True, array_like=True):
    """A step that the journal of an earlier keeper of this boot names and whose end is not journalled."""

    step: StepId
    token: str
    memory_bytes: int = 0
    cpu_milli: int = 0
    output_bytes: int = 0
    guard: bool = False
    """It should have died with its keeper; the core kills what is left."""


class Whereabouts(NamedTuple):
    """Where a running step is on this node."""

    pid: int
    """Its first process."""
    boot_ms: int
    """Read just before that was spawned."""
    mark: int
    """The hard limit that marks all its processes; 0: they have none."""
    cgroups: tuple[str, ...]
    """The `cgroup.procs` files of its own cgroups."""
    cpus: tuple[int, ...] = ()
    """On which it is bound; (): on all."""


# ── what a spawner tells ──────────────────────────────────────────────────────────────────────────────────────────


class Spawned(Struct, frozen=True, array_like=True):
    """The step's first process runs (or has run: `Ended` may follow at once)."""

    step: StepId
    pid: int
    wall_ms: int
    boot_ms: int
    """The walltime counts from here."""
    mark: int = 0
    """The hard limit that marks all its processes; 0: they have none."""


class SpawnFailed(Struct, frozen=True, array_like=True):
    """No process could be created because of the job (no such program, no such directory)."""

    step: StepId
    code: int
    """127: there is no such program; 126: it exists and cannot be run."""
    message: str
    wall_ms: int
    heir: StepId | None = None
    """The waiting step that has its slot now: begun, or about to be."""


class Noted(Struct, frozen=True, array_like=True):
    """A remark for the step's exit report: its output could not be kept, a limit could not be set."""

    step: StepId
    message: str


class Ended(Struct, frozen=True, array_like=True):
    """The step's first process has ended."""

    step: StepId
    status: int
    """Exit code, or minus the signal that ended it."""
    usage: Usage
    wall_ms: int
    out_of_memory: bool = False
    """Its memory limit ended at least one of its processes."""
    leftover: bool = False
    """Other processes of the step may be alive: the core calls `watch` or `kill` and waits for `Gone`."""
    message: str = ""
    heir: StepId | None = None
    """The waiting step that has its slot now; nothing is left over then."""


class Gone(Struct, frozen=True, array_like=True):
    """The answer to `watch` and `kill`: no process of the step is left, or (`message`) which could not be killed."""

    step: StepId
    killed: int = 0
    """How many processes were killed after the first one had ended."""
    message: str = ""
    usage: Usage | None = None
    """What its cgroup has counted until now."""


class Vanished(Struct, frozen=True, array_like=True):
    """No process of the step is left and nobody saw how it ended: it is lost."""

    step: StepId
    wall_ms: int
    message: str


class NeverStarted(Struct, frozen=True, array_like=True):
    """No process of the step was spawned, and none will be (an answer to `adopt`; or this node could not spawn one)."""

    step: StepId
    message: str = ""
    code: str = "not-started"
    """Of the refusal."""


class Unspawned(Struct, frozen=True, array_like=True):
    """The helper that was to spawn the step died before it tried, or returned it: the core may launch it again."""

    step: StepId


SpawnerEvent = Spawned | SpawnFailed | Noted | Ended | Gone | Vanished | NeverStarted | Unspawned


class Spawner(Protocol):
    """Creates and kills processes. No call waits; results are events, passed to `KeeperCore.handle_events`."""

    def room(self, user: str = "") -> int:
        """How many more launches for that user it accepts now ('': whose keeper it is); events follow when it has room
        again."""

    def launch(self, launches: Sequence[Launch]) -> None:
        """Spawn these; each gives `Spawned` then `Ended`, or `SpawnFailed`, or `Unspawned`, or `Vanished`."""

    def extend_lease(self, until_boot_ms: int) -> None:
        """Set the end of the lease: guarded steps are killed after it, even if this keeper stands still."""

    def room_ahead(self, job: int) -> int:
        """How many more steps of that job may wait where others of it run."""

    def launch_ahead(self, launches: Sequence[Launch], until_boot_ms: Sequence[int]) -> None:
        """Spawn these as soon as a step of their job ends where they wait: its end names its heir. Not after that
        time.

        Each gives what `launch` gives, or `Unspawned` if it has not begun and will not: it was recalled, its time was
        over, or its helper died.
        """

    def recall(self, steps: Sequence[StepId]) -> None:
        """Request `Unspawned` for those of these that wait for a slot and have not begun.

        A step signalled afterwards ends where this is known: none of these inherits its slot.
        """

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        """Send a signal to every process of these steps."""

    def watch(self, steps: Sequence[StepId]) -> None:
        """Request `Gone` for each of these once none of its processes is left; their first process has ended."""

    def kill(self, steps: Sequence[StepId]) -> None:
        """SIGKILL every process of these steps until none is left.

        If the first process had ended before, one `Gone` answers (one in all, even after `watch`); if it still runs,
        its `Ended` is the answer, and `leftover` shows whether there is more to do.
        """

    def resize(self, step: StepId, *, cpu_milli: int, memory_bytes: int) -> str:
        """Change the limits of a running step (0 leaves one unchanged); returns '' or why it failed."""

    def locate(self, step: StepId) -> Whereabouts | None:
        """Return where a running step is; None if it has no process that is known."""

    def sample(self, steps: Sequence[StepId]) -> list[Sample]:
        """Return the current use of these running steps, all their processes together."""

    def adopt(self, steps: Sequence[Adoption]) -> None:
        """Find out what became of these: `NeverStarted`, `Spawned` and later `Ended`, or `Vanished`.

        Called once, first, even with none: remnants of an earlier keeper of this boot that nobody names are killed.
        """


def output_prefix(step: StepId) -> str:
    """Return the beginning of the step's file names: `T.A.R`, then `.stdout`, `.stderr`, `.script`.

    The files of a job's steps share one directory: a directory per step would cost as much as both its files.
    """
    return f"{step.task}.{step.attempt}.{step.rank}"


class LogPart(NamedTuple):
    """A part of one output."""

    offset: int
    data: bytes
    size: int
    error: str = ""
    deleted_ms: int = 0
    """When the node's own bounds have deleted outputs of the job that are not there; 0: they have not."""
    deleted_by: str = ""
    """The bound, for people."""


class Outputs(Protocol):
    """The output files of the steps of this node."""

    def directory(self, step: StepId) -> str:
        """Return the directory of the step's files, whose names begin with `output_prefix`; absolute."""

    def prepare(self, step: StepId) -> str:
        """Create the files; returns '' or why it failed."""

    def read(self, step: StepId, stream: Stream, offset: int, limit: int) -> LogPart:
        """Read at most `limit` bytes from `offset` (from the first byte ever written; negative: from the end); nothing
        if nothing was written."""

    def read_many(self, steps: Sequence[StepId], stream: Stream, offset: int, limit: int, total: int) -> list[LogPart]:
        """`read` the outputs of several steps, `limit` bytes of each at most: of the first of them, until they are
        `total` bytes together."""

    def claim(self, step: StepId, names: Sequence[str]) -> None:
        """Name the files of stdout and stderr of a step whose helper can no longer do so; '': it has none."""

    def drop_spares(self, stem: str) -> None:
        """Delete the unused files of a helper that is over; its journal has that stem."""

    def sweep_spares(self, stems: Collection[str]) -> None:
        """Delete the unused files of all helpers but these."""

    def settle(self, step: StepId, bound_bytes: int) -> str:
        """Finish the outputs of an ended step, to which nothing writes any more; empty ones are deleted. Returns a note
        on what was lost, or ''."""

    def forget(self, pieces: Sequence[ForgetPiece], request: int = 0) -> None:
        """Delete these files, some at a time; `forgotten` returns the request when nothing of them is left."""

    def forgotten(self) -> list[int]:
        """Return requests of `forget` that are done, once each."""


# ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────────


class Booted(Struct, frozen=True, array_like=True, tag=1):
    """First record: the boot in which the following records were written."""

    boot_id: str


class EpochSeen(Struct, frozen=True, array_like=True, tag=2):
    """The highest leader epoch seen."""

    epoch: int


class Accepted(Struct, frozen=True, array_like=True, tag=3):
    """These steps were accepted; written before any of them is launched.

    The template's command, script, env and paths are omitted: a journal is for finding and ending processes, never for
    starting them again.
    """

    template: StepTemplate
    steps: tuple[StepStart, ...]


class Stopping(Struct, frozen=True, array_like=True, tag=4):
    """A stop is in progress: SIGTERM was sent at `boot_ms`, SIGKILL follows at `kill_boot_ms`."""

    steps: tuple[StepId, ...]
    reason: StopReason
    kill_boot_ms: int


class Exited(Struct, frozen=True, array_like=True, tag=5):
    """These steps ended; kept until acknowledged."""

    exits: tuple[StepExit, ...]


class Dropped(Struct, frozen=True, array_like=True, tag=6):
    """Steps that need no longer be remembered."""

    steps: tuple[StepId, ...]
    code: str
    """Why a start that names one again is refused (`already-ended`, `not-held`); '': it is not refused."""


class Resized(Struct, frozen=True, array_like=True, tag=7):
    """The new walltime of a running step, from its spawn."""

    step: StepId
    walltime_ms: int


class Suspended(Struct, frozen=True, array_like=True, tag=8):
    """These steps have been suspended since then; their walltime does not count meanwhile."""

    steps: tuple[StepId, ...]
    boot_ms: int


class Resumed(Struct, frozen=True, array_like=True, tag=9):
    """A step was resumed; its total suspended time so far."""

    step: StepId
    paused_ms: int


class Checkpointing(Struct, frozen=True, array_like=True, tag=10):
    """Steps that save their state before they are preempted: SIGTERM follows at `term_boot_ms`, SIGKILL at
    `kill_boot_ms`."""

    steps: tuple[StepId, ...]
    term_boot_ms: int
    kill_boot_ms: int


Record = Booted | EpochSeen | Accepted | Stopping | Exited | Dropped | Resized | Suspended | Resumed | Checkpointing


class JournalFullError(Exception):
    """Nothing was appended (disk full, file system read-only); the message gives the reason."""


class Journal(Protocol):
    """The state that survives the death of the keeper's process."""

    def load(self) -> list[Record]:
        """Return all records since the last `replace`, oldest first, without a torn last record."""

    def append(self, records: Sequence[Record]) -> None:
        """Append all or none; on return they survive the death of the process.

        Raises:
            JournalFullError: nothing was appended.
        """

    def replace(self, records: Sequence[Record]) -> None:
        """Replace the whole content atomically.

        Raises:
            JournalFullError: the content is unchanged.
        """

    def size_bytes(self) -> int:
        """Its size; the core rewrites it with its live content when it has grown."""
