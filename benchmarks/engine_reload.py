"""What a controller needs to come back when many jobs wait: the store's rows, the table of jobs, the engine's state.

JOBS single jobs of 200 classes and 200 accounts, each with a walltime of its own, in a SQLite file. Timed are
`Store.load`, the plane's `load` and `apply` of the events that it gives; memory is what the process grew by.
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from _clusters import emit, load_kernels, resident_bytes
from hal.core.engine import State, apply
from hal.core.engine.config import EngineConfig
from hal.core.model import Duration, EventKind, JobSpec, Resources, TaskState, check_spec
from hal.core.model.policy import Policy
from hal.planes.tasks import loading
from hal.planes.tasks.table import JobTable
from hal.store import AppendEvents, Group, InsertJobs, JobRow, NewEvent, Operation, PutSpans, Span, Store

JOBS = 100_000
ALL = 1_000_000
AT_ONCE = 10_000


def main() -> int:
    load_kernels()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "hal.db"
        fill(path)
        store = Store.open(path)
        State()
        before = resident_bytes()
        times = [time.perf_counter()]
        loaded = store.load()
        times.append(time.perf_counter())
        table = JobTable(Policy(), EngineConfig(order="priority"))
        events = loading.load(table, loaded)
        times.append(time.perf_counter())
        state = State()
        for event in events:
            apply(state, event)
        times.append(time.perf_counter())
        del loaded, events
        if state.pending_tasks != JOBS:
            raise SystemExit(f"{state.pending_tasks} tasks wait after loading {JOBS}")
        grown = resident_bytes() - before
    parts = [after - begun for begun, after in pairwise(times)]
    scale = ALL / JOBS
    emit(
        "reload-1M", scale * (times[-1] - times[0]), "s", 10, store_s=round(scale * parts[0], 2),
        plane_s=round(scale * parts[1], 2), engine_s=round(scale * parts[2], 2),
        note=f"ten times what {JOBS:,} jobs take",
    )  # fmt: skip
    emit("reload-1M-memory", scale * grown / 2**20, "MiB", 1024, note="table of jobs and engine, scaled likewise")
    return 0


def fill(path: Path) -> None:
    """Jobs as REST submits them, 10,000 in a group."""
    store = Store.open(path)
    epoch = store.take_leadership("bench", 1)
    for begin in range(1, JOBS + 1, AT_ONCE):
        rows = [_row(job) for job in range(begin, begin + AT_ONCE)]
        operations: list[Operation] = [
            InsertJobs(rows),
            PutSpans(put=[Span(row.id, 0, 1, TaskState.PENDING) for row in rows]),
            AppendEvents([NewEvent(at_ms=1_000, kind=EventKind.JOBS_SUBMITTED, jobs=[row.id for row in rows])]),
        ]
        store.commit(Group(f"g{begin}", 1_000 + begin, operations), epoch=epoch)
    store.close()


def _row(job: int) -> JobRow:
    walltime_ms = 60_000 + 17 * job
    return JobRow(
        job, _spec(job, walltime_ms), "n", "default", f"a{job % 200:03d}", f"u{job % 200:03d}", 0, TaskState.PENDING,
        1, 1, walltime_ms, 1_000, 1_000, pending=1,
    )  # fmt: skip


def _spec(job: int, walltime_ms: int) -> JobSpec:
    request = Resources({"cpu": 1_000 + 10 * (job % 200)})
    return check_spec(
        JobSpec(command=("true",), request=request, walltime=Duration(walltime_ms), account=f"a{job % 200:03d}")
    )


if __name__ == "__main__":
    sys.exit(main())
