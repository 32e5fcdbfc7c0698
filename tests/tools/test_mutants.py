"""The mutants that `make mutate` makes of a source."""

from __future__ import annotations

import pytest
from tools.mutants import mutants_of


def changes(source: str) -> set[tuple[str, str]]:
    """What each mutant of a source replaces, and by what."""
    return {(mutant.was, mutant.becomes) for mutant in mutants_of("m.py", source.encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < c", {("b < c", "b <= c"), ("b < c", "b >= c")}),
        ("a = b is not c", {("b is not c", "b is c")}),
        ("a = b and c", {("b and c", "b or c")}),
        ("a = not b", {("not b", "bool(b)")}),
        ("a = 3", {("3", "4"), ("3", "(2)")}),
        ("a = {b: c, d: e}", {("b: c", "nothing"), ("d: e", "nothing"), ("c, d: e", "e, d: c")}),
        ("a = f(b, c)", {("b, c", "c, b")}),
        ("a = min(b, c)", {("min", "max")}),
        ("a += b", {("a += b", "pass"), ("a += b", "a -= b")}),
        ("def f() -> bool:\n    return b", {("b", "not (b)")}),
        ("if b:\n    c()", {("b", "not (b)"), ("c()", "pass")}),
    ],
)
def test_a_wrong_version_is_made_of_each_construct(source: str, expected: set[tuple[str, str]]) -> None:
    """Boundaries, negations, neighbours and what is left out."""
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Prose."""',
        "import a",
        "a: int",
        "__all__ = ['a']",
        "a = 'Some prose.'",
        "class A(Protocol):\n    def f(self) -> int:\n        return 1",
    ],
)
def test_what_no_test_should_pin_down_is_left_alone(source: str) -> None:
    """Prose, imports, types and protocols have no mutants."""
    assert changes(source) == set()


def test_a_bound_that_an_annotation_states_is_mutated() -> None:
    """msgspec checks it, so a test can."""
    assert changes("a: Annotated[int, Meta(ge=0)]") == {("0", "1"), ("0", "(-1)")}


def test_a_mutant_replaces_its_own_bytes_only() -> None:
    """Columns are counted in bytes: a character of several stands before the number."""
    source = "a = 'Größe, so'; b = 1  # one\n".encode()
    wrong = {mutant.applied_to(source).decode() for mutant in mutants_of("m.py", source)}
    assert wrong == {"a = 'Größe, so'; b = 2  # one\n", "a = 'Größe, so'; b = (0)  # one\n"}
