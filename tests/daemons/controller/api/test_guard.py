"""The guard before the application: who comes in, in which version, with how much; what is noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.forwarded_identity import FOLLOWER
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.step_credentials import StepCredentials
from hal.daemons.controller.access.tokens import TokenBook
from hal.daemons.controller.api.table import ENDPOINTS
from hal.rest.audit import AuditLog, Entry
from hal.rest.callers import LocalPeer
from hal.rest.limits import Limits
from hal.rest.server import guard as bounds
from hal.rest.server.guard import Guard
from hal.rest.server.http_connection import MAX_HEADERS
from hal.runtime.real_runtime import RealRuntime
from tests.runtime.real_runtime import run_real

OWNER = LocalPeer(1000, "ada", True)
ALICE = LocalPeer(1001, "alice", False)
STRANGER = LocalPeer(1002, "eve", False)
LIMIT, USER_LIMIT = 1_000, 100


class Answered:
    """An application that notes what reaches it, and answers 200; and one caller of its guard."""

    def __init__(self, runtime: RealRuntime, directory: Path) -> None:
        self.bodies: list[bytes] = []
        self.audit = AuditLog(directory / "audit.log")
        self._guard = Guard(
            self._app,
            callers=Authenticator(
                AccessSection(users=("alice",)),
                TokenBook(),
                owner=OWNER,
                home_token="",
                now_ms=runtime.now_ms,
                used=lambda token: None,
                steps=StepCredentials(lambda: "", lambda: "", None),
            ),
            limits=Limits(
                requests_per_s=1_000,
                burst=1_000,
                at_once=2,
                max_request_bytes=LIMIT,
                max_user_request_bytes=USER_LIMIT,
            ),
            audit=self.audit,
            runtime=runtime,
            rows=ENDPOINTS,
        )

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.bodies.append(message.get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done", "more_body": False})

    async def ask(
        self,
        peer: LocalPeer | None = OWNER,
        *,
        method: str = "GET",
        path: str = "/v1/jobs",
        headers: list[tuple[bytes, bytes]] | None = None,
        pieces: tuple[bytes, ...] = (b"",),
        whole: bool = True,
    ) -> tuple[int, dict[bytes, bytes], Any]:
        """Status, headers, and the problem where there is one; `pieces`: of the body, the last one if it is whole."""
        told: list[Any] = []
        left = list(pieces)

        async def receive() -> Any:
            if not left:
                return {"type": "http.disconnect"}
            piece = left.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(left) or not whole}

        async def send(message: Any) -> None:
            told.append(message)

        scope: Any = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers or [],
            "client": ("192.0.2.1", 1),
            "state": {} if peer is None else {"peer": peer},
        }
        await self._guard(scope, receive, send)
        if not told:
            return 0, {}, None
        body = told[1]["body"]
        problem = msgspec.json.decode(body) if told[0]["status"] != 200 else None
        return told[0]["status"], dict(told[0]["headers"]), problem

    def noted(self) -> list[Entry]:
        """The audit log, newest first."""
        return self.audit.page(limit=10)


def on_guard(tmp_path: Path, test: Callable[[Answered], Awaitable[None]]) -> None:
    """Run it on a real runtime, for its clock."""

    async def main(runtime: RealRuntime) -> None:
        hal = Answered(runtime, tmp_path)
        await test(hal)
        hal.audit.close()

    run_real(tmp_path, main)


def test_every_answer_names_its_version_and_a_request_may_name_the_same(tmp_path: Path) -> None:
    """1 is spoken, 2 is refused before anything is done."""

    async def body(hal: Answered) -> None:
        status, headers, _ = await hal.ask(headers=[(b"hal-api-version", b"1")])
        assert (status, headers[b"hal-api-version"]) == (200, b"1")
        status, headers, problem = await hal.ask(headers=[(b"hal-api-version", b"2")])
        assert (status, headers[b"hal-api-version"], headers[b"connection"]) == (400, b"1", b"close")
        assert "'2' is not" in problem["detail"]
        assert len(hal.bodies) == 1

    on_guard(tmp_path, body)


def test_a_path_and_headers_are_bounded(tmp_path: Path) -> None:
    """8 KiB of path, 100 headers; one more is refused."""

    async def body(hal: Answered) -> None:
        longest = "/" * bounds.MAX_PATH_BYTES
        assert (await hal.ask(path=longest))[0] == 200
        assert (await hal.ask(path=longest + "/"))[0] == 400
        many = [(b"x", b"y")] * MAX_HEADERS
        assert (await hal.ask(headers=many))[0] == 200
        assert (await hal.ask(headers=[*many, (b"x", b"y")]))[0] == 431

    on_guard(tmp_path, body)


@pytest.mark.parametrize(("peer", "limit"), [(OWNER, LIMIT), (ALICE, USER_LIMIT)])
def test_a_body_is_as_long_as_its_role_may_send(tmp_path: Path, peer: LocalPeer, limit: int) -> None:
    """Announced or not, one byte more is refused, and nothing of it reaches the application."""

    async def body(hal: Answered) -> None:
        assert (await hal.ask(peer, method="POST", pieces=(b"a" * (limit - 1), b"b")))[0] == 200
        assert hal.bodies.pop() == b"a" * (limit - 1) + b"b"
        assert (await hal.ask(peer, method="POST", pieces=(b"a" * limit, b"b")))[0] == 413
        announced = [(b"content-length", str(limit + 1).encode())]
        assert (await hal.ask(peer, method="POST", headers=announced, pieces=()))[0] == 413
        assert hal.bodies == []

    on_guard(tmp_path, body)


def test_half_a_body_is_not_a_request(tmp_path: Path) -> None:
    """Its sender has gone: nothing is done, and the audit log says 499."""

    async def body(hal: Answered) -> None:
        assert (await hal.ask(method="POST", pieces=(b"{",), whole=False))[0] == 0
        assert hal.bodies == []
        assert hal.noted()[0].status == bounds.CLIENT_GONE

    on_guard(tmp_path, body)


def test_the_kernel_names_a_local_user_and_settings_their_role(tmp_path: Path) -> None:
    """Alice is in [access]; Eve is not; over TCP a token is needed. Who is refused is asked to close."""

    async def body(hal: Answered) -> None:
        assert (await hal.ask(ALICE))[0] == 200
        status, headers, _ = await hal.ask(STRANGER)
        assert (status, headers[b"connection"]) == (403, b"close")
        status, headers, _ = await hal.ask(None)
        assert (status, headers[b"www-authenticate"]) == (401, b"Bearer")
        assert [entry.refused for entry in hal.noted()] == ["unauthorized", "denied"]

    on_guard(tmp_path, body)


def test_only_the_authority_is_shown_to_strangers(tmp_path: Path) -> None:
    """GET of that path alone; a token that is wrong is wrong there, too."""

    async def body(hal: Answered) -> None:
        assert (await hal.ask(None, path="/v1/authority"))[0] == 200
        assert (await hal.ask(None, path="/v1/authority", method="POST"))[0] == 401
        assert (await hal.ask(None, path="/v1/authority/"))[0] == 401
        wrong = [(b"authorization", b"Bearer hal_x_y")]
        assert (await hal.ask(None, path="/v1/authority", headers=wrong))[0] == 401

    on_guard(tmp_path, body)


def test_who_shows_wrong_tokens_again_and_again_is_refused_for_a_while_and_noted_once(tmp_path: Path) -> None:
    """50 are answered 401, the next ones 429 with Retry-After; one entry says so."""

    async def body(hal: Answered) -> None:
        statuses = [(await hal.ask(None))[0] for _ in range(bounds.FAILURES_AT_ONCE + 20)]
        assert statuses[: bounds.FAILURES_AT_ONCE] == [401] * bounds.FAILURES_AT_ONCE
        status, headers, _ = await hal.ask(None)
        assert (status, headers[b"retry-after"]) == (429, b"1")
        assert sum(entry.refused == "too-many" for entry in hal.audit.page(limit=100)) == 1
        assert (await hal.ask(ALICE))[0] == 200

    on_guard(tmp_path, body)


def test_what_changes_something_is_noted_and_what_reads_is_not(tmp_path: Path) -> None:
    """With who, method, path and status."""

    async def body(hal: Answered) -> None:
        await hal.ask(ALICE)
        await hal.ask(ALICE, method="POST", pieces=(b"{}",))
        (entry,) = hal.noted()
        assert (entry.user, entry.method, entry.path, entry.status) == ("alice", "POST", "/v1/jobs", 200)
        assert entry.trace_id

    on_guard(tmp_path, body)


def test_one_that_does_not_lead_takes_nothing_from_followers(tmp_path: Path) -> None:
    """It was passed on to the wrong controller: try again, with another leader."""

    async def body(hal: Answered) -> None:
        status, _, problem = await hal.ask(headers=[(FOLLOWER, b"secret")])
        assert (status, problem["code"]) == (503, "no-leader")

    on_guard(tmp_path, body)
