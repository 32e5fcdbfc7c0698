"""What takes several requests, written once for both clients: generators that yield steps and are sent their answers.

Pure, apart from the clocks that are passed in. `hal.client.flows.player` performs the steps, and for asyncio
`hal.client.flows.async_player`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from hal.client.rest import calls
from hal.client.rest.calls import Call, Page
from hal.client.rest.outcome import MAX_FAILED, MAX_STDERR_BYTES, JobFailedError, failure_of
from hal.client.rest.server_events import EventReader
from hal.client.rest.views import EventInfo, JobInfo, LogPart, NodeInfo, Outcome, TaskInfo
from hal.client.transport.backoff import Backoff
from hal.client.transport.exchange import MAX_CONNECTIONS, BrokenStreamError, Request
from hal.core.model import HALError, TaskState, TimedOutError, plural

if TYPE_CHECKING:
    from hal.client.addresses.address import Address

DRAIN_ROUND_S = 1.0
"""How often whoever waits for a node to become empty gets its state."""
ROUND_S = 1.0
"""How long a watcher of several jobs waits for one of them before it looks at the others again."""

MAX_WATCHERS = MAX_CONNECTIONS - 1
"""Most watchers of jobs, threads or tasks, in one wait; one connection is left for other requests."""

T = TypeVar("T")
R = TypeVar("R")


class Listen(Struct, frozen=True):
    """Open a streamed answer in place of the one before; answered with its headers."""

    request: Request


class Read(Struct, frozen=True):
    """Read the open stream; answered with its next bytes, None at its end."""


class Pause(Struct, frozen=True):
    """Wait; the open stream is closed."""

    seconds: float


class Work(Struct, Generic[T], frozen=True):
    """Do what waits for the disk; answered with what it returns. The asyncio client does it on a thread."""

    do: Callable[[], T]


class Emit(Struct, Generic[T], frozen=True):
    """Hand an item to the caller."""

    item: T


Steps = Generator[Call[Any] | Work[Any], Any, R]
"""Yields calls and work, is sent their answers, returns the result. An error of one is raised at its `yield`."""
Flow = Generator[Call[Any] | Work[Any] | Listen | Read | Pause | Emit[T], Any, None]
"""Yields items among the steps that lead to them."""


def controlled(
    action: str,
    ids: Sequence[str | int],
    filters: Mapping[str, Any],
    details: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
) -> Steps[list[Outcome]]:
    """Do one action on jobs and tasks by id, or on all that a filter selects; one outcome for each.

    Args:
        filters: beside ids, `state` alone: of what they name, only tasks in these states.
        details: how it is done, sent with each request.
        dry_run: change nothing; the outcomes say of how many tasks each is.
    """
    chosen, more = calls.filters_of(filters), dict(details or {})
    if ids and set(chosen) == {"state"}:
        more["states"] = chosen.pop("state")
    return _in_calls(
        ids,
        partial(calls.control, action, details=more, dry_run=dry_run),
        partial(calls.control, action, (), chosen, details, dry_run=dry_run) if chosen else None,
    )


def removed(ids: Sequence[str | int], filters: Mapping[str, Any], ended_before_ms: int | None) -> Steps[list[Outcome]]:
    """Remove ended jobs and tasks by id, or all jobs that a filter selects; one outcome for each."""
    chosen, states = calls.filters_of(filters), ""
    if ids and set(chosen) == {"state"}:
        states = chosen.pop("state")
    by_filter = partial(calls.remove, (), chosen, ended_before_ms)
    by_ids = partial(calls.remove, states=states)
    return _in_calls(ids, by_ids, by_filter if chosen or ended_before_ms is not None else None)


def _in_calls(
    ids: Sequence[str | int],
    by_ids: Callable[[Sequence[str]], Call[tuple[Outcome, ...]]],
    by_filter: Callable[[], Call[tuple[Outcome, ...]]] | None,
) -> Steps[list[Outcome]]:
    names = [str(one) for one in ids]
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(names), calls.MAX_IDS_A_CALL):
        found = yield by_ids(names[start : start + calls.MAX_IDS_A_CALL])
        outcomes |= {one.id: one for one in found}
    while by_filter is not None:
        found = yield by_filter()
        new = {one.id: one for one in found if one.id not in outcomes}
        outcomes |= {one.id: one for one in found}
        # One call acts on so many at most, and what it has acted on may still match the filter.
        if not new or len(found) < calls.MAX_IDS_A_CALL:
            break
    return list(outcomes.values())


def emptied(
    name: str, timeout_s: float | None, *, clock: Callable[[], float], seen: Callable[[NodeInfo], None], round_s: float
) -> Steps[NodeInfo]:
    """Wait until a node holds nothing any more, or is no longer being drained.

    Args:
        clock: monotonic, in seconds.
        seen: gets the node each time it was read, at least every `round_s`.
    Raises:
        TimedOutError: it still holds something after `timeout_s`.
        NotFoundError: there is no such node, or no longer.
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
            raise TimedOutError(f"{what} after {round(timeout_s, 1):g} s", hint="the node stays closed to new work")


def waited(
    job_id: str,
    timeout_s: float | None,
    *,
    check: bool,
    clock: Callable[[], float],
    seen: Callable[[JobInfo], None],
    round_s: float = calls.LONG_POLL_S,
) -> Steps[JobInfo]:
    """Wait until a job has ended.

    Args:
        clock: monotonic, in seconds.
        seen: gets the job each time it was read, at least every `round_s`.
    Raises:
        TimedOutError: it has not ended after `timeout_s`.
        JobFailedError: with `check`, it did not succeed.
    """
    deadline_s = None if timeout_s is None else clock() + timeout_s
    while True:
        left_s = round_s if deadline_s is None else deadline_s - clock()
        info: JobInfo = yield calls.wait(job_id, max(0.0, min(left_s, round_s)))
        seen(info)
        if info.ended:
            break
        if deadline_s is not None and clock() >= deadline_s:
            raise TimedOutError(f"job {job_id} is still {info.state} after {timeout_s:g} s", hint="it continues")
    if check and info.state is not TaskState.SUCCEEDED:
        raise (yield from failed_with(info))
    return info


def failed_with(info: JobInfo) -> Steps[JobFailedError]:
    """The error for a job that did not succeed, with its first failed tasks and the end of what the first one wrote."""
    failed: tuple[TaskInfo, ...] = ()
    end = ""
    try:
        for states in ("failed,timed-out", "cancelled"):
            page: Page[TaskInfo] = yield calls.tasks(info.id, state=states, limit=MAX_FAILED)
            failed = page.items[:MAX_FAILED]
            if failed:
                break
        for stream in ("stderr", "stdout") if failed and failed[0].attempt else ():
            part: LogPart = yield calls.log(
                info.id, task=failed[0].task, stream=stream, offset=-MAX_STDERR_BYTES, limit=MAX_STDERR_BYTES
            )
            end = part.data.decode(errors="replace")
            if end.strip():
                break
    except HALError:
        pass  # a node is away, or its outputs are removed: what is known is said
    return failure_of(info, failed, end)


def watched(ids: Sequence[str], stopping: Callable[[], bool]) -> Flow[JobInfo]:
    """Emit each of several jobs when it has ended; stops early when `stopping()`."""
    left = list(ids)
    while left and not stopping():
        waiting = []
        for position, job_id in enumerate(left):
            alone = len(left) == 1
            wait_s = (calls.LONG_POLL_S if alone else ROUND_S) if position == 0 else 0.0
            info: JobInfo = yield calls.wait(job_id, wait_s)
            if info.ended:
                yield Emit(info)
            else:
                waiting.append(job_id)
            if stopping():
                return
        left = waiting


def paged(call: Callable[[int, str], Call[Page[T]]], limit: int | None) -> Flow[T]:
    """Emit the items of all pages of a listing, at most `limit`.

    Args:
        call: asks for one page, by its size and the cursor of the page before.
    """
    cursor, left = "", limit
    while left is None or left > 0:
        page: Page[T] = yield call(calls.PAGE_ITEMS if left is None else min(left, calls.PAGE_ITEMS), cursor)
        for item in page.items if left is None else page.items[:left]:
            yield Emit(item)
        left = None if left is None else left - len(page.items)
        cursor = page.next(cursor)
        if not cursor:
            return


def past_events(after: int, job_id: str) -> Flow[EventInfo]:
    """Emit the events that are there, page by page."""
    while True:
        page: Page[EventInfo] = yield calls.events(after, job_id=job_id)
        if not page.items:
            return
        for event in page.items:
            yield Emit(event)
        after = calls.last_sequence(page.items, after)


def followed_events(
    after: int | None, job_id: str, *, address: Address, reconnect_s: float, clock: Callable[[], float]
) -> Flow[EventInfo]:
    """Emit events as they come, without end; a feed that breaks is opened again behind the last event.

    Args:
        clock: monotonic, in seconds.
    Raises:
        UnreachableError: the feed broke again and again for `reconnect_s`.
    """
    backoff = Backoff(reconnect_s)
    while True:
        reader = EventReader()
        try:
            yield Listen(calls.event_stream(after, job_id=job_id))
            while (chunk := (yield Read())) is not None:
                backoff.worked()
                for event in reader.feed(chunk):
                    info = calls.read_event(event)
                    if info is not None:
                        after = calls.last_sequence([info], -1 if after is None else after)
                        yield Emit(info)
        except BrokenStreamError:
            pass
        delay_s = backoff.failed(clock())
        if delay_s is None:
            raise address.unreachable("its event feed ends again and again")
        yield Pause(delay_s)
