"""Calls of the loop are watched from outside: one that does not come back is reported while it runs."""

from __future__ import annotations

import threading

from hal.runtime.call_watch import CallWatch

DEADLINE_S = 30.0


def test_a_call_that_does_not_come_back_is_reported_once_and_one_that_does_is_not() -> None:
    """The first call comes back at once; the second is still running when the thread looks."""
    late: list[float] = []
    reported = threading.Event()

    def report(seconds: float) -> None:
        late.append(seconds)
        reported.set()

    watch = CallWatch(report, late_s=0.0, look_every_s=0.001)
    try:
        watch.begin()
        assert reported.wait(DEADLINE_S)
        first = list(late)
        watch.end()
        reported.clear()
        watch.begin()
        assert reported.wait(DEADLINE_S)
        assert len(first) == 1
        assert len(late) == 2
    finally:
        watch.close()
