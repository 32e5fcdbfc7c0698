"""What a controller needs to come back when many jobs wait: the store's rows, the table of jobs, the engine's state.

JOBS single jobs of 200 classes and 200 accounts, each with a walltime of its own, in a SQLite file that another process
filled. Timed are `Store.load`, the plane's `load` and `apply` of the events that it gives, as a controller calls them;
memory is what the process holds afterwards, Python, libraries and kernels included.

    python benchmarks/engine_reload.py             1,000,000 jobs; a minute to fill the store
    python benchmarks/engine_reload.py 100000
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _clusters import emit, load_kernels, resident_bytes
from hal.core.engine import apply, new_state
from hal.core.engine.config import EngineConfig
from hal.core.model import Duration, EventKind, JobSpec, Resources, TaskState, check_spec
from hal.core.model.policy import Policy
from hal.planes.tasks.table import restart
from hal.planes.tasks.table.table import JobTable
from hal.store import AppendEvents, Group, InsertJobs, JobRow, NewEvent, Operation, PutTaskRanges, Store, TaskRangeRow

JOBS = 1_000_000
AT_ONCE = 10_000
FILL = "--fill"
MIB = 2**20


def main() -> int:
    if sys.argv[1:2] == [FILL]:
        fill(Path(sys.argv[2]), int(sys.argv[3]))
        return 0
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    load_kernels()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "hal.db"
        subprocess.run([sys.executable, __file__, FILL, str(path), str(jobs)], check=True)
        measure(Store.open(path), jobs)
    return 0


def measure(store: Store, jobs: int) -> None:
    """Load what is in the store."""
    state = new_state()
    gc.disable()
    marks = [_mark()]
    loaded = store.load(in_columns=True)
    marks.append(_mark())
    table = JobTable(Policy(), EngineConfig(order="priority"))
    events = restart.load(table, loaded)
    del loaded
    marks.append(_mark())
    for event in events:
        apply(state, event)
    marks.append(_mark())
    events.clear()
    del event
    resident = resident_bytes()
    gc.enable()
    if not state.pending_tasks == len(table.jobs) == jobs:
        raise SystemExit(f"{state.pending_tasks} tasks and {len(table.jobs)} jobs wait after loading {jobs}")
    (begun, cpu, _), (ended, cpu_then, engine) = marks[0], marks[-1]
    parts = {
        f"{part}_s": round(after[0] - before[0], 2)
        for part, before, after in zip(("store", "plane", "engine"), marks, marks[1:], strict=False)
    }
    name = "reload-1M" if jobs == JOBS else f"reload-{jobs}"
    full = jobs == JOBS
    emit(name, ended - begun, "s", 10 if full else None, cpu_s=round(cpu_then - cpu, 2), **parts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    emit(
        f"{name}-memory", resident / MIB, "MiB", 1024 if full else None, at_first=round(marks[0][2] / MIB),
        peak=round(peak), note="the whole process: Python, kernels, table of jobs, engine",
    )  # fmt: skip
    emit(f"{name}-state", (engine - marks[-2][2]) / MIB, "MiB", 512 if full else None, note="what the engine added")


def _mark() -> tuple[float, float, int]:
    return time.perf_counter(), time.process_time(), resident_bytes()


def fill(path: Path, jobs: int) -> None:
    """Jobs as REST submits them, 10,000 in a group."""
    store = Store.open(path)
    epoch = store.take_leadership("bench", 1)
    for begin in range(1, jobs + 1, AT_ONCE):
        rows = [_row(job) for job in range(begin, min(begin + AT_ONCE, jobs + 1))]
        operations: list[Operation] = [
            InsertJobs(rows),
            PutTaskRanges(put=[TaskRangeRow(row.id, 0, 1, TaskState.PENDING) for row in rows]),
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
