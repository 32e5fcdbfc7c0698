"""What the keeper's core asks of the world: a spawner of processes, a journal, output files; and what they tell it.

Values and Protocols only. The real ones are in `spawner`, `journal` and `outputs`; the whole-system simulation supplies
its own, so the same core runs there under virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from hal.core.model import AttemptId, StepId
from hal.wire.frames import Sample, StepExit, StepStart, StepTemplate, StopReason, Stream, Usage


class Instant(NamedTuple):
    """One reading of both clocks; every call into the core carries one."""

    wall_ms: int
    """Since 1970: what reports carry."""
    boot_ms: int
    """CLOCK_BOOTTIME, suspended time included: what leases and limits are judged by."""


class KeeperConfig(Struct, frozen=True, kw_only=True):
    """What one keeper is told when it starts."""

    node: str
    home: str
    """HAL_HOME, absolute."""
    capacity: Mapping[str, int]
    """By resource name, base units."""
    labels: Mapping[str, str] = {}
    lease_ms: int = 60_000
    """A start is refused when its lease stamp is older."""
    user: str = ""
    """Who the steps run as."""
    only_root: bool = False
    """That is root, and other users' steps are refused."""


# ── what a spawner is asked ───────────────────────────────────────────────────────────────────────────────────────


class Launch(Struct, frozen=True, array_like=True):
    """One step to spawn."""

    start: StepStart
    template: StepTemplate
    env: Mapping[str, str]
    """The HAL_* variables of this step alone; the template's env lies under them."""

    @property
    def step(self) -> StepId:
        return self.start.step


class Adoption(Struct, frozen=True, array_like=True):
    """A step that the journal of an earlier keeper on this boot names and whose end is not journalled."""

    step: StepId
    token: str
    memory_bytes: int = 0
    cpu_milli: int = 0
    output_bytes: int = 0
    guard: bool = False
    """It is to have died with its keeper; the core kills what is left."""


# ── what a spawner tells ──────────────────────────────────────────────────────────────────────────────────────────


class Spawned(Struct, frozen=True, array_like=True):
    """The step's first process runs (or has run: `Ended` may follow at once)."""

    step: StepId
    pid: int
    wall_ms: int
    boot_ms: int
    """The walltime counts from here."""
    mark: int = 0
    """The hard limit by which all its processes are known; 0: they have none."""


class SpawnFailed(Struct, frozen=True, array_like=True):
    """No process could be made: a fault of the job (no such program, no such directory)."""

    step: StepId
    code: int
    """127: there is no such program; 126: it is there and cannot be run."""
    message: str
    wall_ms: int
    heir: StepId | None = None
    """Which of the steps that waited for a place has its place now: begun, or about to be."""


class Noted(Struct, frozen=True, array_like=True):
    """Something for the step's exit report: its output could not be kept, a limit could not be set."""

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
    """Other processes of the step are, or may be, alive: the core asks for `watch` or `kill` and waits for `Gone`."""
    message: str = ""
    heir: StepId | None = None
    """Which of the steps that waited for a place has its place now; nothing is left over then."""


class Gone(Struct, frozen=True, array_like=True):
    """The answer to `watch` and `kill`: no process of the step is left, or (`message`) what could not be ended."""

    step: StepId
    killed: int = 0
    """How many processes were killed after the first one had ended."""
    message: str = ""


class Vanished(Struct, frozen=True, array_like=True):
    """No process of the step is left and nobody saw how it ended: it is lost."""

    step: StepId
    wall_ms: int
    message: str


class NeverStarted(Struct, frozen=True, array_like=True):
    """No process of the step was spawned, and none will be (an answer to `adopt`; or this node could not, just now)."""

    step: StepId
    message: str = ""


class Unspawned(Struct, frozen=True, array_like=True):
    """The helper that was to spawn the step died before it tried, or gave it back: the core may launch it again."""

    step: StepId


SpawnerEvent = Spawned | SpawnFailed | Noted | Ended | Gone | Vanished | NeverStarted | Unspawned


class Spawner(Protocol):
    """Makes and ends processes. No call waits; what comes of it is an event, handed to `KeeperCore.happened`."""

    def room(self) -> int:
        """How many more launches it takes now; it tells by events when it has room again."""

    def launch(self, launches: Sequence[Launch]) -> None:
        """Spawn these; each gives `Spawned` then `Ended`, or `SpawnFailed`, or `Unspawned`, or `Vanished`."""

    def extend_lease(self, until_boot_ms: int) -> None:
        """The lease runs until then: guarded steps are ended after it, also when this keeper stands still."""

    def room_ahead(self, job: int) -> int:
        """How many more steps of that job may wait where others of it run."""

    def launch_ahead(self, launches: Sequence[Launch], until_boot_ms: Sequence[int]) -> None:
        """Spawn these as soon as a step of their job ends where they wait: its end names its heir. Not after that time.

        Each gives what `launch` gives, or `Unspawned` when it has not begun and will not: it was recalled, its time was
        over, its helper died.
        """

    def recall(self, steps: Sequence[StepId]) -> None:
        """`Unspawned` is wanted for those of these that wait for a place and have not begun.

        Whatever is signalled after it ends where this is known: nobody of these inherits from it.
        """

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        """Send a signal to every process of these steps."""

    def watch(self, steps: Sequence[StepId]) -> None:
        """`Gone` is wanted for each of these once none of its processes is left; their first process has ended."""

    def kill(self, steps: Sequence[StepId]) -> None:
        """SIGKILL every process of these steps until none is left.

        Where the first process had ended before, one `Gone` answers (also after `watch`: one in all); where it still
        runs, its `Ended` is the answer, and `leftover` says whether more is to be done.
        """

    def resize(self, step: StepId, *, cpu_milli: int, memory_bytes: int) -> str:
        """Change the limits of a running step (0 leaves one as it is); the answer is '' or why it could not."""

    def sample(self, steps: Sequence[StepId]) -> list[Sample]:
        """What these running steps use now, all their processes together."""

    def adopt(self, steps: Sequence[Adoption]) -> None:
        """Find what became of these: `NeverStarted`, `Spawned` and later `Ended`, or `Vanished`.

        Called once, first, also with none: what an earlier keeper on this boot left and nobody names is ended.
        """


def output_prefix(step: StepId) -> str:
    """How the names of the step's files begin: `T.A.R`, then `.stdout`, `.stderr`, `.script`.

    The files of a job's steps share one directory: a directory a step would cost as much as both its files.
    """
    return f"{step.task}.{step.attempt}.{step.rank}"


class LogPart(NamedTuple):
    """A part of one output."""

    offset: int
    data: bytes
    size: int
    error: str = ""


class Outputs(Protocol):
    """The output files of the steps of this node."""

    def directory(self, step: StepId) -> str:
        """Where the step's files lie, under the names that `output_prefix` begins; absolute."""

    def prepare(self, step: StepId) -> str:
        """Make the files; '' or why it could not."""

    def read(self, step: StepId, stream: Stream, offset: int, limit: int) -> LogPart:
        """At most `limit` bytes from `offset` (from the first byte ever written; negative: from the end)."""

    def settle(self, step: StepId, bound_bytes: int) -> str:
        """The step has ended and nothing writes any more: tidy up; what was lost, in words, or ''."""

    def forget(self, attempts: Sequence[AttemptId]) -> None:
        """Delete the outputs of these attempts."""


# ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────────


class Booted(Struct, frozen=True, array_like=True, tag=1):
    """First record: the boot in which the records after it were written."""

    boot_id: str


class EpochSeen(Struct, frozen=True, array_like=True, tag=2):
    """Highest leader epoch heard."""

    epoch: int


class Accepted(Struct, frozen=True, array_like=True, tag=3):
    """These steps were taken on; written before any of them is launched.

    The template's command, script and env are left out: a journal is for finding and ending processes, never for
    starting them again.
    """

    template: StepTemplate
    steps: tuple[StepStart, ...]


class Stopping(Struct, frozen=True, array_like=True, tag=4):
    """A stop is under way: SIGTERM was sent at `boot_ms`, SIGKILL follows at `kill_boot_ms`."""

    steps: tuple[StepId, ...]
    reason: StopReason
    kill_boot_ms: int


class Exited(Struct, frozen=True, array_like=True, tag=5):
    """These steps ended; kept until acknowledged."""

    exits: tuple[StepExit, ...]


class Dropped(Struct, frozen=True, array_like=True, tag=6):
    """Steps that need not be remembered."""

    steps: tuple[StepId, ...]
    code: str
    """Why a start that names one again is refused (`already-ended`, `not-held`); '': it is not refused."""


class Resized(Struct, frozen=True, array_like=True, tag=7):
    """A running step's walltime is now this long, from its spawn."""

    step: StepId
    walltime_ms: int


class Suspended(Struct, frozen=True, array_like=True, tag=8):
    """These steps stand still since then; their walltime does not count meanwhile."""

    steps: tuple[StepId, ...]
    boot_ms: int


class Resumed(Struct, frozen=True, array_like=True, tag=9):
    """A step goes on; it has stood still for so long in all."""

    step: StepId
    paused_ms: int


class Checkpointing(Struct, frozen=True, array_like=True, tag=10):
    """Steps that save their state before they make room: SIGTERM follows at `term_boot_ms`, SIGKILL at the other."""

    steps: tuple[StepId, ...]
    term_boot_ms: int
    kill_boot_ms: int


Record = Booted | EpochSeen | Accepted | Stopping | Exited | Dropped | Resized | Suspended | Resumed | Checkpointing


class JournalFullError(Exception):
    """Nothing could be appended (disk full, file system read-only); nothing was: the text says why."""


class Journal(Protocol):
    """What survives the death of the keeper's process."""

    def load(self) -> list[Record]:
        """All records since the last `replace`, oldest first; a torn last record is left out."""

    def append(self, records: Sequence[Record]) -> None:
        """Durable against the death of the process on return, all or none.

        Raises:
            JournalFullError: nothing was appended.
        """

    def replace(self, records: Sequence[Record]) -> None:
        """The journal now holds exactly these, atomically.

        Raises:
            JournalFullError: it holds what it held before.
        """

    def size_bytes(self) -> int:
        """How large it is; the core replaces it by what is live when it has grown."""
