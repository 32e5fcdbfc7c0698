"""Bookings and licences on a real HAL: nodes drain in time, jobs start inside by themselves and end with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hal.client.job import Job
from hal.core.model import ConflictError, HALError, SpecError
from hal.core.model.policy_change import Do, Kind, Operation
from tests.e2e.conftest import DEADLINE_S, Gate, Ruled

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WHOLE: dict[str, Any] = {"command": ["true"], "request": {"cpu": 2}}
"""As much as a node has."""


def now_ms() -> int:
    """As the controller counts, on the same machine."""
    return time.time_ns() // 1_000_000


def book(ruled: Ruled, name: str = "course", **entry: Any) -> None:
    """A new booking of an hour from an hour from now on, unless told otherwise."""
    entry = {"start_ms": now_ms() + HOUR_MS, "duration": "1h", **entry}
    ruled.client.change_policy(Operation(op=Do.ADD, kind=Kind.BOOKING, name=name, entry=entry))


def nodes_of(job: Job) -> set[str]:
    """Where its only attempt runs, or ran."""
    (attempt,) = job.task().attempts
    return set(attempt.nodes)


def done(*jobs: Job) -> None:
    """They succeed."""
    for job in jobs:
        assert job.wait(DEADLINE_S).state == "succeeded", job.refresh()


def test_maintenance_drains_the_nodes_it_names(ruled: Ruled) -> None:
    """What ends before it runs there, what does not runs elsewhere or waits, until the window is taken away."""
    book(ruled, nodes=["n1", "n2"], maintenance=True)
    gang, long, short = ruled.jobs(
        {**WHOLE, "nodes": 2, "walltime": "90m"}, {**WHOLE, "walltime": "90m"}, {**WHOLE, "nodes": 3, "walltime": "30m"}
    )
    done(long, short)
    assert nodes_of(long) == {"n3"}
    why = gang.why()
    assert (why.reason, why.message.startswith("waits for booking 'course'")) == ("booking", True)
    assert [(one.field, one.value[:3]) for one in why.sooner] == [("nodes", "1"), ("walltime", "59m")]
    with pytest.raises(HALError, match="maintenance"):
        ruled.client.submit({**WHOLE, "booking": "course"})
    ruled.run("booking", "rm", "course")
    done(gang)


def test_a_booking_of_some_number_of_nodes_keeps_as_many_as_it_says(ruled: Ruled, gate: Gate) -> None:
    """One node is busy for long: HAL keeps the two others. They drain, and its users' gang runs on them."""
    (held,) = ruled.jobs({**WHOLE, "command": gate.command(), "walltime": "5h"})
    gate.started()
    (busy,) = nodes_of(held)
    book(ruled, count=2, constraints=["kind=plain"], users=["ada"], start_ms=now_ms() + 700)
    long = ruled.client.submit({**WHOLE, "walltime": "90m", "user": "bob"})
    assert long.why().reason == "booking"
    inside = ruled.client.submit({**WHOLE, "nodes": 2, "booking": "course", "user": "ada"})
    done(inside)
    assert nodes_of(inside) == {"n1", "n2", "n3"} - {busy}
    assert long.refresh().state == "pending"
    gate.open()
    done(long)
    assert nodes_of(long) == {busy}


def test_a_booking_that_repeats_holds_today_as_it_did_yesterday(ruled: Ruled) -> None:
    """It began yesterday and is daily: its job starts by itself today; 22 hours fit between two, 24 never do."""
    began_ms = now_ms() + 700 - DAY_MS
    book(ruled, nodes=["n1", "n2", "n3"], users=["ada"], start_ms=began_ms, repeat="daily")
    inside = ruled.client.submit({**WHOLE, "booking": "course", "user": "ada"})
    whole_day = {**WHOLE, "walltime": "24h"}
    with pytest.raises(SpecError, match="never starts, because booking 'course' returns without end"):
        ruled.jobs(whole_day)
    between, over = ruled.jobs({**WHOLE, "walltime": "22h"}, {**whole_day, "wait_for_change": True})
    info = inside.wait(DEADLINE_S)
    assert info.state == "succeeded"
    assert info.start_ms is not None
    assert info.start_ms >= began_ms + DAY_MS
    why = between.why()
    assert (why.reason, why.starts_at_ms) == ("booking", began_ms + DAY_MS + HOUR_MS)
    assert over.why().reason == "booking"
    ruled.run("booking", "set", "course", "--repeat", "once")
    done(between, over)


def test_work_in_a_booking_ends_with_it_and_begins_early_where_it_may(ruled: Ruled, gate: Gate) -> None:
    """Accounts below the one that may, nobody else; in its own nodes only; removed, its processes end as timed out."""
    for change in ("account add lab", "account add group --parent lab", "account add others"):
        ruled.run(*change.split())
    book(ruled, nodes=["n2"], accounts=["lab"], early=True)
    with pytest.raises(HALError, match="course"):
        ruled.client.submit({**WHOLE, "booking": "course", "account": "others"})
    with pytest.raises(SpecError, match="walltime"):
        ruled.client.submit({**WHOLE, "booking": "course", "account": "group", "walltime": "3h"})
    ruled.run("booking", "set", "course", "--duration", "4h")
    early = ruled.client.submit(
        {**WHOLE, "command": gate.command(), "booking": "course", "account": "group", "walltime": "3h"}
    )
    gate.started()
    assert nodes_of(early) == {"n2"}
    other = ruled.client.submit({**WHOLE, "nodes": 3, "walltime": "1m", "account": "others"})
    ruled.run("booking", "rm", "course")
    ended = early.wait(DEADLINE_S)
    assert (ended.state, "booking 'course' was over" in ended.reason) == ("timed-out", True)
    done(other)


@pytest.mark.parametrize("walltime", ["30m", "5h"])
def test_early_work_starts_when_others_leave_its_nodes_and_other_work_waits_for_its_time(
    ruled: Ruled, gate: Gate, walltime: str
) -> None:
    """All nodes are busy when both are booked, by walltimes until before or after the hour: it ends, and one starts."""
    busy = ruled.client.submit({**WHOLE, "nodes": 3, "command": gate.command(), "walltime": walltime})
    for _ in range(3):
        gate.started()
    book(ruled, nodes=["n1"], users=["ada"], early=True)
    book(ruled, "exam", nodes=["n2"], users=["ada"])
    inside = {**WHOLE, "user": "ada", "walltime": "20m"}
    early, timely = ruled.jobs({**inside, "booking": "course"}, {**inside, "booking": "exam"})
    assert early.why().reason == "resources"
    gate.open(3)
    done(early)
    assert nodes_of(early) == {"n1"}
    left_ms, began_ms = busy.refresh().end_ms, early.refresh().start_ms
    assert left_ms is not None
    assert began_ms is not None
    assert left_ms <= began_ms < ruled.client.policy().policy["bookings"]["course"]["start_ms"]
    why = timely.why()
    assert (why.state, why.reason) == ("pending", "booking")
    assert why.message.startswith("runs in booking 'exam', which begins in ")
    ruled.run("booking", "set", "exam", "--start", "+0s")
    done(timely)
    assert nodes_of(timely) == {"n2"}


def test_two_bookings_share_a_node_only_when_one_of_them_says_so(ruled: Ruled) -> None:
    """Also when they would meet only at a later occurrence; maintenance may always."""
    book(ruled, nodes=["n1", "n2"], repeat="daily", users=["ada"])
    later = {"nodes": ["n2"], "start_ms": now_ms() + 3 * DAY_MS + HOUR_MS, "users": ["bob"]}
    before = ruled.client.policy().version
    with pytest.raises(HALError, match=r"course.*n2|n2.*course"):
        book(ruled, "meeting", **later)
    assert ruled.client.policy().version == before
    book(ruled, "meeting", **later, overlap=True)
    book(ruled, "upkeep", **{**later, "users": []}, maintenance=True)
    assert set(ruled.client.policy().policy["bookings"]) == {"course", "meeting", "upkeep"}


def test_who_waits_for_a_licence_is_passed_by_who_needs_none_and_starts_when_it_comes_back(
    ruled: Ruled, gate: Gate
) -> None:
    """Two there are: one job holds both; `hal why` and `hal licences` say so; a real process's end gives them back."""
    ruled.run("policy", "set", "licences.matlab=2")
    holder = ruled.client.submit({**WHOLE, "command": gate.command(), "licences": {"matlab": 2}, "walltime": "1h"})
    gate.started()
    waits, passes = ruled.jobs({**WHOLE, "licences": {"matlab": 1}, "walltime": "1h"}, {**WHOLE, "walltime": "2h"})
    done(passes)
    why = waits.why()
    assert why.reason == "licence"
    assert why.message.startswith("licence matlab: 0 of 2 free, 1 needed; 2 come free in ")
    (one,) = ruled.client.licences()
    assert (one.used, one.free) == (2, 0)
    assert "matlab" in ruled.run("licences")
    with pytest.raises(SpecError, match="there are 2"):
        ruled.client.submit({**WHOLE, "licences": {"matlab": 3}})
    gate.open()
    ends = ruled.client.wait_all([holder, waits], DEADLINE_S)
    assert ends[0].end_ms is not None
    assert ends[1].start_ms is not None
    assert ends[0].end_ms <= ends[1].start_ms


def test_backfill_with_licences_moves_no_promise(ruled: Ruled, gate: Gate) -> None:
    """One of two is held, a job waits for both: a short job may have the other meanwhile, a long one not."""
    ruled.run("policy", "set", "licences.idl=2")
    one = {**WHOLE, "licences": {"idl": 1}}
    holder = ruled.client.submit({**one, "command": gate.command(), "walltime": "1h"})
    gate.started()
    both, long, short = ruled.jobs(
        {**WHOLE, "licences": {"idl": 2}, "walltime": "1h"}, {**one, "walltime": "2h"}, {**one, "walltime": "30m"}
    )
    done(short)
    assert (both.refresh().state, long.refresh().state) == ("pending", "pending")
    assert (long.why().reason, long.why().position) == ("licence", 1)
    gate.open()
    ends = ruled.client.wait_all([holder, both, long], DEADLINE_S)
    assert ends[1].end_ms is not None
    assert ends[2].start_ms is not None
    assert ends[1].end_ms <= ends[2].start_ms


def test_licences_drain_for_a_booking_of_them(ruled: Ruled) -> None:
    """Of three two are booked from an hour from now on: what wants two ends by then, or waits; one is free for all."""
    ruled.run("policy", "set", "licences.matlab=3")
    book(ruled, licences={"matlab": 2}, users=["ada"])
    two, one = {**WHOLE, "licences": {"matlab": 2}}, {**WHOLE, "licences": {"matlab": 1}}
    long, short, single = ruled.jobs({**two, "walltime": "90m"}, {**two, "walltime": "30m"}, {**one, "walltime": "90m"})
    done(short, single)
    why = long.why()
    assert (why.reason, "booking" in why.message) == ("licence", True), why.message
    assert [(one.field, one.value[:3]) for one in why.sooner] == [("walltime", "59m")]
    inside = ruled.client.submit({**two, "booking": "course", "user": "ada", "walltime": "30m"})
    assert inside.why().reason == "booking"
    ruled.client.change_policy(
        Operation(op=Do.SET, kind=Kind.BOOKING, name="course", entry={"start_ms": now_ms(), "duration": "30m"})
    )
    done(inside)
    assert long.refresh().state == "pending"
    with pytest.raises(ConflictError):
        book(ruled)
    ruled.run("booking", "rm", "course")
    done(long)


def test_a_node_that_nobody_knows_is_remarked_upon(ruled: Ruled) -> None:
    """It may join later, so the booking is made; the note names it and the nearest one there is."""
    made = ("booking", "add", "--duration", "1h", "--maintenance")
    told = ruled.live.run(*made, "far", "--start", "+1h", "--nodes", "n1,n11", check=True).err
    assert "there is no node n11 at present" in told
    assert "did you mean 'n1'?" in told
    assert "no node" not in ruled.live.run("booking", "set", "far", "--nodes", "n1,n2", check=True).err
    told = ruled.live.run(*made, "many", "--start", "+3h", "--count", "9", check=True).err
    assert "it reserves 9 nodes, and there are only 3 at present" in told


def test_a_booking_whose_time_is_over_is_remarked_upon(ruled: Ruled) -> None:
    """It is lawful, and sets nothing aside: told when it is made, and in the list; one that comes again is not over."""
    made = ("booking", "add", "--start", "2020-01-01T00:00Z", "--nodes", "n1", "--maintenance")
    told = ruled.live.run(*made, "past", check=True).err
    assert "its time is over, so it reserves nothing" in told
    assert "is over" not in ruled.live.run(*made, "again", "--repeat", "daily", check=True).err
    again, past = ruled.run("booking", "list").splitlines()[1:]
    assert (past.split()[0], " over " in past, " over " in again) == ("past", True, False)


def test_a_booking_that_is_over_once_it_was_set_is_remarked_upon(ruled: Ruled) -> None:
    """Its start moved into the past, also in a dry run; whatever else is set of it afterwards; not one that holds."""
    ruled.run("booking", "add", "upkeep", "--start", "+1h", "--nodes", "n1", "--maintenance")
    over = "note: its time is over"
    assert over in ruled.live.run("booking", "set", "upkeep", "--start", "2020-01-01", "--dry-run", check=True).err
    assert over not in ruled.live.run("booking", "set", "upkeep", "--description", "disks", check=True).err
    assert over in ruled.live.run("booking", "set", "upkeep", "--start", "2020-01-01", check=True).err
    assert over in ruled.live.run("booking", "set", "upkeep", "--description", "disks", check=True).err
    assert over not in ruled.live.run("booking", "set", "upkeep", "--start", "+2h", check=True).err


def test_conditions_that_no_node_satisfies_are_remarked_upon(ruled: Ruled) -> None:
    """All three nodes say kind=plain: the note names the condition and the nearest label or value there is."""
    made = ("booking", "add", "--start", "+1h", "--duration", "1h", "--maintenance", "--overlap")
    told = ruled.live.run(*made, "a", "--count", "1", "--constraints", "kid=plain", check=True).err
    assert "note: no node has kid=plain at present, so nothing is reserved; did you mean 'kind'?" in told
    told = ruled.live.run(*made, "b", "--count", "4", "--constraints", "kind=plain", check=True).err
    assert "note: it reserves 4 nodes, and there are only 3 with kind=plain at present" in told
    assert "note" not in ruled.live.run(*made, "c", "--count", "3", "--constraints", "kind!=fat", check=True).err


def test_a_file_is_remarked_upon_as_single_changes_are(ruled: Ruled, tmp_path: Path) -> None:
    """Each entry that came or changed is named with what no node has; applied once more, nothing changes."""
    file = tmp_path / "policy.toml"
    file.write_text(
        """
        [queues.fat]
        nodes = ["kind=fat"]
        [limits.each]
        user = "*"
        resources = "memry=1"
        [bookings.old]
        start = "2020-01-01T00:00"
        duration = "1h"
        nodes = ["n9"]
        maintenance = true
        """
    )
    told = ruled.live.run("policy", "apply", file, check=True).err.splitlines()
    notes = [line.partition(" at present")[0].partition(",")[0] for line in told if line.startswith("note: ")]
    assert sorted(notes) == [
        "note: bookings.old: its time is over",
        "note: bookings.old: there is no node n9",
        "note: limits.each: no node has memry",
        "note: queues.fat: no node has kind=fat",
    ]
    assert "note: " not in ruled.live.run("policy", "apply", file, check=True).err
    assert "queues.fat: no node has" in ruled.live.run("policy", "set", 'queues.fat.nodes=["big"]', check=True).err


def test_who_types_a_booking_is_told_of_options_and_who_sends_one_of_fields(ruled: Ruled) -> None:
    """The same mistake by the command and by the client."""
    ran = ruled.live.run("booking", "add", "b", "--start", "+1h", "--duration", "1h", "--nodes", "n1")
    assert (ran.code, ran.out) == (2, "")
    assert "booking 'b': nobody may use it\nhint: name --accounts or --users, or set --maintenance" in ran.err
    with pytest.raises(SpecError, match=r"bookings\.b: nobody may use it .* `maintenance = true`"):
        book(ruled, "b", nodes=["n1"])
