"""What advice costs: the loop that takes it, the passes that do not read it, the scores and keys that do.

The engine alone first: the longest step (an event that is fed, or a slice of the scheduler) of each case, in CPU time,
as a step waits for nothing. Then a running HAL: the longest answer of the private socket, asked every millisecond,
while updates come over REST.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from _clusters import MINUTE_MS, load_kernels
from _private_hal import private_hal, say
from hal.client.address_lookup import find_address
from hal.client.sync_client import Client
from hal.core.engine import new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    AdviceUpdated,
    AdviceWithdrawn,
    ClockAdvanced,
    JobsSubmitted,
    KeySpace,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.policies import register
from hal.core.engine.scheduler import Scheduler
from hal.core.interfaces import PolicyInfo
from hal.daemons.controller.service.advice.advice import KEYS_A_PART
from loop import probing

NODES: Final = 10_000
SHAPES: Final = 200
WAITING: Final = 1_000_000
DELTA: Final = 10_000
LOOP_MS: Final = 5.0
ROUNDS: Final = 20


class Cheap:
    """The lower the price, the better."""

    info = PolicyInfo("bench-cheap", "score/2", reads_advice=("price",))

    def score(self, request: Any, view: Any) -> Any:
        return 1.0 / (1.0 + np.nan_to_num(view.advice["price"], nan=1.0))


class Urgent:
    """By urgency, then submission."""

    info = PolicyInfo("bench-urgent", "order/3", reads_advice=("urgency",))

    def key(self, jobs: Any, view: Any) -> Any:
        return jobs.job - (1_000 * np.nan_to_num(jobs.advice["urgency"])).astype(np.int64)

    def offset(self, buckets: Any, view: Any, now_ms: int) -> Any:
        return np.zeros(buckets.class_id.shape, np.int64)


class Nobody:
    """Takes plans and forgets them."""

    def accept(self, plan: Any) -> None:
        pass


def parts(
    kind: str, space: KeySpace, version: int, keys: Iterable[Any], values: Any, *, whole: bool = False
) -> Iterator[AdviceUpdated]:
    """An update as the controller feeds it."""
    every = tuple(keys)
    for first in range(0, len(every), KEYS_A_PART):
        some = every[first : first + KEYS_A_PART]
        more = first + KEYS_A_PART < len(every)
        yield AdviceUpdated(kind, space, version, some, values[first : first + KEYS_A_PART], whole=whole, more=more)


def cluster(config: EngineConfig, jobs: int, shapes: int = 1, cpu: int = 4_000) -> Scheduler:
    """Nodes that are full for what waits: jobs of `shapes` shapes, none of which fits."""
    scheduler = Scheduler(new_state(config), Nobody())
    scheduler.feed(NodesChanged(tuple(NodeSpec(f"n{number}", {"cpu": 2_000}) for number in range(NODES))))
    classes = tuple(ClassSpec({"cpu": cpu + shape}) for shape in range(shapes))
    rows = submit_rows(jobs)
    rows["job"] = np.arange(1, jobs + 1)
    rows["class_index"] = np.arange(jobs) % shapes
    rows["walltime_ms"] = MINUTE_MS
    scheduler.feed(JobsSubmitted(rows, classes, (OwnerSpec(),)))
    scheduler.run(0)
    return scheduler


def longest_ms(work: Iterable[Callable[[], object]]) -> float:
    """The longest of these calls."""
    longest = 0.0
    for call in work:
        began = time.thread_time()
        call()
        longest = max(longest, time.thread_time() - began)
    return 1e3 * longest


def feeding(scheduler: Scheduler, events: Iterable[Any]) -> Iterator[Callable[[], object]]:
    """A call for each event."""
    for event in events:
        yield lambda event=event: scheduler.feed(event)


def stepping(scheduler: Scheduler, now_ms: int) -> Iterator[Callable[[], object]]:
    """Steps until nothing is left to do."""
    more = True

    def step() -> None:
        nonlocal more
        more = scheduler.step(now_ms).more

    while more:
        yield step


def report(name: str, value: float, **more: Any) -> None:
    say(f"advice-{name}", value, "ms", LOOP_MS, higher=False, **more)


def deltas() -> None:
    """10,000 keys that nobody reads, keys known and new; then a table of 500,000 keys that expires."""
    scheduler = cluster(EngineConfig(), 1_000)
    names = [f"n{number}" for number in range(NODES)]
    found = []
    for version in range(1, ROUNDS + 1):
        # Fresh texts, as a decoder makes them.
        keys = [name + "" if version % 2 else f"x{version}-{name}" for name in names[:DELTA]]
        found.append(
            longest_ms(feeding(scheduler, parts("load", KeySpace.NODES, version, keys, np.random.rand(DELTA))))
        )
    report("delta-of-10000", statistics.median(found), longest=round(max(found), 2), part=KEYS_A_PART)
    for version in range(10):
        users = [f"u{version}-{number}" for number in range(35_000)]
        for event in parts("favour", KeySpace.USERS, version + 1, users, np.random.rand(35_000)):
            scheduler.feed(event)
    held = scheduler.state.advice.kinds["favour"]
    took = longest_ms(feeding(scheduler, (AdviceWithdrawn(("favour",)),)))
    report("table-withdrawn", took, keys=held.keys)


def passes() -> None:
    """A pass of 1,000 waiting buckets with 200,000 keys that nobody reads, against one without."""

    def one(scheduler: Scheduler, now_ms: int) -> float:
        scheduler.feed(ClockAdvanced(now_ms))
        began = time.thread_time()
        scheduler.run(now_ms)
        return 1e3 * (time.thread_time() - began)

    bare, told = cluster(EngineConfig(parking=False), 1_000, 1_000), cluster(EngineConfig(parking=False), 1_000, 1_000)
    for version in range(4):
        keys = [f"k{version}-{number}" for number in range(50_000)]
        for event in parts("favour", KeySpace.USERS, version + 1, keys, np.random.rand(50_000)):
            told.feed(event)
    times: tuple[list[float], list[float]] = ([], [])
    for now_ms in range(1, 20 * ROUNDS):
        for scheduler, into in zip((bare, told), times, strict=True):
            into.append(one(scheduler, now_ms))
    without, with_advice = (statistics.median(some) for some in times)
    say(
        "advice-pass-unread", with_advice / without, "x of a pass without", 1.1, higher=False, pass_ms=round(without, 3)
    )


def scores() -> None:
    """All prices of 10,000 nodes change, under 200 waiting shapes."""
    scheduler = cluster(EngineConfig(placement="bench-cheap", backfill=Backfill.EASY), 1_000, SHAPES)
    names = [f"n{number}" for number in range(NODES)]
    steps, took = [], []
    for version in range(1, 6):
        for event in parts("price", KeySpace.NODES, version, names, np.random.rand(NODES)):
            scheduler.feed(event)
        scheduler.feed(ClockAdvanced(version))
        began = time.perf_counter()
        steps.append(longest_ms(stepping(scheduler, version)))
        took.append(1e3 * (time.perf_counter() - began))
    report(
        "scores-again", statistics.median(steps), nodes=NODES, shapes=SHAPES, all_ms=round(statistics.median(took), 1)
    )


def keys() -> None:
    """10,000 of 1,000,000 waiting jobs get another urgency."""
    scheduler = cluster(EngineConfig(order="bench-urgent", backfill=Backfill.NONE), WAITING)
    chance = np.random.default_rng(1)
    steps, took = [], []
    for version in range(1, 6):
        jobs = np.sort(chance.choice(WAITING, DELTA, replace=False) + 1).tolist()
        began = time.perf_counter()
        events = parts("urgency", KeySpace.JOBS, version, jobs, chance.random(DELTA))
        longest = longest_ms(feeding(scheduler, events))
        steps.append(max(longest, longest_ms(stepping(scheduler, version))))
        took.append(1e3 * (time.perf_counter() - began))
    report(
        "keys-again", statistics.median(steps), waiting=WAITING, jobs=DELTA, all_ms=round(statistics.median(took), 1)
    )


def over_rest() -> None:
    """Deltas of 10,000 keys and whole tables of 50,000 over REST, with the loop watched from outside; `idle_ms`: the
    longest answer in as long a time without them."""
    chance = np.random.default_rng(2)
    with private_hal("--cpus", "1") as home, Client(find_address(str(home))) as client, probing(home) as longest:
        time.sleep(2)
        for name, count, delta in (("delta-of-10000", DELTA, True), ("whole-of-50000", 50_000, False)):
            found, idle, took = [], [], []
            for _ in range(ROUNDS):
                names = (f"n{number}" for number in range(count))
                values = dict(zip(names, chance.random(count).tolist(), strict=True))
                longest()
                began = time.perf_counter()
                client.put_advice("load", values, space="nodes", delta=delta)
                took.append(time.perf_counter() - began)
                found.append(longest())
                time.sleep(took[-1])
                idle.append(longest())
            say(
                f"advice-rest-{name}", statistics.median(found), "ms longest answer", LOOP_MS, higher=False,
                idle_ms=round(statistics.median(idle), 1), put_ms=round(1e3 * statistics.median(took), 1),
            )  # fmt: skip


def main() -> int:
    for policy in (Cheap(), Urgent()):
        register(policy)
    load_kernels()
    gc.freeze()
    for case in (deltas, passes, scores, keys, over_rest):
        if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
            case()
            gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
