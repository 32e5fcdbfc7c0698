"""Lists of names: what they stand for, and the shortest that stands for given names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.core.model.topology.node_lists import expand_names, fold_names, natural_key
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("b,a[2,1]", ["b", "a2", "a1"]),
        ("r[1-2]n[01-02].x", ["r1n01.x", "r1n02.x", "r2n01.x", "r2n02.x"]),
    ],
)
def test_a_list_stands_for_names_in_its_order(text: str, names: list[str]) -> None:
    """Zeros in front are kept; several brackets are every combination."""
    assert expand_names(text) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a list"),
        ("a,,b", "is not a list"),
        ("n[1-3", "brackets"),
        ("n1]", "brackets"),
        ("n[[1]]", "brackets"),
        ("n[]", "is not a range"),
        ("n[1-x]", "is not a range"),
        ("n[3-1]", "has no number"),
        ("n[1-3],n2", "'n2' is twice"),
        ("-a", "is not a name"),
        ("a b", "is not a name"),
        ("n[1-999999999]", "more than 100,000 names"),
        ("n[1-999]m[1-999]", "more than 100,000 names"),
        ("a[1][1][1][1][1]", "more than 4 brackets"),
        ("a" * (1 << 21), "characters"),
    ],
)
def test_what_is_no_list_is_refused(text: str, says: str) -> None:
    """Before it is expanded, where it would be long."""
    with pytest.raises(SpecError) as error:
        expand_names(text)
    assert says in str(error.value)


def test_all_parts_together_have_a_bound() -> None:
    """Six and six are more than ten."""
    with pytest.raises(SpecError, match="more than 10 names"):
        expand_names("n[1-6],m[1-6]", 10)


def test_names_are_folded_in_order_of_their_numbers() -> None:
    """Each part is where its first name is; a single one needs no brackets."""
    names = ["n10", "n9", "n8", "n08", "n09", "login", "n1-eth", "r2n03", "r2n01", "r2n02", "n12"]
    assert fold_names(names) == "n[8,08,9,09-10,12],login,n1-eth,r2n[01-03]"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("n1", "n2", "n3", "n4"), "n[1-4]"),
        (("n1", "n3", "n4", "gpu7"), "n[1,3-4],gpu7"),
        (("n09", "n10", "n11"), "n[09-11]"),
        (("n9", "n10"), "n[9-10]"),
        (("a1.site", "a2.site"), "a[1-2].site"),
        (("head",), "head"),
        (("n01", "n1"), "n[1,01]"),
    ],
)
def test_nodes_that_differ_in_a_number_are_written_once(names: tuple[str, ...], text: str) -> None:
    """Consecutive ones as a range, whatever leading zeros they have."""
    assert fold_names(names) == text


NAMES = st.sets(st.from_regex(r"[a-b]{1,2}([0-9]{1,3}(x[0-9]{1,2}|-b)?)?", fullmatch=True), min_size=1, max_size=30)


@settings(max_examples=examples(100))
@given(NAMES)
def test_what_was_folded_expands_to_the_same_names(names: set[str]) -> None:
    """None is lost, and none is there twice."""
    assert sorted(expand_names(fold_names(names))) == sorted(names)


def test_names_are_ordered_as_people_count() -> None:
    """9 comes before 10."""
    assert sorted(["n10", "n9", "a", "n09b"], key=natural_key) == ["a", "n9", "n09b", "n10"]
