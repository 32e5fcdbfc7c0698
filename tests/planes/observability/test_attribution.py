"""What a node sends about attempts that are not its own, or in another's name, is refused, counted and never shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from hal.core.model import StepId, UnreachableError
from hal.planes.observability import attribution
from hal.planes.observability.attribution import TURN_MS, UNKNOWN_MS, Answer, Attribution, Key, Placed
from hal.planes.observability.telemetry import ReceivedLines, ReceivedSpans, Sender
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.telemetry import LogLine, Severity, SpanLink, Spans
from hal.wire.roles import Role

RUNS = {
    Key(7, 0, 1): Placed("alice", ("n1",)),
    Key(8, 0, 1): Placed("bob", ("n2",)),
    Key(9, 0, 2): Placed("carol", ("n2", "n1")),
}
"""Job 9 has rank 0 on n2 and rank 1 on n1."""


def line(text: str, job: int, attempt: int = 1, rank: int = 0, component: str = "step", **fields: str) -> LogLine:
    step = StepId(job, 0, attempt, rank) if job else None
    return LogLine(1, Severity.INFO, component, text, step, "stdout", fields=fields)


def of(node: str, *lines: LogLine, role: Role = Role.AGENT, certified: bool = True) -> ReceivedLines:
    return ReceivedLines(Sender(role, node, "b:1", certified), 1, lines)


class Rows:
    """What is known of attempts, and how often it was asked for."""

    def __init__(self) -> None:
        self.known = dict(RUNS)
        self.asked: list[list[Key]] = []
        self.away = False
        self.most = 1_000
        """Of one turn."""

    async def look_up(self, keys: Sequence[Key]) -> Answer:
        self.asked.append(list(keys))
        if self.away:
            raise UnreachableError("the controller does not answer")
        some = keys[: self.most]
        return Answer({key: self.known[key] for key in some if key in self.known}, set(some))


class Kept:
    """What was passed on."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.lines: list[LogLine] = []
        self.spans: list[Spans] = []

    def take_lines(self, got: ReceivedLines) -> None:
        self.lines += got.lines

    def take_spans(self, got: ReceivedSpans) -> None:
        self.spans.append(got.spans)

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.lines]


Act = Callable[[Runtime, Attribution, Kept], Awaitable[None]]


def checked(act: Act) -> None:
    """Run the part, and something beside it."""
    done: list[bool] = []

    async def main(runtime: Runtime) -> None:
        kept = Kept()
        part = Attribution(runtime, kept.rows.look_up, kept.take_lines, kept.take_spans)
        running = runtime.spawn_task(part.run(), "attribution")
        await act(runtime, part, kept)
        running.cancel()
        done.append(True)

    with VirtualWorld(1) as world:
        world.start(world.host("h"), "observability", main)
        world.run_for(300_000)
    assert done


@pytest.mark.parametrize(
    "forged",
    [
        line("of another node's job", 8),
        line("of another attempt of its job", 7, attempt=2),
        line("of another rank of its job", 9, attempt=2, rank=0),
        line("of no rank of its job", 9, attempt=2, rank=5),
        line("of no job", 0),
        line("of a job that is not there", 99),
        line("as the controller", 0, component="controller"),
        line("as the controller, about its own job", 7, component="controller"),
        line("as a plane", 0, component="observability"),
        line("as its agent, about another node's job", 8, component="agent"),
    ],
    ids=lambda one: one.text.replace(" ", "-"),
)
def test_safety_a_forged_line_is_refused_and_counted(forged: LogLine) -> None:
    """It comes between two honest lines, which are kept."""

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        part.take(of("n1", line("before", 7), forged, line("after", 7)))
        await runtime.sleep(UNKNOWN_MS + 2 * TURN_MS)
        assert kept.texts == ["before", "after"]
        assert part.health()["lines_refused"] == 1
        assert part.health()["waiting_bytes"] == 0

    checked(act)


def test_safety_whose_line_it_is_says_the_job_and_never_the_node() -> None:
    """A node can show nobody else's page its lines."""

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        part.take(of("n1", line("one", 7, user="bob"), line("two", 7), line("three", 9, attempt=2, rank=1, user="")))
        about = {"user": "bob", "job": "8"}
        part.take(of("n1", LogLine(1, Severity.INFO, "agent", "mine", fields=about)))
        await runtime.sleep(2 * TURN_MS)
        assert [one.fields for one in kept.lines] == [
            {"user": "alice"}, {"user": "alice"}, {"user": "carol"}, {"of_job": "8"},
        ]  # fmt: skip

    checked(act)


def test_an_attempt_is_looked_up_once_and_its_further_lines_are_kept_at_once() -> None:
    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        part.take(of("n1", line("first", 7)))
        assert kept.texts == []
        await runtime.sleep(2 * TURN_MS)
        part.take(of("n1", line("second", 7)))
        assert kept.texts == ["first", "second"]
        assert kept.rows.asked == [[Key(7, 0, 1)]]

    checked(act)


def test_lines_stay_in_order_while_an_attempt_is_not_known_yet() -> None:
    """The history comes to it after 3 s: what was sent meanwhile waits behind it, and nothing is refused. Another node
    waits for nothing."""

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        del kept.rows.known[Key(7, 0, 1)]
        part.take(of("n1", line("1", 7)))
        part.take(of("n1", line("2", 9, attempt=2, rank=1)))
        part.take(of("n2", line("other", 8)))
        await runtime.sleep(3 * TURN_MS)
        assert kept.texts == ["other"]
        kept.rows.known[Key(7, 0, 1)] = RUNS[Key(7, 0, 1)]
        part.take(of("n1", line("3", 7)))
        await runtime.sleep(2 * TURN_MS)
        assert kept.texts == ["other", "1", "2", "3"]
        assert part.health()["lines_refused"] == 0

    checked(act)


def test_while_the_controller_is_away_lines_wait_and_none_is_refused() -> None:
    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        kept.rows.away = True
        part.take(of("n1", line("patient", 7)))
        await runtime.sleep(10 * UNKNOWN_MS)
        assert (kept.texts, part.health()["lines_refused"]) == ([], 0)
        kept.rows.away = False
        await runtime.sleep(2 * TURN_MS)
        assert kept.texts == ["patient"]

    checked(act)


def test_what_could_not_be_looked_up_yet_is_not_refused() -> None:
    """More jobs than are asked about in three times as long as an unknown one may wait: none of them is forged."""

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        kept.rows.most = 2
        jobs = range(100, 100 + 6 * UNKNOWN_MS // TURN_MS)
        kept.rows.known |= {Key(job, 0, 1): Placed("erin", ("n1",)) for job in jobs}
        for job in jobs:
            part.take(of("n1", line(str(job), job)))
        await runtime.sleep(4 * UNKNOWN_MS)
        assert kept.texts == [str(job) for job in jobs]
        assert part.health()["lines_refused"] == 0

    checked(act)


def test_safety_many_forged_jobs_at_once_are_all_refused() -> None:
    """More in one batch than are asked about in a turn: the node's own line behind them comes nevertheless."""

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        kept.rows.most = 2
        part.take(of("n1", *(line(str(job), job) for job in range(100, 109))))
        part.take(of("n1", line("own", 7)))
        await runtime.sleep(2 * UNKNOWN_MS)
        assert kept.texts == ["own"]
        assert part.health()["lines_refused"] == 9

    checked(act)


def test_safety_what_waits_is_bounded_by_node_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of n1's lines takes 400 bytes; two of them may wait. That of n2 has room beside them."""
    monkeypatch.setattr(attribution, "MAX_WAITING_OF_NODE", 1_000)

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        for _ in range(5):
            part.take(of("n1", line("x" * 200, 99)))
        part.take(of("n2", line("there", 8)))
        assert part.health()["lines_dropped"] == 3
        await runtime.sleep(2 * TURN_MS)
        assert kept.texts == ["there"]

    checked(act)


def test_processes_of_the_collectors_own_host_are_not_asked_about() -> None:
    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        part.take(of("n9", line("here", 99, user="dave"), certified=False))
        assert (kept.texts, kept.rows.asked) == (["here"], [])

    checked(act)


def test_safety_spans_about_no_attempt_of_the_node_are_refused() -> None:
    """Of four spans two are about the node's own attempts; links follow theirs."""
    count = 4
    steps = (StepId(7, 0, 1, 0), StepId(8, 0, 1, 0), None, StepId(9, 0, 2, 1))
    spans = Spans(
        batch=1,
        names=("own", "forged", "of nobody", "gang"),
        traces=b"".join(bytes([at]) * 16 for at in range(count)),
        spans=b"".join(bytes([at]) * 8 for at in range(count)),
        parents=bytes(8 * count),
        starts_us=bytes(8 * count),
        ends_us=bytes(8 * count),
        statuses=bytes(range(count)),
        steps=steps,
        links=(SpanLink(1, bytes(16), bytes(8)), SpanLink(3, bytes(16), bytes(8), "former-attempt")),
    )

    async def act(runtime: Runtime, part: Attribution, kept: Kept) -> None:
        part.take(ReceivedSpans(Sender(Role.AGENT, "n1", "b:1", True), 1, spans))
        await runtime.sleep(2 * TURN_MS)
        (found,) = kept.spans
        assert (found.names, found.steps) == (("own", "gang"), (steps[0], steps[3]))
        assert (found.spans, found.statuses) == (bytes(8) + b"\3" * 8, b"\0\3")
        assert found.links == (SpanLink(1, bytes(16), bytes(8), "former-attempt"),)
        assert part.health()["spans_refused"] == 2

    checked(act)
