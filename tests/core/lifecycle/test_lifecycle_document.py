"""docs/lifecycle.md shows the automata as they are."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import pytest

from hal.core.lifecycle import ATTEMPT, GATE, MAX_ATTEMPTS, NODE, TASK, Automaton
from hal.core.model import AttemptState

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "lifecycle.md").read_text()

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


def shown(heading: str) -> set[tuple[str, str, str]]:
    """(state, event, state) of the first table under a heading."""
    part = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0].split("| in | may |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([\w-]+) \| (.+→.+) \|$", part, re.M)
    return {(state, *pair) for state, cell in rows for pair in re.findall(r"([\w-]+) → \*\*([\w-]+)\*\*", cell)}


def declared(automaton: Automaton[S, E]) -> set[tuple[str, str, str]]:
    """The same of the code."""
    return {(str(state), str(event), str(after)) for (state, event), after in automaton.table.items()}


def test_the_tables_of_the_document_are_those_of_the_code() -> None:
    """No transition is missing, none is invented."""
    assert shown("Tasks") == declared(TASK)
    assert shown("Attempts") == declared(ATTEMPT)
    assert shown("Nodes") == declared(NODE)
    assert shown("Gates") == declared(GATE)


@pytest.mark.parametrize("state", [state for state in AttemptState if state.ended])
def test_every_end_of_an_attempt_is_explained(state: AttemptState) -> None:
    """What it means, and what becomes of the task."""
    assert f"\n| {state} | " in TEXT


def test_the_bound_on_attempts_is_the_one_of_the_code() -> None:
    """As a number for people."""
    assert f"After {MAX_ATTEMPTS:,} attempts" in TEXT
