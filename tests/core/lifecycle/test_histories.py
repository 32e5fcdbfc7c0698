"""Real histories of tasks, attempts, nodes and gates, each with the end that it must come to.

The last test fails when a declared transition is in none of them.
"""

from __future__ import annotations

import pytest

from hal.core.lifecycle import (
    ATTEMPT,
    END_EVENTS,
    GATE,
    NODE,
    TASK,
    AttemptEvent,
    GateEvent,
    GateState,
    LifecycleError,
    NodeEvent,
    TaskEvent,
    transition,
    walk,
)
from hal.core.model import AttemptState, NodeState, TaskState
from tests.core.lifecycle.histories import Life, exercised, missing

T = TaskEvent
A = AttemptEvent
N = NodeEvent
G = GateEvent

RUNS = (T.ALLOCATE, T.PREPARE, T.START)
"""From waiting to running."""

TASKS: dict[str, tuple[TaskState, tuple[TaskEvent, ...], TaskState]] = {
    "runs and succeeds": (TaskState.PENDING, (*RUNS, T.FINALISE, T.SUCCEED), TaskState.SUCCEEDED),
    "fails, is retried, succeeds": (
        TaskState.PENDING,
        (*RUNS, T.FINALISE, T.REQUEUE, *RUNS, T.FINALISE, T.SUCCEED),
        TaskState.SUCCEEDED,
    ),
    "fails with no retry left": (TaskState.PENDING, (*RUNS, T.FINALISE, T.FAIL), TaskState.FAILED),
    "is ended by its time limit": (TaskState.PENDING, (*RUNS, T.FINALISE, T.TIME_OUT), TaskState.TIMED_OUT),
    "is submitted held, released, cancelled while waiting": (
        TaskState.HELD,
        (T.RELEASE, T.HOLD, T.RELEASE, T.CANCEL),
        TaskState.CANCELLED,
    ),
    "is cancelled while held": (TaskState.PENDING, (T.HOLD, T.CANCEL), TaskState.CANCELLED),
    "fails waiting: its dependency can never be met": (TaskState.PENDING, (T.FAIL,), TaskState.FAILED),
    "fails held: its dependency can never be met": (TaskState.HELD, (T.FAIL,), TaskState.FAILED),
    "is refused by a node, then runs on another": (
        TaskState.PENDING,
        (T.ALLOCATE, T.REFUSE, *RUNS, T.FINALISE, T.SUCCEED),
        TaskState.SUCCEEDED,
    ),
    "cannot be spawned at all": (TaskState.PENDING, (T.ALLOCATE, T.FAIL), TaskState.FAILED),
    "fails in stage-in, nothing to clean up": (TaskState.PENDING, (T.ALLOCATE, T.PREPARE, T.FAIL), TaskState.FAILED),
    "fails in stage-in, what was staged is removed": (
        TaskState.PENDING,
        (T.ALLOCATE, T.PREPARE, T.FINALISE, T.FAIL),
        TaskState.FAILED,
    ),
    "is cancelled before its start frame was sent": (TaskState.PENDING, (T.ALLOCATE, T.CANCEL), TaskState.CANCELLED),
    "is cancelled after its start frame was sent": (
        TaskState.PENDING,
        (T.ALLOCATE, T.FINALISE, T.CANCEL),
        TaskState.CANCELLED,
    ),
    "is cancelled in stage-in": (TaskState.PENDING, (T.ALLOCATE, T.PREPARE, T.CANCEL), TaskState.CANCELLED),
    "is cancelled running: stopped first": (TaskState.PENDING, (*RUNS, T.FINALISE, T.CANCEL), TaskState.CANCELLED),
    "is cancelled running on a node that is gone": (TaskState.PENDING, (*RUNS, T.CANCEL), TaskState.CANCELLED),
    "is cancelled suspended on a node that is gone": (
        TaskState.PENDING,
        (*RUNS, T.SUSPEND, T.CANCEL),
        TaskState.CANCELLED,
    ),
    "is suspended, resumed, suspended, killed": (
        TaskState.PENDING,
        (*RUNS, T.SUSPEND, T.RESUME, T.SUSPEND, T.FINALISE, T.FAIL),
        TaskState.FAILED,
    ),
    "loses its node before, in stage-in, running and suspended": (
        TaskState.PENDING,
        (
            *(T.ALLOCATE, T.REQUEUE),
            *(T.ALLOCATE, T.PREPARE, T.REQUEUE),
            *(*RUNS, T.REQUEUE),
            *(*RUNS, T.SUSPEND, T.REQUEUE),
            *(*RUNS, T.FINALISE, T.SUCCEED),
        ),
        TaskState.SUCCEEDED,
    ),
    "is run again by its owner after every kind of end": (
        TaskState.PENDING,
        (
            *(*RUNS, T.FINALISE, T.SUCCEED, T.REQUEUE),
            *(*RUNS, T.FINALISE, T.FAIL, T.REQUEUE),
            *(*RUNS, T.FINALISE, T.TIME_OUT, T.REQUEUE),
            *(T.CANCEL, T.REQUEUE, T.HOLD),
        ),
        TaskState.HELD,
    ),
}

ATTEMPTS: dict[str, tuple[tuple[AttemptEvent, ...], AttemptState]] = {
    "runs and succeeds": ((A.PREPARE, A.START, A.FINALISE, A.SUCCEED), AttemptState.SUCCEEDED),
    "exits with an error": ((A.PREPARE, A.START, A.FINALISE, A.FAIL), AttemptState.FAILED),
    "reaches its limit": ((A.PREPARE, A.START, A.FINALISE, A.TIME_OUT), AttemptState.TIMED_OUT),
    "is stopped by a cancel": ((A.PREPARE, A.START, A.FINALISE, A.CANCEL), AttemptState.CANCELLED),
    "takes more memory than it asked for": (
        (A.PREPARE, A.START, A.FINALISE, A.RUN_OUT_OF_MEMORY),
        AttemptState.OUT_OF_MEMORY,
    ),
    "is preempted running": ((A.PREPARE, A.START, A.FINALISE, A.PREEMPT), AttemptState.PREEMPTED),
    "is preempted before it started": ((A.PREEMPT,), AttemptState.PREEMPTED),
    "is preempted in stage-in": ((A.PREPARE, A.PREEMPT), AttemptState.PREEMPTED),
    "is refused: the keeper had no lease": ((A.REFUSE,), AttemptState.REFUSED),
    "is refused by a gate": ((A.PREPARE, A.REFUSE), AttemptState.REFUSED),
    "is refused on one node of a gang, ended on the others": (
        (A.PREPARE, A.START, A.FINALISE, A.REFUSE),
        AttemptState.REFUSED,
    ),
    "cannot be spawned": ((A.FAIL,), AttemptState.FAILED),
    "fails in stage-in": ((A.PREPARE, A.FAIL), AttemptState.FAILED),
    "is stopped while its start frame is under way": ((A.FINALISE, A.CANCEL), AttemptState.CANCELLED),
    "is stopped in stage-in, what was staged is removed": ((A.PREPARE, A.FINALISE, A.CANCEL), AttemptState.CANCELLED),
    "is cancelled before anything was sent": ((A.CANCEL,), AttemptState.CANCELLED),
    "is cancelled in stage-in": ((A.PREPARE, A.CANCEL), AttemptState.CANCELLED),
    "is cancelled on a node that is gone": ((A.PREPARE, A.START, A.CANCEL), AttemptState.CANCELLED),
    "is cancelled suspended on a node that is gone": (
        (A.PREPARE, A.START, A.SUSPEND, A.CANCEL),
        AttemptState.CANCELLED,
    ),
    "is suspended, resumed, suspended, stopped": (
        (A.PREPARE, A.START, A.SUSPEND, A.RESUME, A.SUSPEND, A.FINALISE, A.CANCEL),
        AttemptState.CANCELLED,
    ),
    "loses its node before it started": ((A.LOSE,), AttemptState.LOST),
    "loses its node in stage-in": ((A.PREPARE, A.LOSE), AttemptState.LOST),
    "loses its node running": ((A.PREPARE, A.START, A.LOSE), AttemptState.LOST),
    "loses its node suspended": ((A.PREPARE, A.START, A.SUSPEND, A.LOSE), AttemptState.LOST),
    "loses its node while it is stopped": ((A.PREPARE, A.START, A.FINALISE, A.LOSE), AttemptState.LOST),
}

NODES: dict[str, tuple[tuple[NodeEvent, ...], NodeState]] = {
    "is silent for a while": ((N.SILENT, N.RETURN), NodeState.UP),
    "is cordoned for repair and taken back": ((N.CORDON, N.UNCORDON), NodeState.UP),
    "is drained, repaired, taken back": ((N.DRAIN, N.DRAINED, N.UNCORDON), NodeState.UP),
    "is drained after a cordon; the drain is called off": ((N.CORDON, N.DRAIN, N.UNCORDON), NodeState.UP),
    "is cordoned, silent, and returns cordoned": ((N.CORDON, N.SILENT, N.RETURN_CORDONED), NodeState.CORDONED),
    "is draining, silent, and goes on draining": ((N.DRAIN, N.SILENT, N.RETURN_DRAINING), NodeState.DRAINING),
    "is stopped in good order, and started again": ((N.STOP, N.RETURN), NodeState.UP),
    "is cordoned, stopped, and returns cordoned": ((N.CORDON, N.STOP, N.RETURN_CORDONED), NodeState.CORDONED),
    "is draining, stopped, and goes on draining": ((N.DRAIN, N.STOP, N.RETURN_DRAINING), NodeState.DRAINING),
    "is stopped, declared gone, removed": ((N.STOP, N.FENCE, N.REMOVE), NodeState.REMOVED),
    "is silent, declared gone, removed": ((N.SILENT, N.FENCE, N.REMOVE), NodeState.REMOVED),
    "says goodbye and returns": ((N.LEAVE, N.RETURN), NodeState.UP),
    "is cordoned, says goodbye, returns cordoned": ((N.CORDON, N.LEAVE, N.RETURN_CORDONED), NodeState.CORDONED),
    "is drained and switched off": ((N.DRAIN, N.LEAVE), NodeState.DOWN),
    "is declared gone while it is heard": ((N.FENCE,), NodeState.DOWN),
    "is declared gone while cordoned": ((N.CORDON, N.FENCE), NodeState.DOWN),
    "is declared gone while draining": ((N.DRAIN, N.FENCE, N.REMOVE), NodeState.REMOVED),
}

GATES: dict[str, tuple[tuple[GateEvent, ...], GateState]] = {
    "passes, and says so twice": ((G.PASS, G.PASS), GateState.PASSED),
    "fails, and says so twice": ((G.FAIL, G.FAIL), GateState.FAILED),
    "answers too late that it passed": ((G.EXPIRE, G.PASS), GateState.EXPIRED),
    "answers too late that it failed": ((G.EXPIRE, G.FAIL), GateState.EXPIRED),
    "passes after the task was cancelled": ((G.ABANDON, G.PASS), GateState.ABANDONED),
    "fails after the task was cancelled": ((G.ABANDON, G.FAIL), GateState.ABANDONED),
}


@pytest.mark.parametrize("story", TASKS)
def test_a_task_comes_to_its_end(story: str) -> None:
    """Each history of a task leads where it must."""
    begins, events, end = TASKS[story]
    assert Life(TASK, begins).lives(events)[-1] is end


@pytest.mark.parametrize("story", ATTEMPTS)
def test_an_attempt_comes_to_its_end(story: str) -> None:
    """Each history of an attempt leads where it must, and nothing follows."""
    events, end = ATTEMPTS[story]
    attempt = Life(ATTEMPT, AttemptState.ALLOCATED)
    assert attempt.lives(events)[-1] is end
    assert end.ended
    assert ATTEMPT.events(end) == []
    assert events[-1] is END_EVENTS[end]


@pytest.mark.parametrize("story", NODES)
def test_a_node_comes_to_its_state(story: str) -> None:
    """Each history of a node leads where it must."""
    events, end = NODES[story]
    assert Life(NODE, NodeState.UP).lives(events)[-1] is end


@pytest.mark.parametrize("story", GATES)
def test_a_gate_comes_to_its_state(story: str) -> None:
    """What comes late, or twice, changes nothing."""
    events, end = GATES[story]
    assert Life(GATE, GateState.WAITING).lives(events)[-1] is end


def test_an_undeclared_transition_names_state_event_and_history() -> None:
    """A task that is started without an allocation is a fault, and the error says all about it."""
    task = Life(TASK, TaskState.PENDING)
    task.lives([T.HOLD, T.RELEASE])
    error = task.refuses(T.START)
    assert (error.automaton, error.state, error.event) == ("task", "pending", "start")
    assert error.history == (("hold", "held"), ("release", "pending"))
    assert error.message == (
        "task: 'start' is not declared in state 'pending' (history: -hold-> held -release-> pending)"
    )
    assert error.hint == "declared there: hold, allocate, fail, cancel"


def test_a_long_history_is_cut_in_the_error() -> None:
    """The latest twenty steps are shown, all are kept."""
    task = Life(TASK, TaskState.PENDING)
    task.lives([T.HOLD, T.RELEASE] * 50)
    error = task.refuses(T.RESUME)
    assert error.message.count("->") == 20
    assert "history: … -hold->" in error.message
    assert len(error.history) == 100


def test_without_a_history_the_error_says_so() -> None:
    """Callers that keep none are told what to pass."""
    with pytest.raises(LifecycleError, match="history: not given"):
        transition(ATTEMPT, AttemptState.SUCCEEDED, AttemptEvent.FAIL)


def test_several_events_at_once_fail_where_the_wrong_one_stands() -> None:
    """The history of the error holds those that went well."""
    assert walk(TASK, TaskState.PENDING, RUNS) is TaskState.RUNNING
    with pytest.raises(LifecycleError, match="history: -allocate-> allocated"):
        walk(TASK, TaskState.PENDING, (T.ALLOCATE, T.SUSPEND))


@pytest.mark.parametrize(
    ("events", "never"),
    [
        ((), T.START),
        ((), T.SUCCEED),
        ((), T.REFUSE),
        ((T.HOLD,), T.ALLOCATE),
        ((T.ALLOCATE,), T.START),
        ((T.ALLOCATE,), T.HOLD),
        (RUNS, T.SUCCEED),
        (RUNS, T.FAIL),
        (RUNS, T.REFUSE),
        (RUNS, T.ALLOCATE),
        ((*RUNS, T.FINALISE), T.RESUME),
        ((*RUNS, T.FINALISE, T.SUCCEED), T.FAIL),
        ((*RUNS, T.FINALISE, T.SUCCEED), T.CANCEL),
        ((T.CANCEL,), T.RELEASE),
        ((T.CANCEL,), T.CANCEL),
        ((T.FAIL,), T.ALLOCATE),
    ],
)
def test_safety_a_task_takes_no_short_cut(events: tuple[TaskEvent, ...], never: TaskEvent) -> None:
    """No start without an allocation, no end of what runs without finalising, nothing after an end."""
    task = Life(TASK, TaskState.PENDING)
    task.lives(events)
    task.refuses(never)


def test_safety_ends_are_ends() -> None:
    """Only a person's requeue leaves an end of a task; nothing leaves an end of an attempt or a removed node."""
    for (state, event), _ in TASK.table.items():
        assert not state.ended or event is TaskEvent.REQUEUE
    assert not any(state.ended for state, _ in ATTEMPT.table)
    assert NODE.events(NodeState.REMOVED) == []


def test_safety_what_is_alive_can_be_cancelled() -> None:
    """From every state that is not an end."""
    for state in TaskState:
        assert state.ended or transition(TASK, state, TaskEvent.CANCEL) is TaskState.CANCELLED
    for attempt in AttemptState:
        assert attempt.ended or transition(ATTEMPT, attempt, AttemptEvent.CANCEL) is AttemptState.CANCELLED


def test_every_state_is_reached() -> None:
    """No automaton has a state that nothing leads to."""
    assert set(TASK.table.values()) | TASK.initial == set(TaskState)
    assert set(ATTEMPT.table.values()) | ATTEMPT.initial == set(AttemptState)
    assert set(NODE.table.values()) | NODE.initial == set(NodeState)
    assert set(GATE.table.values()) | GATE.initial == set(GateState)


def test_every_declared_transition_is_in_a_history() -> None:
    """A transition that no history above takes is either untested or not needed.

    The histories are lived again here, so that the check holds when this test runs alone or on another worker.
    """
    exercised.clear()
    for begins, tasks, _ in TASKS.values():
        Life(TASK, begins).lives(tasks)
    for attempts, _ in ATTEMPTS.values():
        Life(ATTEMPT, AttemptState.ALLOCATED).lives(attempts)
    for nodes, _ in NODES.values():
        Life(NODE, NodeState.UP).lives(nodes)
    for gates, _ in GATES.values():
        Life(GATE, GateState.WAITING).lives(gates)
    assert missing(TASK) + missing(ATTEMPT) + missing(NODE) + missing(GATE) == []
