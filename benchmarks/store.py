"""The store on SQLite: how long groups, loading and lists take, on a file of this machine's disk.

Wall time, medians. Each group is durable when it counts: WAL with synchronous=FULL, so one fsync is in every figure.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from hal.core.model import AttemptState, EventKind, JobSpec, TaskState, check_spec
from hal.store import (
    AppendEvents,
    AttemptEnd,
    AttemptRow,
    EndAttempts,
    Group,
    InsertAttempts,
    InsertJobs,
    JobProgress,
    JobRow,
    MemoryDatabase,
    NewEvent,
    Operation,
    ProgressJobs,
    PutTaskRanges,
    Store,
    TaskRangeRow,
)

JOBS: Final = 10_000
PENDING: Final = 100_000
SMALL_GROUPS: Final = 300
RUNS: Final = 3


class Bench:
    """A new store with a leader, and groups with ids of their own."""

    def __init__(self, place: Path | MemoryDatabase) -> None:
        self.store = Store.open(place)
        self.epoch = self.store.take_leadership("bench", 1)
        self.groups = 0

    def commit(self, operations: list[Operation]) -> float:
        """Seconds until durable."""
        self.groups += 1
        group = Group(f"g{self.groups}", 1_000 + self.groups, operations)
        before = time.perf_counter()
        self.store.commit(group, epoch=self.epoch)
        return time.perf_counter() - before


def submission(ids: Iterable[int], spec_of: Callable[[int], JobSpec]) -> list[Operation]:
    """Single jobs, as one REST call submits them."""
    rows = [
        JobRow(n, spec_of(n), "n", "default", "", "u", 0, TaskState.PENDING, 1, 1, None, 1_000, 1_000, pending=1)
        for n in ids
    ]
    return [
        InsertJobs(rows),
        PutTaskRanges(put=[TaskRangeRow(row.id, 0, 1, TaskState.PENDING) for row in rows]),
        AppendEvents([NewEvent(at_ms=1_000, kind=EventKind.JOBS_SUBMITTED, jobs=[row.id for row in rows])]),
    ]


def starts(ids: range) -> list[Operation]:
    """One attempt of each job."""
    return [
        PutTaskRanges(drop=[(n, 0) for n in ids]),
        InsertAttempts([AttemptRow(n, 0, 1, AttemptState.ALLOCATED, ("n1",), f"{n}.0.1-1", 2_000) for n in ids]),
        AppendEvents([NewEvent(at_ms=2_000, kind=EventKind.ATTEMPTS_ALLOCATED, jobs=ids)]),
    ]


def ends(ids: range) -> list[Operation]:
    """Each of these attempts succeeds, and its job with it."""
    usage = {"user_ms": 1, "system_ms": 1, "max_rss_bytes": 2_000_000}
    done = TaskState.SUCCEEDED
    return [
        EndAttempts(
            [AttemptEnd(n, 0, 1, AttemptState.SUCCEEDED, 3_000, "exited", 0, None, usage, "", 2_500) for n in ids]
        ),
        ProgressJobs([JobProgress(n, done, 1_000, 2_500, 3_000, "", 0, 0, 0, 0, 1, 0, 0, 0, 0, 0) for n in ids]),
        AppendEvents([NewEvent(at_ms=3_000, kind=EventKind.ATTEMPTS_ENDED, jobs=ids)]),
    ]


def distinct(number: int) -> JobSpec:
    """A spec like no other."""
    return check_spec(JobSpec(name=f"job-{number}", command=("echo", str(number)), env={"N": str(number)}))


EQUAL: Final = check_spec(JobSpec(command=("true",)))


def report(name: str, value: float, unit: str, target: float | None = None, note: str = "") -> None:
    """One JSON line; all of these are better when lower."""
    line: dict[str, object] = {"bench": f"store-{name}", "value": round(value, 4), "unit": unit, "better": "lower"}
    if target is not None:
        line["target"] = target
    if note:
        line["note"] = note
    print(json.dumps(line), flush=True)


def blocks(directory: Path) -> None:
    """Ten thousand of everything, each as one group."""
    figures: dict[str, list[float]] = {name: [] for name in ("distinct", "equal", "started", "ended")}
    for run in range(RUNS):
        bench = Bench(directory / f"blocks-{run}.sqlite")
        specs = {n: distinct(n) for n in range(1, JOBS + 1)}
        figures["distinct"].append(bench.commit(submission(range(1, JOBS + 1), specs.__getitem__)))
        figures["equal"].append(bench.commit(submission(range(JOBS + 1, 2 * JOBS + 1), lambda _: EQUAL)))
        figures["started"].append(bench.commit(starts(range(1, JOBS + 1))))
        figures["ended"].append(bench.commit(ends(range(1, JOBS + 1))))
        bench.store.close()
    report("submit-10000-distinct", statistics.median(figures["distinct"]), "s", 0.5)
    report("submit-10000-equal", statistics.median(figures["equal"]), "s", 0.5)
    report("start-10000", statistics.median(figures["started"]), "s", 0.5)
    report("end-10000", statistics.median(figures["ended"]), "s", 0.5)


def small_groups(directory: Path) -> None:
    """One job's way: submitted, started, ended, each a group of its own."""
    bench = Bench(directory / "small.sqlite")
    times: list[float] = []
    for number in range(1, SMALL_GROUPS + 1):
        one = range(number, number + 1)
        for operations in (submission(one, lambda _: EQUAL), starts(one), ends(one)):
            times.append(bench.commit(operations))
    bench.store.close()
    ordered = sorted(times)
    report("small-group-p50", statistics.median(times) * 1_000, "ms", 3.0)
    report("small-group-p99", ordered[len(ordered) * 99 // 100] * 1_000, "ms")


def loading(directory: Path) -> None:
    """A restart with a hundred thousand pending jobs, the worst case: no two specs are equal."""
    for name, spec_of, target in (("distinct", distinct, 5.0), ("equal", lambda _: EQUAL, 5.0)):
        path = directory / f"loading-{name}.sqlite"
        bench = Bench(path)
        for first in range(1, PENDING + 1, JOBS):
            bench.commit(submission(range(first, first + JOBS), spec_of))
        bench.store.close()
        store = Store.open(path)
        before = time.perf_counter()
        loaded = store.load()
        spent = time.perf_counter() - before
        assert len(loaded.jobs) == PENDING
        report(f"load-100000-{name}", spent, "s", target)
        report(f"file-per-job-{name}", path.stat().st_size / PENDING, "bytes")
        store.close()


def array(directory: Path) -> None:
    """An array of a million tasks: what it costs to submit, and to show a page from its middle."""
    bench = Bench(directory / "array.sqlite")
    row = JobRow(1, EQUAL, "n", "default", "", "u", 0, TaskState.PENDING, 1_000_000, 1, None, 1, 1, pending=1_000_000)
    spent = bench.commit([InsertJobs([row]), PutTaskRanges(put=[TaskRangeRow(1, 0, 1_000_000, TaskState.PENDING)])])
    report("submit-array-1000000", spent * 1_000, "ms", 10.0)
    before = time.perf_counter()
    assert len(bench.store.tasks(1, after=500_000, limit=100)) == 100
    report("page-of-array-1000000", (time.perf_counter() - before) * 1_000, "ms", 10.0)
    bench.store.close()


def opening(directory: Path) -> None:
    """A store that is current, and a new one in memory for a virtual host."""
    path = directory / "opening.sqlite"
    Store.open(path).close()
    times = []
    for _ in range(20):
        before = time.perf_counter()
        Store.open(path).close()
        times.append(time.perf_counter() - before)
    report("open-current", statistics.median(times) * 1_000, "ms", 300.0)
    Store.open(MemoryDatabase()).close()
    times = []
    for _ in range(20):
        before = time.perf_counter()
        Store.open(MemoryDatabase()).close()
        times.append(time.perf_counter() - before)
    report("open-in-memory", statistics.median(times) * 1_000, "ms")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as name:
        directory = Path(name)
        for part in (blocks, small_groups, loading, array, opening):
            part(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
