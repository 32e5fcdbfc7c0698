"""Real agent and keeper under virtual time, everything around them killed: each step runs once, each end is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.keeper.ports import KeeperConfig
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.virtual_world import VirtualHost, VirtualWorld
from hal.wire.frames.agent_keeper import ExitCause
from tests.simulation.checkers import check_nothing_ran_twice
from tests.simulation.keeper_process import keeper_main
from tests.simulation.machine import Machine, Work
from tests.simulation.tiny_controller import Notes, TinyController

KEEPER, AGENT = "hal.daemons.agent.keeper", "hal.daemons.agent"
LIMIT_MS = 3_600_000
TASKS = 30


@pytest.fixture(params=[*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 15))])
def world(request: pytest.FixtureRequest) -> Iterator[VirtualWorld]:
    with VirtualWorld(seed=request.param) as made:
        yield made


def some_work(world: VirtualWorld) -> list[Work]:
    """Short and long steps; some leave something behind, some do not exist."""
    rng = world.rng("work")
    flags = [frozenset[str](), frozenset({"leftover"}), frozenset({"missing"})]
    return [
        Work(rng.randint(1, 3_000), (rng.choice([0, 0, 1]),), rng.choices(flags, (8, 1, 1))[0]) for _ in range(TASKS)
    ]


def install(host: VirtualHost, machine: Machine, kill_chance: float) -> None:
    """The programs that agent and keeper start each other as."""
    config = KeeperConfig(node="n1", home=str(host.home.root), capacity={"cpu": 4_000})

    async def keeper(runtime: Runtime) -> None:
        await keeper_main(runtime, machine, config, kill_chance, [AGENT])

    async def agent(runtime: Runtime) -> int:
        paths = runtime.paths
        settings = AgentSettings(
            "n1", UnixAddress(paths.wire_socket()), UnixAddress(paths.keeper_socket("n1")), ["python", "-m", KEEPER]
        )
        return await Agent(runtime, settings).run()

    host.programs[KEEPER] = lambda argv: ("keeper-n1", keeper)
    host.programs[AGENT] = lambda argv: ("agent-n1", agent)


def run_steps(
    world: VirtualWorld, *, kills: int, kill_chance: float = 0.0, helpers: int = 0, power: int = 0
) -> tuple[Notes, Machine]:
    """Run the work under that many kills of controller, agent or keeper, of helpers, and losses of power."""
    host = world.host("n1")
    machine = Machine(host)
    notes = Notes.of(some_work(world))
    install(host, machine, kill_chance)
    rng = world.rng("faults")

    async def controller(runtime: Runtime) -> None:
        await TinyController(runtime, notes).run()

    async def drive() -> None:
        world.start(host, "controller", controller)
        host.start_program([AGENT])
        faults = ["kill"] * kills + ["helper"] * helpers + ["power"] * power
        rng.shuffle(faults)
        for fault in faults:
            await asyncio.sleep(rng.random() * 2)
            if fault == "helper":
                machine.kill_helper()
                continue
            if fault == "power":
                machine.power_off()
                host.power_off()
                world.start(host, "controller", controller)
                host.start_program([AGENT])
                continue
            running = [one for _, one in sorted(host.processes.items())]
            victim = rng.choice(running)
            victim.kill_after(rng.randint(1, 100))
            try:
                async with asyncio.timeout(30):
                    await victim.wait()
            except TimeoutError:
                victim.kill()
            names = [one.name for one in host.processes.values()]
            if "controller" not in names:
                world.start(host, "controller", controller)
            if not {"agent-n1", "keeper-n1"} & set(names):
                host.start_program([AGENT])
        await world.until(lambda: notes.done, limit_ms=LIMIT_MS, what="all steps over")

    world.run(drive())
    return notes, machine


def test_without_faults_every_step_runs_once_and_its_exit_is_told(world: VirtualWorld) -> None:
    """The exit code of each is what the process gave."""
    notes, machine = run_steps(world, kills=0)
    check_nothing_ran_twice(machine.runs)
    check_told_what_happened(notes, machine)
    assert len(notes.exits) == TASKS


def test_kills_of_controller_agent_and_keeper_lose_and_double_nothing(world: VirtualWorld) -> None:
    """Helpers live, so every end is known: no attempt is lost however often the others die."""
    notes, machine = run_steps(world, kills=12, kill_chance=0.01)
    check_nothing_ran_twice(machine.runs)
    check_told_what_happened(notes, machine)
    assert not [exit_ for exit_ in notes.exits.values() if exit_.cause is ExitCause.LOST]


def test_with_helpers_killed_too_lost_attempts_run_again_and_never_at_once(world: VirtualWorld) -> None:
    """A step whose helper died is lost once no process of it is left, and only then runs again."""
    notes, machine = run_steps(world, kills=10, kill_chance=0.01, helpers=6)
    check_nothing_ran_twice(machine.runs)
    check_told_what_happened(notes, machine)


def test_after_losses_of_power_what_ran_is_lost_and_runs_again(world: VirtualWorld) -> None:
    """The next boot has another id: attempts whose end was not journalled are lost, none runs twice at once."""
    notes, machine = run_steps(world, kills=4, kill_chance=0.01, power=4)
    check_nothing_ran_twice(machine.runs)
    ends = {run.step: run.status for run in machine.runs}
    for task, work in notes.work.items():
        last = max((step for step in notes.exits if step.task == task), key=lambda step: step.attempt)
        if "missing" not in work.flags:
            assert notes.exits[last].code == ends[last] == work.code(1)
    for step, exit_ in notes.exits.items():
        assert exit_.cause is ExitCause.LOST or step not in ends or exit_.code == ends[step]


def check_told_what_happened(notes: Notes, machine: Machine) -> None:
    """Each process's end was reported, as it was; each task ended with the status of its last process."""
    for run in machine.runs:
        exit_ = notes.exits[run.step]
        if run.status is None:
            assert exit_.cause is ExitCause.LOST
        else:
            assert (exit_.cause, exit_.code) == (ExitCause.EXITED, run.status)
    for task, work in notes.work.items():
        last = max((step for step in notes.exits if step.task == task), key=lambda step: step.attempt)
        if "missing" in work.flags:
            assert notes.exits[last].cause is ExitCause.SPAWN_FAILED
        else:
            assert notes.exits[last].code == work.code(1)
