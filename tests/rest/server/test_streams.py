"""Bodies that a handler reads as they come: admitted when their route is found, and only while their token is valid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hal.core.model import InternalError
from hal.rest.audit import AuditLog
from hal.rest.controller_callers import ControllerCallers
from hal.rest.endpoint import Endpoint, stream_of
from hal.rest.errors import SenderGoneError, TooLargeError
from hal.rest.identity import UnauthorizedError
from hal.rest.limits import Limits
from hal.rest.rights import EVERYBODY
from hal.rest.server.guard import Guard
from hal.rest.token_cache import KEEP_MS, RELY_MS
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualWorld
from tests.rest.test_token_cache import Book

MOST_BYTES = 100


async def nobody(api: Any, call: Any) -> object:
    """The application here reads the body itself."""
    return None


PUT = Endpoint(
    method="PUT", path="/v1/items/{name}", handler=nobody, right=EVERYBODY, name="put", tag="items", summary="Put",
    body=stream_of(MOST_BYTES),
)  # fmt: skip


class Upload:
    """One request of Alice's with a body in pieces, and the application behind its guard."""

    def __init__(self, runtime: Runtime, directory: Path, *, let_through: bool = True) -> None:
        self.runtime = runtime
        self.book = Book()
        self.read = b""
        self.failed: Exception | None = None
        self.audit = AuditLog(directory / "audit.log")
        self._let_through = let_through
        self._guard = Guard(
            self._app,
            callers=ControllerCallers(runtime, self.book, owner_uid=1000, instance="i"),
            limits=Limits(max_request_bytes=10),
            audit=self.audit,
            runtime=runtime,
            rows=(PUT,),
        )

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if self._let_through:
            scope["state"]["body"].let_through(MOST_BYTES)
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise SenderGoneError("gone")
                self.read += message["body"]
                if not message["more_body"]:
                    break
        except Exception as error:
            self.failed = error
        await send({"type": "http.response.start", "status": 400 if self.failed else 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(self, *steps: bytes | Callable[[], Awaitable[None]], whole: bool = True) -> dict[bytes, bytes]:
        """Headers of the answer to these pieces; what stands between them happens when the next is asked for."""
        left = list(steps)
        told: list[Any] = []

        async def receive() -> Any:
            while left:
                step = left.pop(0)
                if isinstance(step, bytes):
                    return {"type": "http.request", "body": step, "more_body": bool(left) or not whole}
                await step()
            return {"type": "http.disconnect"}

        async def sent(message: Any) -> None:
            told.append(message)

        scope: Any = {
            "type": "http",
            "method": "PUT",
            "path": "/v1/items/x",
            "query_string": b"",
            "headers": [(b"authorization", b"Bearer alices")],
            "client": ("192.0.2.1", 1),
            "state": {},
        }
        await self._guard(scope, receive, sent)
        return dict(told[0]["headers"])


def on_upload(tmp_path: Path, test: Callable[[Upload], Awaitable[None]], **how: bool) -> None:
    """Run it under virtual time."""
    world, ended = VirtualWorld(seed=1), []

    async def main(runtime: Runtime) -> None:
        upload = Upload(runtime, tmp_path, **how)
        await test(upload)
        upload.audit.close()
        ended.append(True)

    world.start(world.host("h"), "daemon", main)
    world.run_for(100 * RELY_MS)
    assert ended


def test_a_long_upload_goes_on_while_its_token_is_valid(tmp_path: Path) -> None:
    """Longer than what the controller said may be relied on: it is asked again meanwhile."""

    async def body(upload: Upload) -> None:
        async def later() -> None:
            await upload.runtime.sleep(RELY_MS)

        headers = await upload.send(b"a", later, b"b", later, b"c")
        assert (upload.read, upload.failed, b"connection" in headers) == (b"abc", None, False)

    on_upload(tmp_path, body)


def test_safety_an_upload_ends_with_its_token(tmp_path: Path) -> None:
    """Revoked between two pieces: the handler learns of it with the next, and undoes what it began."""

    async def body(upload: Upload) -> None:
        async def revoked() -> None:
            del upload.book.ids["alices"]
            await upload.runtime.sleep(KEEP_MS)

        headers = await upload.send(b"a", revoked, b"b", b"c")
        assert (upload.read, type(upload.failed)) == (b"a", UnauthorizedError)
        assert headers[b"connection"] == b"close"

    on_upload(tmp_path, body)


def test_a_body_that_breaks_off_is_told_from_a_whole_one(tmp_path: Path) -> None:
    """The handler gets an error, and the audit log says that its sender gave up."""

    async def body(upload: Upload) -> None:
        await upload.send(b"a", b"b", whole=False)
        assert type(upload.failed) is SenderGoneError
        assert [entry.status for entry in upload.audit.page(limit=9)] == [499]

    on_upload(tmp_path, body)


@pytest.mark.parametrize(("size", "fails"), [(MOST_BYTES, False), (MOST_BYTES + 1, True)])
def test_a_row_has_its_own_longest_body(tmp_path: Path, size: int, fails: bool) -> None:
    """Ten times what bodies that are read whole may have here; one byte more is too much."""

    async def body(upload: Upload) -> None:
        await upload.send(bytes(size - 1), b"x")
        assert isinstance(upload.failed, TooLargeError) is fails

    on_upload(tmp_path, body)


def test_safety_a_body_is_not_read_whole_by_mistake(tmp_path: Path) -> None:
    """Where the route that is found does not read it as a stream, nothing of it is handed over."""

    async def body(upload: Upload) -> None:
        await upload.send(b"a")
        assert (upload.read, type(upload.failed)) == (b"", InternalError)

    on_upload(tmp_path, body, let_through=False)
