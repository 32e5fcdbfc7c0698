"""As many periodic jobs as there may be, all due at the same instant: how long until each has its job, and how long
that blocks the controller's loop.

A real controller with REST in this process; the periodic jobs are staged in its plane directly and made due together.
Meanwhile a task that asks to be woken each millisecond measures how late it is, and before that on the idle loop.
Prints JSON lines: `python benchmarks/cron.py [--entries 10000]`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from _private_hal import say
from hal.core.model import JobSpec
from hal.core.model.periodic import PeriodicSpec
from hal.planes.periodic.plane import MAX_OF_USER, MAX_PERIODIC
from hal.store import PeriodicRow

TARGET_TURN_MS: Final = 10.0
IDLE_S: Final = 2.0
TICK_S: Final = 0.001
LOOK_S: Final = 0.05
AHEAD_MS: Final = 30_000
"""How long before they are due they are made so."""
WARM: Final = 32
WARM_AHEAD_MS: Final = 3_000
LIMIT_S: Final = 600.0
STAGED: Final = 1_000
"""Periodic jobs that are made, or made due, in one group."""
SPEC: Final = PeriodicSpec(schedule="0 3 * * *", job=JobSpec(command=("true",)))


class Lateness:
    """How late a task is that asks to be woken each millisecond: about the longest turn of the loop. It leaves the
    interpreter to the threads meanwhile, which a task that runs in each turn would not."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self._longest_s = max(self._longest_s, time.perf_counter() - before - TICK_S)

    def take_ms(self) -> float:
        """The longest since it was last asked for."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1e3


async def measure(entries: int) -> None:
    """Make them, have them fall due, and wait for the last one."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.daemons.controller.running import running

    with tempfile.TemporaryDirectory() as directory:
        async with running(Path(directory) / "home") as hal:
            service = hal.api.periodic
            clock = service._parts.clock
            plane, inbox = service._port.plane, service._parts.loop.inbox
            lateness = Lateness()
            watching = asyncio.ensure_future(lateness.watch())

            def make(first: int, now_ms: int) -> None:
                for number in range(first, min(first + STAGED, entries)):
                    user = f"u{number // MAX_OF_USER}"
                    plane.add(
                        PeriodicRow(
                            id=plane.new_id, user=user, name=f"p{number}", spec=SPEC, created_ms=now_ms,
                            created_by=user, changed_ms=now_ms, on_system=False, next_ms=None,
                        )
                    )  # fmt: skip

            async def due(rows: list[PeriodicRow], ahead_ms: int) -> tuple[float, float]:
                """Make them due at once; seconds from then until the last has its job, and of processor time."""
                before = {row.id: row.runs for row in rows}
                due_ms = clock.now_ms() + ahead_ms
                for at in range(0, len(rows), STAGED):
                    some = [replace(row, next_ms=due_ms) for row in rows[at : at + STAGED]]
                    await inbox.call(lambda now_ms, some=some: [plane.change(row) for row in some])
                service.submission.changed.set()
                left_ms = due_ms - clock.now_ms()
                assert left_ms > 0, "they were due before all of them were made so"
                await asyncio.sleep(left_ms / 1000)
                began, spent = time.perf_counter(), time.process_time()
                lateness.take_ms()
                while not all(plane.committed[row.id].runs > before[row.id] for row in rows[::-1]):
                    assert time.perf_counter() < began + LIMIT_S, "they were not submitted"
                    await asyncio.sleep(LOOK_S)
                return time.perf_counter() - began, time.process_time() - spent

            for first in range(0, entries, STAGED):
                await inbox.call(lambda now_ms, first=first: make(first, now_ms))
            await due(list(plane.committed.values())[:WARM], WARM_AHEAD_MS)  # what is loaded with the first is loaded
            await asyncio.sleep(IDLE_S)
            lateness.take_ms()
            await asyncio.sleep(IDLE_S)
            idle_ms = lateness.take_ms()
            seconds, spent = await due(list(plane.committed.values()), AHEAD_MS)
            turn_ms = lateness.take_ms()
            watching.cancel()
    say("cron-due-at-once", seconds, "s", note=f"until {entries:,} periodic jobs that are due at once have their jobs",
        cpu_ms_each=round(spent * 1e3 / entries, 3))  # fmt: skip
    say("cron-due-turn", turn_ms, "ms", TARGET_TURN_MS, higher=False,
        note=f"longest turn of the loop meanwhile; {idle_ms:.1f} ms when nothing is due")  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=MAX_PERIODIC)
    asyncio.run(measure(min(parser.parse_args().entries, MAX_PERIODIC)))


if __name__ == "__main__":
    main()
