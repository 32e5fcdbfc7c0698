"""What takes several requests, step by step: no sockets, no clocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.client.addresses.address import Address
from hal.client.flows.log_flow import NODE_PATIENCE_S, LogFlow
from hal.client.flows.steps import (
    Emit,
    Listen,
    Pause,
    Read,
    controlled,
    emptied,
    followed_events,
    paged,
    past_events,
    waited,
    watched,
)
from hal.client.rest import calls
from hal.client.rest.calls import Call, Page
from hal.client.rest.outcome import JobFailedError
from hal.client.rest.views import ClosureInfo, EventInfo, JobInfo, LogPart, NodeInfo, Outcome, TaskInfo
from hal.client.transport.exchange import BrokenStreamError, Request
from hal.core.model import NodeState, TaskState, TimedOutError
from hal.core.model.errors import InternalError, UnreachableError


def played(flow: Generator[Any, Any, Any], answer: Callable[[Any], Any], *, limit: int = 10_000) -> tuple[list, list]:
    """The items of a flow and the steps before them; `answer` answers a step, or is the error that it ends with."""
    items, steps = [], []
    reply: Any = None
    try:
        while len(steps) + len(items) < limit:
            step = flow.throw(reply) if isinstance(reply, Exception) else flow.send(reply)
            if isinstance(step, Emit):
                items.append(step.item)
                reply = None
            else:
                steps.append(step)
                reply = answer(step)
    except StopIteration:
        pass
    return items, steps


def page_of(everything: list[int]) -> tuple[Callable[[int, str], Call[Page[int]]], Callable[[Any], Page[int]]]:
    """Asks for a page and answers: the cursor is how many came before."""

    def ask(size: int, cursor: str) -> Call[Page[int]]:
        return Call(Request("GET", f"{size}/{cursor or 0}"), lambda answer: Page(()))

    def answer(call: Any) -> Page[int]:
        size, begin = map(int, call.request.path.split("/"))
        end = begin + size
        return Page(tuple(everything[begin:end]), str(end) if end < len(everything) else "")

    return ask, answer


@given(st.integers(0, 1200), st.none() | st.integers(0, 1300))
def test_a_listing_gives_every_item_once_up_to_its_limit(count: int, limit: int | None) -> None:
    """However many pages it has; no more items are asked for than are wanted."""
    everything = list(range(count))
    ask, answer = page_of(everything)
    items, steps = played(paged(ask, limit), answer)
    assert items == everything[:limit]
    asked = [int(step.request.path.split("/")[0]) for step in steps]
    assert all(size <= calls.PAGE_ITEMS for size in asked)
    assert limit is None or sum(asked) <= max(limit, 0)


def test_a_page_with_more_than_was_asked_for_is_cut() -> None:
    """A controller that ignores the size does not get around the limit."""
    ask, _ = page_of([])
    items, _ = played(paged(ask, 2), lambda call: Page((1, 2, 3), "x"))
    assert items == [1, 2]


def test_a_listing_that_names_the_same_page_again_is_refused() -> None:
    """It would never end."""
    ask, _ = page_of([])
    with pytest.raises(InternalError, match="has no end"):
        played(paged(ask, None), lambda call: Page((1,), "same"))


def job(job_id: str, state: TaskState) -> JobInfo:
    return JobInfo(id=job_id, state=state)


def test_watched_jobs_are_emitted_once_and_only_the_first_is_waited_for() -> None:
    """Three jobs: a second for the first, no time for the others; the last one alone gets the long poll."""
    ended = {"2": 1, "1": 2, "3": 3}
    rounds: dict[str, int] = {}

    def answer(call: Any) -> JobInfo:
        job_id = call.request.path.split("/")[3]
        rounds[job_id] = rounds.get(job_id, 0) + 1
        return job(job_id, TaskState.SUCCEEDED if rounds[job_id] >= ended[job_id] else TaskState.RUNNING)

    items, steps = played(watched(["1", "2", "3"], lambda: False), answer)
    assert [info.id for info in items] == ["2", "1", "3"]
    waits = [(step.request.path.split("/")[3], step.request.wait_s) for step in steps]
    assert waits == [("1", 1.0), ("2", 0.0), ("3", 0.0), ("1", 1.0), ("3", 0.0), ("3", calls.LONG_POLL_S)]


def test_a_watch_that_is_stopped_asks_no_more() -> None:
    """After the answer that was under way."""
    asked: list[str] = []

    def answer(call: Any) -> JobInfo:
        asked.append(call.request.path)
        return job("1", TaskState.RUNNING)

    assert played(watched(["1", "2"], lambda: len(asked) == 1), answer)[0] == []
    assert len(asked) == 1
    assert played(watched(["1"], lambda: True), answer)[1] == []


def waiting(steps: Generator[Any, Any, Any], answer: Callable[[Any], Any]) -> tuple[Any, list[float]]:
    """The result of steps that are calls, and how long each asked the controller to wait."""
    waits: list[float] = []

    def whole() -> Generator[Any, Any, None]:
        yield Emit((yield from steps))

    def answered(call: Any) -> Any:
        waits.append(call.request.wait_s)
        return answer(call)

    (result,), _ = played(whole(), answered)
    return result, waits


def test_a_wait_without_a_limit_polls_until_the_job_has_ended() -> None:
    """25 s each time; whoever waits sees each state."""
    states = iter([TaskState.PENDING, TaskState.RUNNING, TaskState.SUCCEEDED])
    seen: list[TaskState] = []
    steps = waited("1", None, check=True, clock=lambda: 0.0, seen=lambda info: seen.append(info.state))
    result, waits = waiting(steps, lambda call: job("1", next(states)))
    assert (result.state, waits) == ("succeeded", [calls.LONG_POLL_S] * 3)
    assert seen == ["pending", "running", "succeeded"]


def test_a_wait_with_a_limit_ends_exactly_at_it() -> None:
    """40 s: 25, then the 15 that are left, then it is over; a limit of 0 asks once."""
    now = [100.0]

    def answer(call: Any) -> JobInfo:
        now[0] += call.request.wait_s
        return job("1", TaskState.RUNNING)

    waits: list[float] = []

    def noted(call: Any) -> JobInfo:
        waits.append(call.request.wait_s)
        return answer(call)

    with pytest.raises(TimedOutError, match="job 1 is still running after 40 s"):
        played(waited("1", 40.0, check=False, clock=lambda: now[0], seen=lambda info: None), noted)
    assert waits == [25.0, 15.0]
    with pytest.raises(TimedOutError, match="after 0 s"):
        played(waited("1", 0.0, check=False, clock=lambda: now[0], seen=lambda info: None), noted)
    assert waits[2:] == [0.0]


@pytest.mark.parametrize(
    ("check", "state", "fails"), [(True, "failed", True), (False, "failed", False), (True, "succeeded", False)]
)
def test_a_wait_checks_the_end_only_when_asked_to(check: bool, state: str, fails: bool) -> None:
    """The error names state and exit code, has what failed, and how its stderr ends."""
    info = JobInfo(id="1", state=TaskState(state), exit_code=3, reason="no disk")
    bad = TaskInfo(job="1", task=0, state=TaskState.FAILED, attempt=1)

    def answer(call: Any) -> Any:
        if call.request.path.endswith("/tasks"):
            return Page((bad,))
        if call.request.path.endswith("/logs"):
            return LogPart(data=b"disk full\n", offset=0, size=10, ended=True)
        return info

    steps = waited("1", None, check=check, clock=lambda: 0.0, seen=lambda info: None)
    if not fails:
        assert waiting(steps, answer)[0] is info
        return
    with pytest.raises(JobFailedError, match="job 1 failed with exit code 3: no disk\n  disk full") as failed:
        waiting(steps, answer)
    assert (failed.value.job, failed.value.failed, failed.value.stderr) == ("1", (bad,), "disk full\n")


def node(running: int, *, drain: bool = True) -> NodeInfo:
    closures = (ClosureInfo(source="person", drain=drain),)
    return NodeInfo(name="n1", state=NodeState.DRAINING, running=running, closures=closures)


def test_a_drained_node_is_asked_for_each_round_until_it_is_empty_or_resumed() -> None:
    """Rounds of 2 s; one that is no longer drained is returned as it is."""
    seen: list[int] = []
    nodes = iter([node(2), node(1), node(0)])
    steps = emptied("n1", None, clock=lambda: 0.0, seen=lambda info: seen.append(info.running), round_s=2.0)
    result, waits = waiting(steps, lambda call: next(nodes))
    assert (result.running, seen, waits) == (0, [2, 1, 0], [2.0, 2.0, 2.0])
    steps = emptied("n1", None, clock=lambda: 0.0, seen=lambda info: None, round_s=2.0)
    assert waiting(steps, lambda call: node(4, drain=False))[0].running == 4


def test_a_drain_with_a_limit_ends_exactly_at_it() -> None:
    """3 s in rounds of 2: 2, then 1; the error says what is left."""
    now, waits = [50.0], []

    def answer(call: Any) -> NodeInfo:
        waits.append(call.request.wait_s)
        now[0] += call.request.wait_s
        return node(2)

    with pytest.raises(TimedOutError, match="node n1 still holds 2 tasks after 3 s"):
        played(emptied("n1", 3.0, clock=lambda: now[0], seen=lambda info: None, round_s=2.0), answer)
    assert waits == [2.0, 1.0]


def test_an_action_on_a_filter_is_repeated_while_it_finds_new_ones() -> None:
    """Each call acts on 10,000 at most; outcomes come once."""
    full = tuple(Outcome(id=str(n)) for n in range(calls.MAX_IDS_A_CALL))
    answers = iter([full, (*full[1:], Outcome(id="new")), full])
    asked: list[str] = []

    def whole() -> Generator[Any, Any, None]:
        yield Emit((yield from controlled("cancel", (), {"user": "a"})))

    def answer(call: Any) -> tuple[Outcome, ...]:
        asked.append(call.request.path)
        return next(answers)

    (outcomes,), _ = played(whole(), answer)
    assert asked == ["/v1/jobs/cancel"] * 3
    assert len(outcomes) == calls.MAX_IDS_A_CALL + 1


def test_past_events_end_with_an_empty_page() -> None:
    """Each page begins behind the last event."""
    pages = iter([(4, 5), (9,), ()])

    def answer(call: Any) -> Page[EventInfo]:
        return Page(tuple(EventInfo(sequence=n, at_ms=0, kind="x") for n in next(pages)))

    items, steps = played(past_events(3, "7"), answer)
    assert [event.sequence for event in items] == [4, 5, 9]
    assert [step.request.query["after"] for step in steps] == ["3", "5", "9"]
    assert all(step.request.query["job"] == "7" for step in steps)


def fed(sequence: int) -> bytes:
    return f"data: {json.dumps({'sequence': sequence, 'at_ms': 0, 'kind': 'x'})}\n\n".encode()


def test_a_feed_that_breaks_is_opened_behind_its_last_event_and_given_up_in_the_end() -> None:
    """Half an event is read anew; a feed that gives nothing for the reconnect time is an error."""
    chunks: dict[str | None, list[bytes]] = {None: [fed(7)[:9], fed(7)[9:] + fed(8)[:4]], "8": []}
    opened: list[str | None] = []
    now = [0.0]

    def answer(step: Any) -> Any:
        if isinstance(step, Listen):
            opened.append(step.request.query.get("after"))
            return {}
        if isinstance(step, Pause):
            now[0] += 2.0
            return None
        assert isinstance(step, Read)
        left = chunks.get(opened[-1], [])
        return left.pop(0) if left else BrokenStreamError("cut")

    feed = followed_events(None, "", address=Address(), reconnect_s=5.0, clock=lambda: now[0])
    with pytest.raises(UnreachableError, match="event feed ends again and again"):
        played(feed, answer)
    assert opened[:2] == [None, "7"]
    assert set(opened[1:]) == {"7"}


TASK = TaskInfo(job="1", task=0, state=TaskState.SUCCEEDED, attempt=1)


def test_a_log_waits_for_a_node_that_is_unreachable_but_not_for_ever() -> None:
    """Two minutes; time that a node answered in does not count."""
    now = [0.0]
    broken_until = [NODE_PATIENCE_S - 1]

    def answer(step: Any) -> Any:
        if isinstance(step, Pause):
            now[0] += 10.0
            return None
        if isinstance(step, Listen):
            return UnreachableError("node n1 is unreachable") if now[0] < broken_until[0] else {}
        if isinstance(step, Read):
            return None
        return TASK if step.request.path.endswith("/tasks/0") else LogPart(data=b"", offset=0, size=0, ended=True)

    def log() -> Any:
        return LogFlow("1", clock=lambda: now[0]).steps(follow=True)

    assert played(log(), answer)[0] == []
    now[0], broken_until[0] = 0.0, NODE_PATIENCE_S * 2
    with pytest.raises(UnreachableError, match="node n1"):
        played(log(), answer)
    assert NODE_PATIENCE_S <= now[0] + 10.0 <= NODE_PATIENCE_S + 20.0


@given(st.binary(max_size=60), st.integers(0, 70))
def test_the_tail_of_a_log_is_its_last_bytes(text: bytes, tail: int) -> None:
    """Of a shorter file all of it; one request finds out how long it is."""

    def answer(call: Any) -> LogPart:
        query = call.request.query
        begin = int(query["offset"])
        return LogPart(data=text[begin : begin + int(query["limit"])], offset=begin, size=len(text), ended=True)

    flow = LogFlow("1", clock=lambda: 0.0)
    items, _ = played(flow.steps(tail_bytes=tail), answer)
    assert b"".join(items) == (text[-tail:] if tail else b"")
    assert flow.dropped == 0
