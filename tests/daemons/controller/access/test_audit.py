"""The audit log: every change and every refusal, with who and from where; no secrets; bounded; read back in order."""

from __future__ import annotations

import asyncio
import os
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model.audit_chain import Head
from hal.core.model.printable import printable
from hal.daemons.controller.config import Config
from hal.daemons.controller.service.access.audit_heads import Stored, with_head
from hal.rest import audit
from hal.rest.audit import STREAK_ENTRIES, STREAK_MS, AuditLog
from hal.runtime.audit_directory import lines_backwards
from hal.runtime.syslog import Syslog
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


def test_what_was_refused_of_a_request_that_named_several_is_told(hal_home: Path) -> None:
    """The request succeeded, and its entry says of which it did not: nodes, jobs, and no more names than five."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        await hal.http.post("/v1/nodes/drain", json={"nodes": ["n1", "nosuch"]})
        await hal.http.post("/v1/jobs/cancel", json={"ids": [str(number) for number in range(1, 8)]})
        cancel, drain = (await entries(hal))[:2]
        assert (drain["status"], drain["targets"]) == (200, ["refused nosuch: not-found", "n1", "nosuch"])
        named = [f"refused {number}: not-found" for number in range(1, 6)]
        assert cancel["targets"][:6] == [*named, "refused 2 more"]

    on_controller(hal_home, body)


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
        refusals = [one.get("times", 1) for one in later if one.get("refused") == "unauthorized"]
        assert refusals == [1] * STREAK_ENTRIES  # the others are counted, and told of when the minute is over
        streaks = sum(now == 429 != before for before, now in pairwise(statuses))
        assert sum(one.get("refused") == "too-many" for one in later) == streaks

    on_controller(hal_home, body)


def test_of_what_a_plane_repeats_the_first_has_an_entry_and_a_refusal_too(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice three times, once for another kind, once malformed: one entry each, and none for the repetitions yet."""
    monkeypatch.setattr(audit, "STREAK_MS", 3_600_000)  # a busy machine may take more than a minute

    async def body(hal: Running) -> None:
        update = {"space": "nodes", "keys": ["n1"], "values": [1]}
        for kind, columns in [("price", update)] * 3 + [("load", update), ("price", {"space": "nodes"})]:
            await hal.http.put(f"/v1/advice/{kind}", json=columns)
        told = [(one["path"].rpartition("/")[2], one["status"]) for one in await entries(hal)]
        assert told == [("price", 400), ("load", 200), ("price", 200)]

    on_controller(hal_home, body)


def test_what_is_repeated_each_second_has_one_entry_a_minute_that_counts_them(tmp_path: Path) -> None:
    """One caller for ten minutes, another path in between once: each request is counted once, in 11 + 1 entries."""
    log = AuditLog(tmp_path / "audit.log")

    def put(at_s: int, path: str) -> None:
        log.write(
            at_ms=1_000 * at_s, user="plane", role="operator", peer="p", token="t", method="PUT", path=path, status=200,
            repeated=True,
        )  # fmt: skip

    for second in range(600):
        put(second, "/v1/advice/price")
    put(600, "/v1/advice/load")
    log.close()
    found = AuditLog(tmp_path / "audit.log").page(limit=99)[::-1]
    assert [one.times for one in found if one.path == "/v1/advice/price"] == [1, 59, *[60] * 9]
    assert [one.times for one in found if one.path == "/v1/advice/load"] == [1]
    assert [(one.since_ms, one.at_ms) for one in found[1:3]] == [(0, 59_000), (60_000, 119_000)]


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
    """Of 400 entries of two users in 24 kB: of each the newest, in order, without a gap; the next is 401."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=24_000)
    for number in range(400):
        wrote(log, f"u{number % 2}", number)
    log.close()
    assert sum(file.stat().st_size for file in (tmp_path / "audit").iterdir()) <= 24_000
    again = AuditLog(tmp_path / "audit.log", max_bytes=24_000)
    wrote(again, "late", 400)
    found = again.page(limit=10_000)
    kept = [entry.sequence for entry in found]
    assert kept == sorted(kept, reverse=True)
    for user in ("u0", "u1"):
        of_one = [entry.sequence for entry in found if entry.user == user]
        assert of_one == [entry.sequence for entry in again.page(limit=10_000, user=user)]
        assert of_one == list(range(of_one[0], of_one[0] - 2 * len(of_one), -2))
        assert len(of_one) > 25
    assert kept[:3] == [401, 400, 399]
    assert [entry.sequence for entry in again.page(limit=2, before=400)] == [399, 398]
    assert [entry.sequence for entry in again.page(limit=2, after=397)] == [398, 399]
    assert [entry.at_ms for entry in again.page(limit=99, since_ms=399)] == [400, 399]
    again.close()


@pytest.mark.slow
@pytest.mark.parametrize("flooder", ["mallory", "", "user-bob", "bob.", "..", "böb/../bob", "x" * 400])
@pytest.mark.parametrize("status", [201, 404, 429])
def test_nobody_washes_away_the_entries_of_another(tmp_path: Path, flooder: str, status: int) -> None:
    """(M2, attempt 64) A user or a stranger writes ten times what there is room for: bob's few entries all stay."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=30_000)
    for number in range(5):
        wrote(log, "bob", number)
    for number in range(2_000):
        log.write(
            at_ms=number * 100, user=flooder, role="user", peer=f"192.0.2.{number % 200}", token="t", method="POST",
            path=f"/v1/jobs/{number}", status=status, targets=["x" * 200] * 20,
        )  # fmt: skip
    assert [entry.sequence for entry in log.page(limit=9, user="bob")] == [5, 4, 3, 2, 1]
    assert sum(file.stat().st_size for file in (tmp_path / "audit").iterdir()) <= 30_000
    assert log.page(limit=1)[0].user == flooder
    log.close()


def test_many_flooders_do_not_wash_away_who_writes_little(tmp_path: Path) -> None:
    """(M2) Twenty users together: each loses of its own first."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=100_000)
    wrote(log, "bob")
    for number in range(6_000):
        wrote(log, f"flooder{number % 20}", number)
    assert [entry.sequence for entry in log.page(limit=9, user="bob")] == [1]
    log.close()


def refused(log: AuditLog, at_ms: int, path: str = "/v1/jobs/cancel", user: str = "mallory") -> None:
    """One that was."""
    log.write(
        at_ms=at_ms, user=user, role="user", peer="192.0.2.7", token="t1", method="POST", path=path, status=404,
        refused="not-own", targets=["\x1b" * 200] * 50, trace_id="0" * 32,
    )  # fmt: skip


def test_a_streak_of_refusals_is_told_in_few_lines(tmp_path: Path) -> None:
    """(M2) Of 1,000 in a minute ten have an entry each, the others one that counts them, with the last path."""
    log = AuditLog(tmp_path / "audit.log")
    for number in range(1_000):
        refused(log, number, path=f"/v1/jobs/{number}")
    log.settle(STREAK_MS)
    found = log.page(limit=100)
    assert [entry.times for entry in found] == [990, *[1] * 10]
    assert (found[0].path, found[0].since_ms, found[0].at_ms) == ("/v1/jobs/999", 0, 999)
    log.close()


def test_what_is_counted_is_written_when_the_log_is_closed(tmp_path: Path) -> None:
    """Of two streaks, too; a later log reads them."""
    log = AuditLog(tmp_path / "audit.log")
    for number in range(30):
        refused(log, number, user=f"m{number % 2}")
    log.close()
    again = AuditLog(tmp_path / "audit.log")
    assert sum(entry.times for entry in again.page(limit=100)) == 30
    again.close()


@pytest.mark.parametrize("path", ["/v1/" + "x" * 10_000, "/" + "\x1b" * 300, "/" + "é\u202e" * 200, "/\U000e0041" * 99])
def test_a_refused_request_takes_few_bytes(tmp_path: Path, path: str) -> None:
    """(M2) Whatever its path and what it named: at most 400 bytes, and nothing in it that acts on a terminal."""
    log = AuditLog(tmp_path / "audit.log")
    refused(log, 0, path=path)
    log.close()
    (file,) = (tmp_path / "audit").glob("user-*")
    assert len(file.read_bytes()) <= 401
    assert file.read_text() == printable(file.read_text(), lines=True)
    assert AuditLog(tmp_path / "audit.log").page(limit=9)[0].more == 50


def test_entries_go_by_age_where_that_is_asked_for(tmp_path: Path) -> None:
    """`[audit] days`: files in which nothing was written for so long."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=1 << 20, days=30)
    for number in range(30):
        wrote(log, "bob", number)
    (oldest, *_) = sorted((tmp_path / "audit").iterdir())
    os.utime(oldest, (0, 0))
    for number in range(30):
        wrote(log, "ada", 31 * 86_400_000 + number)
    assert not oldest.exists()
    log.close()


def test_what_an_earlier_version_wrote_is_read_on(tmp_path: Path) -> None:
    """`audit.log` and `audit.log.1`; numbers go on behind them."""
    for name, number in (("audit.log.1", 7), ("audit.log", 8)):
        (tmp_path / name).write_text(
            f'{{"sequence":{number},"at_ms":1,"user":"u","method":"M","path":"/","status":200}}\n'
        )
    log = AuditLog(tmp_path / "audit.log")
    wrote(log, "u")
    assert [entry.sequence for entry in log.page(limit=9)] == [9, 8, 7]
    log.close()


def test_a_copy_goes_to_syslog_and_never_waits(tmp_path: Path) -> None:
    """A datagram each; one that nobody takes is counted and told of by the next; none is waited for."""
    log = AuditLog(tmp_path / "audit.log", syslog=Syslog("hal-audit", str(tmp_path / "dev-log")))
    wrote(log, "before")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as machine:
        machine.bind(str(tmp_path / "dev-log"))
        wrote(log, "bob")
        first = machine.recv(4_096)
        for _ in range(2_000):  # far more than a socket holds
            wrote(log, "mallory")
        assert machine.recv(4_096).startswith(b"<86>hal-audit[")
    assert b"(1 lines before this were dropped)" in first
    assert b'"user":"bob"' in first
    assert log.page(limit=1)[0].sequence == 2_002
    log.close()


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    """A power failure leaves half a line: the entries before and after it are read."""
    log = AuditLog(tmp_path / "audit.log")
    wrote(log, "a")
    log.close()
    (written,) = (tmp_path / "audit").glob("user-*")
    with written.open("ab") as file:
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


def test_the_head_is_in_the_store_when_it_is_told_and_stands_for_what_was_written(hal_home: Path) -> None:
    """An operator asks; a user may not. Nothing new: the same head."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        async with person(hal, "bob") as bob, person(hal, "olga", role="operator") as olga:
            assert (await bob.get("/v1/audit/head")).status_code == 403
            newest = (await entries(hal))[0]["sequence"]
            first = (await olga.get("/v1/audit/head")).json()
            assert (first["number"], first["through"]) == (1, newest)
            assert [one["head"] for one in first["kept"]] == [first["head"]]
            await hal.submit(TRUE)
            second = (await olga.get("/v1/audit/head")).json()
            assert (second["number"], second["through"]) == (2, newest + 1)
            assert (await olga.get("/v1/audit/head")).json()["head"] == second["head"]

    on_controller(hal_home, body)


def test_the_log_of_a_controller_that_takes_over_notes_the_heads_of_the_others(tmp_path: Path) -> None:
    """Two homes share a store, one after the other: the second log's chain contains the first one's head."""
    config = Config(store_url=str(tmp_path / "shared.sqlite"))
    heads: list[str] = []

    async def ask(hal: Running) -> None:
        await hal.submit(TRUE)
        heads.append((await hal.http.get("/v1/audit/head")).json()["head"])

    on_controller(tmp_path / "a", ask, config)
    on_controller(tmp_path / "b", ask, config)
    chain = "".join(file.read_text() for file in (tmp_path / "b/log/audit").glob("chain.*"))
    assert f'"elsewhere":{{"{tmp_path / "a"}":"{heads[0]}"}}' in chain


def kept_of(heads: list[Head]) -> list[tuple[int, str]]:
    """Numbers and hashes that are kept of these, which came one after the other."""
    stored: list[Stored] = []
    for head in heads:
        stored = with_head(stored, head)
    return [(one.head.number, one.head.digest) for one in stored]


def test_of_many_heads_the_newest_and_the_last_of_each_day_are_kept() -> None:
    """Forty days with ten heads each: 31 are left."""
    heads = [Head(number=number, at_ms=number * 8_640_000, through=0, digest="") for number in range(400)]
    assert [number for number, _ in kept_of(heads)] == list(range(99, 400, 10))


def test_safety_the_head_of_a_log_that_was_replaced_is_kept_for_good() -> None:
    """Numbers go back to 2, and forty days of new heads follow: head 5 of the log before is still there."""
    before = [Head(number=number, at_ms=0, through=0, digest="before") for number in (1, 5)]
    after = [Head(number=2 + day, at_ms=day * 86_400_000, through=0, digest="after") for day in range(40)]
    assert (5, "before") in kept_of([*before, *after])
