"""Names with stars: what they match, and that they are bounded."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.core.model.name_patterns import check_name_pattern, name_matches

LETTERS = "ab/.[]!-*?"


@given(st.text(LETTERS, max_size=6), st.text(LETTERS, max_size=8))
def test_patterns_match_as_those_of_a_shell_without_brackets(name: str, pattern: str) -> None:
    """Where brackets stand for themselves."""
    as_shell = "".join(f"[{letter}]" if letter in "[" else letter for letter in pattern)
    assert name_matches(name, pattern) == (name == pattern or fnmatch.fnmatchcase(name, as_shell))


def test_neighbouring_stars_are_one_and_others_are_few() -> None:
    """Each star may cost a pass over a name."""
    assert check_name_pattern("a***b*") == "a*b*"
    with pytest.raises(SpecError, match="is no pattern"):
        check_name_pattern("*a*b*c*d*e")
    with pytest.raises(SpecError, match="is no pattern"):
        check_name_pattern("x" * 129)
