"""Dependencies as people write them: every kind, both spellings of both operators, and what is refused and why."""

from __future__ import annotations

import pytest

from hal.core.model import Dependency, DependencyKind, SpecError, parse_dependencies
from hal.core.model.dependency import Failed, canonical_dependencies, dependencies_text, each_dependency

A, B, C = Dependency("1"), Dependency("2", DependencyKind.AFTERANY), Dependency("3", DependencyKind.AFTERNOTOK)
SINGLETON = Dependency(kind=DependencyKind.SINGLETON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", (A,)),
        ("afterok:1", (A,)),
        ("after:1", (Dependency("1", DependencyKind.AFTER),)),
        ("aftercorr:1", (Dependency("1", DependencyKind.AFTERCORR),)),
        ("singleton", (SINGLETON,)),
        ("singleton & 1", (SINGLETON, A)),
        ("prepare", (Dependency("prepare"),)),
        ("afterok:pre-pare", (Dependency("pre-pare"),)),
        ("afterok:1:2", (A, Dependency("2"))),
        ("afterok:1:x", (Dependency("1:x"),)),
        ("afterok:1 & afterany:2", (A, B)),
        ("afterok:1,afterany:2", (A, B)),
        ("afterok:1&afterany:2 & afternotok:3", (A, B, C)),
        ("afterok:1 | afterany:2", (Dependency(any_of=(A, B)),)),
        ("afterok:1?afterany:2", (Dependency(any_of=(A, B)),)),
        ("1 | afterany:2 | afternotok:3", (Dependency(any_of=(A, B, C)),)),
        ("1 & (afterany:2 | afternotok:3)", (A, Dependency(any_of=(B, C)))),
        ("(1 | afterany:2) & (1 | afternotok:3)", (Dependency(any_of=(A, B)), Dependency(any_of=(A, C)))),
        ("(1)", (A,)),
        ("1 | 1", (A,)),
        ("(1 | 1 | afterany:2)", (Dependency(any_of=(A, B)),)),
        ("  1  ", (A,)),
    ],
)
def test_a_text_is_read_as_what_it_says(text: str, expected: tuple[Dependency, ...]) -> None:
    """`,` is `&` and `?` is `|`; a choice of one is that one."""
    assert parse_dependencies(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'': a job is expected at the end"),
        ("1 &", "'1 &': a job is expected at the end"),
        ("& 1", "'& 1': a job is expected before '&'"),
        ("1 & | 2", "a job is expected before '|'"),
        ("()", "a job is expected before ')'"),
        ("((1))", "a job is expected before '('"),
        ("1 2", "'2' found where & or | is expected"),
        ("1 )", "')' found where & or | is expected"),
        ("1 & 2 | 3", "& and | are mixed"),
        ("1 | 2 & 3", "& and | are mixed"),
        ("(1 | 2", "a bracket is not closed"),
        ("(1 & 2)", "'&' found where | or ) is expected"),
        ("(1 2)", "'2' found where | or ) is expected"),
        ("(afterok:1:2 | 3)", "several ids in one term of a choice"),
        ("afterok:1:2 | 3", "| can only join single jobs"),
        ("3 | afterok:1:2", "| can only join single jobs"),
        ("(1 | 2) | 3", "| can only join single jobs"),
        ("3 | (1 | 2)", "| can only join single jobs"),
        ("afterok:", "'afterok:' is not KIND:JOB"),
        ("sometime:1", "'sometime:1' is not KIND:JOB"),
        ("singleton:1", "'singleton:1' is not KIND:JOB"),
        ("AFTEROK:1", "'AFTEROK:1' is not KIND:JOB"),
    ],
)
def test_a_text_that_says_nothing_clear_is_refused(text: str, message: str) -> None:
    """The error says what stands where."""
    with pytest.raises(SpecError) as refused:
        parse_dependencies(text)
    assert refused.value.message.startswith("dependencies: ")
    assert refused.value.message.endswith(message)


def test_the_hint_of_an_unknown_kind_names_those_that_have_a_job() -> None:
    """Singleton has none."""
    with pytest.raises(SpecError) as refused:
        parse_dependencies("sometime:1")
    assert refused.value.hint == ("the kinds are after, afterany, afterok, afternotok, aftercorr; singleton has no job")


@pytest.mark.parametrize(
    "text",
    ["afterok:1", "singleton", "afterok:12 & (afterany:13 | afternotok:14)", "after:a & aftercorr:b & singleton"],
)
def test_what_is_printed_is_what_is_written(text: str) -> None:
    """The one form in which dependencies are kept, as text."""
    assert dependencies_text(parse_dependencies(text)) == text


def test_every_single_dependency_is_listed_in_order() -> None:
    """Those inside of a choice too."""
    assert tuple(each_dependency((A, Dependency(any_of=(B, C))))) == (A, B, C)


def test_a_dependency_without_a_choice_is_its_own_alternative() -> None:
    """So that callers need not ask."""
    assert (A.alternatives, Dependency(any_of=(B, C)).alternatives) == ((A,), (B, C))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Dependency("1", any_of=(A, B)), "an entry with any_of also has job or kind"),
        (Dependency(kind=DependencyKind.AFTER, any_of=(A, B)), "an entry with any_of also has job or kind"),
        (Dependency(any_of=(A, Dependency(any_of=(B, C)))), "any_of inside any_of"),
    ],
)
def test_an_entry_that_is_two_things_is_refused(entry: Dependency, message: str) -> None:
    """Which of them was meant is not guessed."""
    with pytest.raises(SpecError, match=message):
        canonical_dependencies((entry,))


def test_ten_thousand_dependencies_are_allowed() -> None:
    """Those inside of choices counted one by one: 9,998 and two."""
    entries = (*(Dependency(str(n)) for n in range(9_998)), Dependency(any_of=(A, B)))
    assert len(canonical_dependencies(entries)) == 9_999


def test_one_more_is_refused() -> None:
    """9,999 and two."""
    entries = (*(Dependency(str(n)) for n in range(9_999)), Dependency(any_of=(A, B)))
    with pytest.raises(SpecError, match="dependencies: 10001; at most 10000 are allowed"):
        canonical_dependencies(entries)


@pytest.mark.parametrize(
    ("kind", "words"),
    [(DependencyKind, "after afterany afterok afternotok aftercorr singleton"), (Failed, "cancel hold run")],
)
def test_the_words_of_dependencies_are_those_of_the_specification(
    kind: type[DependencyKind | Failed], words: str
) -> None:
    """Stored specs and Slurm's users rely on them."""
    assert " ".join(kind) == words
