"""Which transitions code really takes: told by the automata themselves while something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hal.core.lifecycle import ATTEMPT, GATE, NODE, TASK, AttemptEvent, Automaton, TaskEvent
from hal.core.model import TaskState

Taken = set[tuple[str, str, str]]
"""Automaton, state, event."""
AUTOMATA: tuple[Automaton[Any, Any], ...] = (TASK, ATTEMPT, NODE, GATE)
SHARED = {AttemptEvent.PREPARE, AttemptEvent.START, AttemptEvent.SUSPEND, AttemptEvent.RESUME, AttemptEvent.FINALISE}
"""While a task has an attempt its state is the attempt's: these of the attempt are the task's, too."""


@contextmanager
def witnessed() -> Iterator[Taken]:
    """The transitions that are taken meanwhile."""
    taken: Taken = set()

    def note(automaton: Automaton[Any, Any], state: Any, event: Any) -> None:
        taken.add((automaton.name, str(state), str(event)))
        if automaton is ATTEMPT and event in SHARED:
            assert TASK.allows(TaskState(state), TaskEvent(event)), f"an attempt may {event} in {state}, a task may not"
            taken.add((TASK.name, str(state), str(event)))

    for automaton in AUTOMATA:
        automaton.witness = lambda state, event, automaton=automaton: note(automaton, state, event)  # type: ignore[misc]
    try:
        yield taken
    finally:
        for automaton in AUTOMATA:
            automaton.witness = None
