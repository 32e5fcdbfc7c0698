"""A virtual machine's processes: fake helpers that spawn fake steps, which outlive the keeper that asked for them.

What a step does is said by its command: `work DURATION_MS CODE[,CODE…] [FLAG…]`, one exit code an attempt, the last
one for all further attempts. Flags: `stubborn` ignores SIGTERM, `leftover` leaves a process behind that lives for a
second, `missing` is a program that does not exist.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import (
    Adoption,
    Ended,
    Gone,
    Launch,
    LogPart,
    NeverStarted,
    Spawned,
    SpawnerEvent,
    SpawnFailed,
    Unspawned,
    Vanished,
    Whereabouts,
)
from hal.runtime.virtual_process import VirtualProcess
from hal.runtime.virtual_world import VirtualHost
from hal.wire.frames.agent_keeper import ForgetPiece, Sample, Stream, Usage

PROGRAM: Final = "/sim/work"
LEFTOVER_MS: Final = 1_000
ROOM: Final = 64
ROOM_AHEAD: Final = 5
"""Steps that wait at one helper for a place."""
SIGTERM: Final = 15
SIGKILL: Final = 9
SIGUSR2: Final = 12
SIGCONT: Final = 18
SIGSTOP: Final = 19
ENDING: Final = (SIGTERM, SIGUSR2)
"""It saves its work at once, and ends."""


class Work(NamedTuple):
    """What a step does."""

    duration_ms: int
    codes: tuple[int, ...] = (0,)
    flags: frozenset[str] = frozenset()

    @classmethod
    def read(cls, command: Sequence[str]) -> Work:
        return cls(int(command[1]), tuple(int(code) for code in command[2].split(",")), frozenset(command[3:]))

    def command(self) -> list[str]:
        return [PROGRAM, str(self.duration_ms), ",".join(map(str, self.codes)), *sorted(self.flags)]

    def code(self, attempt: int) -> int:
        """Exit code of attempt number `attempt`, from 1."""
        return self.codes[min(attempt, len(self.codes)) - 1]


class Run(NamedTuple):
    """One step that had a process, from its first instant to the last of anything that it left behind."""

    step: StepId
    node: str
    cpu_milli: int
    boot: int
    """Of its host: processes of different boots never run at the same time."""
    begin_s: float
    end_s: float
    status: int | None
    """How it ended; None when power was lost or nobody saw it."""


class Helper:
    """Spawns steps, and waits for them so that their ends are known."""

    def __init__(self) -> None:
        self.alive = True


class Step:
    """A step that a helper was given."""

    def __init__(self, launch: Launch, helper: Helper) -> None:
        self.launch = launch
        self.work = Work.read(launch.template.command)
        self.helper = helper
        self.until_ms: int | None = None
        """It waits for the place of a step of its job, no longer than that; None: it has one."""
        self.pid = 0
        self.begin_s = 0.0
        self.begin_wall_ms = 0
        self.begin_boot_ms = 0
        self.ended: Ended | None = None
        self.seen = False
        """Its helper has noted its end."""
        self.leftovers = 0
        self.watched = False
        self.left_ms = float(self.work.duration_ms)
        """Work that is left to do."""
        self.going_s: float | None = None
        """Since when it works; None while it stands still."""
        self.turn = 0
        """How often it stood still or went on."""
        self.pending = False
        """A signal to end waits until it goes on."""
        self.gone = False
        """No process of it is left."""

    @property
    def guarded(self) -> bool:
        """It dies with its keeper."""
        return self.launch.template.guard


class Machine:
    """The processes of one node of a virtual host; those of steps and helpers survive their keeper."""

    def __init__(self, host: VirtualHost, node: str = "n1", *, helpers: int = 2) -> None:
        self.host = host
        self.node = node
        self.loop = host.world.loop
        self.rng: random.Random = host.world.rng(f"machine {node}")
        self.runs: list[Run] = []
        self.listener: FakeSpawner | None = None
        self.disk_full = False
        """The keeper's journal cannot grow."""
        self.guard_holds = True
        """Guarded steps end with their keeper; False: whoever guards them is killed in the same instant."""
        self._steps: dict[StepId, Step] = {}
        self._helpers = [Helper() for _ in range(helpers)]
        self._next_pid = 10_000
        self._frozen: list[Callable[[], object]] | None = None
        """What was due while the host stood still; None while it does not."""
        self._stood: list[Step] = []
        """Steps that go on when it does."""

    # ── what the spawner passes on ────────────────────────────────────────────────────────────────────────────────

    def room(self, user: str = "") -> int:
        waiting = sum(1 for step in self._steps.values() if not step.pid and not step.gone and step.until_ms is None)
        return max(0, ROOM - waiting)

    def launch(self, launch: Launch) -> None:
        if launch.step in self._steps:
            raise AssertionError(f"{launch.step} was launched twice")
        helper = self.rng.choice(self._helpers)
        step = self._steps[launch.step] = Step(launch, helper)
        self._later(self.rng.randint(1, 20), lambda: self._spawn(step))

    def room_ahead(self, job: int) -> int:
        return sum(ROOM_AHEAD - self._waiting_at(helper) for helper in self._helpers_of(job))

    def launch_ahead(self, launch: Launch, until_ms: int) -> None:
        if launch.step in self._steps:
            raise AssertionError(f"{launch.step} was launched twice")
        helpers = self._helpers_of(launch.step.job)
        if not helpers:
            self._tell(Unspawned(launch.step))
            return
        step = self._steps[launch.step] = Step(launch, min(helpers, key=self._waiting_at))
        step.until_ms = until_ms

    def recall(self, steps: Sequence[StepId]) -> None:
        """The helper hears of it a moment later, sometimes after a signal that was sent after it."""

        def give_back(step: Step) -> None:
            if step.until_ms is not None and self._steps.get(step.launch.step) is step:
                self._give_back(step)

        for one in steps:
            if (step := self._steps.get(one)) is not None:
                self._later(self.rng.randint(0, 20), lambda step=step: give_back(step))  # type: ignore[misc]

    def _give_back(self, step: Step) -> None:
        del self._steps[step.launch.step]
        self._tell(Unspawned(step.launch.step))

    def _helpers_of(self, job: int) -> list[Helper]:
        """Those at which a step of the job runs, or is about to."""
        return [
            helper
            for helper in self._helpers
            if any(
                step.helper is helper and one.job == job and step.until_ms is None and step.ended is None
                for one, step in self._steps.items()
            )
        ]

    def _waiting_at(self, helper: Helper) -> int:
        return sum(step.until_ms is not None and step.helper is helper for step in self._steps.values())

    def _heir(self, ended: Step) -> Step | None:
        """Who gets its place, if one waits at its helper; what has waited too long is given back."""
        for one, step in list(self._steps.items()):
            if step.until_ms is None or step.helper is not ended.helper or one.job != ended.launch.step.job:
                continue
            if self.host.boot_ms() <= step.until_ms:
                step.until_ms = None
                return step
            self._give_back(step)
        return None

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        for one in steps:
            step = self._steps.get(one)
            if step is None or not step.pid:
                continue
            if number in (SIGSTOP, SIGCONT):
                self._stop_or_go(step, goes=number == SIGCONT)
            elif number in ENDING and "stubborn" not in step.work.flags:
                self._later(self.rng.randint(1, 50), lambda step=step: self._asked_to_end(step))  # type: ignore[misc]

    def watch(self, one: StepId) -> None:
        step = self._steps[one]
        step.watched = True
        if step.gone:
            self._tell(Gone(one))

    def kill(self, one: StepId) -> None:
        step = self._steps.get(one)
        if step is None:
            return
        if step.ended is None:
            self._later(self.rng.randint(1, 20), lambda: self._end(step, -SIGKILL, everything=True))
        else:
            killed, step.watched = step.leftovers, True
            self._later(self.rng.randint(1, 20), lambda: self._clear(step, killed))

    def adopt(self, one: StepId) -> None:
        step = self._steps.get(one)
        if step is None:
            self._tell(NeverStarted(one))
        elif not step.pid:
            if not step.helper.alive:
                del self._steps[one]
                self._tell(NeverStarted(one))
        elif step.ended is not None and not step.seen:
            if step.gone:
                self._vanish(step)
        else:
            self._tell(self._spawned(step))
            if step.ended is not None:
                self._tell(self._ended(step))

    def keeper_died(self) -> None:
        """The kernel ends what was guarded, everything of it; helpers drop what waits."""
        for one, step in list(self._steps.items()):
            if step.until_ms is not None:
                del self._steps[one]
                continue
            if not step.guarded or step.gone:
                continue
            if step.pid:
                step.helper = Helper()
                step.helper.alive = False
                if self.guard_holds:
                    self._cut_short(step)
            else:
                del self._steps[one]

    def freeze(self) -> None:
        """Every process of every step stands still."""
        self._frozen = []
        self._stood = [step for step in self._steps.values() if step.going_s is not None and step.ended is None]
        for step in self._stood:
            self._stop_or_go(step, goes=False)

    def thaw(self) -> None:
        """They go on, and what was due happens."""
        due, self._frozen = self._frozen or [], None
        for call in due:
            call()
        for step in self._stood:
            if self._steps.get(step.launch.step) is step and step.ended is None:
                self._stop_or_go(step, goes=True)

    def locate(self, one: StepId) -> Whereabouts | None:
        step = self._steps.get(one)
        return None if step is None or not step.pid or step.gone else Whereabouts(step.pid, step.begin_boot_ms, 0, ())

    def running(self) -> list[StepId]:
        """Steps of which a process lives."""
        return [one for one, step in self._steps.items() if step.pid and not step.gone]

    # ── what befalls it ───────────────────────────────────────────────────────────────────────────────────────────

    def kill_helper(self) -> None:
        """One helper dies; a new one takes its place. Nobody will see how its steps end."""
        position = self.rng.randrange(len(self._helpers))
        helper, self._helpers[position] = self._helpers[position], Helper()
        helper.alive = False
        self.host.world.note(self.node, "helper killed", "")
        for one, step in list(self._steps.items()):
            if step.helper is not helper or step.gone:
                continue
            if not step.pid and self.listener is not None:
                del self._steps[one]
                self._tell(Unspawned(one))
            elif step.guarded and step.pid:
                self._cut_short(step)

    def _cut_short(self, step: Step) -> None:
        """Ended by the kernel with whoever guarded it; nobody sees how."""
        if step.ended is None:
            self._end(step, -SIGKILL, everything=True)
        else:
            self._clear(step, step.leftovers)

    def power_off(self) -> None:
        """Every process is gone at once."""
        for step in self._steps.values():
            if step.pid and not step.gone:
                self._record(step, None)
                step.gone = True
        self._steps.clear()
        self._frozen = None
        self.listener = None

    # ── the life of a step ────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, step: Step) -> None:
        one = step.launch.step
        if self._steps.get(one) is not step or not step.helper.alive:
            return
        host = self.host
        if "missing" in step.work.flags:
            step.gone = True
            step.ended = Ended(one, 127, Usage(), host.now_ms())
            del self._steps[one]
            heir = self._heir(step)
            named = None if heir is None else heir.launch.step
            self._tell(SpawnFailed(one, 127, f"{PROGRAM}: no such program", host.now_ms(), named))
            if heir is not None:
                self._spawn(heir)
            return
        self._next_pid += 1
        step.pid = self._next_pid
        step.begin_s, step.begin_wall_ms, step.begin_boot_ms = self.loop.time(), host.now_ms(), host.boot_ms()
        host.world.note(self.node, "spawn", str(one))
        self._tell(self._spawned(step))
        self._stop_or_go(step, goes=True)

    def _stop_or_go(self, step: Step, *, goes: bool) -> None:
        """Work goes on where it stood still."""
        now_s = self.loop.time()
        if goes == (step.going_s is not None):
            return
        step.turn += 1
        if step.going_s is not None:
            step.left_ms = max(step.left_ms - (now_s - step.going_s) * 1000, 0)
            step.going_s = None
            return
        step.going_s = now_s
        turn, code = step.turn, step.work.code(step.launch.step.attempt)
        self._later(math.ceil(step.left_ms), lambda: self._end(step, code) if step.turn == turn else None)
        if step.pending:
            self._end(step, -SIGTERM)

    def _asked_to_end(self, step: Step) -> None:
        if step.going_s is None:
            step.pending = True
        else:
            self._end(step, -SIGTERM)

    def _end(self, step: Step, status: int, *, everything: bool = False) -> None:
        one = step.launch.step
        if step.ended is not None or self._steps.get(one) is not step or not step.pid:
            return
        step.leftovers = 0 if everything or "leftover" not in step.work.flags else 1
        step.ended = Ended(one, status, Usage(user_ms=1), self.host.now_ms(), leftover=step.leftovers > 0)
        step.seen = step.helper.alive
        self.host.world.note(self.node, "exit", f"{one} {status}")
        if step.leftovers:
            self._later(LEFTOVER_MS, lambda: self._clear(step, 0))
        else:
            self._gone(step)
        if step.seen:
            heir = self._heir(step) if step.gone else None
            if heir is not None:
                step.ended = replace(step.ended, heir=heir.launch.step)
            self._tell(self._ended(step))
            if heir is not None:
                self._spawn(heir)
        elif step.gone:
            self._vanish(step)

    def _clear(self, step: Step, killed: int) -> None:
        if step.gone:
            return
        step.leftovers = 0
        self._gone(step)
        if not step.seen:
            self._vanish(step)
        elif step.watched:
            self._tell(Gone(step.launch.step, killed))

    def _gone(self, step: Step) -> None:
        step.gone = True
        self._record(step, step.ended.status if step.ended and step.seen else None)

    def _record(self, step: Step, status: int | None) -> None:
        launch = step.launch
        self.runs.append(
            Run(
                launch.step,
                self.node,
                launch.template.cpu_milli,
                self.host.boots,
                step.begin_s,
                self.loop.time(),
                status,
            )
        )

    def _vanish(self, step: Step) -> None:
        self._tell(Vanished(step.launch.step, self.host.now_ms(), "the helper that waited for it was killed"))

    def _spawned(self, step: Step) -> Spawned:
        return Spawned(step.launch.step, step.pid, step.begin_wall_ms, step.begin_boot_ms)

    def _ended(self, step: Step) -> Ended:
        assert step.ended is not None
        return replace(step.ended, leftover=not step.gone)

    def _tell(self, event: SpawnerEvent) -> None:
        if self.listener is not None and self.listener.process.running:
            self.listener.deliver(event)

    def _later(self, ms: int, call: Callable[[], object]) -> None:
        boot = self.host.boots
        world = self.host.world

        def due() -> None:
            if self.host.boots != boot:
                return
            if self._frozen is not None:
                self._frozen.append(call)
            else:
                call()

        self.loop.call_at(self.loop.time() + ms / 1000, due, context=world.context)


class FakeSpawner:
    """The keeper's `Spawner` over a `Machine`; the keeper may be killed in the middle of a launch."""

    def __init__(self, machine: Machine, process: VirtualProcess, kill_chance: float) -> None:
        self.process = process
        self.events: list[SpawnerEvent] = []
        self.on_event: Callable[[], object] = lambda: None
        self._machine = machine
        self._kill_chance = kill_chance
        machine.listener = self
        process.on_death(machine.keeper_died)

    def deliver(self, event: SpawnerEvent) -> None:
        self.events.append(event)
        self._machine.loop.call_soon(self.on_event, context=self.process.context)

    def take(self) -> list[SpawnerEvent]:
        """What has come since the last time, at most once each."""
        events, self.events = self.events, []
        return events

    def room(self, user: str = "") -> int:
        return self._machine.room(user)

    def launch(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            if self._machine.rng.random() < self._kill_chance:
                self.process.die_here()
            self._machine.launch(launch)

    def extend_lease(self, until_boot_ms: int) -> None:
        """A keeper here never stands still alone, so what it does itself is what is looked at."""

    def room_ahead(self, job: int) -> int:
        return self._machine.room_ahead(job)

    def launch_ahead(self, launches: Sequence[Launch], until_boot_ms: Sequence[int]) -> None:
        for launch, until_ms in zip(launches, until_boot_ms, strict=True):
            if self._machine.rng.random() < self._kill_chance:
                self.process.die_here()
            self._machine.launch_ahead(launch, until_ms)

    def recall(self, steps: Sequence[StepId]) -> None:
        self._machine.recall(steps)

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        self._machine.signal(steps, number)

    def watch(self, steps: Sequence[StepId]) -> None:
        for step in steps:
            self._machine.watch(step)

    def kill(self, steps: Sequence[StepId]) -> None:
        for step in steps:
            self._machine.kill(step)

    def resize(self, step: StepId, *, cpu_milli: int, memory_bytes: int) -> str:
        return ""

    def locate(self, step: StepId) -> Whereabouts | None:
        return self._machine.locate(step)

    def sample(self, steps: Sequence[StepId]) -> list[Sample]:
        return [Sample(step, 1 << 20, 1) for step in steps]

    def adopt(self, steps: Sequence[Adoption]) -> None:
        for adoption in steps:
            self._machine.adopt(adoption.step)


class FakeOutputs:
    """Outputs of steps that write nothing."""

    def __init__(self) -> None:
        self._forgotten: list[int] = []

    def directory(self, step: StepId) -> str:
        return f"/virtual/steps/{step}"

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
