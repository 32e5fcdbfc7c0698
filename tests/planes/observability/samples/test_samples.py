"""The part for samples under virtual time: newest values, history over restarts, roll-ups, bounds, a database that
cannot be written."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal.core.model import StoreError
from hal.core.model.samples_config import SamplesSection
from hal.core.model.units import Duration
from hal.planes.observability.samples import columns, part, store
from hal.planes.observability.samples.exposition import exposition
from hal.planes.observability.samples.part import Samples
from hal.planes.observability.telemetry import ReceivedValues, Sender, SenderTable
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.telemetry import Series, SeriesKind
from hal.wire.roles import Role

LOAD = Series("hal_node_load", SeriesKind.GAUGE, {"window": "1m"})
CPU = Series("hal_node_cpu_seconds_total", SeriesKind.COUNTER, {"mode": "user"})
HOUR_MS = 3_600_000


class Source:
    """One node that sends."""

    def __init__(self, name: str = "n1", role: Role = Role.AGENT) -> None:
        self.sender = Sender(role, name, "boot:1")
        self.table = SenderTable()
        self._numbers: dict[str, int] = {}

    def at(self, runtime: Runtime, values: dict[str, float], at_ms: int | None = None) -> ReceivedValues:
        """These values of gauges by name, and `cpu` of the counter."""
        numbers = []
        for name in values:
            if name not in self._numbers:
                self._numbers[name] = self.table.count
                series = {"load": LOAD, "cpu": CPU}.get(name) or Series("hal_x", SeriesKind.GAUGE, {"attempt": name})
                self.table.define(self.table.count, [series])
            numbers.append(self._numbers[name])
        now_ms = runtime.now_ms()
        return ReceivedValues(
            self.sender,
            now_ms if at_ms is None else at_ms,
            now_ms,
            self.table,
            np.array(numbers, np.uint32),
            np.array(list(values.values()), float),
        )


def play(tmp_path: Path, *mains: Callable[[Runtime, Samples], Awaitable[None]], **section: Any) -> None:
    """Run these one after the other, each in a process of its own over the same database."""
    with VirtualWorld(1) as world:
        host = world.host("head")
        for main in mains:

            async def run(runtime: Runtime, main: Callable[[Runtime, Samples], Awaitable[None]] = main) -> None:
                samples = Samples(runtime, tmp_path, SamplesSection(**section))
                await main(runtime, samples)

            process = world.start(host, "observability", run)
            world.run_for(30 * 24 * HOUR_MS)
            assert process.exit_code == 0


def find(block: Any, name: str) -> list[tuple[int, float]]:
    """Instants and values of a series."""
    (row,) = [row for row, one in enumerate(block.series) if one.name == name]
    there = ~np.isnan(block.values[row])
    return list(zip(block.at_ms[there].tolist(), block.values[row][there].tolist(), strict=True))


def test_samples_survive_a_restart_and_are_read_with_those_in_memory(tmp_path: Path) -> None:
    began: list[int] = []

    async def first(runtime: Runtime, samples: Samples) -> None:
        source = Source()
        running = runtime.spawn_task(samples.run(), "samples")
        began.append(runtime.now_ms())
        for number in range(100):
            samples.take(source.at(runtime, {"load": number, "cpu": 2 * number}))
            await runtime.sleep(10_000)
        running.cancel()
        await samples.close()

    async def second(runtime: Runtime, samples: Samples) -> None:
        samples.take(Source().at(runtime, {"load": 777}))
        found = await samples.history("n1", 0, runtime.now_ms(), 0)
        loads = find(found, "hal_node_load")
        assert [value for _, value in loads] == [*range(100), 777]
        assert [at_ms - began[0] for at_ms, _ in loads[:100]] == [10_000 * number for number in range(100)]
        assert await samples.history("n2", 0, runtime.now_ms(), 0) is not None
        assert await samples.known_sources() == ["n1"]
        await samples.close()

    play(tmp_path, first, second)


def test_the_death_of_the_process_costs_a_minute_of_samples_at_most(tmp_path: Path) -> None:
    async def first(runtime: Runtime, samples: Samples) -> None:
        runtime.spawn_task(samples.run(), "samples")
        source = Source()
        for number in range(60):
            samples.take(source.at(runtime, {"load": number}))
            await runtime.sleep(10_000)

    async def second(runtime: Runtime, samples: Samples) -> None:
        loads = find(await samples.history("n1", 0, runtime.now_ms(), 0), "hal_node_load")
        assert [value for _, value in loads] == list(range(len(loads)))
        assert len(loads) >= 60 - (part.OPEN_MS + part.WRITE_MS) // 10_000
        await samples.close()

    play(tmp_path, first, second)


@pytest.mark.slow
def test_old_samples_are_kept_by_the_minute_then_by_the_hour_then_not_at_all(tmp_path: Path) -> None:
    """A value every 20 s over 40 hours: the mean of the three of each minute, and of the 180 of each hour."""

    async def main(runtime: Runtime, samples: Samples) -> None:
        running = runtime.spawn_task(samples.run(), "samples")
        source = Source()
        began_ms = runtime.now_ms()
        count = 40 * 180
        for number in range(count):
            samples.take(source.at(runtime, {"load": number % 3, "cpu": number}))
            await runtime.sleep(20_000)
        now_ms = runtime.now_ms()
        fine = find(await samples.history("n1", began_ms, now_ms, 0), "hal_node_load")
        assert 2 * 180 <= len(fine) <= 5 * 180
        minutes = find(await samples.history("n1", began_ms, now_ms, 60_000), "hal_node_load")
        assert 20 * 60 <= len(minutes) <= 27 * 60
        assert {round(value, 6) for _, value in minutes[1:-1]} == {1.0}
        hours = find(await samples.history("n1", began_ms, now_ms, HOUR_MS), "hal_node_load")
        assert 39 <= len(hours) <= 41
        assert all(0.99 < value < 1.01 for _, value in hours[1:-1])
        counters = find(await samples.history("n1", began_ms, now_ms, HOUR_MS), "hal_node_cpu_seconds_total")
        grown = {round(after[1] - before[1]) for before, after in pairwise(counters[1:-1])}
        assert grown == {180}
        running.cancel()
        await samples.close()

    play(tmp_path, main, fine=Duration(2 * HOUR_MS), minutes=Duration(24 * HOUR_MS))


@pytest.mark.slow
def test_the_room_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    async def main(runtime: Runtime, samples: Samples) -> None:
        running = runtime.spawn_task(samples.run(), "samples")
        rng = np.random.default_rng(1)
        sources = [Source(f"n{number}") for number in range(20)]
        for _ in range(300):
            for source in sources:
                values = {f"a{number}": float(value) for number, value in enumerate(rng.random(100))}
                samples.take(source.at(runtime, values))
            await runtime.sleep(20_000)
        await runtime.sleep(2 * part.TEND_MS)
        size = samples.health()["bytes"]
        assert isinstance(size, int)
        with sqlite3.connect(tmp_path / "samples.sqlite") as connection:
            assert store.used_bytes(connection) <= 1 << 20
            (oldest,) = connection.execute("SELECT min(start_ms) FROM block WHERE level = 0").fetchone()
        assert oldest > runtime.now_ms() - 300 * 20_000
        running.cancel()
        await samples.close()

    class Small(SamplesSection, frozen=True, kw_only=True):
        @property
        def size_bytes(self) -> int:
            return 1 << 20

    with VirtualWorld(1) as world:

        async def run(runtime: Runtime) -> None:
            await main(runtime, Samples(runtime, tmp_path, Small()))

        process = world.start(world.host("head"), "observability", run)
        world.run_for(30 * 24 * HOUR_MS)
        assert process.exit_code == 0


@pytest.mark.slow
def test_while_the_database_is_locked_blocks_wait_and_then_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds its lock: nothing is lost, and the newest values are answered all the time."""
    monkeypatch.setattr("hal.planes.observability.database.BUSY_TIMEOUT_S", 0.01)

    async def main(runtime: Runtime, samples: Samples) -> None:
        source = Source()

        async def keep() -> None:
            while True:
                try:
                    await samples.run()
                except StoreError:
                    await runtime.sleep(1_000)

        running = runtime.spawn_task(keep(), "samples")
        samples.take(source.at(runtime, {"load": -1}))
        await runtime.sleep(100_000)
        other = sqlite3.connect(tmp_path / "samples.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for number in range(100):
            samples.take(source.at(runtime, {"load": number}))
            await runtime.sleep(10_000)
        health = samples.health()
        assert health["failed_writes"] > 0  # type: ignore[operator]
        assert health["dropped_blocks"] == 0
        there = samples.source("n1")
        assert there is not None
        assert float(there.newest[0]) == 99
        other.execute("ROLLBACK")
        await runtime.sleep(100_000)
        assert samples.health()["waiting_blocks"] == 0
        loads = find(await samples.history("n1", 0, runtime.now_ms(), 0), "hal_node_load")
        assert [value for _, value in loads] == [-1, *range(100)]
        running.cancel()
        await samples.close()

    play(tmp_path, main)


def test_series_of_attempts_that_ended_leave_memory_and_stay_in_history(tmp_path: Path) -> None:
    async def main(runtime: Runtime, samples: Samples) -> None:
        running = runtime.spawn_task(samples.run(), "samples")
        source = Source()
        for number in range(200):
            samples.take(source.at(runtime, {"load": 1, f"{number}.0.1.0": number}))
            await runtime.sleep(10_000)
        assert samples.health()["series"] < 100  # type: ignore[operator]
        block = await samples.history("n1", 0, runtime.now_ms(), 0)
        assert len(block.series) == 201
        running.cancel()
        await samples.close()

    play(tmp_path, main)


def test_a_source_with_too_many_series_is_cut_and_counted_and_others_are_not(tmp_path: Path) -> None:
    async def main(runtime: Runtime, samples: Samples) -> None:
        loud, quiet = Source("loud"), Source("quiet")
        samples.take(loud.at(runtime, {f"a{number}": 1 for number in range(columns.MAX_ROWS + 10)}))
        samples.take(quiet.at(runtime, {"load": 1}))
        assert samples.health()["dropped_values"] == 10
        assert samples.health()["series"] == columns.MAX_ROWS + 1
        await samples.close()

    play(tmp_path, main)


def test_a_wrong_clock_counts_as_now_and_what_is_older_than_the_newest_is_dropped(tmp_path: Path) -> None:
    async def main(runtime: Runtime, samples: Samples) -> None:
        source = Source()
        now_ms = runtime.now_ms()
        samples.take(source.at(runtime, {"load": 1}, at_ms=now_ms + 10 * HOUR_MS))
        samples.take(source.at(runtime, {"load": 2}, at_ms=now_ms - 5_000))
        block = await samples.history("n1", 0, 2 * now_ms, 0)
        assert find(block, "hal_node_load") == [(now_ms, 1.0)]
        assert samples.health()["late_values"] == 1
        await samples.close()

    play(tmp_path, main)


def test_after_this_machines_clock_was_set_back_values_are_taken_at_once(tmp_path: Path) -> None:
    """By ten hours; nodes of other machines, whose clocks are right, count as wrong from then on."""

    async def main(runtime: Runtime, samples: Samples) -> None:
        source = Source()
        right_ms = runtime.now_ms()
        samples.take(source.at(runtime, {"load": 1})._replace(at_ms=right_ms, received_ms=right_ms))
        set_back_ms = right_ms - 10 * HOUR_MS
        for number in range(3):
            at_ms = set_back_ms + number
            samples.take(source.at(runtime, {"load": 2 + number})._replace(at_ms=right_ms, received_ms=at_ms))
        assert samples.health()["late_values"] == 0
        there = samples.source("n1")
        assert there is not None
        assert float(there.newest[0]) == 4
        await samples.close()

    play(tmp_path, main)


def test_what_waits_for_a_database_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 series x 1 instant x 8 bytes a block; room for ten of them."""
    monkeypatch.setattr(part, "MAX_WAITING_BYTES", 8_000)

    async def main(runtime: Runtime, samples: Samples) -> None:
        source = Source()
        for _ in range(31):
            samples.take(source.at(runtime, {f"a{number}": 1.0 for number in range(100)}))
            await runtime.sleep(columns.BLOCK_MS)
        assert samples.health()["waiting_blocks"] == 10
        assert samples.health()["dropped_blocks"] == 20
        await samples.close()
        assert samples.health()["waiting_blocks"] == 0

    play(tmp_path, main)


def test_prometheus_sees_nodes_and_other_processes_and_no_attempts(tmp_path: Path) -> None:
    async def main(runtime: Runtime, samples: Samples) -> None:
        samples.take(Source().at(runtime, {"load": 0.5, "42.0.1.0": 7}))
        samples.take(Source("s1", Role.SERVICE).at(runtime, {"cpu": 3}))
        text = exposition(samples.sources(), {"samples": samples.health()}, runtime.now_ms())
        assert 'hal_node_load{node="n1",window="1m"} 0.5\n' in text
        assert 'hal_node_cpu_seconds_total{source="service:s1",mode="user"} 3\n' in text
        assert "# TYPE hal_node_cpu_seconds_total counter\n" in text
        assert "42.0.1.0" not in text
        assert exposition(samples.sources(), {}, runtime.now_ms() + 61_000) == ""
        text = exposition([], {"attribution": {"lines_refused": 3, "spans_refused": 0}}, runtime.now_ms())
        assert "# TYPE hal_collector_refused_total counter\n" in text
        assert 'hal_collector_refused_total{kind="lines"} 3\n' in text
        await samples.close()

    play(tmp_path, main)


@pytest.mark.parametrize("label", ["node", "source", "__name__"])
def test_a_sender_that_gives_labels_which_are_not_its_own_is_not_shown(tmp_path: Path, label: str) -> None:
    """A line with a label twice would make Prometheus refuse the values of all nodes."""

    async def main(runtime: Runtime, samples: Samples) -> None:
        good, bad = Source("good"), Source("bad")
        bad.table.define(0, [Series("hal_node_load", SeriesKind.GAUGE, {label: "n7"})])
        samples.take(good.at(runtime, {"load": 1}))
        samples.take(bad.at(runtime, {"load": 2})._replace(numbers=np.array([0], np.uint32)))
        shown = [line for line in exposition(samples.sources(), {}, runtime.now_ms()).splitlines() if line[0] != "#"]
        assert shown == ['hal_node_load{node="good",window="1m"} 1']
        await samples.close()

    play(tmp_path, main)
