"""What a cycle costs when 1,000,000 jobs wait for a full cluster: 200 classes, 2,000 buckets, 200 accounts.

10,000 nodes with 8 GPUs, each GPU busy. Small classes (one node), whole nodes and gangs of up to 64 nodes. Events go
through `apply`, cycles through `cycle`; a figure is the median over cycles of one state. Beside it, in the same
process, plain Python looks once at each waiting job of a sample, as a scheduler without buckets would.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _clusters import (
    ACCOUNTS,
    GIB,
    MINUTE_MS,
    emit,
    empty_cluster,
    fill,
    jobs,
    load_kernels,
    median,
    owners,
    resident_bytes,
    run_pass,
    small_classes,
    table_bytes,
    timed,
)
from hal.core.engine import State, apply, cycle
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import END, AttemptsEnded, JobsSubmitted, PlanAssumed
from hal.core.engine.policies import register
from hal.core.engine.views import running
from hal.core.interfaces import BucketView, ClusterView, JobView, PolicyInfo

NODES = 10_000
RUNNING = 80_000
WAITING = 1_000_000
AT_ONCE = 10_000
CLASSES = 200
ACCOUNTS_OF_A_CLASS = 10
RELEASES = 41
FIRST_JOB = 1_000_000


class FairShareOffsets:
    """First come, first served within a bucket; every new pass moves every bucket, as decayed use does."""

    info = PolicyInfo("bench-offsets", "order/2")
    base: NDArray[np.int64] | None = None

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return jobs.job.copy()

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return (buckets.owner_id * 7919 + buckets.class_id * 31 + now_ms * 13) % 100_000


def waiting_classes() -> tuple[ClassSpec, ...]:
    """160 of one node, 20 of whole nodes, 20 gangs of 2 to 64 nodes."""
    whole = tuple(ClassSpec({"gpu": 8_000, "cpu": 1_000 * (40 + k), "memory": 256 * GIB}) for k in range(20))
    gangs = tuple(
        ClassSpec({"gpu": 8_000, "cpu": 32_000, "memory": (200 + k) * GIB}, nodes=2 + 3 * k) for k in range(20)
    )
    wanting = tuple(spec for spec in small_classes(400, seed=5) if spec.request["gpu"])
    return wanting[: CLASSES - 40] + whole + gangs


def full_cluster(config: EngineConfig) -> tuple[State, list[float]]:
    """A full cluster with everything waiting, and the seconds that each submission took."""
    state = empty_cluster(NODES, config)
    if fill(state, RUNNING) != RUNNING:
        raise SystemExit("the cluster did not fill")
    classes, accounts = waiting_classes(), owners()
    blocks = jobs(FIRST_JOB, WAITING, CLASSES, ACCOUNTS, buckets_of_class=ACCOUNTS_OF_A_CLASS)
    took = []
    for begin in range(0, WAITING, AT_ONCE):
        event = JobsSubmitted(blocks[begin : begin + AT_ONCE], classes, accounts)
        took.append(timed(lambda event=event: apply(state, event)))
    return state, took


def releases(state: State, count: int) -> list[Any]:
    """Attempts that end one by one, spread over the cluster, earliest planned ends among them."""
    rows = running(state)
    chosen = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
    ends = np.zeros(count, END)
    ends["job"], ends["attempt"] = chosen["job"], chosen["attempt"]
    return [AttemptsEnded(ends[k : k + 1]) for k in range(count)]


def settle(state: State, now_ms: int) -> None:
    run_pass(state, now_ms)


def quiet_cycles(state: State, now_ms: int) -> tuple[list[float], int]:
    took, started = [], 0
    for k in range(RELEASES):
        begin = time.perf_counter()
        plan = cycle(state, now_ms + k)
        took.append(time.perf_counter() - begin)
        started += len(plan.starts)
    return took, started


def release_cycles(state: State, now_ms: int) -> tuple[list[float], list[float], int]:
    """Seconds of AttemptsEnded + cycle, and of assuming what it planned; starts."""
    took, assumed, started = [], [], 0
    for k, event in enumerate(releases(state, RELEASES)):
        now = now_ms + 1_000 * k
        begin = time.perf_counter()
        apply(state, event)
        plan = cycle(state, now)
        middle = time.perf_counter()
        if plan.changes:
            apply(state, PlanAssumed(plan))
        took.append(middle - begin)
        assumed.append(time.perf_counter() - middle)
        started += len(plan.starts)
    return took, assumed, started


def plain_look(state: State) -> float:
    """Seconds of plain Python to find that nothing starts: each class of each waiting job against the free GPUs."""
    free = [(0, 0, 0)] * NODES
    classes = [(spec.request["gpu"], spec.request["cpu"], spec.request["memory"]) for spec in waiting_classes()]
    begin = time.perf_counter()
    sample = 200
    for k in range(sample):
        gpu, cpu, memory = classes[k % len(classes)]
        any(have[0] >= gpu and have[1] >= cpu and have[2] >= memory for have in free)
    return (time.perf_counter() - begin) / sample * WAITING


def main() -> int:
    load_kernels()
    register(FairShareOffsets())
    before = resident_bytes()
    state, took = full_cluster(EngineConfig())
    submit_s = sum(took)
    emit("waiting-submit-1M", submit_s, "s", 6.5, worst_block_ms=round(1e3 * max(took), 1), note="in blocks of 10,000")
    now = MINUTE_MS
    settle(state, now)
    quiet, started = quiet_cycles(state, now)
    plain_s = plain_look(state)
    emit(
        "waiting-cycle-parked", 1e3 * median(quiet), "ms", 2, starts=started,
        plain_python_ms=round(1e3 * plain_s), note="nothing happened since",
    )  # fmt: skip
    after, assumed, started = release_cycles(state, now)
    emit(
        "waiting-cycle-after-release", 1e3 * median(after), "ms", 5, worst_ms=round(1e3 * max(after), 2),
        starts=started, assume_ms=round(1e3 * median(assumed), 3), note="AttemptsEnded and cycle",
    )  # fmt: skip
    emit("waiting-engine-state", table_bytes(state) / 2**20, "MiB", 512, note="all tables, 1M wait, 80k run")
    emit("waiting-engine-process", (resident_bytes() - before) / 2**20, "MiB", 1024, note="what the process grew by")
    del state
    state, _ = full_cluster(EngineConfig(parking=False))
    settle(state, now)
    looked, started = quiet_cycles(state, now)
    emit(
        "waiting-cycle-nothing-starts", 1e3 * median(looked), "ms", 2, starts=started,
        note="parking off: every bucket is looked at again",
    )  # fmt: skip
    del state
    state, _ = full_cluster(EngineConfig(order="bench-offsets"))
    settle(state, now)
    moved, started = quiet_cycles(state, now + 1)
    emit(
        "waiting-offsets-of-every-bucket", 1e3 * median(moved), "ms", 1, starts=started,
        note="an Order's offsets for 2,000 buckets and the next cycle",
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
