"""Sums are those of the attempts, whatever the stream, the pages, and where it was killed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model.history_config import EnergySection, HistorySection, PricesSection
from hal.planes.observability.history.costing import Costing
from hal.planes.observability.history.facts import measure
from hal.planes.observability.history.feed_rows import FeedRow
from hal.planes.observability.history.levels import Level, segments
from hal.planes.observability.history.recording import Recorder, read_kept
from hal.planes.observability.history.tables import MEASURES, MIGRATIONS, PEAKS, STATES, WAITS
from hal.planes.observability.history.trimming import set_kept, trim_some
from hal.planes.observability.history.usage import By, Found, Wanted, read_usage
from tests.examples import examples
from tests.planes.observability.history.streams import BEGIN_MS, DAY_MS, page, pages, row, streams

COSTING = Costing(EnergySection(), PricesSection(core_hour=0.1))
KEY: dict[By, Callable[[FeedRow], str]] = {
    By.ACCOUNT: lambda one: one.account,
    By.USER: lambda one: one.user,
    By.QUEUE: lambda one: one.queue,
    By.JOB_NAME: lambda one: one.name,
}


def opened() -> sqlite3.Connection:
    """A database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in MIGRATIONS:
        connection.executescript(script)
    return connection


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = opened()
    yield connection
    connection.close()


def own_measures(one: FeedRow, before: FeedRow | None) -> dict[str, int]:
    """What one attempt adds, by the definition of each measure."""
    measured = measure(one, COSTING, lambda _: None, ended_before_ms=before.end_ms if before else None)
    amounts = {name: value or 0 for name, value in msgspec.structs.asdict(measured).items()}
    return amounts | {
        "attempts": 1,
        "tasks": int(one.attempt == 1),
        "jobs": int(one.attempt == 1 and one.task == 0),
        "ran": int(one.start_ms is not None),
        "waited": int(measured.wait_ms is not None),
        "priced": int(measured.price_micro is not None),
        "unsuccessful_core_ms": 0 if one.state == "succeeded" else measured.core_ms,
        "longest_wait_ms": amounts["wait_ms"],
        **{state.replace("-", "_"): int(one.state == state) for state in STATES},
        **{
            f"waited_{name}": int(measured.wait_ms is not None and measured.wait_ms <= most_ms)
            for name, most_ms in WAITS.items()
        },
    }


def plain_sums(rows: Sequence[FeedRow], by: By, wanted: Wanted, periods: Sequence[int]) -> dict[Any, dict[str, int]]:
    """By period and key: attempts added up one by one."""
    ended: dict[tuple[str, int, int], FeedRow] = {}
    totals: dict[Any, dict[str, int]] = {}
    for one in rows:
        before = ended.get((one.job, one.task, one.attempt - 1))
        ended[one.job, one.task, one.attempt] = one
        if (wanted.user and one.user != wanted.user) or (wanted.name and one.name != wanted.name):
            continue
        if wanted.seen_by and one.user != wanted.seen_by and one.account not in wanted.accounts:
            continue
        if wanted.node and wanted.node not in one.nodes:
            continue
        for number, (since_ms, until_ms) in enumerate(pairwise(periods)):
            if since_ms <= one.end_ms < until_ms:
                total = totals.setdefault((number, KEY[by](one)), dict.fromkeys(MEASURES, 0))
                for name, value in own_measures(one, before).items():
                    if name in total:  # not only a step towards one
                        total[name] = max(total[name], value) if name in PEAKS else total[name] + value
    return totals


def found_sums(found: Found) -> dict[tuple[int, str], dict[str, int]]:
    return {(one.period, one.key): dict(zip(MEASURES, one.values, strict=True)) for one in found.sums}


class Killed(Exception):
    """The process dies here."""


def record_all(
    database: sqlite3.Connection,
    rows: Sequence[FeedRow],
    sizes: Sequence[int],
    kills: Sequence[bool],
    again: Sequence[int],
) -> None:
    """Record a stream; some pages are killed before they are committed and come again, as do some that were."""
    recorder = Recorder(COSTING)
    deaths, repeats = iter(kills), iter(again)
    for one in pages(rows, sizes):
        while True:
            database.execute("BEGIN IMMEDIATE")
            recorder.record(one, {}, database)
            if next(deaths, False):
                database.execute("ROLLBACK")
                recorder = Recorder(COSTING)  # of the next process
                continue
            database.execute("COMMIT")
            break
        if back := next(repeats, 0):
            cursor = int(one.cursor)
            database.execute("BEGIN IMMEDIATE")
            recorder.record(
                page([r for r in rows if cursor - back < r.sequence <= cursor], cursor=cursor), {}, database
            )
            database.execute("COMMIT")


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=streams(),
    sizes=st.lists(st.integers(1, 15), min_size=1, max_size=5),
    kills=st.lists(st.booleans(), max_size=20),
    again=st.lists(st.integers(0, 9), max_size=20),
    edges=st.lists(st.integers(-DAY_MS, 8 * DAY_MS), min_size=2, max_size=5, unique=True),
    by=st.sampled_from(list(KEY)),
    wanted=st.sampled_from(
        [
            Wanted(),
            Wanted(user="ada"),
            Wanted(name="train"),
            Wanted(node="n2"),
            Wanted(seen_by="bob", accounts=frozenset({"physics"})),
        ]
    ),
)
def test_safety_sums_are_those_of_the_attempts(
    rows: list[FeedRow],
    sizes: list[int],
    kills: list[bool],
    again: list[int],
    edges: list[int],
    by: By,
    wanted: Wanted,
) -> None:
    """Whatever ends late, comes twice or is killed before its commit, counts once, in the period in which it ended."""
    database = opened()
    record_all(database, rows, sizes, kills, again)
    periods = sorted(BEGIN_MS + edge for edge in edges)
    found = found_sums(read_usage(database, wanted, by, periods))
    assert found == plain_sums(rows, by, wanted, periods)
    database.close()


@settings(max_examples=examples(25), deadline=None)
@given(rows=streams())
def test_safety_sums_of_nodes_are_those_of_all_attempts(rows: list[FeedRow]) -> None:
    """What gangs had together is split over their nodes without a rest."""
    database = opened()
    record_all(database, rows, [7], [], [])
    periods = [0, BEGIN_MS + 100 * DAY_MS]
    by_node = read_usage(database, Wanted(), By.NODE, periods).sums
    by_user = read_usage(database, Wanted(), By.USER, periods).sums
    for name in ("core_ms", "cpu_ms", "memory_mib_s", "gpu_ms", "energy_mj", "price_micro"):
        assert sum(one[name] for one in by_node) == sum(one[name] for one in by_user), name
    for node in ("n1", "n2", "n3"):
        ran_there = [one for one in rows if node in one.nodes]
        assert sum(one["attempts"] for one in by_node if one.key == node) == len(ran_there)
    database.close()


def test_a_range_is_answered_by_the_coarsest_sums_within_it() -> None:
    """From 22:30:30 on one day to 01:01 two days later: seconds, minutes, hours, a day, an hour, a minute."""
    kept = dict.fromkeys(Level, 0)
    since_ms, until_ms = DAY_MS - 5_370_000, 2 * DAY_MS + 3_660_000
    assert [(one.level, one.until_ms - one.since_ms) for one in segments(since_ms, until_ms, kept)] == [
        (Level.ATTEMPTS, 30_000),
        (Level.MINUTES, 29 * 60_000),
        (Level.HOURS, 3_600_000),
        (Level.DAYS, DAY_MS),
        (Level.HOURS, 3_600_000),
        (Level.MINUTES, 60_000),
    ]


def test_sums_outlive_the_attempts_of_which_they_were_made(database: sqlite3.Connection) -> None:
    """Attempts are kept for 2 days, minutes for 1, hours for 3: after 10 days the day's sum is left, and says so."""
    record_all(database, [row(1, end_ms=BEGIN_MS + 1_000), row(2, end_ms=BEGIN_MS + 9 * DAY_MS)], [2], [], [])
    section = HistorySection(attempts_days=2, minutes_days=1, hours_days=3)
    set_kept(database, section, BEGIN_MS + 10 * DAY_MS)
    while trim_some(database):
        pass
    assert database.execute("SELECT COUNT(*) FROM attempts").fetchone() == (1,)
    assert database.execute("SELECT COUNT(*) FROM minutes").fetchone() == (1,)
    found = read_usage(database, Wanted(), By.USER, [BEGIN_MS + 500, BEGIN_MS + DAY_MS])
    assert (found.sums, found.rounded) == ([], Level.DAYS)
    found = read_usage(database, Wanted(), By.USER, [BEGIN_MS, BEGIN_MS + 10 * DAY_MS])
    assert ([one["attempts"] for one in found.sums], found.rounded) == ([2], None)


def test_an_attempt_that_ends_late_counts_in_the_sums_that_are_kept(database: sqlite3.Connection) -> None:
    """It ended 5 days ago: minutes are kept for 1 day, hours for 3, so it is in the day's sum alone."""
    set_kept(database, HistorySection(minutes_days=1, hours_days=3), BEGIN_MS + 10 * DAY_MS)
    record_all(database, [row(1, end_ms=BEGIN_MS + 5 * DAY_MS)], [1], [], [])
    counts = [database.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in ("minutes", "hours", "days")]
    assert counts == [0, 0, 1]


def test_only_so_many_attempts_are_kept_the_oldest_go_first(database: sqlite3.Connection) -> None:
    """Of 5, one a day, 3 are kept: whole days go."""
    record_all(database, [row(n, end_ms=BEGIN_MS + n * DAY_MS) for n in range(1, 6)], [2], [], [])
    set_kept(database, HistorySection(attempts_most=3), BEGIN_MS + 6 * DAY_MS)
    while trim_some(database):
        pass
    left = database.execute("SELECT end_ms FROM attempts ORDER BY id").fetchall()
    assert left == [(BEGIN_MS + n * DAY_MS,) for n in (3, 4, 5)]
    assert read_kept(database)[Level.ATTEMPTS] == BEGIN_MS + 3 * DAY_MS


def test_after_a_clock_was_years_ahead_for_a_moment_new_attempts_count_again(database: sqlite3.Connection) -> None:
    """It was in the year 2060 while it looked what is no longer kept, and is right again."""
    right_ms = BEGIN_MS + 10 * DAY_MS
    set_kept(database, HistorySection(), right_ms + 30 * 366 * DAY_MS)
    while trim_some(database):
        pass
    set_kept(database, HistorySection(), right_ms)
    Recorder(COSTING).record(page([row(sequence=1, end_ms=right_ms)]), {}, database)
    found = read_usage(database, Wanted(), By.ACCOUNT, [right_ms - 1, right_ms + 1])
    assert [one["attempts"] for one in found.sums] == [1]


def test_what_the_controller_no_longer_had_is_noted_with_the_time_of_the_gap(database: sqlite3.Connection) -> None:
    """Numbers 2 to 4 are lost between two attempts that were committed at +1 s and +9 s."""
    recorder = Recorder(COSTING)
    first, last = row(1, end_ms=BEGIN_MS + 1_000), row(5, end_ms=BEGIN_MS + 9_000)
    recorder.record(page([first, last], lost=[(2, 4)]), {}, database)
    recorder.record(page([first, last], lost=[(2, 4)]), {}, database)
    lost = database.execute("SELECT * FROM lost").fetchall()
    assert lost == [(2, 4, BEGIN_MS + 1_005, BEGIN_MS + 9_005)]


HOUR_MS = 3_600_000


def of_two_nodes() -> list[FeedRow]:
    """An attempt every 50 minutes over ten days, on one node or the other."""
    return [
        row(number, end_ms=BEGIN_MS + number * 3_000_000, job=number, nodes=(f"n{number % 2}",))
        for number in range(1, 288)
    ]


def test_days_of_nodes_in_a_zone_of_whole_hours_are_sums_of_hours(database: sqlite3.Connection) -> None:
    """Days that begin at 23:00 of UTC: the same with and without the rows of attempts, for operators and for a user."""
    recorder = Recorder(COSTING)
    recorder.record(page(of_two_nodes()), {}, database)
    edges = [BEGIN_MS - HOUR_MS + day * DAY_MS for day in range(8)]
    for wanted in (Wanted(), Wanted(seen_by="ada"), Wanted(node="n1")):
        before = read_usage(database, wanted, By.NODE, edges)
        database.execute("BEGIN")
        database.execute("DELETE FROM attempts")
        after = read_usage(database, wanted, By.NODE, edges)
        database.execute("ROLLBACK")
        assert before == after
        assert len(before.sums) > 6


def test_a_file_of_the_first_version_gets_sums_of_hours_of_its_attempts(database: sqlite3.Connection) -> None:
    """What the second version adds is dropped, and made again of what is there."""
    recorder = Recorder(COSTING)
    recorder.record(page(of_two_nodes()), {}, database)
    tables = ("place_hours", "placed_hours")
    before = [database.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3").fetchall() for name in tables]
    for name in tables:
        database.execute(f"DROP TABLE {name}")
    database.executescript(MIGRATIONS[1])
    assert [database.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3").fetchall() for name in tables] == before
    assert before[0]
