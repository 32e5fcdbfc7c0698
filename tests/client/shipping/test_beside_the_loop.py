"""The asyncio client's loop has its turns while directories are read, and while what was fetched is written.

Each function that waits for the disk waits, too, until the loop has taken a turn: on the loop that would never come.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hal
from hal.client.flows import shipping
from hal.client.flows.async_work import on_thread
from hal.client.shipping import archive
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply, as_json

DEADLINE_S = 30.0


class AfterATurn:
    """Wraps functions, so that they begin after the loop that runs has taken another turn."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.turned: list[bool] = []

    def wrap(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_do(*arguments: Any, **keywords: Any) -> Any:
            assert self.loop is not None
            turn = threading.Event()
            self.loop.call_soon_threadsafe(turn.set)
            self.turned.append(turn.wait(DEADLINE_S))
            return do(*arguments, **keywords)

        return wait_and_do


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "place"
    path.mkdir()
    (path / "a.txt").write_text("a")
    return path


class Controller:
    """A script: it misses the only segment of the first offer, and has one archive."""

    def __init__(self, archive: bytes = b"") -> None:
        self.archive = archive
        self.offers = 0

    def __call__(self, asked: Asked) -> Reply:
        match asked.path.removeprefix("/v1/"):
            case "bundles":
                self.offers += 1
                return as_json({"id": "sha256:" + "0" * 64, "missing": [0] if self.offers == 1 else []})
            case "bundles/segments":
                return as_json({"segments": 1})
            case "jobs":
                return as_json({"ids": ["5"]}, 201)
            case "jobs/5/files":
                return as_json({"collected": [{"task": 0, "files": 1, "size_bytes": len(self.archive)}]})
            case "jobs/5/files/archive":
                return Reply(self.archive, headers={"Content-Type": "application/x-tar"})
        return as_json({"id": "5", "state": "succeeded", "tasks": 1, "version": "0.1.0"})


@pytest.mark.parametrize("name", ["list_directory", "remembered", "pack", "_read"])
def test_a_directory_is_read_beside_the_loop(
    name: str, place: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = AfterATurn()
    monkeypatch.setattr(shipping, name, after.wrap(getattr(shipping, name)))
    server = serve(Controller())

    async def main() -> str:
        after.loop = asyncio.get_running_loop()
        async with await hal.aconnect() as client:
            return (await client.submit(["true"], ship=str(place))).id

    assert asyncio.run(main()) == "5"
    assert after.turned
    assert all(after.turned)
    assert [one.path for one in server.asked][-2:] == ["/v1/bundles", "/v1/jobs"]


def test_files_are_created_beside_the_loop(tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        member = tarfile.TarInfo("a.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"a"))
    after = AfterATurn()
    monkeypatch.setattr(archive, "_create", after.wrap(archive._create))

    serve(Controller(data.getvalue()))

    async def main() -> list[Path]:
        after.loop = asyncio.get_running_loop()
        async with await hal.aconnect() as client:
            job = await client.job(5)
            return await job.fetch(tmp_path / "to")

    assert [path.read_bytes() for path in asyncio.run(main())] == [b"a"]
    assert after.turned == [True]


def test_whoever_is_cancelled_waits_for_the_end_of_what_is_done() -> None:
    """So that no file is half written, or closed while it is read."""
    begun, go = threading.Event(), threading.Event()
    order: list[str] = []

    def work() -> None:
        begun.set()
        go.wait(DEADLINE_S)
        order.append("work ended")

    async def main() -> None:
        doing = asyncio.ensure_future(on_thread(work))
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        doing.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await doing
        order.append("cancelled")

    asyncio.run(main())
    assert order == ["work ended", "cancelled"]
