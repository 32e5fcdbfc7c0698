"""Parts of the collector: one that fails is run again, and no other notices."""

from __future__ import annotations

from collections.abc import Mapping

from hal.core.model import StoreError
from hal.core.model.observability_config import ObservabilitySection
from hal.daemons.collector.collector import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SETTLED_MS, Collector
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualWorld


class Counted:
    """A part that notes when it was run, and fails while it is told to."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.runtime, self.name = runtime, name
        self.fails = False
        self.runs_ms: list[int] = []
        self.closed = False

    async def run(self) -> None:
        self.runs_ms.append(self.runtime.monotonic_ms())
        if self.fails:
            raise StoreError("the disk is full")
        await self.runtime.stopping.wait()

    def health(self) -> Mapping[str, float | int | str]:
        return {"runs": len(self.runs_ms)}

    async def close(self) -> None:
        self.closed = True


def test_a_part_that_fails_is_run_again_after_longer_and_longer_pauses_and_the_others_go_on() -> None:
    world = VirtualWorld(seed=1)
    parts: list[Counted] = []

    async def main(runtime: Runtime) -> None:
        collector = Collector(runtime, ObservabilitySection())
        good, bad = Counted(runtime, "good"), Counted(runtime, "bad")
        parts.extend((good, bad))
        collector.parts = (good, bad)
        bad.fails = True
        collector.start()
        await runtime.sleep(20 * FIRST_PAUSE_MS)
        health = collector.health()
        assert health["good"].works
        assert (health["bad"].works, health["bad"].failure) == (False, "the disk is full")
        # It begins at 0, and again after pauses of 1, 2, 4 and 8 seconds: at 0, 1, 3, 7, 15 s.
        assert [round((at - good.runs_ms[0]) / FIRST_PAUSE_MS) for at in bad.runs_ms] == [0, 1, 3, 7, 15]
        bad.fails = False
        await runtime.sleep(LONGEST_PAUSE_MS + SETTLED_MS)
        assert collector.health()["bad"].works
        assert len(good.runs_ms) == 1
        await collector.stop()

    world.start(world.host("h"), "observability", main)
    world.run_for(5 * LONGEST_PAUSE_MS)
    assert [part.closed for part in parts] == [True, True]


def test_a_part_that_cannot_be_closed_leaves_no_other_open() -> None:
    world = VirtualWorld(seed=1)
    parts: list[Counted] = []

    class Stuck(Counted):
        async def close(self) -> None:
            raise StoreError("the disk is full")

    async def main(runtime: Runtime) -> None:
        collector = Collector(runtime, ObservabilitySection())
        parts.extend((Stuck(runtime, "bad"), Counted(runtime, "good")))
        collector.parts = tuple(parts)
        collector.start()
        await collector.stop()

    world.start(world.host("h"), "observability", main)
    world.run_for(1_000)
    assert [part.closed for part in parts] == [False, True]
