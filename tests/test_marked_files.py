"""What `-m` selects decides which files are imported: none too few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marked_files import may_select, possible_marks

ALL_SLOW = "slow or attack"
WITH_BOUNDS = "(kernels or hypothesis) and not slow and not soak and not attack"


@pytest.mark.parametrize(
    ("expression", "marks", "wanted"),
    [
        (ALL_SLOW, set(), False),
        (ALL_SLOW, {"kernels"}, False),
        (ALL_SLOW, {"slow"}, True),
        (WITH_BOUNDS, {"slow"}, False),
        (WITH_BOUNDS, {"slow", "hypothesis"}, True),
        ("not slow", {"slow"}, True),
        ("slow and long", set(), True),
        ("skipif(reason='slow')", set(), True),
    ],
)
def test_a_file_is_imported_if_a_test_with_some_of_its_marks_would_be_selected(
    expression: str, marks: set[str], wanted: bool
) -> None:
    """Also where only some tests of a file have a mark; whatever is not looked for in texts selects all files."""
    assert may_select(expression, frozenset(marks)) is wanted


def test_marks_are_found_in_paths_and_texts() -> None:
    """This file names `pytest.mark.slow`, and is in none of the directories."""
    here = Path(__file__).parent
    assert possible_marks(Path(__file__)) == {"slow", "hypothesis"}
    assert {"attack"} <= possible_marks(here / "attacks" / "test_audit.py")
    assert {"slow"} <= possible_marks(here / "cluster" / "test_install.py")
