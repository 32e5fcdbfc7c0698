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
from hal.planes.tasks.slices import finished
from hal.planes.tasks.span_tree import MOST, SpanTree, differing, sums_of
from hal.planes.tasks.spans import (
    Span,
    Spans,
    change,
    count_in,
    differences,
    locate,
    made_of,
    pieces,
    put,
    slices,
    startable,
    summed,
    take,
)

TASKS = 12
Piece = tuple[int, int]
ranges = st.tuples(st.integers(0, TASKS - 1), st.integers(1, TASKS)).map(lambda p: (p[0], min(p[1], TASKS - p[0])))


def _plain(spans: Spans) -> dict[int, tuple[TaskState, int]]:
    return {task: (span.state, span.attempt) for span in spans for task in range(span.first, span.end)}


def test_a_million_tasks_are_one_span_and_starting_the_first_leaves_one() -> None:
    """1,000,000 pending tasks are one value; after the first three start it is still one, of 999,997."""
    assert take((Span(0, 1_000_000),), 0, 3) == (Span(3, 999_997),)


def test_a_task_taken_from_the_middle_cuts_its_span_in_two() -> None:
    """[0, 10) without 4 is [0, 4) and [5, 10)."""
    assert take((Span(0, 10),), 4, 1) == (Span(0, 4), Span(5, 5))


def test_putting_back_an_alike_task_merges_again() -> None:
    """[0, 4) and [5, 10) with 4 between them is [0, 10)."""
    assert put((Span(0, 4), Span(5, 5)), [Span(4, 1)]) == (Span(0, 10),)


def test_a_task_with_another_attempt_number_stays_apart() -> None:
    """A retried task has its own number of the next attempt, so it cannot be merged."""
    assert put((Span(0, 4), Span(5, 5)), [Span(4, 1, attempt=2)]) == (Span(0, 4), Span(4, 1, attempt=2), Span(5, 5))


@given(st.lists(st.tuples(st.sampled_from(["take", "put", "hold", "pend"]), ranges), max_size=20))
def test_spans_agree_with_one_value_for_each_task(steps: list[tuple[str, Piece]]) -> None:
    """Any order of taking, putting back and changing ranges gives what a table with a row for each task gives."""
    spans: Spans = (Span(0, TASKS),)
    table = _plain(spans)
    for number, (what, (first, count)) in enumerate(steps):
        inside = range(first, first + count)
        assert _plain(tuple(pieces(spans, first, count))) == {t: v for t, v in table.items() if t in inside}
        if what == "take":
            spans = take(spans, first, count)
            table = {t: v for t, v in table.items() if t not in inside}
        elif what == "put":
            missing = [t for t in inside if t not in table]
            spans = put(spans, [Span(t, 1, attempt=number % 2 + 1) for t in missing])
            table.update(dict.fromkeys(missing, (TaskState.PENDING, number % 2 + 1)))
        else:
            state = TaskState.HELD if what == "hold" else TaskState.PENDING
            spans = change(spans, first, count, partial(replace, state=state))
            table.update({t: (state, table[t][1]) for t in inside if t in table})
        assert _plain(spans) == table
        assert all(a.end < b.first or not a.alike(b) for a, b in itertools.pairwise(spans))
        assert all((locate(spans, t) is not None) == (t in table) for t in range(TASKS))
        assert count_in(spans, TaskState.HELD) == sum(state is TaskState.HELD for state, _ in table.values())


MANY = 700


@given(st.lists(st.tuples(st.sampled_from(["take", "put", "hold", "pend", "tail", "scatter"]), st.data()), max_size=8))
@settings(max_examples=10, deadline=None)
def test_many_spans_agree_with_one_value_for_each_task(steps: list[tuple[str, st.DataObject]]) -> None:
    """The same of thousands of spans, which are a tree: contents, sums, order of starts, and what leads from one to
    the next, which goes into the store."""
    spans = made_of([Span(task, 1, attempt=task % 2 + 1) for task in range(MANY)])
    table = {task: Span(task, 1, attempt=task % 2 + 1) for task in range(MANY)}
    for number, (what, data) in enumerate(steps):
        first = data.draw(st.integers(0, MANY - 1))
        count = data.draw(st.integers(1, MANY - first))
        inside = [task for task in range(first, first + count) if task in table]
        before = spans
        if what == "take":
            spans = take(spans, first, count)
            table = {task: span for task, span in table.items() if not first <= task < first + count}
        elif what == "put":
            new = [Span(task, 1, attempt=number + 3) for task in range(first, first + count) if task not in table]
            spans = put(spans, new)
            table.update({span.first: span for span in new})
        elif what == "scatter":
            for task in inside[::7]:
                spans = change(spans, task, 1, partial(replace, state=TaskState.CANCELLED, reason="x"))
                table[task] = replace(table[task], state=TaskState.CANCELLED, reason="x")
        else:
            to: dict[str, Any] = {
                "hold": {"state": TaskState.HELD},
                "pend": {"state": TaskState.PENDING, "eligible_ms": 100 + number},
                "tail": {"eligible_ms": INF},
            }[what]
            spans = change(spans, first, count, partial(replace, **to))
            table.update({task: replace(table[task], **to) for task in inside})
        assert _each(spans) == table
        assert all(a.end < b.first or not a.alike(b) for a, b in itertools.pairwise(spans))
        assert summed(spans) == sums_of(tuple(spans))
        assert list(startable(spans, 101)) == list(startable(tuple(spans), 101))
        assert [locate(spans, task) is not None for task in range(0, MANY, 97)] == [
            t in table for t in range(0, MANY, 97)
        ]
        assert _each(tuple(pieces(spans, first, count))) == {
            t: s for t, s in table.items() if first <= t < first + count
        }
        parts = list(slices(spans, first, count, 50))
        assert [low for low, _ in parts] == list(itertools.accumulate((n for _, n in parts[:-1]), initial=first))
        assert sum(n for _, n in parts) == count
        gone, come = finished(differences(before, spans))
        rows = {span.first: span for span in before if span.first not in gone} | {span.first: span for span in come}
        assert rows == {span.first: span for span in spans}


def test_one_change_among_many_spans_costs_a_few_nodes() -> None:
    """(H5) Of 200,000 spans that one task of one changes, all nodes but those on the way to it stay the same, and a few
    rows are written: it was a copy of 200,000 pointers for each task, a minute for 10,000 of them."""
    spans = made_of([Span(task, 1, attempt=task % 2 + 1) for task in range(200_000)])
    after = change(spans, 77_777, 1, partial(replace, state=TaskState.CANCELLED))
    assert isinstance(spans, SpanTree)
    assert isinstance(after, SpanTree)
    assert sum(map(len, differing(spans, after))) <= 4 * MOST
    assert finished(differences(spans, after)) == ([], [Span(77_777, 1, TaskState.CANCELLED, attempt=2)])


def _each(spans: Spans) -> dict[int, Span]:
    return {task: replace(span, first=task, count=1) for span in spans for task in range(span.first, span.end)}
