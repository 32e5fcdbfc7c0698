"""The keeper's core with nothing around it: a spawner that only records, a journal and outputs in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from hal.core.model import StepId
from hal.daemons.agent.keeper.core import KeeperCore
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ports import (
    Adoption,
    Ended,
    Instant,
    JournalFullError,
    KeeperConfig,
    Launch,
    LogPart,
    Record,
    Spawned,
    SpawnerEvent,
    Whereabouts,
)
from hal.wire.frames.agent_keeper import (
    AgentKeeperFrame,
    ForgetPiece,
    Sample,
    Start,
    StepStart,
    StepTemplate,
    Stream,
    Usage,
)
from hal.wire.frames.hello import Hello
from hal.wire.roles import Role

WALL_MS = 1_700_000_000_000
TRUE = StepTemplate(command=("true",))


class Recorder:
    """A `Spawner` that does nothing but remember what it was asked."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.capacity = room
        self.capacity_ahead = 0
        self.launched: list[StepId] = []
        self.ahead: list[StepId] = []
        self.recalled: list[StepId] = []
        self.signals: list[tuple[StepId, int]] = []
        self.watched: list[StepId] = []
        self.killed: list[StepId] = []
        self.adopted: list[StepId] = []
        self.lease_until_boot_ms = 0
        self.env: dict[StepId, dict[str, str]] = {}

    def room(self, user: str = "") -> int:
        return self.capacity

    def launch(self, launches: Sequence[Launch]) -> None:
        self.launched += [launch.step for launch in launches]
        self.env.update((launch.step, dict(launch.env)) for launch in launches)

    def extend_lease(self, until_boot_ms: int) -> None:
        self.lease_until_boot_ms = until_boot_ms

    def room_ahead(self, job: int) -> int:
        return self.capacity_ahead - len(self.ahead)

    def launch_ahead(self, launches: Sequence[Launch], until_boot_ms: Sequence[int]) -> None:
        self.ahead += [launch.step for launch in launches]

    def recall(self, steps: Sequence[StepId]) -> None:
        self.recalled += steps

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        self.signals += [(step, number) for step in steps]

    def watch(self, steps: Sequence[StepId]) -> None:
        self.watched += steps

    def kill(self, steps: Sequence[StepId]) -> None:
        self.killed += steps

    def resize(self, step: StepId, *, cpu_milli: int, memory_bytes: int) -> str:
        return ""

    def locate(self, step: StepId) -> Whereabouts | None:
        return Whereabouts(4_711, 1_000, 0, ())

    def sample(self, steps: Sequence[StepId]) -> list[Sample]:
        return [Sample(step, 123 << 20, 5) for step in steps]

    def adopt(self, steps: Sequence[Adoption]) -> None:
        self.adopted += [adoption.step for adoption in steps]


class MemoryJournal:
    """A `Journal` in a list, every record through its encoding and back; may be full."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.full = False

    def load(self) -> list[Record]:
        data = [msgspec.msgpack.encode(record) for record in self.records]
        return [msgspec.msgpack.decode(one, type=Record) for one in data]

    def append(self, records: Sequence[Record]) -> None:
        if self.full:
            raise JournalFullError("no space")
        self.records += records

    def replace(self, records: Sequence[Record]) -> None:
        if self.full:
            raise JournalFullError("no space")
        self.records = list(records)

    def size_bytes(self) -> int:
        return 100 * len(self.records)


class NoOutputs:
    """`Outputs` of steps that write nothing."""

    def __init__(self) -> None:
        self._forgotten: list[int] = []

    def directory(self, step: StepId) -> str:
        return f"/steps/{step.job}"

    def prepare(self, step: StepId) -> str:
        return ""

    def read(self, step: StepId, stream: Stream, offset: int, limit: int) -> LogPart:
        return LogPart(0, b"", 0)

    def claim(self, step: StepId, names: Sequence[str]) -> None:
        return

    def drop_spares(self, stem: str) -> None:
        return

    def sweep_spares(self, stems: Collection[str]) -> None:
        return

    def settle(self, step: StepId, bound_bytes: int) -> str:
        return ""

    def forget(self, pieces: Sequence[ForgetPiece], request: int = 0) -> None:
        self._forgotten.append(request)

    def forgotten(self) -> list[int]:
        forgotten, self._forgotten = self._forgotten, []
        return forgotten


class Bench:
    """A core under test, its clock in the test's hand."""

    def __init__(
        self, journal: MemoryJournal | None = None, *, boot_id: str = "boot", boot_ms: int = 1_000_000
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.spawner = Recorder()
        self.boot_id = boot_id
        self.boot_ms = boot_ms
        config = KeeperConfig(node="n1", home="/home", capacity={"cpu": 1000}, user="ann")
        self.core = KeeperCore(
            config=config, journal=self.journal, spawner=self.spawner, outputs=NoOutputs(), boot_id=boot_id
        )
        self.core.recover(self.now)

    @property
    def now(self) -> Instant:
        return Instant(WALL_MS + self.boot_ms, self.boot_ms)

    @property
    def stamp(self) -> int:
        """What the keeper's heartbeat would say now."""
        return Lease(0, self.boot_id).stamp(self.now)

    def attach(self) -> list[AgentKeeperFrame]:
        self.core.received(Hello(role=Role.AGENT, versions=(1, 1)), self.now)
        return self.turn()

    def turn(self, later_ms: int = 0) -> list[AgentKeeperFrame]:
        """Let time pass, wake, and take the frames."""
        self.boot_ms += later_ms
        self.core.wake(self.now)
        return self.core.take_frames(self.now)

    def send(self, frame: AgentKeeperFrame) -> list[AgentKeeperFrame]:
        self.core.received(frame, self.now)
        return self.turn()

    def start(
        self,
        *steps: StepId,
        template: StepTemplate = TRUE,
        epoch: int = 1,
        age_ms: int = 0,
        stamp: int | None = None,
    ) -> list[AgentKeeperFrame]:
        starts = tuple(StepStart(step, 0, f"token-{step}", ("n1",), step.task, 1, 0) for step in steps)
        stamp = self.stamp - age_ms if stamp is None else stamp
        return self.send(Start(epoch=epoch, stamp_boot_ms=stamp, templates=(template,), steps=starts))

    def tell(self, *events: SpawnerEvent) -> list[AgentKeeperFrame]:
        self.core.handle_events(events, self.now)
        return self.turn()

    def spawn(self, *steps: StepId) -> list[AgentKeeperFrame]:
        return self.tell(*(Spawned(step, 100 + step.task, self.now.wall_ms, self.boot_ms) for step in steps))

    def end(self, step: StepId, status: int = 0, *, leftover: bool = False) -> list[AgentKeeperFrame]:
        return self.tell(Ended(step, status, Usage(), self.now.wall_ms, leftover=leftover))
