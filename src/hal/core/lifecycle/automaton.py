"""Automata as data: which state follows which, on which event; an undeclared transition is an error.

Pure. `transition` is the only way from one state to another; it costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from hal.core.model import InternalError

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)

MAX_HISTORY_SHOWN = 20
"""How many of the latest steps an error prints."""

Step = tuple[str, str]
"""(event, state it led to): one entry of a history."""


class LifecycleError(InternalError):
    """An undeclared transition was attempted: a bug in the code that attempted it.

    Attributes:
        automaton: its name.
        state: the state in which the event occurred.
        event: the event.
        history: the steps that led there, as far as they were given.
    """

    def __init__(self, automaton: str, state: str, event: str, history: tuple[Step, ...], declared: list[str]) -> None:
        way = " ".join(f"-{past}-> {reached}" for past, reached in history[-MAX_HISTORY_SHOWN:])
        if len(history) > MAX_HISTORY_SHOWN:
            way = f"… {way}"
        super().__init__(
            f"{automaton}: '{event}' is not declared in state '{state}' (history: {way or 'not given'})",
            hint=f"declared there: {', '.join(declared) or 'nothing, it is an end'}",
        )
        self.automaton = automaton
        self.state = state
        self.event = event
        self.history = history


class Automaton(Generic[S, E]):
    """A named, immutable transition table.

    `witness` is called with each transition taken (state, event); tests set it to record which ones the code really
    takes.
    """

    __slots__ = ("initial", "name", "table", "witness")

    def __init__(self, name: str, *, initial: frozenset[S], table: Mapping[S, Mapping[E, S]]) -> None:
        self.name = name
        self.initial = initial
        """Initial states."""
        self.witness: Callable[[S, E], object] | None = None
        self.table: Mapping[tuple[S, E], S] = MappingProxyType(
            {(state, event): after for state, row in table.items() for event, after in row.items()}
        )

    def events(self, state: S) -> list[E]:
        """The events declared in that state."""
        return [event for at, event in self.table if at == state]

    def allows(self, state: S, event: E) -> bool:
        """Whether that transition is declared."""
        return (state, event) in self.table


def transition(automaton: Automaton[S, E], state: S, event: E, history: Iterable[Step] = ()) -> S:
    """Return the next state.

    Args:
        history: earlier steps, oldest first; only used for the error.
    Raises:
        LifecycleError: the transition is not declared.
    """
    after = automaton.table.get((state, event))
    if after is None:
        raise LifecycleError(automaton.name, state, event, tuple(history), [str(e) for e in automaton.events(state)])
    if automaton.witness is not None:
        automaton.witness(state, event)
    return after


def walk(automaton: Automaton[S, E], state: S, events: Iterable[E], history: Iterable[Step] = ()) -> S:
    """Return the state after several events at once (`PREPARE, START` if no gate has to be waited for).

    Raises:
        LifecycleError: one of them is not declared in its state; the history includes those before it.
    """
    past = list(history)
    for event in events:
        state = transition(automaton, state, event, past)
        past.append((event, state))
    return state
