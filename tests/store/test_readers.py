"""Registered readers: nothing that one has not read is removed, until the stated bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hal.core.model import AttemptState, EventKind, TaskState
from hal.store import (
    AppendEvents,
    AttemptEnd,
    EndAttempts,
    InsertAttempts,
    InsertJobs,
    MarkRemoved,
    MemoryDatabase,
    PutReaders,
    ReaderBounds,
    ReaderFloor,
    ReaderRow,
    Removed,
    Retention,
    Store,
    reader_floor,
)
from tests.store.rows import Leader, attempt, event, job, submitted


@pytest.fixture
def leader() -> Iterator[Leader]:
    """A store with ten events and ten ended attempts, number n of each recorded at n × 100 ms."""
    store = Store.open(MemoryDatabase())
    made = Leader(store)
    made.commit(submitted(job(1, tasks=10))[0], InsertAttempts([attempt(1, task) for task in range(10)]), now_ms=0)
    for number in range(1, 11):
        ended = AttemptEnd(1, number - 1, 1, AttemptState.SUCCEEDED, number * 100)
        made.commit(
            EndAttempts([ended]),
            AppendEvents([event(EventKind.ATTEMPTS_ENDED, [1], at_ms=number * 100)]),
            now_ms=number * 100,
        )
    yield made
    store.close()


def reader(name: str, **positions: int) -> ReaderRow:
    """A reader that stands there."""
    return ReaderRow(name=name, user="root", created_ms=1, heard_ms=1, **positions)


def floor(leader: Leader, now_ms: int = 1_000, **bounds: int) -> ReaderFloor:
    """Up to where nobody needs a row."""
    with leader.store._database.reading("asking") as connection:
        return reader_floor(connection, now_ms, ReaderBounds(**bounds))


def test_without_readers_no_row_is_needed(leader: Leader) -> None:
    """The floor is the newest of each feed."""
    assert floor(leader) == ReaderFloor(attempts=10, events=10)


def test_the_slowest_reader_of_a_feed_is_the_floor(leader: Leader) -> None:
    """Of attempts 3 and 7 were read; only one follows events, and has read 5."""
    leader.commit(PutReaders((reader("a", attempts=3), reader("b", attempts=7, events=5))))
    assert floor(leader) == ReaderFloor(attempts=3, events=5)


@pytest.mark.parametrize(
    ("bounds", "found"),
    [({"rows": 4}, ReaderFloor(6, 6)), ({"age_ms": 250}, ReaderFloor(7, 7)), ({"rows": 0}, ReaderFloor(10, 10))],
)
def test_beyond_its_bounds_a_reader_keeps_nothing(leader: Leader, bounds: dict[str, int], found: ReaderFloor) -> None:
    """The newest four rows are 7 to 10; at 1,000 ms those younger than 250 ms are 8 (800 ms) to 10."""
    leader.commit(PutReaders((reader("a", attempts=1, events=1),)))
    assert floor(leader, **bounds) == found


def test_events_that_a_reader_has_not_read_stay_until_it_has(leader: Leader) -> None:
    """Retention keeps no event: those behind 4 stay for the reader; when it is removed, none does."""
    leader.commit(PutReaders((reader("a", events=4),)))
    nothing: dict[str, Any] = {"events_count": 0}
    leader.store.trim(1_000, Retention(**nothing), epoch=leader.epoch)
    assert [one.sequence for one in leader.store.events()] == [5, 6, 7, 8, 9, 10]
    leader.commit(PutReaders(forget=("a",)))
    leader.store.trim(1_000, Retention(**nothing), epoch=leader.epoch)
    assert leader.store.events() == []


def test_a_reader_beyond_the_bound_does_not_keep_events(leader: Leader) -> None:
    """It has read 1, and two rows are kept for readers: 9 and 10."""
    leader.commit(PutReaders((reader("a", events=1),)))
    kept = Retention(events_count=0, readers=ReaderBounds(rows=2))
    leader.store.trim(1_000, kept, epoch=leader.epoch)
    assert [one.sequence for one in leader.store.events()] == [9, 10]


def test_readers_are_read_as_they_were_put(leader: Leader) -> None:
    """One is replaced, one stays, one is removed."""
    leader.commit(PutReaders((reader("a", attempts=1), reader("b", events=2), reader("c"))))
    leader.commit(PutReaders((reader("a", attempts=9),), forget=("c",)))
    assert leader.store.readers() == [reader("a", attempts=9), reader("b", events=2)]


def test_attempts_of_removed_jobs_stay_until_every_reader_has_read_them() -> None:
    """Three jobs are removed; a reader has read the first end: two stay. Without the reader they go, and are lost."""
    made = Leader(Store.open(MemoryDatabase()))
    for number in (1, 2, 3):
        row = job(number, state=TaskState.SUCCEEDED, pending=0, succeeded=1, end_ms=number * 100)
        end = AttemptEnd(number, 0, 1, AttemptState.SUCCEEDED, number * 100)
        made.commit(InsertJobs([row]), InsertAttempts([attempt(number)]), EndAttempts([end]), now_ms=number * 100)
    made.commit(submitted(job(4))[0], MarkRemoved([1, 2, 3], Removed.JOB), PutReaders((reader("a", attempts=1),)))
    made.store.sweep(1_000, Retention(), epoch=made.epoch)
    assert [row.sequence for row in made.store.ended(last=3).rows] == [2, 3]
    made.commit(PutReaders(forget=("a",)))
    made.store.sweep(1_000, Retention(), epoch=made.epoch)
    page = made.store.ended(last=3)
    assert (page.rows, page.lost) == ([], [(1, 3)])
