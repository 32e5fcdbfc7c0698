"""The automata of tasks, jobs, attempts, nodes and gates, and the rules around them.

Pure. Import names from here. States are assigned nowhere else.
"""

from hal.core.lifecycle.attempt import ATTEMPT, END_EVENTS, AttemptEvent
from hal.core.lifecycle.automaton import Automaton, LifecycleError, Step, transition, walk
from hal.core.lifecycle.gates import (
    GATE,
    Gate,
    GateDecision,
    GateEvent,
    GateRegister,
    GateState,
    GateVerdict,
    GateWatch,
)
from hal.core.lifecycle.node import NODE, NodeEvent
from hal.core.lifecycle.outcome import (
    GAVE_BACK,
    MAX_ATTEMPTS,
    PLACE_GIVEN_BACK,
    TASK_STATE_OF,
    Next,
    after_attempt,
    after_extension,
    attempt_end,
    refusal_end,
)
from hal.core.lifecycle.progress import TaskCounts, counts_of, job_state
from hal.core.lifecycle.task import TASK, TaskEvent

__all__ = [
    "ATTEMPT",
    "END_EVENTS",
    "GATE",
    "GAVE_BACK",
    "MAX_ATTEMPTS",
    "NODE",
    "PLACE_GIVEN_BACK",
    "TASK",
    "TASK_STATE_OF",
    "AttemptEvent",
    "Automaton",
    "Gate",
    "GateDecision",
    "GateEvent",
    "GateRegister",
    "GateState",
    "GateVerdict",
    "GateWatch",
    "LifecycleError",
    "Next",
    "NodeEvent",
    "Step",
    "TaskCounts",
    "TaskEvent",
    "after_attempt",
    "after_extension",
    "attempt_end",
    "counts_of",
    "job_state",
    "refusal_end",
    "transition",
    "walk",
]
