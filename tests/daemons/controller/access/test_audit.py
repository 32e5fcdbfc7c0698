"""The audit log: every change and every refusal, with who and from where; no secrets; bounded; read back in order."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hal.daemons.controller.access.audit import AuditLog, lines_backwards
from tests.daemons.controller.access.people import make_token, person, until_too_many, with_secret
from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["exit", "0"]}


def wrote(log: AuditLog, user: str, at_ms: int = 0) -> None:
    """One entry."""
    log.write(at_ms=at_ms, user=user, role="user", peer="p", token="", method="POST", path="/v1/jobs", status=201)


async def entries(hal: Running, **params: Any) -> list[dict[str, Any]]:
    """What REST tells, newest first."""
    answer = await hal.http.get("/v1/audit", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["entries"]
    return found


def test_a_change_is_told_with_who_where_and_what(hal_home: Path) -> None:
    """A submission and a cancel: user, role, address, token, targets, and the trace id that the events carry."""

    async def body(hal: Running) -> None:
        made = await make_token(hal, "alice")
        async with with_secret(hal, made["secret"]) as alice:
            await alice.post("/v1/jobs", json={"jobs": [TRUE, TRUE]})
            await alice.post("/v1/jobs/cancel", json={"ids": ["1"], "filter": {"name": "x"}})
            await alice.get("/v1/jobs")
        cancel, submit, token = await entries(hal)
        assert (submit["user"], submit["role"], submit["peer"]) == ("alice", "user", "192.0.2.7")
        assert (submit["token"], submit["status"], submit["targets"]) == (made["token"]["id"], 201, ["1-2"])
        assert cancel["targets"] == ["1", "name=x"]
        assert token["targets"] == [f"token {made['token']['id']} of alice"]
        events = (await hal.http.get("/v1/events", params={"job": "1"})).json()["events"]
        assert submit["trace_id"] in {event["trace_id"] for event in events}
        assert made["secret"].rpartition("_")[2] not in str(await entries(hal))

    on_controller(hal_home, body)


def test_what_is_refused_is_told_once_for_a_streak(hal_home: Path) -> None:
    """No right, somebody else's job, a wrong token; of many 429 in a row one line."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        async with person(hal, "bob") as bob, with_secret(hal, "hal_x_y") as thief:
            await bob.put("/v1/policy", json={})
            await bob.get("/v1/jobs/1")
            await thief.get("/v1/jobs")
            told = [(one.get("user", ""), one["status"], one.get("refused")) for one in await entries(hal)]
            assert told[:3] == [("", 401, "unauthorized"), ("bob", 404, "not-own"), ("bob", 403, "denied")]
            statuses = await until_too_many(thief)
            statuses += [(await thief.get("/v1/jobs")).status_code for _ in range(5)]
        later = await entries(hal, limit=1_000)
        assert sum(one.get("refused") == "unauthorized" for one in later) == statuses.count(401) + 1
        streaks = sum(now == 429 != before for before, now in pairwise(statuses))
        assert sum(one.get("refused") == "too-many" for one in later) == streaks

    on_controller(hal_home, body)


def test_the_log_is_for_operators_and_is_waited_on(hal_home: Path) -> None:
    """A user is refused; an operator who waits behind the newest entry is told of the next one."""

    async def body(hal: Running) -> None:
        async with person(hal, "bob") as bob, person(hal, "olga", role="operator") as olga:
            assert (await bob.get("/v1/audit")).status_code == 403
            newest = (await entries(hal))[0]["sequence"]
            params = {"after": str(newest), "wait_s": "30"}
            waiting = asyncio.ensure_future(olga.get("/v1/audit", params=params))
            await hal.submit(TRUE)
            (entry,) = (await waiting).json()["entries"]
            assert (entry["sequence"], entry["path"]) == (newest + 1, "/v1/jobs")
            assert [one["user"] for one in await entries(hal, user="bob")] == ["bob"]

    on_controller(hal_home, body)


def test_safety_the_log_is_bounded_and_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    """Of 400 entries in files of 4 kB, three kept: the newest are there, in order, without a gap; the next is 401."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=4_000, max_files=3)
    for number in range(400):
        wrote(log, f"u{number % 2}", number)
    log.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 3 * 4_000
    again = AuditLog(tmp_path / "audit.log", max_bytes=4_000, max_files=3)
    wrote(again, "late", 400)
    found = again.page(limit=10_000)
    kept = [entry.sequence for entry in found]
    assert kept == list(range(401, 401 - len(kept), -1))
    assert len(kept) > 50
    assert [entry.sequence for entry in again.page(limit=2, before=400)] == [399, 398]
    assert [entry.sequence for entry in again.page(limit=2, after=397)] == [398, 399]
    assert {entry.user for entry in again.page(limit=9, user="u1")} == {"u1"}
    assert [entry.at_ms for entry in again.page(limit=99, since_ms=399)] == [400, 399]
    again.close()


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    """A power failure leaves half a line: the entries before and after it are read."""
    log = AuditLog(tmp_path / "audit.log")
    wrote(log, "a")
    log.close()
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(b'{"sequence":2,"at_')
        file.write(b"\n\xff\xfe\n")
    again = AuditLog(tmp_path / "audit.log")
    wrote(again, "b")
    assert [entry.user for entry in again.page(limit=9)] == ["b", "a"]
    again.close()


@given(st.lists(st.binary(min_size=1, max_size=90_000).filter(lambda line: b"\n" not in line), max_size=5))
def test_lines_are_read_backwards(lines: list[bytes]) -> None:
    """Whatever their lengths: the same lines, the last first (those over the bound cut)."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "f"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        found = list(lines_backwards(file))
    short = [line for line in lines if len(line) < 60_000]
    assert [line for line in found if line in short] == short[::-1]
