"""The archives that nodes send: bounds, whose space they take, and what is left when something breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model import ConflictError, NotFoundError, OverloadedError, StepId
from hal.daemons.controller.config import read_config
from hal.daemons.controller.files.collected import Collected
from tests.daemons.controller.running import Running, on_controller

STEP = StepId(7, 0, 1, 0)
ARCHIVE = b"x" * 3_000
SMALL = '[files]\ncollect_size = "10KiB"\ncollect_files = 1\nuser_collected = "12KiB"\n'


def on_small(root: Path, test: Callable[[Collected], Awaitable[None]], toml: str = SMALL) -> None:
    """With little space."""

    async def body(hal: Running) -> None:
        await test(Collected(hal.runtime, read_config(toml).files))

    on_controller(root, body)


async def store(collected: Collected, step: StepId, user: str = "ann", data: bytes = ARCHIVE) -> None:
    writing = await collected.begin(step, user)
    await writing.write(data)
    await writing.finish(1)


async def content(collected: Collected, step: StepId) -> bytes:
    _, pieces = await collected.read(step.job, step.task, step.attempt, step.rank)
    return b"".join([piece async for piece in pieces])


def test_an_archive_is_read_as_it_was_stored(hal_home: Path) -> None:
    async def body(collected: Collected) -> None:
        await store(collected, STEP)
        assert await content(collected, STEP) == ARCHIVE
        assert await collected.has(STEP)

    on_small(hal_home, body)


def test_an_archive_that_is_given_up_leaves_nothing(hal_home: Path) -> None:
    async def body(collected: Collected) -> None:
        writing = await collected.begin(STEP, "ann")
        await writing.write(ARCHIVE)
        await writing.abort()
        assert not await collected.has(STEP)
        assert [path for path in (hal_home / "files").rglob("*") if path.is_file()] == []

    on_small(hal_home, body)


def test_an_archive_is_no_longer_than_was_allowed(hal_home: Path) -> None:
    async def body(collected: Collected) -> None:
        writing = await collected.begin(STEP, "ann")
        with pytest.raises(ConflictError, match="longer than was announced"):
            await writing.write(ARCHIVE * 10)
        await writing.abort()

    on_small(hal_home, body)


def test_what_is_being_written_counts_as_if_it_were_full(hal_home: Path) -> None:
    """Two at once would have 20 KiB of the 12."""

    async def body(collected: Collected) -> None:
        first = await collected.begin(STEP, "ann")
        second = await collected.begin(StepId(8, 0, 1, 0), "ann")
        assert (first.limits.size_bytes, second.limits.size_bytes) == (10 << 10, 2 << 10)
        with pytest.raises(OverloadedError, match="user 'ann'"):
            await collected.begin(StepId(9, 0, 1, 0), "ann")
        await collected.begin(StepId(10, 0, 1, 0), "bob")

    on_small(hal_home, body)


def test_a_step_is_stored_once_at_a_time(hal_home: Path) -> None:
    async def body(collected: Collected) -> None:
        await collected.begin(STEP, "ann")
        with pytest.raises(OverloadedError, match="is being stored"):
            await collected.begin(STEP, "ann")

    on_small(hal_home, body)


def test_what_is_removed_gives_its_space_back(hal_home: Path) -> None:
    async def body(collected: Collected) -> None:
        for job in (1, 2, 3):
            await store(collected, StepId(job, 0, 1, 0))
        await collected.remove([1, 2, 77])
        await collected.remove_attempt(3, 0, 1)
        assert not await collected.has(StepId(3, 0, 1, 0))
        assert (await collected.begin(STEP, "ann")).limits.size_bytes == 10 << 10
        with pytest.raises(NotFoundError):
            await collected.read(1, 0, 1, 0)

    on_small(hal_home, body)


def test_what_was_collected_goes_with_its_job_and_not_before(hal_home: Path) -> None:
    """Job 99 is gone; a controller that starts looks for such."""
    jobs: list[int] = []

    async def before(hal: Running) -> None:
        jobs.extend(map(int, await hal.submit({"command": ["true"], "hold": True}, {"command": ["true"]})))
        await hal.http.post("/v1/jobs/cancel", json={"ids": [str(jobs[1])]})
        for job in (*jobs, 99):
            await store(Collected(hal.runtime, read_config("").files), StepId(job, 0, 1, 0))

    async def after(hal: Running) -> None:
        await hal.api.files.forget_removed()
        kept = [one.task for job in (*jobs, 99) for one in (await hal.api.files.collected(job)).collected]
        assert kept == [0, 0]
        await hal.http.post("/v1/jobs/remove", json={"ids": [str(jobs[1])]})
        assert (await hal.api.files.collected(jobs[1])).collected == []

    on_controller(hal_home, before)
    on_controller(hal_home, after)


def test_what_another_controller_has_left_is_counted_and_what_it_did_not_finish_is_removed(hal_home: Path) -> None:
    async def before(collected: Collected) -> None:
        await store(collected, STEP)
        await (await collected.begin(StepId(8, 0, 1, 0), "ann")).write(ARCHIVE)

    async def after(collected: Collected) -> None:
        writing = await collected.begin(StepId(9, 0, 1, 0), "ann")
        assert writing.limits.size_bytes == (12 << 10) - len(ARCHIVE)
        assert list((hal_home / "files" / "collected" / "staging").iterdir()) == []

    on_small(hal_home, before)
    on_small(hal_home, after)
