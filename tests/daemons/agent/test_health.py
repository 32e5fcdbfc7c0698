"""Health checks of a node under virtual time: when one begins to fail, when it passes again, what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from hal.core.model.node_config import CheckSection, HealthSection, NodeSection
from hal.core.model.units import Duration
from hal.daemons.agent.health import Condition, NodeChecks
from hal.runtime.interface import Runtime
from hal.runtime.script_end import ScriptEnd
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.controller_agent import Health

SECOND = 1_000
MIB = 1 << 20


@pytest.fixture
def world() -> Iterator[VirtualWorld]:
    with VirtualWorld(seed=1) as made:
        yield made


class Watch:
    """Checks that run, how the machine is, and what was told."""

    def __init__(self, runtime: Runtime, section: NodeSection) -> None:
        self.now = Condition(1 << 40, False, 1 << 40)
        self.told: list[Health] = []
        self.checks = NodeChecks(runtime, "n1", section, lambda: self.now, self.told.append)
        self._runtime = runtime

    async def for_s(self, seconds: float) -> None:
        """So long."""
        await self._runtime.sleep(round(seconds * SECOND))

    @property
    def names(self) -> list[list[str]]:
        """Which checks failed, by what was told."""
        return [[one.name for one in health.failing] for health in self.told]


def watching(world: VirtualWorld, section: NodeSection, work: Callable[[Watch], Awaitable[None]]) -> Watch:
    """Run the checks of a node while `work` goes on."""
    made: list[Watch] = []

    async def main(runtime: Runtime) -> None:
        watch = Watch(runtime, section)
        made.append(watch)
        running = asyncio.ensure_future(watch.checks.run())
        await work(watch)
        running.cancel()

    process = world.start(world.host("n1"), "agent-n1", main)
    world.run(process.wait())
    return made[0]


def site(*ends: int, takes_ms: int = 5) -> Callable[..., tuple[int, ScriptEnd]]:
    """A program that ends with these codes, one a run, and with the last from then on."""
    left = list(ends)

    def script(env: object) -> tuple[int, ScriptEnd]:
        code = left.pop(0) if len(left) > 1 else left[0]
        return takes_ms, ScriptEnd(code, "first line\nno scratch" if code else "")

    return script


def section(failures: int = 1) -> NodeSection:
    check = CheckSection(command=("/check",), every=Duration(10 * SECOND), failures=failures)
    return NodeSection(checks={"scratch": check})


def test_a_disk_that_fills_up_fails_and_passes_by_itself(world: VirtualWorld) -> None:
    """Told at the start, when it begins to fail, and when it passes; not while it goes on failing."""

    async def work(watch: Watch) -> None:
        await watch.for_s(1)
        watch.now = Condition(9 * MIB, False, 1 << 40)
        await watch.for_s(120)
        watch.now = Condition(16 * MIB, False, 1 << 40)
        await watch.for_s(60)

    watch = watching(world, NodeSection(), work)
    assert watch.names == [[], ["disk"], []]
    assert watch.told[1].failing[0].reason == "9MiB free at /virtual/n1/hal; 16MiB are wanted"


def test_memory_and_a_read_only_file_system_are_looked_at(world: VirtualWorld) -> None:
    """Bounds of 0 look at nothing, and what the machine does not say does not fail."""
    bounds = NodeSection(health=HealthSection(memory_free="1GiB", disk_free="0"))

    async def work(watch: Watch) -> None:
        watch.now = Condition(0, True, 512 * MIB)
        await watch.for_s(1)
        watch.now = Condition()
        await watch.for_s(60)

    watch = watching(world, bounds, work)
    assert (watch.names[0], watch.names[-1]) == (["memory", "read-only"], [])


def test_a_program_of_the_site_fails_with_its_last_line_and_exit_code(world: VirtualWorld) -> None:
    """One run fails, the next passes."""
    world.host("n1").scripts["/check"] = site(0, 3, 0)

    async def work(watch: Watch) -> None:
        await watch.for_s(35)

    watch = watching(world, section(), work)
    assert watch.names == [[], ["scratch"], []]
    assert watch.told[1].failing[0].reason == "no scratch (exit code 3)"


def test_only_so_many_failures_in_a_row_count(world: VirtualWorld) -> None:
    """Of three that are needed: two, a pass, then three."""
    world.host("n1").scripts["/check"] = site(0, 1, 1, 0, 1, 1, 1)

    async def work(watch: Watch) -> None:
        await watch.for_s(55)
        assert watch.names == [[]]
        await watch.for_s(10)

    assert watching(world, section(failures=3), work).names == [[], ["scratch"]]


def test_nothing_is_told_before_every_check_was_run_and_the_first_run_decides(world: VirtualWorld) -> None:
    """The program takes a second: an agent that was started again must not open a node that is closed."""
    world.host("n1").scripts["/check"] = site(1, takes_ms=SECOND)

    async def work(watch: Watch) -> None:
        await watch.for_s(0.9)
        assert watch.checks.health() is None
        await watch.for_s(1)

    assert watching(world, section(failures=3), work).names == [["scratch"]]


def test_a_program_that_takes_too_long_or_is_not_there_fails(world: VirtualWorld) -> None:
    """Each with its own words."""
    world.host("n1").scripts["/check"] = site(0, takes_ms=60 * SECOND)
    both = NodeSection(checks={**section().checks, "gone": CheckSection(command=("/gone",))})

    async def work(watch: Watch) -> None:
        await watch.for_s(11)

    (health,) = watching(world, both, work).told
    assert [one.reason for one in health.failing] == [
        "/gone cannot be started: there is no such program on n1",
        "/check took longer than 10s",
    ]


@pytest.mark.parametrize(
    ("skew_ms", "sent_before_ms", "fails"),
    [
        (0, 10, ""),
        (4_900, 10, ""),
        (5_100, 10, "behind"),
        (-5_005, 10, ""),
        (-5_200, 10, "ahead of"),
        (-9_000, 8_000, ""),
    ],
)
def test_a_clock_that_differs_beyond_doubt_fails(
    skew_ms: int, sent_before_ms: int, fails: str, world: VirtualWorld
) -> None:
    """Two answers in a row; a slow one proves nothing: the time was read at some instant since the question."""

    async def work(watch: Watch) -> None:
        await watch.for_s(1)
        now_ms = world.host("n1").now_ms()
        watch.checks.compare_clocks(now_ms + skew_ms, sent_before_ms)
        assert watch.names == [[]]
        watch.checks.compare_clocks(now_ms + skew_ms, sent_before_ms)
        watch.checks.compare_clocks(now_ms, sent_before_ms)

    watch = watching(world, NodeSection(), work)
    told = [health.failing[0].reason for health in watch.told if health.failing]
    assert [f" {fails} the controller's" in reason for reason in told] == ([True] if fails else [])
    assert watch.names[-1] == []
