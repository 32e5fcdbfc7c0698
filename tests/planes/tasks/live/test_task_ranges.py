"""Runs of alike tasks: what is cut, moved and merged is never lost, and agrees with one value per task."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model.states import TaskState
from hal.planes.tasks.live.range_tree import MOST, RangeTree, differing, sums_of
from hal.planes.tasks.live.task_ranges import (
    TaskRange,
    TaskRanges,
    change,
    count_in,
    differences,
    locate,
    made_of,
    parts_within,
    put,
    slices,
    startable,
    summed,
    take,
)
from hal.planes.tasks.slices import finished

TASKS = 12
Piece = tuple[int, int]
ranges = st.tuples(st.integers(0, TASKS - 1), st.integers(1, TASKS)).map(lambda p: (p[0], min(p[1], TASKS - p[0])))


def _plain(ranges: TaskRanges) -> dict[int, tuple[TaskState, int]]:
    return {
        task: (task_range.state, task_range.attempt)
        for task_range in ranges
        for task in range(task_range.first, task_range.end)
    }


def test_a_million_tasks_are_one_span_and_starting_the_first_leaves_one() -> None:
    """1,000,000 pending tasks are one value; after the first three start it is still one, of 999,997."""
    assert take((TaskRange(0, 1_000_000),), 0, 3) == (TaskRange(3, 999_997),)


def test_a_task_taken_from_the_middle_cuts_its_span_in_two() -> None:
    """[0, 10) without 4 is [0, 4) and [5, 10)."""
    assert take((TaskRange(0, 10),), 4, 1) == (TaskRange(0, 4), TaskRange(5, 5))


def test_putting_back_an_alike_task_merges_again() -> None:
    """[0, 4) and [5, 10) with 4 between them is [0, 10)."""
    assert put((TaskRange(0, 4), TaskRange(5, 5)), [TaskRange(4, 1)]) == (TaskRange(0, 10),)


def test_a_task_with_another_attempt_number_stays_apart() -> None:
    """A retried task has its own number of the next attempt, so it cannot be merged."""
    assert put((TaskRange(0, 4), TaskRange(5, 5)), [TaskRange(4, 1, attempt=2)]) == (
        TaskRange(0, 4),
        TaskRange(4, 1, attempt=2),
        TaskRange(5, 5),
    )


@given(st.lists(st.tuples(st.sampled_from(["take", "put", "hold", "pend"]), ranges), max_size=20))
def test_spans_agree_with_one_value_for_each_task(steps: list[tuple[str, Piece]]) -> None:
    """Any order of taking, putting back and changing ranges gives what a table with a row for each task gives."""
    ranges: TaskRanges = (TaskRange(0, TASKS),)
    table = _plain(ranges)
    for number, (what, (first, count)) in enumerate(steps):
        inside = range(first, first + count)
        assert _plain(tuple(parts_within(ranges, first, count))) == {t: v for t, v in table.items() if t in inside}
        if what == "take":
            ranges = take(ranges, first, count)
            table = {t: v for t, v in table.items() if t not in inside}
        elif what == "put":
            missing = [t for t in inside if t not in table]
            ranges = put(ranges, [TaskRange(t, 1, attempt=number % 2 + 1) for t in missing])
            table.update(dict.fromkeys(missing, (TaskState.PENDING, number % 2 + 1)))
        else:
            state = TaskState.HELD if what == "hold" else TaskState.PENDING
            ranges = change(ranges, first, count, partial(replace, state=state))
            table.update({t: (state, table[t][1]) for t in inside if t in table})
        assert _plain(ranges) == table
        assert all(a.end < b.first or not a.alike(b) for a, b in itertools.pairwise(ranges))
        assert all((locate(ranges, t) is not None) == (t in table) for t in range(TASKS))
        assert count_in(ranges, TaskState.HELD) == sum(state is TaskState.HELD for state, _ in table.values())


MANY = 700


@given(st.lists(st.tuples(st.sampled_from(["take", "put", "hold", "pend", "tail", "scatter"]), st.data()), max_size=8))
@settings(max_examples=10, deadline=None)
def test_many_spans_agree_with_one_value_for_each_task(steps: list[tuple[str, st.DataObject]]) -> None:
    """The same of thousands of ranges, which are a tree: contents, sums, order of starts, and what leads from one to
    the next, which goes into the store."""
    ranges = made_of([TaskRange(task, 1, attempt=task % 2 + 1) for task in range(MANY)])
    table = {task: TaskRange(task, 1, attempt=task % 2 + 1) for task in range(MANY)}
    for number, (what, data) in enumerate(steps):
        first = data.draw(st.integers(0, MANY - 1))
        count = data.draw(st.integers(1, MANY - first))
        inside = [task for task in range(first, first + count) if task in table]
        before = ranges
        if what == "take":
            ranges = take(ranges, first, count)
            table = {task: task_range for task, task_range in table.items() if not first <= task < first + count}
        elif what == "put":
            new = [TaskRange(task, 1, attempt=number + 3) for task in range(first, first + count) if task not in table]
            ranges = put(ranges, new)
            table.update({task_range.first: task_range for task_range in new})
        elif what == "scatter":
            for task in inside[::7]:
                ranges = change(ranges, task, 1, partial(replace, state=TaskState.CANCELLED, reason="x"))
                table[task] = replace(table[task], state=TaskState.CANCELLED, reason="x")
        else:
            to: dict[str, Any] = {
                "hold": {"state": TaskState.HELD},
                "pend": {"state": TaskState.PENDING, "eligible_ms": 100 + number},
                "tail": {"eligible_ms": INF},
            }[what]
            ranges = change(ranges, first, count, partial(replace, **to))
            table.update({task: replace(table[task], **to) for task in inside})
        assert _each(ranges) == table
        assert all(a.end < b.first or not a.alike(b) for a, b in itertools.pairwise(ranges))
        assert summed(ranges) == sums_of(tuple(ranges))
        assert list(startable(ranges, 101)) == list(startable(tuple(ranges), 101))
        assert [locate(ranges, task) is not None for task in range(0, MANY, 97)] == [
            t in table for t in range(0, MANY, 97)
        ]
        assert _each(tuple(parts_within(ranges, first, count))) == {
            t: s for t, s in table.items() if first <= t < first + count
        }
        parts = list(slices(ranges, first, count, 50))
        assert [low for low, _ in parts] == list(itertools.accumulate((n for _, n in parts[:-1]), initial=first))
        assert sum(n for _, n in parts) == count
        gone, come = finished(differences(before, ranges))
        rows = {task_range.first: task_range for task_range in before if task_range.first not in gone} | {
            task_range.first: task_range for task_range in come
        }
        assert rows == {task_range.first: task_range for task_range in ranges}


def test_one_change_among_many_ranges_costs_a_few_nodes() -> None:
    """(H5) Of 200,000 ranges that one task of one changes, all nodes but those on the way to it stay the same, and a
    few rows are written: it was a copy of 200,000 pointers for each task, a minute for 10,000 of them."""
    ranges = made_of([TaskRange(task, 1, attempt=task % 2 + 1) for task in range(200_000)])
    after = change(ranges, 77_777, 1, partial(replace, state=TaskState.CANCELLED))
    assert isinstance(ranges, RangeTree)
    assert isinstance(after, RangeTree)
    assert sum(map(len, differing(ranges, after))) <= 4 * MOST
    assert finished(differences(ranges, after)) == ([], [TaskRange(77_777, 1, TaskState.CANCELLED, attempt=2)])


def _each(ranges: TaskRanges) -> dict[int, TaskRange]:
    return {
        task: replace(task_range, first=task, count=1)
        for task_range in ranges
        for task in range(task_range.first, task_range.end)
    }
