"""100,000 linked jobs in one submission: until durable, loaded again after a restart, and run through to the end.

The task plane and the store without an engine and without processes: what starts is what has become ready, in groups.
Prints one JSON line for each figure: `python benchmarks/dags.py [--jobs 100000] [--only chain]`.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import tempfile
import time
from collections import deque
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from hal.core.engine.classes import ClassSpec, Elsewhere
from hal.core.engine.events import Event, JobsCancelled, JobsSubmitted
from hal.core.engine.plan import START
from hal.core.model import (
    JobSpec,
    Never,
    Outlook,
    Reason,
    SpecError,
    StepId,
    Verdict,
    from_json,
    spec_from_plain,
    to_json,
)
from hal.core.model.policy import Policy
from hal.daemons.controller.api.front import GC_THRESHOLD
from hal.planes.tasks import Arrival, Change, Submitter, TaskPlane
from hal.store import Group, Store
from hal.wire.frames.agent_keeper import ExitCause, StepExit, Usage

BY = Submitter("bench")
GROUP = 200
"""Starts, and ends, in one commit."""
SUBMIT_TARGET_S = 10.0


class Ready:
    """Instead of an engine: everything fits, and what has become ready is remembered in order."""

    def __init__(self) -> None:
        self.ready: deque[tuple[int, int, int]] = deque()

    def never_fits(
        self, request: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None
    ) -> Never | None:
        return None

    def explain(self, job: int, now_ms: int) -> Verdict:
        return Verdict(job=job, reason=Reason.NONE, message="")

    def look(self, job: int, now_ms: int, elsewhere: Sequence[Elsewhere]) -> Outlook | None:
        return None

    def feed(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, JobsSubmitted):
                rows = event.rows
                self.ready.extend(
                    zip(rows["job"].tolist(), rows["first_task"].tolist(), rows["attempt"].tolist(), strict=True)
                )
            assert not isinstance(event, JobsCancelled)


def chain(count: int) -> list[dict[str, Any]]:
    """Each after the one before."""
    return [{"name": f"j{n}", "dependencies": [{"job": f"j{n - 1}"}] if n else []} for n in range(count)]


def fans(count: int) -> list[dict[str, Any]]:
    """One, then 5,000 after it, then one after all of these, and so on."""
    jobs: list[dict[str, Any]] = []
    wide = 5_000
    while len(jobs) < count:
        before = [{"job": job["name"]} for job in jobs[-wide:]] if jobs else []
        name = f"j{len(jobs)}"
        jobs.append({"name": name, "dependencies": before})
        jobs += [{"name": f"{name}-{n}", "dependencies": [{"job": name}]} for n in range(min(wide, count - len(jobs)))]
    return jobs


def tangle(count: int) -> list[dict[str, Any]]:
    """Each after up to three of the thousand before it, a third of them as alternatives."""
    rng = random.Random(1)
    jobs: list[dict[str, Any]] = []
    for n in range(count):
        before = sorted({rng.randrange(max(0, n - 1000), n) for _ in range(3)}) if n else []
        entries: list[dict[str, Any]] = [{"job": f"j{one}"} for one in before]
        if len(entries) > 1 and n % 3 == 0:
            entries = [{"any_of": entries}]
        jobs.append({"name": f"j{n}", "dependencies": entries})
    return jobs


SHAPES = {"chain": chain, "fans": fans, "tangle": tangle}


class Watch:
    """Wall and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._wall

    @property
    def cpu_s(self) -> float:
        return round(time.process_time() - self._cpu, 2)


def tell(name: str, value: float, unit: str, **more: object) -> None:
    """One JSON line."""
    print(json.dumps({"bench": name, "value": round(value, 3), "unit": unit, "better": "lower", **more}), flush=True)


class Bench:
    """One plane over one store on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commits, self.now_ms = 0, 1_000
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.path)
        self.epoch = self.store.take_leadership("bench", self.now_ms)
        self.engine = Ready()
        self.plane = TaskPlane(Policy(), self.engine)
        self.engine.feed(self.plane.load(self.store.load(in_columns=True)))

    def commit(self) -> Change:
        change = self.plane.seal(self.now_ms)
        self.commits += 1
        self.store.commit(Group(f"{self.epoch}-{self.commits}", self.now_ms, change.operations), epoch=self.epoch)
        self.plane.keep()
        self.engine.feed(change.engine)
        return change

    def run_through(self) -> int:
        """Start what is ready and end it at once, in groups, until nothing is left; how many jobs ran."""
        ran = 0
        while self.engine.ready:
            some = [self.engine.ready.popleft() for _ in range(min(GROUP, len(self.engine.ready)))]
            starts = np.array([(job, task, attempt, at, 1, -1) for at, (job, task, attempt) in enumerate(some)], START)
            self.plane.allocate(starts, np.zeros(len(some), np.int64), lambda _: "n1", self.epoch, self.now_ms)
            usage = Usage(1, 1, 1, 0, 0)
            exits = [
                StepExit(StepId(job, task, attempt, 0), ExitCause.EXITED, 0, 0, self.now_ms, self.now_ms, usage, "")
                for job, task, attempt in some
            ]
            self.commit()
            self.plane.record_exits("n1", exits, self.now_ms)
            self.commit()
            ran += len(some)
        return ran


def measure(name: str, count: int) -> None:
    """One shape, all phases."""
    plain = [{"command": ["true"], **job} for job in SHAPES[name](count)]
    body = to_json(plain)
    watch = Watch()
    specs = [spec_from_plain(job) for job in from_json(body, list[dict[str, Any]])]
    tell(f"dag-{name}-read", watch.wall_s, "s", jobs=count, mib=len(body) >> 20, cpu_s=watch.cpu_s)
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as root:
        bench = Bench(Path(root) / "hal.sqlite")
        bench.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b"), bench.now_ms)
        bench.commit()
        watch = Watch()
        bench.plane.submit(specs, BY, bench.now_ms)
        staged_s = watch.cpu_s
        bench.commit()
        more = {"cpu_s": watch.cpu_s, "staged_cpu_s": staged_s}
        tell(f"dag-{name}-submit", watch.wall_s, "s", jobs=count, target=SUBMIT_TARGET_S, **more)
        bench.store.close()
        watch = Watch()
        bench.open()
        tell(f"dag-{name}-load", watch.wall_s, "s", jobs=count, cpu_s=watch.cpu_s)
        watch = Watch()
        ran = bench.run_through()
        assert ran == count, f"{ran} of {count} ran"
        cpu_us = round(watch.cpu_s / count * 1e6)
        tell(f"dag-{name}-run", watch.wall_s / count * 1e6, "µs/job", jobs=count, cpu_us=cpu_us)
        bench.store.close()


def refuse(count: int) -> None:
    """A cycle through all of the jobs is found before anything is stored."""
    specs: list[JobSpec] = [
        spec_from_plain({"command": ["true"], "name": f"j{n}", "dependencies": [{"job": f"j{(n + 1) % count}"}]})
        for n in range(count)
    ]
    plane = TaskPlane(Policy(), Ready())
    watch = Watch()
    try:
        plane.submit(specs, BY, 1_000)
    except SpecError:
        tell("dag-cycle-found", watch.wall_s, "s", jobs=count, cpu_s=watch.cpu_s)
    else:
        raise AssertionError("a cycle was accepted")


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--only", choices=sorted(SHAPES), action="append")
    arguments = parser.parse_args()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)  # as the controller does
    for name in arguments.only or SHAPES:
        measure(name, arguments.jobs)
    refuse(arguments.jobs)
    tell("dag-peak-memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")


if __name__ == "__main__":
    main()
