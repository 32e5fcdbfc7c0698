"""The ends of attempts: numbered in commit order without gaps, found by an index whatever is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from sqlalchemy.dialects import sqlite

from hal.core.model import AttemptState
from hal.store import (
    AttemptEnd,
    EndAttempts,
    EndedPage,
    EndFilter,
    InsertAttempts,
    MemoryDatabase,
    Store,
    ended_attempts,
)
from hal.store.asked_amounts import SPEC_PART
from tests.store.rows import Leader, attempt, job, submitted

DONE, FAILED, LOST = AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.LOST


@pytest.fixture
def leader() -> Iterator[Leader]:
    """A store with two jobs: one of alice's with six tasks, of which task 3 is a gang, and one of bob's with two."""
    store = Store.open(MemoryDatabase())
    made = Leader(store)
    made.commit(*submitted(job(1, tasks=6), job(2, tasks=2, user="bob")))
    placed = [*((1, task, f"n{task % 2}") for task in range(6)), (2, 0, "n0"), (2, 1, "n1")]
    made.commit(
        InsertAttempts(
            [
                attempt(number, task, nodes=("n1", "n7") if (number, task) == (1, 3) else (node,))
                for number, task, node in placed
            ]
        )
    )
    yield made
    store.close()


def end(leader: Leader, *tasks: tuple[int, int], state: AttemptState = DONE, now_ms: int = 5_000, **fields: Any) -> int:
    """End the first attempt of these tasks (job, task) in one commit; the number of the last end."""
    rows = [AttemptEnd(number, task, 1, state, 4_000, "exited", **fields) for number, task in tasks]
    return leader.commit(EndAttempts(rows), now_ms=now_ms).last_end


def read(leader: Leader, after: int = 0, limit: int = 1_000, **wanted: Any) -> EndedPage:
    """A page of what has ended."""
    return leader.store.ended(after, EndFilter(**wanted), last=leader.store.last_end(), limit=limit)


def tasks(page: EndedPage) -> list[tuple[int, str, int]]:
    """Number, job and task of each row."""
    return [(row.sequence, row.job, row.task) for row in page.rows]


def test_ends_are_numbered_in_the_order_of_their_commits_without_gaps(leader: Leader) -> None:
    """Two commits of two ends and one of one: 1 to 5, each with the instant of its commit."""
    end(leader, (1, 5), (2, 0), now_ms=5_000)
    end(leader, (1, 0), now_ms=6_000)
    end(leader, (2, 1), (1, 1), now_ms=7_000)
    page = read(leader)
    assert tasks(page) == [(1, "1", 5), (2, "2", 0), (3, "1", 0), (4, "2", 1), (5, "1", 1)]
    assert [row.recorded_ms for row in page.rows] == [5_000, 5_000, 6_000, 7_000, 7_000]


def test_a_commit_that_fails_gives_no_number(leader: Leader) -> None:
    """An end of an attempt that does not exist takes back the whole group; the next end is number 1."""
    with pytest.raises(Exception, match=r"attempt 9\.0\.1"):
        end(leader, (1, 0), (9, 0))
    assert end(leader, (1, 1)) == 1


def test_numbers_continue_when_the_store_is_opened_again() -> None:
    """One end, a restart, one more: number 2."""
    disk = MemoryDatabase()
    first = Leader(Store.open(disk))
    first.commit(*submitted(job(1, tasks=2)), InsertAttempts([attempt(1, 0), attempt(1, 1)]))
    end(first, (1, 0))
    first.store.close()
    assert end(Leader(Store.open(disk)), (1, 1)) == 2


def test_who_reads_on_gets_each_end_once(leader: Leader) -> None:
    """Five ends in pages of two: each page begins where the one before ended."""
    end(leader, *((1, task) for task in range(5)))
    seen, after = [], 0
    while (page := read(leader, after, limit=2)).rows:
        seen.append([row.task for row in page.rows])
        after = page.end
    assert seen == [[0, 1], [2, 3], [4]]


def test_a_row_holds_what_was_known_at_the_end(leader: Leader) -> None:
    """Usage and nodes are the JSON that was stored; the user is the job's."""
    end(
        leader,
        (1, 3),
        state=FAILED,
        exit_code=7,
        usage={"cpu_ms": 3},
        message="no",
        started_ms=2_500,
        more_nodes=("n7",),
    )
    (row,) = read(leader).rows
    shown = msgspec.json.decode(msgspec.json.encode(row))
    assert shown["nodes"] == ["n1", "n7"]
    assert shown["usage"] == {"cpu_ms": 3}
    assert (row.user, row.queue, row.state, row.exit_code, row.start_ms) == ("alice", "default", "failed", 7, 2_500)
    assert "truncated" not in shown


def test_a_message_that_was_cut_says_so(leader: Leader) -> None:
    """2,000 characters of which the last is '…'."""
    end(leader, (1, 0), message="x" * 1_999 + "…")
    assert read(leader).rows[0].truncated


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"job": 2}, [2, 6]),
        ({"user": "bob"}, [2, 6]),
        ({"states": (FAILED,)}, [3, 4]),
        ({"states": (LOST, FAILED)}, [3, 4, 5]),
        ({"node": "n7"}, [5]),
        ({"node": "n1"}, [5, 6]),
        ({"user": "alice", "states": (FAILED,)}, [3, 4]),
        ({"node": "n1", "user": "bob"}, [6]),
        ({"since_ms": 6_000}, [3, 4, 5, 6]),
        ({"until_ms": 6_000}, [1, 2]),
        ({"since_ms": 6_000, "until_ms": 7_000, "job": 1}, [3, 4]),
    ],
)  # fmt: skip
def test_filters_select(leader: Leader, wanted: dict[str, Any], found: list[int]) -> None:
    """1: task 1.0; 2: 2.0; 3 and 4: 1.2 and 1.4 failed; 5: the gang 1.3 on n1 and n7 is lost; 6: 2.1."""
    end(leader, (1, 0), (2, 0), now_ms=5_000)
    end(leader, (1, 2), (1, 4), state=FAILED, now_ms=6_000)
    end(leader, (1, 3), state=LOST, now_ms=7_000, more_nodes=("n7",))
    end(leader, (2, 1), now_ms=7_000)
    assert [row.sequence for row in read(leader, **wanted).rows] == found


@pytest.mark.parametrize(
    ("by", "states", "index"),
    [
        ("", 0, "attempts_ended"),
        ("state", 1, "attempts_ended_by_state"),
        ("state", 2, "attempts_ended_by_state"),
        ("job", 0, "attempts_ended_by_job"),
        ("user", 0, "attempts_ended_by_user"),
        ("node", 0, "attempts_ended_by_node"),
        ("node", 0, "gang_nodes_ended"),
    ],
)
def test_each_filter_is_served_by_an_index(leader: Leader, by: str, states: int, index: str) -> None:
    """The query plan searches the index behind the number, and scans no table."""
    plan = query_plan(leader, by, states)
    assert any(f"INDEX {index} (" in step and "ended_seq>?" in step for step in plan), plan
    assert not [step for step in plan if step.startswith(("SCAN attempts", "SCAN jobs", "SCAN gang_nodes"))]


@pytest.mark.parametrize(("by", "states"), [("", 0), ("state", 1), ("job", 0), ("user", 0)])
def test_a_page_is_read_in_order_without_sorting(leader: Leader, by: str, states: int) -> None:
    """Its rows come from the index as they are needed: a page of a long history costs a page."""
    assert not [step for step in query_plan(leader, by, states) if "TEMP B-TREE" in step]


def query_plan(leader: Leader, by: str, states: int) -> list[str]:
    """What SQLite does for a page."""
    query = str(ended_attempts.page_query(by, frozenset(), states).compile(dialect=sqlite.dialect(paramstyle="named")))
    values = {
        "after": 0,
        "last": 9,
        "limit": 5,
        "skipped": 0,
        "scanned": 5,
        "job": 1,
        "user": "",
        "node": "",
        "state0": "",
        "state1": "",
    }
    with leader.store._database.reading("explaining") as connection:
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN QUERY PLAN {query}", values)
        return [row[3] for row in cursor.fetchall()]


def test_a_time_is_found_by_bisection_and_not_by_reading_rows(leader: Leader) -> None:
    """Behind the last instant nothing is read: the page is empty and has looked at everything."""
    end(leader, *((1, task) for task in range(6)), now_ms=5_000)
    page = read(leader, since_ms=5_001)
    assert (page.rows, page.end) == ([], 6)


def test_a_page_looks_at_a_bounded_number_of_rows(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of alice's six ends none failed; with a bound of four a page has looked at four, the next one at the rest."""
    monkeypatch.setattr(ended_attempts, "MAX_SCANNED", 4)
    end(leader, *((1, task) for task in range(6)))
    first = read(leader, user="alice", states=(FAILED,))
    second = read(leader, first.end, user="alice", states=(FAILED,))
    assert ((first.rows, first.end), (second.rows, second.end)) == (([], 4), ([], 6))


def test_what_is_no_longer_kept_is_named(leader: Leader) -> None:
    """Ends 1, 3 and 6 of six are removed: a page names them as ranges."""
    end(leader, *((1, task) for task in range(6)))
    remove(leader, "ended_seq IN (1, 3, 6)")
    page = read(leader)
    assert ([row.sequence for row in page.rows], page.lost) == ([2, 4, 5], [(1, 1), (3, 3), (6, 6)])


def test_with_a_filter_what_is_lost_before_the_oldest_kept_is_named(leader: Leader) -> None:
    """Ends 1 to 4 of six are removed."""
    end(leader, *((1, task) for task in range(6)))
    remove(leader, "ended_seq <= 4")
    page = read(leader, after=1, user="alice")
    assert ([row.sequence for row in page.rows], page.lost) == ([5, 6], [(2, 4)])


def test_nodes_of_a_gang_go_with_their_attempt(leader: Leader) -> None:
    """Removing the attempt leaves no row of its further nodes."""
    end(leader, (1, 3), more_nodes=("n7",))
    remove(leader, "job_id = 1")
    assert read(leader, node="n7").rows == []


def remove(leader: Leader, which: str) -> None:
    """Remove attempts, as retention does."""
    with leader.store._database.writing("removing") as connection:
        connection.exec_driver_sql(f"DELETE FROM attempts WHERE {which}")
        assert connection.exec_driver_sql("SELECT count(*) FROM gang_nodes WHERE job_id NOT IN "
                                          "(SELECT job_id FROM attempts)").scalar() == 0  # fmt: skip


def test_what_jobs_asked_for_is_read_where_it_is_wanted(leader: Leader) -> None:
    """A core on one node by default; without `asked` nothing is said of it."""
    end(leader, (1, 0))
    (row,) = leader.store.ended(0, last=1, asked=True).rows
    assert row.asked is not None
    assert [(one.nodes, one.amounts) for one in row.asked.nodes] == [(1, {"cpu": 1000})]
    assert read(leader).rows[0].asked is None


@pytest.mark.parametrize(
    ("spec", "task", "expected"),
    [
        ({"request": {"cpu": "2", "memory": "1GiB", "gpu": "0.5"}, "nodes": 3}, 0, [(3, 2000)]),
        ({"extensions": 4, "nodes": 2, "request": {"cpu": 1}}, 0, [(2, 1000)]),
        ({"extensions": 4, "nodes": 2, "request": {"cpu": 1}}, 1, [(1, 1000)]),
        ({"extensions": 4, "array": {"count": 9}, "request": {"cpu": 1}}, 8, [(1, 1000)]),
        ({"groups": [{"request": {"cpu": 1}}, {"request": {"cpu": 8}, "nodes": 4}]}, 0, [(1, 1000), (4, 8000)]),
    ],
)
def test_what_one_task_asks_for_follows_from_its_job(
    spec: dict[str, Any], task: int, expected: list[tuple[int, int]]
) -> None:
    """Nodes, and millicores on each of them: of gangs, a base and its extensions, several kinds of nodes."""
    part = SPEC_PART.decode(msgspec.json.encode(spec))
    assert [(one.nodes, one.amounts["cpu"]) for one in part.amounts(task)] == expected
