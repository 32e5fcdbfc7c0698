"""The loop and its planes: wherever a plane raises, one request is answered with it, and nothing else stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model import HALError, InternalError, StoreError
from hal.daemons.controller.cycle.plane_group import PlaneGroup, PlanePort
from hal.planes.joining import JoiningPlane
from hal.store import PutMeta
from tests.daemons.controller.running import Running, running
from tests.planes.notes_plane import POISON, PREFIX, REQUEST_POINTS, NotesPlane

TRUE = {"command": ["exit", "0"]}


class Notes:
    """Requests to the plane of notes of a running controller."""

    def __init__(self, hal: Running, plane: NotesPlane) -> None:
        self.plane = plane
        self._hal = hal
        self._port: PlanePort[NotesPlane] = hal.controller.planes.port(plane)

    async def write(self, name: str, text: str) -> str:
        """Write a note; its text, when it is durable."""
        return await self._hal.api.jobs._parts.loop.inbox.call(lambda now_ms: self._port.use().write(name, text))

    def stored(self) -> dict[str, str]:
        """The rows of the plane, by name."""
        rows = self._hal.api.jobs._parts.committer.store.facts(PREFIX)
        return {key.removeprefix(PREFIX): text for key, text in rows.items()}

    async def among_others(self, name: str, text: str) -> object:
        """Write a note in one group with a good one and with 10 jobs, all of which must succeed; what was answered."""
        jobs = [self._hal.submit(TRUE) for _ in range(10)]
        good = self.write("good", "kept")
        answers = await asyncio.gather(self.write(name, text), good, *jobs, return_exceptions=True)
        assert answers[1] == "kept"
        for ids in answers[2:]:
            assert isinstance(ids, list), ids
            assert (await self._hal.ended(ids[0]))["state"] == "succeeded"
        assert self._hal.api.status.health().status == "ok"
        return answers[0]


def with_notes(root: Path, test: Callable[[Running, Notes], Awaitable[None]]) -> None:
    """Run a test's body against a controller with a plane of notes, and one node."""

    async def body() -> None:
        plane = NotesPlane()
        async with running(root, planes=[plane]) as hal:
            await hal.agent()
            await test(hal, Notes(hal, plane))

    asyncio.run(body())


@pytest.mark.parametrize("point", ["write", *REQUEST_POINTS])
def test_a_request_at_which_its_plane_raises_is_answered_and_all_others_happen(hal_home: Path, point: str) -> None:
    """Also another request to the same plane, in the same group."""

    async def body(hal: Running, notes: Notes) -> None:
        if point == "write":
            # The first of the two notes to be staged, which is the bad one.
            notes.plane.fails_at["write"] = 1
        notes.plane.poisoned_at = point
        assert isinstance(await notes.among_others("bad", POISON), HALError)
        assert notes.stored() == notes.plane.notes == {"good": "kept"}

    with_notes(hal_home, body)


@pytest.mark.parametrize("point", ["keep", "staged"])
def test_a_plane_that_fails_with_nobody_to_blame_is_read_again_and_all_requests_happen(
    hal_home: Path, point: str
) -> None:
    """What was committed is what it remembers afterwards."""

    async def body(hal: Running, notes: Notes) -> None:
        before = notes.plane.reads
        notes.plane.fails_at[point] = 1
        assert await notes.among_others("other", "kept too") == "kept too"
        await hal.until(lambda: notes.plane.reads > before)
        assert notes.stored() == notes.plane.notes == {"good": "kept", "other": "kept too"}

    with_notes(hal_home, body)


def test_a_plane_that_cannot_undo_is_read_again(hal_home: Path) -> None:
    """The group is staged again without the bad request, on what is durable."""

    async def body(hal: Running, notes: Notes) -> None:
        notes.plane.poisoned_at = "settling"
        notes.plane.fails_at["undoing"] = 1
        assert isinstance(await notes.among_others("bad", POISON), HALError)
        assert notes.stored() == notes.plane.notes == {"good": "kept"}

    with_notes(hal_home, body)


@pytest.mark.parametrize("point", ["read", "install"])
def test_a_plane_that_cannot_be_read_refuses_its_requests_and_nothing_else(hal_home: Path, point: str) -> None:
    """The refusal says why; jobs run; the plane of joining answers."""

    async def body(hal: Running, notes: Notes) -> None:
        notes.plane.fails_at |= {"keep": 1, point: 1_000}
        await notes.write("first", "durable")
        await hal.until(lambda: bool(hal.controller.planes.failed))
        with pytest.raises(InternalError, match="notes plane is out of service: the notes plane failed: PlaneE"):
            await notes.write("second", "refused")
        (job,) = await hal.submit(TRUE)
        assert (await hal.ended(job))["state"] == "succeeded"
        assert notes.stored() == {"first": "durable"}

    with_notes(hal_home, body)


@pytest.mark.parametrize("point", ["engine_events", "told"])
def test_a_plane_that_cannot_tell_a_rebuilt_engine_is_left_out_of_it(hal_home: Path, point: str) -> None:
    """The engine is rebuilt because of a request that cannot be stored; jobs run on it."""

    async def body(hal: Running, notes: Notes) -> None:
        await notes.write("first", POISON)
        notes.plane.fails_at[point] = 1_000
        parts = hal.api.jobs._parts
        with pytest.raises(StoreError):
            await parts.loop.inbox.call(lambda now_ms: parts.plane.add_operations(PutMeta({"poison": "\ud800"})))
        (job,) = await hal.submit(TRUE)
        assert (await hal.ended(job))["state"] == "succeeded"
        assert [plane.name for plane in hal.controller.planes.failed] == ["notes"]

    with_notes(hal_home, body)


def test_two_planes_of_one_name_cannot_be_attached(hal_home: Path) -> None:
    """Their failures and their requests could not be told apart."""

    async def body(hal: Running, notes: Notes) -> None:
        group: PlaneGroup[object] = hal.controller.planes  # type: ignore[assignment]
        with pytest.raises(InternalError, match="there is a plane 'joining' already"):
            group.attach(JoiningPlane())

    with_notes(hal_home, body)
