"""Since when the oldest job of a queue waits: as a plain count of all of them says."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.planes.tasks.live import oldest_waits
from hal.planes.tasks.live.oldest_waits import EXACT_MS, OldestWaits
from tests.examples import examples


def test_the_oldest_of_each_queue_is_that_of_what_still_waits() -> None:
    """Two jobs of queue a from 50 s on, one of b from 20 s on; then that of b starts, and one of a."""
    waits = OldestWaits()
    waits.keep({("a", 5): 2, ("b", 2): 1})
    assert dict(waits.since_ms()) == {"a": 5 * EXACT_MS, "b": 2 * EXACT_MS}
    waits.keep({("a", 5): -1, ("b", 2): -1})
    assert dict(waits.since_ms()) == {"a": 5 * EXACT_MS}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.booleans(), st.booleans()), max_size=200))
@settings(max_examples=examples(100))
def test_safety_it_agrees_with_a_count_of_all(steps: list[tuple[str, int, bool, bool]]) -> None:
    """Jobs begin and cease to wait in any order; sometimes somebody asks. With few times that may be over."""
    before, oldest_waits.LEAST_TIMES = oldest_waits.LEAST_TIMES, 3  # type: ignore[misc]
    try:
        waits, plain = OldestWaits(), Counter[tuple[str, int]]()
        for queue, time, begins, asked in steps:
            change = 1 if begins else -1 if plain[queue, time] else 0
            plain[queue, time] += change
            waits.keep({(queue, time): change})
            assert waits.counted() == +plain
            if asked:
                expected = {name: min(at for of, at in +plain if of == name) * EXACT_MS for name, _ in +plain}
                assert dict(waits.since_ms()) == expected
    finally:
        oldest_waits.LEAST_TIMES = before  # type: ignore[misc]
