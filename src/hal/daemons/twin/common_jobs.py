"""Whether several runs of one workload may be compared: the jobs that started in all of them, and what each lacks.

Pure. Waits and slowdowns are of jobs that started. A policy that never starts the largest ones has the better means, so
means over different jobs say nothing about which policy is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hal.daemons.twin.account_figures import figures_among
from hal.daemons.twin.metrics import Metrics
from hal.daemons.twin.policy_replay import PolicyRun


@dataclass(frozen=True, slots=True)
class Comparison:
    """What several runs have in common.

    lacking: for each run, the jobs that started in another one and not in it. started_in_all: how many jobs did.
    figures: for each run, its figures over the jobs that started in all runs; None where there is no such job.
    """

    lacking: tuple[int, ...]
    started_in_all: int
    figures: tuple[Metrics | None, ...]

    @property
    def unequal(self) -> bool:
        """Whether the runs' own figures are over different jobs."""
        return any(self.lacking)


def compare_runs(runs: Sequence[PolicyRun]) -> Comparison:
    """Compare runs of the same workload; at least one."""
    started: list[NDArray[np.bool_]] = [run.started for run in runs]
    everywhere = np.logical_and.reduce(started)
    anywhere = np.logical_or.reduce(started)
    return Comparison(
        lacking=tuple(int((anywhere & ~mine).sum()) for mine in started),
        started_in_all=int(everywhere.sum()),
        figures=tuple(figures_among(run, everywhere) for run in runs),
    )
