"""Which tasks of an ended job are removed: against sets of numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import TaskState
from hal.planes.tasks import TakenTasks
from hal.planes.tasks.live.task_sets import TaskSet, merged
from tests.examples import examples

TASKS = 12
STATES = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)


def ranges(tasks: set[int]) -> TaskSet:
    """The same as ranges."""
    return merged((task, task + 1) for task in tasks)


some = st.sets(st.integers(0, TASKS - 1))


@settings(max_examples=examples(200))
@given(
    states=st.lists(st.sampled_from((*STATES, None)), min_size=TASKS, max_size=TASKS),
    named=st.lists(st.tuples(some, st.sets(st.sampled_from(STATES))), max_size=4),
)
def test_safety_each_task_is_taken_once_and_only_if_it_is_meant(
    states: list[TaskState | None], named: list[tuple[set[int], set[TaskState]]]
) -> None:
    """None: it was removed before. The counts are of what is taken."""
    gone = {task for task, state in enumerate(states) if state is None}
    ends = {state: ranges({task for task, one in enumerate(states) if one is state}) for state in STATES}
    taken = TakenTasks(ranges(gone), ends)
    now: set[int] = set()
    for tasks, wanted in named:
        mine = {task for task in tasks - gone - now if not wanted or states[task] in wanted}
        assert taken.take(ranges(tasks), tuple(wanted)) == len(mine)
        now |= mine
    assert taken.gone() == ranges(gone | now)
    assert {state: taken.counts[state] for state in STATES} == {
        state: sum(states[task] is state for task in now) for state in STATES
    }
