"""Many jobs waited for at once, in threads: each is given as soon as it has ended.

A few threads share the jobs; each asks about its own in turn, and waits (a long poll) on the first that has not ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from hal.client.flows.player import Player
from hal.client.flows.steps import MAX_WATCHERS, watched
from hal.client.rest.outcome import not_ended
from hal.client.rest.views import JobInfo
from hal.client.transport.http import Connections
from hal.core.model import HALError

REPORT_EVERY_S = 0.5


def as_ended(
    connections: Connections, ids: Sequence[str], timeout_s: float | None, *, report: Callable[[], None] | None = None
) -> Iterator[JobInfo]:
    """Each job when it has ended, in the order in which they end.

    Args:
        timeout_s: for all of them; None: no limit.
        report: called every `REPORT_EVERY_S` while nothing ends.
    Raises:
        TimedOutError: some had not ended by then.
        HALError: what asking about one of them raised.
    """
    found: queue.SimpleQueue[JobInfo | HALError] = queue.SimpleQueue()
    stopping = threading.Event()
    watchers = min(MAX_WATCHERS, len(ids))
    for number in range(watchers):
        arguments = (connections, ids[number::watchers], found, stopping)
        threading.Thread(target=_watch, args=arguments, daemon=True).start()
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    left = len(ids)
    try:
        while left:
            wait_s = REPORT_EVERY_S if deadline_s is None else min(REPORT_EVERY_S, deadline_s - time.monotonic())
            try:
                item = found.get(timeout=max(0.0, wait_s))
            except queue.Empty:
                if timeout_s is not None and deadline_s is not None and time.monotonic() >= deadline_s:
                    raise not_ended(ids, left, timeout_s) from None
                if report is not None:
                    report()
                continue
            if isinstance(item, HALError):
                raise item
            left -= 1
            yield item
    finally:
        stopping.set()


def _watch(
    connections: Connections,
    ids: Sequence[str],
    found: queue.SimpleQueue[JobInfo | HALError],
    stopping: threading.Event,
) -> None:
    try:
        for info in Player(connections).items(watched(ids, stopping.is_set)):
            found.put(info)
    except HALError as error:
        found.put(error)
