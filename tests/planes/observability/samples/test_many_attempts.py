"""Nodes that run very many short attempts: neither roll-ups nor questions take memory for all of them at once."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from hal.planes.observability.samples import store
from hal.planes.observability.samples.blocks import Block
from hal.planes.observability.samples.part import _read
from hal.planes.observability.samples.store import HOURS, MINUTES, Written
from hal.wire.frames.telemetry import Series, SeriesKind

HOUR_MS = 3_600_000
ATTEMPTS = 200
LOAD = Series("hal_node_load", SeriesKind.GAUGE, {"window": "1m"})


def attempt(name: str) -> Series:
    return Series("hal_attempt_memory_bytes", SeriesKind.GAUGE, {"attempt": name})


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """A day by the minute: in each hour 200 attempts that are in no other, and one, `1.0.1.0`, that is in two."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in store.MIGRATIONS:
        connection.executescript(script)
    for hour in range(24):
        names = [f"{100 + hour}.{number}.1.0" for number in range(ATTEMPTS)] + ["1.0.1.0"] * (hour in (3, 4))
        series = (LOAD, *map(attempt, names))
        at_ms = hour * HOUR_MS + np.arange(1, 61) * 60_000
        values = np.tile(np.arange(60.0), (len(series), 1))
        store.write(connection, [Written("n1", Block(series, at_ms, values))], MINUTES)
    yield connection
    connection.close()


def peak_bytes_of_roll_up(connection: sqlite3.Connection) -> int:
    tracemalloc.start()
    try:
        assert store.roll_up(connection, MINUTES, ["n1"], 26 * HOUR_MS) == 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_day_is_rolled_up_an_hour_at_a_time(database: sqlite3.Connection) -> None:
    """All of it by the minute would be 4,801 series x 1,440 values x 8 bytes, 55 MB, several times over."""
    assert peak_bytes_of_roll_up(database) < 10_000_000


def test_by_the_hour_attempts_of_one_hour_are_not_kept(database: sqlite3.Connection) -> None:
    store.roll_up(database, MINUTES, ["n1"], 26 * HOUR_MS)
    (day,) = store.read(database, HOURS, "n1", 0, 24 * HOUR_MS)
    assert day.series == (LOAD, attempt("1.0.1.0"))
    assert day.at_ms.tolist() == [HOUR_MS * hour for hour in range(1, 25)]
    assert day.values[0].tolist() == [29.5] * 24  # the mean of 0 to 59
    assert np.flatnonzero(~np.isnan(day.values[1])).tolist() == [3, 4]


def test_a_short_attempt_is_found_by_the_minute_whatever_step_is_asked_for(database: sqlite3.Connection) -> None:
    store.roll_up(database, MINUTES, ["n1"], 26 * HOUR_MS)
    wanted = attempt("105.7.1.0")
    found = _read([HOURS, MINUTES], "n1", 0, 24 * HOUR_MS, HOUR_MS, lambda one: one == wanted, [], database)
    assert found.series == (wanted,)
    assert found.at_ms.tolist() == [6 * HOUR_MS]
    assert found.values.tolist() == [[29.5]]


def test_a_question_about_the_node_takes_no_memory_for_its_attempts(database: sqlite3.Connection) -> None:
    """1,440 values of one series: 12 kB, and one block with those of an hour at a time, 201 x 60 x 8 bytes."""
    tracemalloc.start()
    found = _read([MINUTES], "n1", 0, 24 * HOUR_MS, 60_000, lambda one: one == LOAD, [], database)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.at_ms) == 1_440
    assert peak < 2_000_000
