"""What an automaton answers besides the next state: the events it allows, who is told, what an error shows."""

from __future__ import annotations

import pytest

from hal.core.lifecycle import ATTEMPT, GATE, TASK, AttemptEvent, LifecycleError, TaskEvent, transition
from hal.core.lifecycle.automaton import MAX_HISTORY_SHOWN
from hal.core.lifecycle.gates import GateDecision, GateEvent, GateState
from hal.core.model import AttemptState, TaskState
from hal.core.model.gate import GatePhase, GatePolicy
from tests.core.lifecycle.witness import witnessed


def test_an_event_is_allowed_exactly_where_it_is_declared() -> None:
    """A pending task may be held; it may not be started."""
    assert TASK.allows(TaskState.PENDING, TaskEvent.HOLD)
    assert not TASK.allows(TaskState.PENDING, TaskEvent.START)


def test_a_witness_is_told_the_state_and_the_event() -> None:
    """Of a transition that is taken."""
    with witnessed() as taken:
        transition(ATTEMPT, AttemptState.PREPARING, AttemptEvent.REFUSE)
    assert taken == {("attempt", "preparing", "refuse")}


def test_a_witness_is_not_told_of_what_is_refused() -> None:
    """An undeclared transition is none."""
    with witnessed() as taken, pytest.raises(LifecycleError):
        transition(ATTEMPT, AttemptState.RUNNING, AttemptEvent.REFUSE)
    assert taken == set()


@pytest.mark.parametrize(("steps", "cut"), [(20, False), (21, True)])
def test_a_history_is_cut_from_the_twenty_first_step_on(steps: int, cut: bool) -> None:
    """Twenty steps are shown whole."""
    assert MAX_HISTORY_SHOWN == 20
    with pytest.raises(LifecycleError) as refused:
        transition(TASK, TaskState.PENDING, TaskEvent.START, [("hold", "held")] * steps)
    assert ("…" in refused.value.message) is cut
    assert refused.value.message.count("-hold-> held") == 20


def test_an_event_in_an_end_is_told_that_it_is_an_end() -> None:
    """Nothing is declared there."""
    with pytest.raises(LifecycleError) as refused:
        transition(ATTEMPT, AttemptState.LOST, AttemptEvent.FAIL)
    assert refused.value.hint == "declared there: nothing, it is an end"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (GatePhase, "preparing finalising"),
        (GatePolicy, "wait elsewhere fail ignore"),
        (GateState, "waiting passed failed expired abandoned"),
        (GateEvent, "pass fail expire abandon"),
        (GateDecision, "wait go fail elsewhere"),
    ],
)
def test_the_words_of_gates_are_those_that_planes_write(
    kind: type[GatePhase | GatePolicy | GateState | GateEvent | GateDecision], names: str
) -> None:
    """In the documented order."""
    assert " ".join(kind) == names


def test_an_error_names_the_automaton() -> None:
    """Of four, each has its own name."""
    with pytest.raises(LifecycleError, match=r"^gate: 'expire' is not declared in state 'passed'"):
        transition(GATE, GateState.PASSED, GateEvent.EXPIRE)
