"""How many slots a session wants: it grows at once, shrinks late, and stays within its bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.client.sessions.demand import Wanted
from hal.client.sessions.listing import SlotUse, late
from tests.examples import examples


def test_it_grows_at_once_and_shrinks_when_nothing_was_wanted_for_a_while() -> None:
    wanted = Wanted(1, 8, keep_s=10.0)
    assert [wanted.slots(tasks, now) for tasks, now in ((0, 0.0), (100, 1.0), (0, 2.0), (0, 10.9))] == [1, 8, 8, 8]
    assert wanted.slots(0, 11.1) == 1


def test_it_shrinks_to_what_was_wanted_since() -> None:
    """Eight at 0 s, three until 9 s, none afterwards."""
    wanted = Wanted(0, 8, keep_s=10.0)
    assert [wanted.slots(tasks, now) for tasks, now in ((8, 0.0), (3, 9.0), (0, 9.5))] == [8, 8, 8]
    assert wanted.slots(0, 10.5) == 3
    assert wanted.slots(0, 19.5) == 1


@given(
    bounds=st.tuples(st.integers(0, 5), st.integers(1, 9)).map(sorted),
    seen=st.lists(st.tuples(st.integers(0, 20), st.floats(0.0, 9.0)), min_size=1, max_size=40),
)
@settings(max_examples=examples(300))
def test_it_wants_the_most_of_the_last_seconds(bounds: list[int], seen: list[tuple[int, float]]) -> None:
    """By definition: the largest number of tasks within them, between the bounds."""
    least, most = bounds[0], max(bounds[1], 1)
    wanted, now, history = Wanted(least, most, keep_s=5.0), 0.0, []
    for tasks, later in seen:
        now += later
        history.append((now, min(max(tasks, least, 1), most)))
        assert wanted.slots(tasks, now) == max(need for at, need in history if at >= now - 5.0)


def use(worker: str, *, done: int, mean_us: int, silent_s: float) -> SlotUse:
    return SlotUse(worker=worker, task=0, done=done, held=1, use=1.0, mean_us=mean_us, since_s=1, silent_s=silent_s)


def test_a_worker_is_late_when_its_task_goes_on_ten_times_as_long_as_others() -> None:
    """Tasks take 0.2 s on average: 1.9 s is not late, 2.1 s is."""
    slots = [
        use("a", done=10, mean_us=200_000, silent_s=0.1),
        use("b", done=0, mean_us=0, silent_s=1.9),
        use("c", done=0, mean_us=0, silent_s=2.1),
    ]
    assert late(slots) == ("c",)


def test_a_worker_of_short_tasks_is_not_late_before_a_second() -> None:
    slots = [use("a", done=10, mean_us=100, silent_s=0.9), use("b", done=1, mean_us=100, silent_s=1.1)]
    assert late(slots) == ("b",)
