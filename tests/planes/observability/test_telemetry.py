"""Telemetry from sender to collector, under virtual time: what arrives once, what is dropped and counted, what is
limited, while the collector is killed, stopped, away or flooded."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hal.planes.observability.sender_budget import BUDGETS, BYTES, BYTES_PER_S
from hal.planes.observability.telemetry import ReceivedLines, ReceivedSpans, ReceivedValues, Telemetry
from hal.runtime import telemetry_sender
from hal.runtime.interface import Credentials, Runtime, TcpAddress, UnixAddress
from hal.runtime.telemetry_sender import SeriesKey, TelemetrySender
from hal.runtime.virtual_process import VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye, Hello
from hal.wire.frames.telemetry import (
    MAX_SERIES,
    TELEMETRY,
    LogLine,
    LogLines,
    Series,
    SeriesKind,
    SeriesTable,
    SeriesValues,
    Severity,
    Spans,
)
from hal.wire.peer import CertifiedName
from hal.wire.roles import Role

SOCKET = "observability-wire.sock"
LOAD = SeriesKey("hal_node_load", SeriesKind.GAUGE, (("window", "1m"),))
CPU = SeriesKey("hal_node_cpu_seconds_total", SeriesKind.COUNTER, (("mode", "user"),))


class Taken:
    """What collectors received, over all that lived one after the other."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: list[tuple[str, int, dict[str, float]]] = []
        self.spans: list[str] = []
        self.senders: set[Any] = set()
        self.newest: Telemetry | None = None

    async def collect(self, runtime: Runtime) -> None:
        """A collector's main."""
        self.newest = telemetry = Telemetry(runtime)
        telemetry.received("lines", self._lines)
        telemetry.received("values", self._values)
        telemetry.received("spans", self._spans)
        await runtime.listen(UnixAddress(runtime.paths.socket_dir() / SOCKET), telemetry.serve, conversation=TELEMETRY)
        await runtime.listen(
            TcpAddress("head", 7431),
            telemetry.serve,
            Credentials(Path("ca"), Path("own")),
            conversation=TELEMETRY,
        )
        await runtime.stopping.wait()

    def _lines(self, got: ReceivedLines) -> None:
        self.senders.add(got.sender)
        self.lines += [line.text for line in got.lines]

    def _values(self, got: ReceivedValues) -> None:
        self.senders.add(got.sender)
        names = [got.table.series[number].name for number in got.numbers.tolist()]
        self.values.append((got.sender.name, got.at_ms, dict(zip(names, got.values.tolist(), strict=True))))

    def _spans(self, got: ReceivedSpans) -> None:
        self.spans += got.spans.names

    def health(self, name: str) -> Any:
        """Of the newest collector."""
        assert self.newest is not None
        return self.newest.health()[name]


def line(text: str) -> LogLine:
    return LogLine(1, Severity.INFO, "agent", text)


def spans(*names: str) -> Spans:
    count = len(names)
    return Spans(
        batch=0,
        names=names,
        traces=bytes(16 * count),
        spans=bytes(8 * count),
        parents=bytes(8 * count),
        starts_us=bytes(8 * count),
        ends_us=bytes(8 * count),
        statuses=bytes(count),
    )


class Node:
    """A process that sends."""

    def __init__(self, name: str = "n1") -> None:
        self.name = name
        self.sender: TelemetrySender | None = None

    async def run(self, runtime: Runtime) -> None:
        self.sender = TelemetrySender(runtime, Role.AGENT, self.name)
        self.sender.dial((f"unix:{runtime.paths.socket_dir() / SOCKET}",))
        await self.sender.run()

    @property
    def there(self) -> TelemetrySender:
        assert self.sender is not None
        return self.sender


def test_values_lines_and_spans_arrive_with_their_sender_and_are_forgotten_there() -> None:
    taken, node = Taken(), Node()
    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent", node.run)
        world.run_for(100)
        node.there.values(5, {LOAD: 0.5, CPU: 81.25})
        node.there.values(6, {CPU: 82.0})
        node.there.lines([line("one"), line("two")])
        node.there.spans(spans("run"))
        world.run_for(1_000)
        assert taken.values == [("n1", 5, {LOAD.name: 0.5, CPU.name: 81.25}), ("n1", 6, {CPU.name: 82.0})]
        assert (taken.lines, taken.spans) == (["one", "two"], ["run"])
        assert node.there.queued_bytes == 0
        assert {(one.role, one.name) for one in taken.senders} == {(Role.AGENT, "n1")}


def test_without_a_collector_nothing_is_kept_or_counted() -> None:
    node = Node()
    with VirtualWorld(1) as world:
        world.start(world.host("n1"), "agent", node.run)
        world.run_for(100)
        node.there.dial(())
        node.there.lines([line("nobody is there")])
        assert not node.there.active
        assert (node.there.queued_bytes, node.there.dropped["lines"]) == (0, 0)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_safety_what_is_sent_is_received_in_order_and_missing_only_if_counted(seed: int) -> None:
    """The collector is killed and stopped at random: nothing is dropped while the queue has room, one process of it
    receives nothing twice, and after its death at most what was not named is received again."""
    taken, node = Taken(), Node()
    with VirtualWorld(seed) as world:
        host = world.host("n1")
        rng: random.Random = world.rng("faults")
        collector: VirtualProcess = world.start(host, "observability", taken.collect)
        world.start(host, "agent", node.run)
        world.run_for(100)
        for number in range(100):
            node.there.lines([line(str(number))])
            match rng.randrange(8):
                case 0:
                    collector.kill()
                    world.run_for(rng.randrange(2_000))
                    collector = world.start(host, "observability", taken.collect)
                case 1:
                    collector.pause()
                    world.run_for(rng.randrange(60_000))
                    collector.resume()
            world.run_for(rng.randrange(300))
        world.run_for(120_000)
        assert node.there.queued_bytes == 0
        assert node.there.dropped["lines"] == 0
        assert set(taken.lines) == {str(number) for number in range(100)}


def test_a_stopped_collector_costs_a_bounded_queue_and_the_oldest_is_dropped_and_reported() -> None:
    taken, node = Taken(), Node()
    with VirtualWorld(1) as world:
        host = world.host("n1")
        collector = world.start(host, "observability", taken.collect)
        world.start(host, "agent", node.run)
        world.run_for(100)
        collector.pause()
        count = 1_500
        for number in range(count):
            node.there.lines([line(f"{number:05} " + "x" * 4_000)])
            world.run_for(10)
        most = telemetry_sender.MAX_QUEUED_BYTES
        assert most * 0.9 < node.there.queued_bytes <= most
        dropped = node.there.dropped["lines"]
        assert dropped > 300
        collector.resume()
        world.run_for(180_000)
        assert node.there.queued_bytes == 0
        assert len(set(taken.lines)) == count - dropped
        assert taken.lines[-1].startswith(f"{count - 1:05}")
        assert taken.health("lines_dropped_by_senders") == dropped


def test_a_sender_that_floods_is_read_slowly_drops_by_itself_and_others_are_not_held() -> None:
    """Of 320,000 lines in 20 s the collector takes its burst and 2,000 a second; of the rest the sender keeps 4 MiB and
    counts what it drops. The collector itself drops none."""
    taken, loud, quiet = Taken(), Node("loud"), Node("quiet")
    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent-loud", loud.run)
        world.start(host, "agent-quiet", quiet.run)
        world.run_for(100)
        for number in range(20):
            loud.there.lines([line("noise")] * 16_000)
            quiet.there.lines([line(f"quiet {number}")])
            world.run_for(1_000)
        heard = Counter(text.split()[0] for text in taken.lines)
        size, per_s = BUDGETS["lines"]
        assert heard["quiet"] == 20
        assert 20 * per_s <= heard["noise"] <= 2 * size + 21 * per_s
        assert taken.health("senders_held_seconds") > 15
        world.run_for(120_000)
        heard = Counter(text.split()[0] for text in taken.lines)
        assert heard["noise"] + loud.there.dropped["lines"] == 20 * 16_000
        assert taken.health("lines_dropped_by_senders") == loud.there.dropped["lines"] > 0


async def flood_raw(runtime: Runtime, *, process: int, frames: int, size: int) -> int:
    """Write frames of one line as fast as they are taken, until the connection ends; returns how many were written."""
    connection = await runtime.connect(UnixAddress(runtime.paths.socket_dir() / SOCKET), conversation=TELEMETRY)
    await connection.send(Hello(role=Role.AGENT, versions=SPOKEN, name="loud", boot_id="b", pid=process))
    for number in range(frames):
        await connection.send(LogLines(batch=number, lines=(line("x" * size),)))
    return frames


@pytest.mark.parametrize("size", [10, 16_000], ids=["small-frames", "large-frames"])
def test_safety_what_floods_without_waiting_waits_in_its_own_process(size: int) -> None:
    """A sender that does not heed what the collector names is not read, either: what it cannot write waits there.
    Small frames count, too: 1,000 bytes each beside their own."""
    taken, quiet = Taken(), Node("quiet")
    written: list[int] = []

    async def flood(runtime: Runtime) -> None:
        written.append(await flood_raw(runtime, process=1, frames=100_000, size=size))

    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent-quiet", quiet.run)
        world.start(host, "agent-loud", flood)
        world.run_for(100)
        for number in range(10):
            quiet.there.lines([line(f"quiet {number}")])
            world.run_for(1_000)
        heard = Counter(text.split()[0] for text in taken.lines)
        assert heard["quiet"] == 10
        assert heard["x" * size] <= (BYTES + 11 * BYTES_PER_S) / (1_000 + size) + 300
        assert not written


def test_a_sender_that_dials_again_begins_with_what_is_left_of_its_budget() -> None:
    """Ten connections of one name, one after the other, get no more than one connection would."""
    taken = Taken()

    async def flood(runtime: Runtime) -> None:
        for process in range(10):
            sending = runtime.spawn_task(flood_raw(runtime, process=process, frames=100_000, size=16_000), "flood")
            await runtime.sleep(1_000)
            sending.cancel()

    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent-loud", flood)
        world.run_for(10_000)
    assert sum(map(len, taken.lines)) <= BYTES + 11 * BYTES_PER_S + 10 * (1 << 20)


async def raw(runtime: Runtime, *frames: Any, role: Role = Role.AGENT, name: str = "n1") -> Goodbye | None:
    """Send these frames as they are; the collector's goodbye."""
    connection = await runtime.connect(UnixAddress(runtime.paths.socket_dir() / SOCKET), conversation=TELEMETRY)
    await connection.send(Hello(role=role, versions=SPOKEN, name=name, boot_id="b", pid=1))
    for frame in frames:
        await connection.send(frame)
    while (answer := await connection.receive(5_000)) is not None:
        if isinstance(answer, Goodbye):
            return answer
        if getattr(answer, "batch", 0) == 99:
            return None
    return None


MANY = tuple(Series(f"s{n}", SeriesKind.GAUGE, {}) for n in range(3))
LAST = LogLines(batch=99, lines=(line("last"),))


@pytest.mark.parametrize(
    ("frames", "faulty", "goodbye"),
    [
        ((SeriesValues(batch=1, at_ms=1, series=bytes(4), values=bytes(8)), LAST), "values", ""),
        ((SeriesValues(batch=1, at_ms=1, series=bytes(8), values=bytes(8)), LAST), "values", ""),
        ((Spans(batch=1, names=("a",), traces=b"", spans=b"", parents=b"", starts_us=b"", ends_us=b"", statuses=b""),
          LAST), "spans", ""),
        ((SeriesTable(first=1, series=MANY),), "", "malformed-frame"),
        ((SeriesTable(first=0, series=MANY), SeriesTable(first=MAX_SERIES - 1, series=MANY)), "", "malformed-frame"),
        ((Hello(role=Role.AGENT, versions=SPOKEN),), "", "malformed-frame"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_dropped_or_ends_the_connection(
    frames: tuple[Any, ...], faulty: str, goodbye: str
) -> None:
    taken = Taken()
    answers: list[Goodbye | None] = []

    async def node(runtime: Runtime) -> None:
        answers.append(await raw(runtime, *frames))

    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.run_for(100)
        world.start(host, "agent", node)
        world.run_for(20_000)
    (answer,) = answers
    assert (answer.code if answer is not None else "") == goodbye
    if faulty:
        assert taken.health(f"{faulty}_faulty") == (2 if faulty == "never" else 1)
        assert taken.lines == ["last"]


@pytest.mark.parametrize(
    ("role", "name", "certified", "taken_name"),
    [
        (Role.AGENT, "n7", CertifiedName(Role.AGENT, "n1", "1"), "n1"),
        (Role.AGENT, "n1", CertifiedName(Role.SERVICE, "n1", "1"), None),
    ],
)
def test_over_the_network_the_certificate_says_who_sends(
    role: Role, name: str, certified: CertifiedName, taken_name: str | None
) -> None:
    """A node cannot send in another one's name, nor as another kind of process."""
    taken = Taken()
    senders: list[TelemetrySender] = []

    async def node(runtime: Runtime) -> None:
        sender = TelemetrySender(runtime, role, name, Credentials(Path("ca"), Path("own")), local=False)
        senders.append(sender)
        sender.dial(("unix:/nowhere", "head:7431"))
        sender.lines([line("hello")])
        await sender.run()

    with VirtualWorld(1) as world:
        head, other = world.host("head"), world.host("n1")
        head.certify(Path("own"), CertifiedName(Role.SERVICE, "observability", "2"))
        other.certify(Path("own"), certified)
        world.start(head, "observability", taken.collect)
        world.start(other, "agent", node)
        world.run_for(5_000)
    assert {one.name for one in taken.senders} == (set() if taken_name is None else {taken_name})


def test_a_series_table_that_is_full_begins_again() -> None:
    """Attempts come and go: their series have new numbers, and old ones are forgotten."""
    taken, node = Taken(), Node()
    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent", node.run)
        world.run_for(100)
        for at in range(6):
            node.there.values(
                at, {SeriesKey("hal_x", SeriesKind.GAUGE, (("attempt", f"{at}.{n}"),)): n for n in range(2_000)}
            )
            world.run_for(2_000)
        assert [len(values) for _, _, values in taken.values] == [1] * 6
        assert taken.health("values_received") == 12_000
