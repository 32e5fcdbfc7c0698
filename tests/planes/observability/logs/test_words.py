"""What people type into a search, and what it finds."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError
from hal.planes.observability.logs.words import MAX_TERMS, TAG, expression_of, indexable, parse_search


def test_words_must_all_be_there() -> None:
    """Two words are joined by AND."""
    assert expression_of(parse_search("disk full"), []) == '("disk") AND ("full")'


def test_one_or_the_other() -> None:
    """OR between two words is a choice; a third word must be there besides."""
    assert expression_of(parse_search("disk OR memory full"), []) == '("disk" OR "memory") AND ("full")'


def test_a_word_with_signs_is_looked_up_by_its_words_and_checked_in_the_text() -> None:
    """`cuda_error` finds `CUDA_ERROR`, not a line that has both words somewhere."""
    search = parse_search("cuda_error")
    assert expression_of(search, []) == '(("cuda" AND "error"))'
    assert search.admits("x CUDA_ERROR_OOM")
    assert not search.admits("error of cuda")


def test_what_must_not_be_there() -> None:
    """A word alone is excluded by the index, a phrase by the text."""
    search = parse_search('epoch -warm -"val loss"')
    assert expression_of(search, []) == '(("epoch")) NOT ("warm")'
    assert not search.admits("epoch 3 val loss 0.1")
    assert search.admits("epoch 3 loss of val")


def test_the_beginning_of_a_word() -> None:
    """A star stands for any end of a word."""
    assert expression_of(parse_search("check*"), []) == '("check" *)'


@pytest.mark.parametrize("query", ["-full", '"open', "***", "-", "x " * (MAX_TERMS + 1), "x" * 2_000])
def test_what_cannot_be_searched_is_refused(query: str) -> None:
    """One clear error, before anything is looked up."""
    with pytest.raises(SpecError):
        expression_of(parse_search(query), [])


@pytest.mark.parametrize("query", ['a" OR text:b', "NEAR(a b)", "text : x", "a AND (b", "^a", "{x y}: z"])
def test_safety_a_search_is_never_a_program_for_the_index(query: str) -> None:
    """Whatever is typed comes to the index between quotation marks, or is refused."""
    try:
        expression = expression_of(parse_search(query), [])
    except SpecError:
        return
    bare = "".join(part for at, part in enumerate(expression.split('"')) if at % 2 == 0)
    assert set(bare.replace("AND", "").replace("OR", "").replace("NOT", "")) <= set("() *")


def test_safety_no_text_has_the_words_of_tags() -> None:
    """A line that a job prints cannot pretend to be another user's or job's, nor can a search ask for tags."""
    assert TAG not in indexable(f"hello {TAG}u616c696365 {TAG}j7")
    assert TAG not in expression_of(parse_search(f"{TAG}u616c696365 hello"), [])


def test_colours_are_no_part_of_words() -> None:
    """A word that a program prints in red is found, and a phrase of which one word is."""
    assert indexable("\x1b[1;31mred\x1b[0m alert") == "red alert"
    assert parse_search('"red alert"').admits("\x1b[1;31mred\x1b[0m alert")
