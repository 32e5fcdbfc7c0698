"""The virtual Runtime: time jumps, kills cut at any point, the network does what networks do, one seed is one run."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from hal.core.model.errors import ConflictError, NotFoundError, TimedOutError, UnreachableError
from hal.core.model.ids import StepId
from hal.runtime import virtual_loop
from hal.runtime.interface import Connection, Lane, Runtime, TcpAddress, UnixAddress
from hal.runtime.virtual_loop import SimulationStuckError
from hal.runtime.virtual_network import Conditions
from hal.runtime.virtual_world import EPOCH_MS, SimulatedFaultError, VirtualHost, VirtualWorld
from hal.wire.frames.agent_keeper import Signal
from hal.wire.frames.hello import Goodbye
from tests.runtime.virtual_echo import run_echo

T = TypeVar("T")
TCP = TcpAddress("n1", 7000)


@pytest.fixture
def world() -> Iterator[VirtualWorld]:
    with VirtualWorld(seed=1) as made:
        yield made


@pytest.fixture
def host(world: VirtualWorld) -> VirtualHost:
    return world.host("n1")


def test_a_timer_is_due_also_after_a_year(world: VirtualWorld) -> None:
    """A float of seconds is coarser by then; nothing spins."""
    world.run_for(400 * 86_400_000)
    began_s = world.loop.time()
    world.run_for(1)
    assert world.loop.time() == pytest.approx(began_s + 0.001, abs=1e-6)


def wire(runtime: Runtime) -> UnixAddress:
    return UnixAddress(runtime.paths.wire_socket())


async def echo(connection: Connection) -> None:
    while (frame := await connection.receive()) is not None:
        await connection.send(frame)


async def serve_echo(runtime: Runtime) -> None:
    await runtime.listen(wire(runtime), echo)
    await runtime.stopping.wait()


async def serve_echo_tcp(runtime: Runtime) -> None:
    await runtime.listen(TCP, echo)
    await runtime.stopping.wait()


def in_process(world: VirtualWorld, host: VirtualHost, main: Callable[[Runtime], Awaitable[T]]) -> T:
    """What `main` returns when run as a process of the host."""
    results: list[T] = []

    async def body(runtime: Runtime) -> None:
        results.append(await main(runtime))

    async def drive() -> None:
        await world.start(host, "test", body).wait()

    world.run(drive())
    return results[0]


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_hours_pass_at_once(world: VirtualWorld, host: VirtualHost) -> None:
    """A thousand hours of sleep; all three clocks agree on how long it was."""

    async def main(runtime: Runtime) -> tuple[int, int, int]:
        before = runtime.now_ms(), runtime.boot_ms(), runtime.monotonic_ms()
        await runtime.sleep(1_000 * 3_600_000)
        return runtime.now_ms() - before[0], runtime.boot_ms() - before[1], runtime.monotonic_ms() - before[2]

    assert in_process(world, host, main) == (3_600_000_000, 3_600_000_000, 3_600_000_000)


def test_the_clock_on_the_wall_can_jump_and_the_others_do_not(world: VirtualWorld, host: VirtualHost) -> None:
    """Set back by a day."""

    async def main(runtime: Runtime) -> tuple[int, int]:
        boot = runtime.boot_ms()
        host.jump_clock(-86_400_000)
        return runtime.now_ms(), runtime.boot_ms() - boot

    now_ms, passed_ms = in_process(world, host, main)
    assert EPOCH_MS - 86_400_000 <= now_ms < EPOCH_MS
    assert passed_ms == 0


def test_timers_fire_in_order_of_their_time(world: VirtualWorld, host: VirtualHost) -> None:
    """Asked for in the opposite order; a cancelled one does not fire."""

    async def main(runtime: Runtime) -> list[int]:
        fired: list[int] = []
        for ms in range(50, 0, -1):
            runtime.call_later(ms, lambda ms=ms: fired.append(ms))  # type: ignore[misc]
        runtime.call_later(25, lambda: fired.append(-1)).cancel()
        await runtime.sleep(100)
        return fired

    assert in_process(world, host, main) == list(range(1, 51))


def test_asyncios_own_timeouts_are_virtual_too(world: VirtualWorld, host: VirtualHost) -> None:
    """asyncio.timeout, wait_for and receive(timeout_ms)."""

    async def main(runtime: Runtime) -> float:
        begin = runtime.monotonic_ms()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        return runtime.monotonic_ms() - begin

    assert in_process(world, host, main) == 120_000


def test_a_world_in_which_nothing_can_happen_says_who_waits(world: VirtualWorld) -> None:
    """A deadlock is an error with names, not a hang."""
    with pytest.raises(SimulationStuckError, match="driver"):
        world.run(asyncio.Event().wait())


def test_a_loop_that_spins_is_found(world: VirtualWorld, host: VirtualHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It yields for ever without waiting: virtual time would never pass."""
    monkeypatch.setattr(virtual_loop, "MAX_STEPS_AT_ONE_INSTANT", 10_000)

    async def main(_: Runtime) -> None:
        for _ in itertools.repeat(None):
            await asyncio.sleep(0)

    world.start(host, "spinner", main)
    with pytest.raises(SimulationStuckError, match="spins"):
        world.run_for(1_000)


def test_threads_cannot_leak_in(world: VirtualWorld, host: VirtualHost) -> None:
    """asyncio.to_thread and run_in_executor are refused with what to use."""

    async def main(_: Runtime) -> None:
        with pytest.raises(RuntimeError, match="run_blocking"):
            await asyncio.to_thread(lambda: None)

    in_process(world, host, main)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_process_does_nothing_more(world: VirtualWorld, host: VirtualHost) -> None:
    """Neither its loops nor its finally-blocks, at once or when the world is dropped."""
    done: list[str] = []

    async def main(runtime: Runtime) -> None:
        try:
            while True:
                await runtime.run_blocking(lambda: done.append("tick"))
        finally:
            await runtime.run_blocking(lambda: done.append("finally"))

    process = world.start(host, "p", main)
    world.run_for(1_000)
    process.kill()
    ticks = len(done)
    world.run_for(1_000)
    world.close()
    assert ticks > 0
    assert done == ["tick"] * ticks
    assert process.exit_code == -9


@pytest.mark.parametrize("steps", range(40))
def test_a_kill_falls_before_or_after_the_effect_and_never_between(steps: int) -> None:
    """Each commit is whole or absent; what the caller was told is on the disk. Killed after each of its first steps."""
    with VirtualWorld(seed=3) as world:
        host = world.host("n1")
        told: list[int] = []

        def commit(number: int) -> None:
            host.disk["first"] = number
            host.disk["second"] = number

        async def main(runtime: Runtime) -> None:
            for number in range(100):
                await runtime.run_blocking(lambda n=number: commit(n))  # type: ignore[misc]
                told.append(number)

        process = world.start(host, "p", main)
        process.kill_after(steps)
        world.run_for(10_000)
        assert not process.running
        assert host.disk.get("first") == host.disk.get("second")
        committed = host.disk.get("first", -1)
        assert committed - len(told) in (-1, 0)


def test_kills_after_each_step_reach_both_sides_of_a_commit() -> None:
    """Among 40 kill points there are some before a commit and some after it whose caller never heard of it."""
    unheard = 0
    for steps in range(40):
        with VirtualWorld(seed=3) as world:
            done: list[int] = []
            told: list[int] = []

            async def main(runtime: Runtime, done: list[int] = done, told: list[int] = told) -> None:
                for number in range(100):
                    await runtime.run_blocking(lambda n=number: done.append(n))  # type: ignore[misc]
                    told.append(number)

            world.start(world.host("n1"), "p", main).kill_after(steps)
            world.run_for(10_000)
            unheard += len(done) > len(told)
    assert 0 < unheard < 40


def test_calls_of_one_lane_take_effect_in_order(world: VirtualWorld, host: VirtualHost) -> None:
    """Seeded delays do not reorder them; another lane does not wait for them."""

    async def main(runtime: Runtime) -> tuple[list[int], int]:
        order: list[int] = []
        calls = [asyncio.ensure_future(runtime.run_blocking(lambda n=n: order.append(n))) for n in range(200)]  # type: ignore[misc]
        reads_before_the_last = await runtime.run_blocking(lambda: len(order), Lane.READER)
        await asyncio.gather(*calls)
        return order, reads_before_the_last

    order, at_the_read = in_process(world, host, main)
    assert order == list(range(200))
    assert at_the_read < 200


def test_the_disk_outlives_processes_and_power(world: VirtualWorld, host: VirtualHost) -> None:
    """After a power loss the boot id is another one and time since boot begins again; the disk is as it was."""

    async def main(runtime: Runtime) -> None:
        host.disk["boots"] = [*host.disk.get("boots", []), (runtime.boot_id, runtime.boot_ms() < 3_660_000)]
        await asyncio.Event().wait()

    process = world.start(host, "p", main)
    world.run_for(3_600_000)
    host.power_off()
    assert process.exit_code == -9
    world.start(host, "p", main)
    world.run_for(1_000)
    assert host.disk["boots"] == [("n1-boot-1", True), ("n1-boot-2", True)]


def test_a_terminated_process_may_tidy_up_and_is_killed_if_it_does_not(world: VirtualWorld, host: VirtualHost) -> None:
    """SIGTERM sets `stopping`; after ten seconds SIGKILL follows."""

    async def tidy(runtime: Runtime) -> int:
        await runtime.stopping.wait()
        await runtime.sleep(100)
        return 7

    async def stubborn(_: Runtime) -> None:
        await asyncio.Event().wait()

    first, second = world.start(host, "tidy", tidy), world.start(host, "stubborn", stubborn)
    world.run_for(1_000)
    first.terminate()
    second.terminate()
    world.run_for(60_000)
    assert (first.exit_code, second.exit_code) == (7, -9)


def test_a_paused_process_goes_on_where_it_was(world: VirtualWorld, host: VirtualHost) -> None:
    """As with SIGSTOP and SIGCONT: nothing of it runs meanwhile, and its connections live."""
    server = world.start(host, "server", serve_echo)
    answers: list[int] = []

    async def client(runtime: Runtime) -> None:
        await runtime.sleep(10_000)
        connection = await runtime.connect(wire(runtime))
        while True:
            await connection.send(Goodbye())
            assert await connection.receive() is not None
            answers.append(runtime.boot_ms())
            await runtime.sleep(10)

    world.start(host, "client", client)
    world.run_for(20_000)
    server.pause()
    world.run_for(1_000)
    before = len(answers)
    world.run_for(60_000)
    assert len(answers) == before > 0
    server.resume()
    world.run_for(1_000)
    assert len(answers) > before


def test_a_fault_in_a_process_fails_the_simulation(world: VirtualWorld, host: VirtualHost) -> None:
    """In main, in a background task, in a timer: the run raises and names process and error."""

    async def background(runtime: Runtime) -> None:
        async def broken() -> None:
            raise KeyError("lost")

        runtime.spawn_task(broken(), "bookkeeping")
        await asyncio.Event().wait()

    world.start(host, "controller", background)
    with pytest.raises(SimulatedFaultError, match=r"controller: the task .*bookkeeping.* KeyError"):
        world.run_for(1_000)


def test_a_timer_that_raises_fails_the_simulation(world: VirtualWorld, host: VirtualHost) -> None:
    """Nobody else would hear of it."""

    async def main(runtime: Runtime) -> None:
        runtime.call_later(5, lambda: 1 // 0)
        await asyncio.Event().wait()

    world.start(host, "p", main)
    with pytest.raises(SimulatedFaultError, match="ZeroDivisionError"):
        world.run_for(1_000)


def test_processes_start_programs_of_their_host(world: VirtualWorld, host: VirtualHost) -> None:
    """`start_process` finds the program by its argument, and the starter hears how it ended."""

    async def child(_: Runtime) -> int:
        return 5

    host.programs["hal.daemons.agent"] = lambda argv: (f"agent-{argv[-1]}", child)

    async def main(runtime: Runtime) -> tuple[int, bool]:
        process = await runtime.start_process(["python", "-m", "hal.daemons.agent", "--node", "n1"])
        with pytest.raises(TimedOutError):
            await process.wait(timeout_ms=1)
        with pytest.raises(NotFoundError):
            await runtime.start_process(["python", "-m", "no.such"])
        return await process.wait(), process.running

    assert in_process(world, host, main) == (5, False)


# ── the network ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_frames_arrive_in_order_however_the_bytes_are_split() -> None:
    """Half of all writes are split and delays vary by a factor of a hundred."""
    with VirtualWorld(seed=5, conditions=Conditions(split_chance=0.5, stall_chance=0.2)) as world:
        host = world.host("n1")
        world.start(host, "server", serve_echo)

        async def main(runtime: Runtime) -> list[int]:
            await runtime.sleep(10_000)
            connection = await runtime.connect(wire(runtime))
            for number in range(500):
                await connection.send(Signal(epoch=number, steps=(StepId(1, 0, 1, 0),), name="USR1"))
                await runtime.sleep(number % 3)
            return [frame.epoch for _ in range(500) if isinstance(frame := await connection.receive(), Signal)]

        assert in_process(world, host, main) == list(range(500))


def test_dialling_a_dead_process_is_refused(world: VirtualWorld, host: VirtualHost) -> None:
    """Before it serves and after it was killed; its successor may serve the same address, two at once may not."""

    async def main(runtime: Runtime) -> None:
        with pytest.raises(UnreachableError, match="nobody serves"):
            await runtime.connect(wire(runtime))
        server = world.start(host, "server", serve_echo)
        await runtime.sleep(10_000)
        await runtime.connect(wire(runtime))
        with pytest.raises(ConflictError):
            await runtime.listen(wire(runtime), echo)
        server.kill()
        with pytest.raises(UnreachableError, match="nobody serves"):
            await runtime.connect(wire(runtime))
        await runtime.listen(wire(runtime), echo)

    in_process(world, host, main)


def test_the_other_end_of_a_killed_process_gets_what_was_written_then_the_end(
    world: VirtualWorld, host: VirtualHost
) -> None:
    """As from a socket of the kernel."""

    async def serve(runtime: Runtime) -> None:
        async def answer(connection: Connection) -> None:
            for number in range(10):
                connection.send_nowait(Signal(epoch=number, steps=(), name="USR1"))
            await asyncio.Event().wait()

        await runtime.listen(wire(runtime), answer)
        await runtime.stopping.wait()

    server = world.start(host, "server", serve)

    async def main(runtime: Runtime) -> int:
        await runtime.sleep(10_000)
        connection = await runtime.connect(wire(runtime))
        assert await connection.receive() is not None
        server.kill()
        seen = 1
        while await connection.receive() is not None:
            seen += 1
        with pytest.raises(UnreachableError):
            connection.send_nowait(Goodbye())
        return seen

    assert in_process(world, host, main) == 10


def test_a_partition_holds_everything_back_until_it_heals(world: VirtualWorld, host: VirtualHost) -> None:
    """Nothing is lost and nothing is told; new connections time out meanwhile."""
    other = world.host("n2")
    world.start(host, "server", serve_echo_tcp)

    async def main(runtime: Runtime) -> list[str]:
        await runtime.sleep(10_000)
        connection = await runtime.connect(TCP)
        world.network.partition("n1", "n2")
        for number in range(20):
            await connection.send(Goodbye(code=str(number)))
        with pytest.raises(TimedOutError):
            await connection.receive(timeout_ms=60_000)
        with pytest.raises(UnreachableError):
            await runtime.connect(TCP)
        assert not connection.closed
        world.network.heal("n1", "n2")
        return [frame.code for _ in range(20) if isinstance(frame := await connection.receive(), Goodbye)]

    assert in_process(world, other, main) == [str(number) for number in range(20)]


def test_a_cut_breaks_connections_at_once(world: VirtualWorld, host: VirtualHost) -> None:
    """Both ends see the end; dialling again works."""
    other = world.host("n2")
    world.start(host, "server", serve_echo_tcp)

    async def main(runtime: Runtime) -> None:
        await runtime.sleep(10_000)
        connection = await runtime.connect(TCP)
        world.network.cut("n1", "n2")
        assert await connection.receive() is None
        assert "broke" in connection.close_reason
        again = await runtime.connect(TCP)
        await again.send(Goodbye(code="again"))
        assert await again.receive() == Goodbye(code="again")

    in_process(world, other, main)


def heard_after_a_reconnect(seed: int) -> list[str]:
    """What the second connection brings, after the first was cut with four frames on their way."""
    heard: list[str] = []

    async def serve(runtime: Runtime) -> None:
        async def listen(connection: Connection) -> None:
            heard.clear()
            while isinstance(frame := await connection.receive(), Goodbye):
                heard.append(frame.code)

        await runtime.listen(TCP, listen)
        await runtime.stopping.wait()

    async def main(runtime: Runtime) -> None:
        await runtime.sleep(10_000)
        first = await runtime.connect(TCP)
        world.network.block("n2", "n1")
        for code in ("first hello", "a", "b", "c"):
            first.send_nowait(Goodbye(code=code))
            await runtime.sleep(1)
        world.network.cut("n1", "n2")
        world.network.heal("n1", "n2")
        second = await runtime.connect(TCP)
        for code in ("second hello", "x", "y"):
            second.send_nowait(Goodbye(code=code))
            await runtime.sleep(10_000)

    with VirtualWorld(seed, Conditions(again_chance=0.5, split_chance=0.0)) as world:
        world.start(world.host("n1"), "server", serve)
        in_process(world, world.host("n2"), main)
    return heard


def test_frames_of_an_earlier_connection_come_late_twice_and_in_any_order() -> None:
    """After the hello of a new connection: frames that were lost with the old one, in another order than they were
    sent, some of them twice; the new one's own are there once at least, in order."""
    runs = [heard_after_a_reconnect(seed) for seed in range(20)]
    for codes in runs:
        assert codes[0] == "second hello"
        assert [code for code in dict.fromkeys(codes) if code in "xy"] == ["x", "y"]
        assert "first hello" not in codes
    old = [[code for code in codes if code in "abc"] for codes in runs]
    assert any(old)
    assert any(len(set(codes)) < len(codes) for codes in runs)
    assert any(codes != sorted(codes) for codes in old)


def test_a_reader_that_does_not_read_holds_its_sender(world: VirtualWorld, host: VirtualHost) -> None:
    """Bounded as with real sockets: `send` waits, and goes on when the other end reads."""
    release = asyncio.Event()

    async def serve(runtime: Runtime) -> None:
        async def slow(connection: Connection) -> None:
            await release.wait()
            await echo(connection)

        await runtime.listen(wire(runtime), slow)
        await runtime.stopping.wait()

    world.start(host, "server", serve)

    async def main(runtime: Runtime) -> int:
        await runtime.sleep(10_000)
        connection = await runtime.connect(wire(runtime))
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for number in range(100_000):
                await connection.send(Signal(epoch=number, steps=(), name="x" * 100))
                sent += 1
                if number % 50 == 0:
                    await runtime.sleep(1)

        flooding = runtime.spawn_task(flood(), "flood")
        await runtime.sleep(100_000)
        held_at = sent
        release.set()
        for _ in range(20_000):
            assert await connection.receive() is not None
        flooding.cancel()
        return held_at

    assert 1_000 < in_process(world, host, main) < 50_000


# ── one seed, one run ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_seed_gives_the_same_run_and_another_seed_another() -> None:
    """Everything that was sent, logged, carried out, started and killed, byte for byte."""
    assert run_echo(seed=11) == run_echo(seed=11)
    assert run_echo(seed=11) != run_echo(seed=12)


def test_nothing_of_the_machine_leaks_into_a_run() -> None:
    """Other interpreters with other hash seeds, environments and times of day give the same digest as this one."""
    code = "from tests.runtime.virtual_echo import run_echo; print(run_echo(seed=11))"
    digests = {
        subprocess.check_output(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": "src:.", "PYTHONHASHSEED": hash_seed, "TZ": zone, "PATH": os.environ["PATH"]},
            text=True,
        ).strip()
        for hash_seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert digests == {run_echo(seed=11)}
