"""The daemon of examples/shelf: rows, rights, streams, limits, the audit log, and callers whom the controller knows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.rest import token_cache
from hal.rest.daemon import HEALTH, interface_of
from hal.rest.identity import HOME_TOKEN
from hal.rest.limits import Limits
from hal.rest.server import guard, http_connection
from tests.daemons.controller.access.people import make_token
from tests.rest.serving import SHELF, Run, Served, on_shelf, shared

BIG = 3 << 20


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """A shelf that the tests below share."""
    with shared("shelf") as made:
        yield made


def test_bytes_come_back_as_they_were_sent(run: Run) -> None:
    """A body of 3 MiB in pieces, in chunks without a length; and out again."""
    sent = bytes(range(256)) * (BIG >> 8)

    async def body(shelf: Served) -> None:
        async def pieces():  # type: ignore[no-untyped-def]
            for at in range(0, BIG, 100_000):
                yield sent[at : at + 100_000]

        kept = await shelf.http.put("/v1/items/big", content=pieces())
        assert (kept.status_code, kept.json()) == (200, {"name": "big", "bytes": BIG})
        got = await shelf.http.get("/v1/items/big")
        assert (got.headers["content-type"], got.content == sent) == ("application/octet-stream", True)

    run(body)


def test_a_streamed_body_takes_no_memory_for_bodies(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is longer than all bodies together may be that are kept."""
    monkeypatch.setattr(guard, "KEPT_BYTES", 1 << 10)

    async def body(shelf: Served) -> None:
        assert (await shelf.http.put("/v1/items/big", content=bytes(BIG))).status_code == 200

    on_shelf(hal_home, body, limits=Limits(max_request_bytes=1 << 10))


def test_a_body_beyond_its_rows_length_is_cut_and_nothing_is_kept(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Announced: refused at once. In chunks: while it comes."""
    monkeypatch.setattr(http_connection, "UNADMITTED_BYTES", 4 * BIG)
    (put, *others) = SHELF["INTERFACE"].rows
    short = replace(put, body=replace(put.body, stream_bytes=100))
    interface = replace(SHELF["INTERFACE"], rows=(short, *others))
    monkeypatch.setitem(SHELF, "INTERFACE", interface)

    async def body(shelf: Served) -> None:
        head = b"PUT /v1/items/x HTTP/1.1\r\nHost: h\r\n"
        async with shelf.caller(head + b"Content-Length: 101\r\n\r\n") as one:
            assert b" 413 " in await one.closed()
        async with shelf.caller(head + b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + bytes(101) + b"\r\n") as one:
            assert b" 413 " in await one.closed()
        assert (await shelf.http.get("/v1/items/x")).status_code == 404
        assert (await shelf.http.put("/v1/items/x", content=bytes(100))).status_code == 200

    on_shelf(hal_home, body)


def test_users_see_their_own_and_operators_everybodys(run: Run) -> None:
    """Somebody else's item is as if it were not there; the audit log knows better."""

    async def body(shelf: Served) -> None:
        ada, bob = await make_token(shelf.hal, "ada"), await make_token(shelf.hal, "bob")
        operator = await make_token(shelf.hal, "eve", role="operator")
        async with shelf.with_token(ada["secret"]) as http:
            assert (await http.put("/v1/items/x", content=b"ada's")).status_code == 200
        async with shelf.with_token(bob["secret"]) as http:
            refused = await http.get("/v1/items/x", params={"user": "ada"})
            assert (refused.status_code, refused.json()["code"]) == (404, "not-found")
        async with shelf.with_token(operator["secret"]) as http:
            assert (await http.get("/v1/items/x", params={"user": "ada"})).content == b"ada's"
        (spied, kept) = shelf.server._audit.page(limit=2)
        assert (spied.user, spied.refused, spied.path) == ("bob", "not-own", "/v1/items/x")
        assert (kept.user, kept.token, kept.targets) == ("ada", ada["token"]["id"], ("item x",))

    run(body)


def test_a_steps_token_by_itself_opens_only_rows_that_are_about_its_job(hal_home: Path) -> None:
    """Users keep what they like on a shelf, so both rows refuse it; it learns who it is, and what that opens."""

    async def body(shelf: Served) -> None:
        agent = await shelf.hal.agent()
        (job,) = await shelf.hal.submit({"command": ["sleep"]})
        await agent.until(lambda one: one.started)
        async with shelf.with_token(agent.credential()) as http:
            refused = [await http.put("/v1/items/x", content=b"x"), await http.get("/v1/items/x")]
            who = (await http.get("/v1/whoami", params={"rights": "1"})).json()
        assert [answer.status_code for answer in refused] == [403, 403]
        assert f"a step of job {job} speaks for that job" in refused[0].json()["detail"]
        assert (who["job"], [path for path, reach in who["rights"].items() if "items" in path and reach != "none"]) == (
            int(job),
            [],
        )

    on_shelf(hal_home, body)


def test_a_row_for_tokens_of_jobs_takes_them(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (put, *others) = SHELF["INTERFACE"].rows
    interface = replace(SHELF["INTERFACE"], rows=(replace(put, for_job_tokens=True), *others))
    monkeypatch.setitem(SHELF, "INTERFACE", interface)

    async def body(shelf: Served) -> None:
        agent = await shelf.hal.agent()
        await shelf.hal.submit({"command": ["sleep"]})
        await agent.until(lambda one: one.started)
        async with shelf.with_token(agent.credential()) as http:
            assert (await http.put("/v1/items/x", content=b"x")).status_code == 200
            assert (await http.get("/v1/items/x")).status_code == 403

    on_shelf(hal_home, body)


def test_a_token_that_only_reads_keeps_nothing(run: Run) -> None:
    """The same rule as the controller's; not a byte of the body is admitted."""

    async def body(shelf: Served) -> None:
        made = await make_token(shelf.hal, "ada", read_only=True)
        async with shelf.with_token(made["secret"]) as http:
            refused = await http.put("/v1/items/x", content=b"x")
            assert (refused.status_code, "read-only" in refused.json()["detail"]) == (403, True)

    run(body)


def test_callers_are_who_the_controller_says_and_nobody_without_a_token(run: Run) -> None:
    """401 for none, for a wrong and for a revoked one; a token's user, role and end as the controller shows them."""

    async def body(shelf: Served) -> None:
        made = await make_token(shelf.hal, "ada", role="operator")
        async with shelf.with_token(made["secret"]) as http:
            who = (await http.get("/v1/whoami")).json()
            assert (who["user"], who["role"], who["peer"]) == ("ada", "operator", "192.0.2.7")
            assert (who["token"], who["expires_ms"]) == (made["token"]["id"], made["token"]["expires_ms"])
        for secret in ("", "hal_x_y", "two words", HOME_TOKEN):
            async with shelf.with_token(secret) as http:
                refused = await http.get("/v1/whoami")
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        owner = (await shelf.http.get("/v1/whoami")).json()
        assert (owner["role"], owner["token"]) == ("admin", "")

    run(body)


def test_safety_a_revoked_token_opens_nothing_a_moment_later(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revoked at the controller; refused here as soon as what it said before is too old."""
    monkeypatch.setattr(token_cache, "KEEP_MS", 1)

    async def body(shelf: Served) -> None:
        made = await make_token(shelf.hal, "ada")
        async with shelf.with_token(made["secret"]) as http:
            assert (await http.get("/v1/whoami")).status_code == 200
            await shelf.hal.http.post(f"/v1/api-tokens/{made['token']['id']}/revoke")
            await shelf.runtime.sleep(2)
            refused = await http.get("/v1/whoami")
        assert (refused.status_code, "was revoked" in refused.json()["detail"]) == (401, True)

    on_shelf(hal_home, body)


ASKS = """
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall(b"GET /v1/whoami HTTP/1.1\\r\\nHost: h\\r\\nConnection: close\\r\\n\\r\\n")
print(b"".join(iter(lambda: one.recv(65536), b"")).split()[1].decode())
"""


def test_safety_what_a_step_runs_is_not_the_owner(run: Run) -> None:
    """A process in a step of this HAL, under the owner's account: 401 without its token. In one of another HAL: 200."""

    async def body(shelf: Served) -> None:
        instance = (await shelf.hal.http.get("/v1/whoami")).json()["instance"]
        statuses = []
        for name in (instance, "another"):
            ask = partial(
                subprocess.run,
                [sys.executable, "-S", "-c", ASKS, str(shelf.socket)],
                env={"HAL_ATTEMPT_TOKEN": f"{name}-1.0.1-1.1"},
                capture_output=True,
                text=True,
                timeout=60,
            )
            statuses.append((await shelf.runtime.run_blocking(ask)).stdout.strip())
        assert statuses == ["401", "200"]

    run(body)


def test_safety_no_token_is_in_a_log_or_file(run: Run) -> None:
    """Whatever was asked with it, here and of the controller; also where it was wrong."""

    async def body(shelf: Served) -> None:
        made = await make_token(shelf.hal, "ada")
        for secret in (made["secret"], "hal_wrong_wrongwrong"):
            async with shelf.with_token(secret) as http:
                await http.put("/v1/items/x", content=b"x")
                await http.get("/v1/nowhere")
        secrets = [made["secret"].rpartition("_")[2].encode(), b"wrongwrong"]
        files = [path for path in shelf.runtime.paths.root.rglob("*") if path.is_file()]
        assert [path for path in files if any(secret in path.read_bytes() for secret in secrets)] == []

    run(body)


def test_a_user_has_so_many_requests(hal_home: Path) -> None:
    """The daemon's own limits; the refusal names its section."""

    async def body(shelf: Served) -> None:
        made = await make_token(shelf.hal, "ada")
        async with shelf.with_token(made["secret"]) as http:
            answers = [await http.get("/v1/whoami") for _ in range(3)]
        assert [one.status_code for one in answers[:2]] == [200, 200]
        assert (answers[2].status_code, "shelf.burst" in answers[2].json()["hint"]) == (429, True)

    on_shelf(hal_home, body, limits=Limits(requests_per_s=1, burst=2, section="shelf"))


def test_a_description_names_every_route(run: Run) -> None:
    """GET /v1/openapi.json is the document of spec/openapi, and what is not in it is refused."""

    async def body(shelf: Served) -> None:
        described = (await shelf.http.get("/v1/openapi.json")).json()
        written = Path(__file__).parents[2] / "spec" / "openapi" / "shelf-v1.json"
        assert described == json.loads(written.read_text())
        assert (await shelf.http.get("/v1/nowhere")).status_code == 404
        assert (await shelf.http.delete("/v1/items/x")).status_code == 405

    run(body)


def test_rights_are_told_by_operation(run: Run) -> None:
    """What a user reaches, and what a token that only reads does not."""

    async def body(shelf: Served) -> None:
        made = await make_token(shelf.hal, "ada", read_only=True)
        async with shelf.with_token(made["secret"]) as http:
            rights = (await http.get("/v1/whoami?rights=1")).json()["rights"]
        assert rights == {
            "PUT /v1/items/{name}": "none",
            "GET /v1/items/{name}": "own",
            "GET /v1/health": "all",
            "GET /v1/whoami": "all",
            "GET /v1/openapi.json": "all",
        }

    run(body)


def test_a_daemon_without_a_health_of_its_own_is_well_while_it_answers(run: Run) -> None:
    """That is what the supervisor asks; one that declares the row answers itself."""

    async def body(shelf: Served) -> None:
        health = await shelf.http.get("/v1/health")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})

    run(body)
    own = interface_of(SHELF["ABOUT"], (replace(HEALTH, summary="Its own"),))
    assert [row.summary for row in own.rows if row.path == "/v1/health"] == ["Its own"]
