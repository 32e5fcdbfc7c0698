"""Jobs and some of their tasks, as people name them."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError, TasksRef, parse_tasks_ref
from hal.core.model.index_ranges import IndexRange


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("8", TasksRef(8)),
        ("8.7", TasksRef(8, (IndexRange(7),))),
        ("8.7-9", TasksRef(8, (IndexRange(7, 3),))),
        ("8.1,3-5", TasksRef(8, (IndexRange(1), IndexRange(3, 3)))),
        ("8.0-8:4", TasksRef(8, (IndexRange(0, 3, 4),))),
        ("8[1,3-5]", TasksRef(8, (IndexRange(1), IndexRange(3, 3)), by_index=True)),
    ],
)
def test_tasks_are_named_by_number_or_by_index(text: str, ref: TasksRef) -> None:
    """What is read is written back as it was."""
    assert parse_tasks_ref(text) == ref
    assert str(ref) == text


def test_only_one_task_by_number_is_a_single_one() -> None:
    """An index must be looked up in the array first."""
    assert [parse_tasks_ref(text).task for text in ("8", "8.7", "8.7-8", "8[7]")] == [None, 7, None, None]


@pytest.mark.parametrize("text", ["", "x", "0", "8.", "8.-1", "8.x", "8[]", "8[1", "8.7.1", "8.3-1", "8.99999999999"])
def test_anything_else_is_refused(text: str) -> None:
    """With an example of each form, or the part that is wrong."""
    with pytest.raises(SpecError) as refused:
        parse_tasks_ref(text)
    assert refused.value.hint


@pytest.mark.parametrize("text", ["8_7", "8_[7-9]", "8_7-9"])
def test_what_users_of_slurm_write_is_explained(text: str) -> None:
    """Its numbers are array indices there; here the two are written differently."""
    with pytest.raises(SpecError) as refused:
        parse_tasks_ref(text)
    inside = text[2:].strip("[]")
    assert f"8[{inside}] for tasks by HAL_ARRAY_INDEX, 8.{inside} for tasks by number" in refused.value.hint


def test_ranges_in_one_id_are_bounded() -> None:
    """A thousand."""
    with pytest.raises(SpecError, match="more than 1,000 parts"):
        parse_tasks_ref("8." + ",".join(str(2 * n) for n in range(1_001)))
