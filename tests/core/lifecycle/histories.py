"""A thing that lives through a history: every step goes through `transition` and is recorded as exercised."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Generic, TypeVar

from hal.core.lifecycle import Automaton, LifecycleError, transition

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)

exercised: set[tuple[str, str, str]] = set()
"""(automaton, state, event) of every transition that a history has taken in this run."""


class Life(Generic[S, E]):
    """One task, attempt, node or gate, with what has happened to it."""

    def __init__(self, automaton: Automaton[S, E], state: S) -> None:
        assert state in automaton.initial, f"nothing comes into being as {state}"
        self.automaton = automaton
        self.state = state
        self.history: list[tuple[str, str]] = []

    def happens(self, event: E) -> S:
        """The state after one more event."""
        after = transition(self.automaton, self.state, event, self.history)
        exercised.add((self.automaton.name, self.state, event))
        self.history.append((event, after))
        self.state = after
        return after

    def lives(self, events: Iterable[E]) -> list[S]:
        """The states that a row of events leads through."""
        return [self.happens(event) for event in events]

    def refuses(self, event: E) -> LifecycleError:
        """The error that an undeclared event gives; the state stays."""
        before = self.state
        try:
            transition(self.automaton, self.state, event, self.history)
        except LifecycleError as error:
            assert self.state is before
            return error
        raise AssertionError(f"{self.automaton.name}: '{event}' is declared in '{self.state}'")


def missing(automaton: Automaton[S, E]) -> list[str]:
    """Declared transitions that no history has taken."""
    return sorted(
        f"{automaton.name}: {state} -{event}->"
        for state, event in automaton.table
        if (automaton.name, state, event) not in exercised
    )
