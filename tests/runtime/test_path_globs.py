"""Patterns of paths, as people know them from .gitignore."""

from __future__ import annotations

import pytest

from hal.runtime.path_globs import IgnoreRules, matches, parts_of


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.csv", "a.csv", True),
        ("a.csv", "b/a.csv", False),
        ("*.csv", "a.csv", True),
        ("*.csv", "b/a.csv", False),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "x/y/a.csv", True),
        ("out/**", "out/x/y", True),
        ("out/**", "outer/x", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/y/c", False),
        ("**", "a/b/c", True),
        ("[ab]?", "a1", True),
        ("[!ab]?", "a1", False),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, path: str, expected: bool) -> None:
    assert matches(parts_of(pattern), path.split("/")) is expected


def test_many_stars_take_no_longer_than_few() -> None:
    """A pattern that would take a backtracking matcher for ever."""
    assert not matches(parts_of("/".join(["**", "a"] * 30)), ["a"] * 60 + ["b"])


def left_out(lines: list[str], path: str, *, directory: bool = False) -> bool:
    return IgnoreRules(lines).leaves_out(path, path.rpartition("/")[2], directory=directory)


@pytest.mark.parametrize(
    ("line", "path", "directory", "expected"),
    [
        ("*.bak", "x/y.bak", False, True),
        ("data/", "data", True, True),
        ("data/", "data", False, False),
        ("/build", "build", False, True),
        ("/build", "x/build", False, False),
        ("doc/*.txt", "doc/a.txt", False, True),
        ("doc/*.txt", "x/doc/a.txt", False, False),
        ("**/tmp", "a/b/tmp", True, True),
        ("# x", "# x", False, False),
        ("\\#x", "#x", False, True),
        ("x  ", "x", False, True),
        ("", "x", False, False),
    ],
)
def test_a_line_leaves_out_what_it_does_in_git(line: str, path: str, directory: bool, expected: bool) -> None:
    assert left_out([line], path, directory=directory) is expected


def test_the_last_line_that_matches_decides() -> None:
    assert not left_out(["*.bak", "!keep.bak"], "a/keep.bak")
    assert left_out(["!keep.bak", "*.bak"], "a/keep.bak")
