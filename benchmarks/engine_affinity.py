"""What affinity costs when work comes and goes: 500 nodes, 2,000 running jobs that are apart from those of their label.

Timed, with 0 (no terms) to 2,000 different labels: the submission of one more job, the end of one, and the pass then.
"""

from __future__ import annotations

import sys

import numpy as np

from _clusters import MINUTE_MS, emit, empty_cluster, load_kernels, median, run_pass, timed
from hal.core.engine import State, apply
from hal.core.engine.classes import NODE, ClassSpec, OwnerSpec, Term
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import END, AttemptsEnded, JobsSubmitted, submit_rows
from hal.core.engine.views import running

NODES = 500
RUNNING = 2_000
LABELS = (0, 100, 1_000, 2_000)
ROUNDS = 50
TURN_MS = 5.0
"""A turn of the controller's loop."""
WALLTIME_MS = 60 * MINUTE_MS


def main() -> int:
    load_kernels()
    for labels in LABELS:
        measure(labels)
    return 0


def spec(number: int, labels: int) -> ClassSpec:
    if not labels:
        return ClassSpec({"cpu": 1000})
    label = f"ann app=a{number % labels}"
    return ClassSpec({"cpu": 1000}, labels=(label,), apart=(Term(label, NODE),))


def submit(state: State, numbers: range, labels: int) -> None:
    rows = submit_rows(len(numbers))
    rows["job"] = np.arange(numbers.start, numbers.stop) + 1
    rows["walltime_ms"] = WALLTIME_MS
    specs = tuple(spec(number, labels) for number in numbers)
    rows["class_index"] = np.arange(len(numbers))
    apply(state, JobsSubmitted(rows, specs, (OwnerSpec(),)))


def measure(labels: int) -> None:
    state = empty_cluster(NODES, EngineConfig())
    submit(state, range(RUNNING), labels)
    run_pass(state, MINUTE_MS)
    ends: list[float] = []
    passes: list[float] = []
    submissions: list[float] = []
    for at in range(ROUNDS):
        run = running(state)[at]
        ended = np.zeros(1, END)
        for name in ended.dtype.names or ():
            if name in run.dtype.names:
                ended[name] = run[name]
        more = range(RUNNING + at, RUNNING + at + 1)
        submissions.append(timed(lambda more=more: submit(state, more, labels)))  # type: ignore[misc]
        event = AttemptsEnded(ended)
        ends.append(timed(lambda event=event: apply(state, event)))  # type: ignore[misc]
        passes.append(timed(lambda at=at: run_pass(state, MINUTE_MS + at + 1)))  # type: ignore[misc]
    emit(
        f"affinity-{labels}-labels", 1e3 * median(ends), "ms", TURN_MS, pass_ms=round(1e3 * median(passes), 3),
        submission_ms=round(1e3 * median(submissions), 3), nodes=NODES, running=RUNNING,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
