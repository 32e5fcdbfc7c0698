"""A durable session in the simulation of all of HAL: its broker and its workers are steps of jobs, as sessions have
them. Controller, agents, keepers, helpers, broker, workers and client are killed, power is lost, disks are full, and
each task is answered once, with its own result; both jobs end well when the session does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from hal.core.model import JobSpec, Resources, TaskState
from hal.core.model.array import ArrayRange
from hal.core.model.errors import HALError
from hal.core.model.job import Retries
from hal.core.model.units import Duration
from hal.runtime.interface import Runtime
from hal.runtime.virtual_process import Main, VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.sessions import SESSIONS, EndSession, OpenSession
from hal.wire.roles import Role
from tests.simulation.checkers import (
    UNFLUSHED_S,
    check_no_node_was_oversubscribed,
    check_nobody_was_blamed,
    check_nothing_ran_twice,
    check_store_equals_what_ran,
)
from tests.simulation.machine import PROGRAM, Machine, Step
from tests.simulation.system import CPU_MILLI, System
from tests.simulation.test_session_broker import BLOCKS, COUNT, TOKEN, Client, address_of, broker, worker
from tests.simulation.test_system import Faults, ended, seeds
from tests.simulation.workload import ALICE

FOREVER_MS = 1_000_000_000
TASK_MS = 400
WORKERS = 4
EXIT_STOPPED = 75
OVER = "session is over"
"""In the host's disk, when its broker has taken the session's file away."""
RETRIES = Retries(max=1_000, backoff=Duration(100), longest=Duration(10_000))


class ProcessMachine(Machine):
    """Its steps that are a broker or a worker are processes of the virtual world: they end together."""

    def __init__(self, system: System, node: str, programs: dict[str, Main]) -> None:
        super().__init__(system.host, node)
        self._programs = programs
        self._processes: dict[int, VirtualProcess] = {}

    def _spawn(self, step: Step) -> None:
        super()._spawn(step)
        name = next((flag for flag in step.work.flags if flag in self._programs), "")
        if not name or not step.pid or step.ended is not None:
            return
        process = self.host.world.start(self.host, f"{name} {step.launch.step}", self._programs[name])
        self._processes[step.pid] = process

        def exited() -> None:
            code = process.exit_code
            shown = 0 if code is None else code if code >= 0 else 128 - code  # as a shell shows a signal
            self._later(1, lambda: self._end(step, shown))

        process.on_death(exited)

    def _end(self, step: Step, status: int, *, everything: bool = False) -> None:
        super()._end(step, status, everything=everything)
        if step.ended is not None and (process := self._processes.pop(step.pid, None)) is not None:
            process.kill()


class Session:
    """The two jobs of a session, and its client."""

    def __init__(self, system: System, *, once: bool = False) -> None:
        self.system = system
        self.client = Client(once=once)
        self.begun: Counter[bytes] = Counter()
        programs: dict[str, Main] = {"broker": self._broker, "worker": self._worker}
        system.machines = {node: ProcessMachine(system, node, programs) for node in system.machines}

    @property
    def over(self) -> bool:
        return OVER in self.system.host.disk

    async def _broker(self, runtime: Runtime) -> int:
        if not self.over and await broker(runtime):
            self.system.host.disk[OVER] = True
        return 0 if self.over else EXIT_STOPPED

    async def _worker(self, runtime: Runtime) -> int:
        work = runtime.spawn_task(worker(self.begun, runtime, TASK_MS), "worker")
        while not work.done() and not self.over:
            await runtime.sleep(1_000)
        work.cancel()
        return 0 if self.over else EXIT_STOPPED

    async def _end(self, runtime: Runtime) -> None:
        """Tell the broker that the session is over."""
        while not self.over:
            try:
                connection = await runtime.connect(address_of(runtime), conversation=SESSIONS)
                await connection.send(OpenSession(versions=SPOKEN, role=Role.CLIENT, session="s", token=TOKEN))
                await connection.send(EndSession())
                while await connection.receive() is not None:
                    pass
            except HALError:
                pass
            await runtime.sleep(100)

    def jobs(self) -> list[JobSpec]:
        """Broker and workers."""
        same = {"retries": RETRIES}
        return [
            JobSpec(name="broker", command=_command("broker"), request=Resources({"cpu": 0}), **same),
            JobSpec(
                name="slots",
                command=_command("worker"),
                request=Resources({"cpu": 1_000}),
                array=ArrayRange(count=WORKERS),
                workers=True,
                **same,
            ),
        ]

    async def run(self, faults: Faults) -> list[int]:
        """Until both jobs have ended; returns their ids."""
        system, world, ids = self.system, self.system.world, list[int]()
        supervising = asyncio.ensure_future(system.supervise())
        await system.all_nodes_known()
        await asyncio.sleep(UNFLUSHED_S)
        for spec in self.jobs():
            submitted = await system.ask(lambda api, spec=spec: api.jobs.submit([spec], ALICE))  # type: ignore[misc]
            ids.append(int(submitted.ids[0]))
        await asyncio.sleep(UNFLUSHED_S)
        troubling = asyncio.ensure_future(faults.happen(system))
        for name, main, done in (
            ("client", self.client.run, lambda: len(self.client.results) == BLOCKS * COUNT),
            ("last client", self._end, lambda: self.over),
        ):
            while not done():
                world.check()
                await world.start(system.host, name, main).wait()
            if name == "client":
                await troubling
        for job in ids:
            assert await ended(system, job) is TaskState.SUCCEEDED
        await world.until(system.idle, limit_ms=120_000, what="no process left")
        system.give_up()
        await supervising
        return ids


def _command(flag: str) -> tuple[str, ...]:
    return PROGRAM, str(FOREVER_MS), "0", flag


@pytest.fixture
def world(seed: int) -> Iterator[VirtualWorld]:
    with VirtualWorld(seed) as made:
        yield made


def check(session: Session, ids: list[int]) -> None:
    """Results, and what the machines saw."""
    results = session.client.results
    assert results.keys() == set(range(BLOCKS * COUNT))
    for task, result in results.items():
        assert task in session.client.lost or result == f"task {task}".encode()[::-1]
    runs = session.system.runs
    check_nothing_ran_twice(runs)
    check_no_node_was_oversubscribed(runs, CPU_MILLI)
    check_store_equals_what_ran(session.system, ids)
    check_nobody_was_blamed(session.system.world, session.system.store())


@seeds(fast=1, low=10, high=14)
def test_safety_kills_of_any_process_lose_and_double_no_task(world: VirtualWorld) -> None:
    """Of HAL, of the session, and of the client; and of helpers, so that nobody knows how steps ended."""
    session = Session(System(world, kill_chance=0.002))
    ids = world.run(session.run(Faults(kills=14, helpers=3, pauses=2)))
    check(session, ids)


@seeds(fast=1, low=8, high=10)
def test_safety_losses_of_power_and_full_disks_lose_and_double_no_task(world: VirtualWorld) -> None:
    """The journal is on a disk that keeps what was flushed."""
    session = Session(System(world, kill_chance=0.002))
    ids = world.run(session.run(Faults(kills=6, helpers=2, power=2, jumps=2, full=2)))
    check(session, ids)


@seeds(fast=1, low=6, high=8)
def test_safety_what_may_run_once_runs_once_whatever_of_hal_dies(world: VirtualWorld) -> None:
    session = Session(System(world, kill_chance=0.002), once=True)
    ids = world.run(session.run(Faults(kills=10, helpers=2, power=1)))
    check(session, ids)
    assert max(session.begun.values()) == 1
