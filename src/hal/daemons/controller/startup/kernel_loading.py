"""Loading the compiled kernels before the controller is ready, so that the first job does not wait for them.

Where they were never compiled for these sources, and do not run as plain Python meanwhile (`kernel_choice`), all of
them are: a minute or two, once, which is said in the log.
What the policy does not use today is compiled, too, or a change of it would wait for that one day, with jobs running.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    JobsCancelled,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    StartsRefused,
    submit_rows,
)
from hal.core.engine.plan import START, Plan, StartRows
from hal.core.engine.scheduler import Scheduler
from hal.daemons.controller.startup.kernel_choice import compiled
from hal.runtime.kernel_cache import remove_old_versions

LATER_MS = 60_000


def compile_kernels(tell: Callable[[str], None]) -> None:
    """Compile all kernels into the cache, leave a stamp there, and take away those of old versions.

    Args:
        tell: gets `compiling kernels`, which one and of how many, before each.
    """
    from hal.core.kernels.compile_all import STEPS, compile_all
    from hal.core.kernels.structures.jit import stamp_of_all

    count = itertools.count(1)
    compile_all(lambda _: tell(f"compiling kernels, {min(next(count), STEPS)} of {STEPS}"))
    with contextlib.suppress(OSError):  # a cache that cannot be written: numba has said so, and compiled in memory
        stamp_of_all().touch()
        remove_old_versions(stamp_of_all())


class _Nothing:
    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def accept(self, plan: Plan) -> None:
        self.plans.append(plan)

    def starts(self) -> StartRows:
        return np.concatenate([np.zeros(0, START), *(plan.starts for plan in self.plans)])


def warm(config: EngineConfig, tell: Callable[[str], None]) -> None:
    """Load the kernels, compiling them where they never were; send a few events of every common kind through an engine.

    Args:
        tell: gets `loading kernels`, which one and of how many, before each of the large ones.
    """
    from hal.core.engine.rules.configuration import new_state
    from hal.core.engine.why.explain import explain
    from hal.core.kernels.compile_all import SHARES

    count = itertools.count(1)
    # One of the two kernels that plan is left out: the policy uses the other.
    total = sum(map(len, SHARES)) - 1
    if not compiled():
        compile_kernels(tell)
    sink = _Nothing()
    state = new_state(config, on_compile=lambda _: tell(f"loading kernels, {min(next(count), total)} of {total}"))
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged(nodes=(NodeSpec("a", {"cpu": 1000}), NodeSpec("b", {"cpu": 1000}))))
    classes = (ClassSpec({"cpu": 1000}), ClassSpec({"cpu": 1000}, nodes=2))
    rows = submit_rows(4)
    rows["job"] = np.arange(1, 5)
    rows["tasks"] = (3, 1, 1, 1)
    rows["class_index"] = (0, 1, 0, 0)
    rows["walltime_ms"] = 1_000
    rows["eligible_ms"] = (0, 0, 0, LATER_MS)
    scheduler.feed(JobsSubmitted(rows, classes))
    scheduler.run(0)
    explain(scheduler.state, 2, 0)
    refused = sink.starts()[:1]
    scheduler.feed(StartsRefused(refused))
    scheduler.run(1)
    # Plugins say who starts, and where: perhaps the gang alone, perhaps nothing.
    running = sink.starts()[refused.size :][:1]
    ends = np.zeros(running.size, END)
    for field in ("job", "task", "attempt"):
        ends[field] = running[field]
    ends["requeue"] = 1
    scheduler.feed(AttemptsEnded(ends))
    scheduler.feed(JobsCancelled(np.array([3]), np.array([0]), np.array([1])))
    scheduler.run(LATER_MS)
