"""The collector's part for lines: what arrives is kept, what does not fit is counted; a failed store loses nothing."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from hal.core.model import StepId
from hal.core.model.log_config import LogsSection
from hal.planes.observability.logs import part as parts
from hal.planes.observability.logs.part import TURN_MS, LogsPart
from hal.planes.observability.logs.store import Wanted
from hal.planes.observability.logs.words import parse_search
from hal.runtime.interface import Runtime
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.telemetry import LogLine, Severity
from tests.runtime.real_runtime import run_real

STEP = StepId(7, 0, 1, 0)


def line(text: str, offset: int = 0, **fields: str) -> LogLine:
    """What a step has printed."""
    return LogLine(1, Severity.INFO, "step", text, STEP, "stdout", offset, fields=fields)


def with_part(
    directory: Path, act: Callable[[Runtime, LogsPart], Awaitable[None]], section: LogsSection | None = None
) -> None:
    """Run a part, and something beside it."""
    done: list[bool] = []

    async def main(runtime: Runtime) -> None:
        made = LogsPart(runtime, directory / "store", section or LogsSection(), home_logs=directory / "log")
        await act(runtime, made)
        done.append(True)

    with VirtualWorld(1) as world:
        world.start(world.host("h"), "observability", main)
        world.run_for(60_000)
    assert done


async def texts(part: LogsPart, query: str = "", user: str | None = None) -> list[str]:
    """What is found, newest first."""
    page = await part.page(Wanted(search=parse_search(query), user=user), 100, 0)
    return [found.line.text for found in page.lines]


def test_lines_of_a_batch_belong_to_the_user_that_its_first_line_names(tmp_path: Path) -> None:
    """The severity of a step's line is what the line says."""

    async def act(runtime: Runtime, part: LogsPart) -> None:
        running = runtime.spawn_task(part.run(), "part")
        part.take("n1", [line("ERROR one", user="alice"), line("two", 10)])
        await runtime.sleep(4 * TURN_MS)
        assert await texts(part, user="alice") == ["two", "ERROR one"]
        assert await texts(part, user="bob") == []
        found = await part.page(Wanted(severity=Severity.ERROR), 100, 0)
        assert [one.line.text for one in found.lines] == ["ERROR one"]
        running.cancel()

    with_part(tmp_path, act)


def test_what_is_not_wanted_is_not_kept(tmp_path: Path) -> None:
    """`jobs = false` in hal.toml."""

    async def act(runtime: Runtime, part: LogsPart) -> None:
        running = runtime.spawn_task(part.run(), "part")
        part.take("n1", [line("mine", user="alice"), LogLine(1, Severity.INFO, "keeper", "hal's")])
        await runtime.sleep(4 * TURN_MS)
        assert await texts(part) == ["hal's"]
        running.cancel()

    with_part(tmp_path, act, LogsSection(jobs=False))


def test_safety_a_flood_is_bounded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten lines of a hundred may wait."""
    monkeypatch.setattr(parts, "MAX_WAITING_LINES", 10)

    async def act(runtime: Runtime, part: LogsPart) -> None:
        for number in range(100):
            part.take("n1", [line(f"line {number}", number, user="alice")])
        assert (part.health()["waiting_lines"], part.health()["dropped_lines"]) == (10, 90)

    with_part(tmp_path, act)


def test_lines_wait_while_the_store_cannot_be_written(tmp_path: Path) -> None:
    """A file is in the place of its directory; when it is gone, the part goes on with what waited."""
    (tmp_path / "store").write_text("in the way")

    async def act(runtime: Runtime, part: LogsPart) -> None:
        part.take("n1", [line("patient", user="alice")])
        with pytest.raises(OSError):
            await part.run()
        (tmp_path / "store").unlink()
        running = runtime.spawn_task(part.run(), "part")
        await runtime.sleep(4 * TURN_MS)
        assert await texts(part, "patient") == ["patient"]
        running.cancel()

    with_part(tmp_path, act)


def test_nothing_is_found_before_anything_was_kept(tmp_path: Path) -> None:
    """There is no directory yet."""

    async def act(runtime: Runtime, part: LogsPart) -> None:
        assert await texts(part) == []
        shutil.rmtree(tmp_path / "store", ignore_errors=True)

    with_part(tmp_path, act)


def test_a_clock_that_is_ahead_does_not_hide_lines(tmp_path: Path) -> None:
    """A line from tomorrow is of now."""

    async def act(runtime: Runtime, part: LogsPart) -> None:
        running = runtime.spawn_task(part.run(), "part")
        late = LogLine(runtime.now_ms() + 86_400_000, Severity.INFO, "keeper", "tomorrow")
        part.take("n1", [late])
        await runtime.sleep(4 * TURN_MS)
        found = await part.page(Wanted(until_ms=runtime.now_ms() + 1), 100, 0)
        assert [one.line.text for one in found.lines] == ["tomorrow"]
        running.cancel()

    with_part(tmp_path, act)


def test_lines_that_are_being_written_are_kept_once_though_the_part_is_cancelled(tmp_path: Path) -> None:
    """The database of the lines is locked while the part is cancelled in the midst of its second write; then it is run
    again."""

    async def main(runtime: RealRuntime) -> None:
        part = LogsPart(runtime, tmp_path / "store", LogsSection(), home_logs=tmp_path / "log")
        event = LogLine(1, Severity.INFO, "agent", "first")
        running = asyncio.ensure_future(part.run())
        part.take("n1", [event])
        while part.health()["lines"] != 1:
            await runtime.sleep(10)
        (file,) = (tmp_path / "store").glob("*.sqlite")
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as other:
            other.execute("BEGIN IMMEDIATE")
            part.take("n1", [msgspec.structs.replace(event, text="second")])
            await runtime.sleep(2 * TURN_MS)
            assert part.health()["waiting_lines"] == 1
            running.cancel()
            await runtime.sleep(0)
            other.execute("ROLLBACK")
        await asyncio.gather(running, return_exceptions=True)
        again = asyncio.ensure_future(part.run())
        await runtime.sleep(3 * TURN_MS)
        assert await texts(part) == ["second", "first"]
        assert (part.health()["lines"], part.health()["waiting_lines"]) == (2, 0)
        again.cancel()
        await part.close()

    run_real(tmp_path, main)
