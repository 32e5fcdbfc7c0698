"""Many jobs waited for at once: each is given as soon as it has ended.

A few threads share the jobs; each asks about its own in turn and waits (a long poll) on the first that goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hal.client import calls
from hal.client.http import MAX_CONNECTIONS
from hal.client.views import JobInfo
from hal.core.model import HALError, TimedOutError

if TYPE_CHECKING:
    from hal.client.sync import Client

MAX_WATCHERS = MAX_CONNECTIONS - 1
"""Threads; one connection stays for other requests."""
ROUND_S = 1.0
"""How long a thread with several jobs waits on one of them before it looks at the others again."""
TELL_EVERY_S = 0.5


def as_ended(
    client: Client, ids: Sequence[str], timeout_s: float | None, *, tell: Callable[[], None] | None = None
) -> Iterator[JobInfo]:
    """Each job when it has ended, in the order in which they end.

    Args:
        timeout_s: for all of them; None: no limit.
        tell: called every `TELL_EVERY_S` while nothing ends.
    Raises:
        TimedOutError: some had not ended by then.
        HALError: what asking about one of them raised.
    """
    found: queue.SimpleQueue[JobInfo | HALError] = queue.SimpleQueue()
    stopping = threading.Event()
    watchers = min(MAX_WATCHERS, len(ids))
    for number in range(watchers):
        arguments = (client, list(ids[number::watchers]), found, stopping)
        threading.Thread(target=_watch, args=arguments, daemon=True).start()
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    left = len(ids)
    try:
        while left:
            wait_s = TELL_EVERY_S if deadline_s is None else min(TELL_EVERY_S, deadline_s - time.monotonic())
            try:
                item = found.get(timeout=max(0.0, wait_s))
            except queue.Empty:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    what = f"job {ids[0]} has" if len(ids) == 1 else f"{left} of {len(ids)} jobs have"
                    raise TimedOutError(f"{what} not ended after {timeout_s:g} s", hint="nothing was stopped") from None
                if tell is not None:
                    tell()
                continue
            if isinstance(item, HALError):
                raise item
            left -= 1
            yield item
    finally:
        stopping.set()


def _watch(
    client: Client, ids: list[str], found: queue.SimpleQueue[JobInfo | HALError], stopping: threading.Event
) -> None:
    try:
        while ids and not stopping.is_set():
            alone = len(ids) == 1
            going = []
            for position, job_id in enumerate(ids):
                wait_s = (calls.LONG_POLL_S if alone else ROUND_S) if position == 0 else 0.0
                info = client.call(calls.wait(job_id, wait_s))
                if info.ended:
                    found.put(info)
                else:
                    going.append(job_id)
                if stopping.is_set():
                    return
            ids = going
    except HALError as error:
        found.put(error)
