"""What takes several calls, written once for both clients: generators that yield calls and are sent their answers.

Pure, apart from the clock that is passed in. The sync client drives them with `Client.drive`, the asyncio client with
`AsyncClient.drive`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from hal.client import calls
from hal.client.calls import Call
from hal.client.outcome import failure_of
from hal.client.views import JobInfo, NodeInfo, Outcome
from hal.core.model import TaskState, TimedOutError, plural

DRAIN_ROUND_S = 1.0
"""How often whoever waits for a node to become empty is told how far it is."""

R = TypeVar("R")
Steps = Generator[Call[Any], Any, R]
"""Yields calls, is sent their answers, returns the result."""


def controlled(action: str, ids: Sequence[str | int], filters: Mapping[str, Any]) -> Steps[list[Outcome]]:
    """One action on jobs and tasks by id, or on all that a filter names: one outcome for each."""
    names = [str(one) for one in ids]
    chosen = calls.filters_of(filters)
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(names), calls.MAX_IDS_A_CALL):
        found = yield calls.control(action, names[start : start + calls.MAX_IDS_A_CALL])
        outcomes |= {one.id: one for one in found}
    while chosen:
        found = yield calls.control(action, (), chosen)
        new = {one.id: one for one in found if one.id not in outcomes}
        outcomes |= {one.id: one for one in found}
        # One call acts on so many at most; what it has acted on may match the filter still.
        if not new or len(found) < calls.MAX_IDS_A_CALL:
            break
    return list(outcomes.values())


def emptied(
    name: str, timeout_s: float | None, *, clock: Callable[[], float], seen: Callable[[NodeInfo], None], round_s: float
) -> Steps[NodeInfo]:
    """The node when it holds nothing any more, or is not being drained any more.

    Args:
        clock: monotonic, in seconds.
        seen: gets the node each time that it was read, at least every `round_s`.
    Raises:
        TimedOutError: it still holds something after `timeout_s`.
        NotFoundError: there is no such node (any more).
    """
    deadline_s = None if timeout_s is None else clock() + timeout_s
    while True:
        left_s = round_s if deadline_s is None else max(0.0, min(deadline_s - clock(), round_s))
        info: NodeInfo = yield calls.node_wait(name, left_s)
        seen(info)
        if not info.drains:
            return info
        if timeout_s is not None and deadline_s is not None and clock() >= deadline_s:
            what = f"node {name} still holds {plural(info.running, 'task')}"
            raise TimedOutError(f"{what} after {round(timeout_s, 1):g} s", hint="it stays cordoned")


def waited(
    job_id: str, timeout_s: float | None, *, check: bool, clock: Callable[[], float], seen: Callable[[JobInfo], None]
) -> Steps[JobInfo]:
    """The job when it has ended.

    Args:
        clock: monotonic, in seconds.
        seen: gets the job each time that it was read.
    Raises:
        TimedOutError: it has not ended after `timeout_s`.
        JobFailedError: with `check`, it did not succeed.
    """
    deadline_s = None if timeout_s is None else clock() + timeout_s
    while True:
        left_s = calls.LONG_POLL_S if deadline_s is None else deadline_s - clock()
        info: JobInfo = yield calls.wait(job_id, max(0.0, min(left_s, calls.LONG_POLL_S)))
        seen(info)
        if info.ended:
            break
        if deadline_s is not None and clock() >= deadline_s:
            raise TimedOutError(f"job {job_id} is still {info.state} after {timeout_s:g} s", hint="it goes on")
    if check and info.state is not TaskState.SUCCEEDED:
        raise failure_of(info)
    return info
