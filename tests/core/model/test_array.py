"""Arrays with gaps and with items: which index and which item each task has, and what it costs to know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.model import ArrayRange, JobSpec, SpecError, check_spec, spec_from_plain, to_json, to_plain
from hal.core.model.array import IndexPart
from hal.core.model.index_ranges import IndexRange, parse_index_ranges, text_of


def indices(text: str) -> list[int]:
    """HAL_ARRAY_INDEX of each of its tasks."""
    array = ArrayRange.parse(text)
    return [array.index(task) for task in range(array.count)]


def test_a_list_of_ranges_gives_each_task_its_index_in_ascending_order() -> None:
    """Whatever the order in which the parts were written."""
    assert indices("1,3,5-9:2") == indices("5-9:2,3,1") == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("text", ["0-98:2%8", "1,3,5-8:3%4", "1-3,9", "0-4"])
def test_an_array_is_written_as_people_write_it(text: str) -> None:
    """The limit of tasks at once included."""
    assert str(ArrayRange.parse(text)) == text


def test_what_was_checked_is_not_looked_at_again_when_something_else_changes() -> None:
    """A hundred thousand indices cost a tenth of a second; broken ones are noticed only where they are new."""
    good = JobSpec(command=("true",), array=ArrayRange.parse("1,3"))
    assert good.array is not None
    bad = replace(good, array=replace(good.array, indices=(IndexPart(0, "3,1"),)))
    with pytest.raises(SpecError, match="not as HAL writes them"):
        check_spec(bad, good)
    assert check_spec(replace(bad, priority=3), bad).priority == 3


def test_a_list_keeps_what_stands_behind_its_percent_sign() -> None:
    """As for a plain range."""
    assert ArrayRange.parse("1,3,10%4").max_running == 4


def test_a_list_without_gaps_is_a_plain_range() -> None:
    """`1,2,3` is stored as `1-3`, and `1,3,5` as `1-5:2`."""
    assert ArrayRange.parse("1,2,3") == ArrayRange(3, 1)
    assert ArrayRange.parse("1-3:2,5") == ArrayRange(3, 1, 2)


@given(st.sets(st.integers(0, 60) | st.integers(0, 10**15), min_size=1, max_size=60))
def test_every_set_of_indices_can_be_written_and_read(wanted: set[int]) -> None:
    """As a list of numbers, as text, and from what is stored."""
    array = ArrayRange.parse(sorted(wanted))
    again = spec_from_plain(to_plain(JobSpec(command=("true",), array=array))).array
    backwards = ",".join(map(str, sorted(wanted, reverse=True)))
    assert again == array == ArrayRange.parse({"indices": backwards})
    assert [array.index(task) for task in range(array.count)] == sorted(wanted)


@given(st.sets(st.integers(0, 80), min_size=1), st.sets(st.integers(0, 80), min_size=1))
def test_tasks_are_found_by_their_indices(mine: set[int], wanted: set[int]) -> None:
    """Those whose index is asked for, and no others."""
    array = ArrayRange.parse(sorted(mine))
    ranges = parse_index_ranges(",".join(map(str, sorted(wanted))), "test", 100)
    found = [task for one in array.tasks_of(ranges) for task in range(one.first, one.last + 1, one.step)]
    assert [array.index(task) for task in found] == sorted(mine & wanted)


def test_tasks_of_an_array_with_a_step_are_found_by_their_indices() -> None:
    """0, 3, 6, 9, 12: index 6 is task 2, index 12 is task 4."""
    assert list(ArrayRange.parse("0-12:3").tasks_of([IndexRange(5, 4), IndexRange(12)])) == [
        IndexRange(2),
        IndexRange(4),
    ]


def test_a_hundred_thousand_indices_without_any_order_stay_small() -> None:
    """Less than a megabyte as JSON, in parts of which each is decoded alone."""
    array = ArrayRange.parse(",".join(str(7 * n + n % 3) for n in range(100_000)))
    assert len(to_json(array)) < 1_000_000
    assert max(len(part.text) for part in array.indices) < 4_500
    assert array.index(99_998) == 7 * 99_998 + 99_998 % 3


def test_items_of_any_kind_are_text_or_json() -> None:
    """Text stays as it is; the number of tasks follows."""
    spec = spec_from_plain({"command": ["true"], "array": {"items": ["a b", 1.5, {"x": [1, None]}, True]}})
    assert spec.array is not None
    assert [spec.array.item(task) for task in range(spec.tasks)] == ["a b", "1.5", '{"x":[1,null]}', "true"]


def test_ranges_are_written_as_they_are_read() -> None:
    """Neighbours are joined."""
    assert text_of(parse_index_ranges("9,1,2,3,20-30:5", "test", 10)) == "1-3,9,20-30:5"
