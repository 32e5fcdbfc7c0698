"""What a long-lived engine meets: ever new constraint sets, and imports in any order."""

from __future__ import annotations

import subprocess
import sys

from hal.core.engine import apply, new_state
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import JobsCancelled, JobsSubmitted, NodesChanged, NodeSpec, submit_rows


def test_four_hundred_sets_of_constraints_cost_little_memory() -> None:
    """Jobs come and go, each with a constraint that no job had before; a table that doubled each time asked for TiB."""
    state = new_state(EngineConfig())
    apply(state, NodesChanged(nodes=(NodeSpec("n1", {"cpu": 1000}),)))
    for job in range(1, 401):
        rows = submit_rows(1)
        rows["job"] = job
        kind = ClassSpec({"cpu": 2000}, 1, (Requirement("host", Match.NOT_IN, (f"x{job}",)),))
        apply(state, JobsSubmitted(rows, (kind,)))
        apply(state, JobsCancelled(rows["job"].copy()))
    assert state.nodes.allowed.nbytes < 1 << 20


def test_apply_and_cycle_are_functions_whatever_was_imported_before() -> None:
    code = (
        "import hal.core.engine.scheduler, hal.core.engine.applying, hal.core.engine.cycling\n"
        "from hal.core.engine import apply, cycle\n"
        "assert callable(apply) and callable(cycle)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
