"""What `hal simulate` prints with and without `--config`: tables, durations, progress bars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.metrics import Metrics
    from hal.daemons.twin.swf import Log, Workload

PLAIN_WIDTH = 132
"""Columns of a table that is not written to a terminal."""


def bars(screen: Screen) -> Progress:
    """Progress bars on standard error if it is a terminal; removed at the end."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from hal.cli.kit.tables import console_on

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console_on(screen.err),
        transient=True,
        disable=screen.quiet or not screen.err.isatty(),
    )


class BarUpdate:
    """Updates a progress bar with the number of jobs done."""

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self.progress = progress
        self.bar = bar

    def __call__(self, jobs: int) -> None:
        self.progress.update(self.bar, completed=jobs)


def plain_table(first: str, *others: str) -> Table:
    """A table without lines: a column of names, and the other columns aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def as_duration(seconds: float) -> str:
    """The two largest units: 3d 4h, 2h 05m, 7m 09s, 12s."""
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {left:02d}s"
    return f"{left}s"


def title(log: Log, jobs: Workload, machine: Machine) -> str:
    """The heading of tables and plots."""
    where = "one pool" if machine.nodes == 1 else f"{machine.nodes:,} nodes × {machine.cpus_per_node:,}"
    if machine.cluster is not None:
        where = f"{machine.nodes:,} nodes and {machine.cluster.gpus:,} GPUs of {Path(machine.cluster.name).name}"
    return f"{Path(log.name).name}: {jobs.jobs:,} jobs on {machine.procs:,} processors ({where})"


def figures_of(metrics: Metrics) -> dict[str, str]:
    """Each figure by its name in tables."""
    return {
        "bounded slowdown, mean": f"{metrics.mean_bounded_slowdown:,.2f}",
        "  median": f"{metrics.median_bounded_slowdown:,.2f}",
        "  95th percentile": f"{metrics.p95_bounded_slowdown:,.1f}",
        "  maximum": f"{metrics.max_bounded_slowdown:,.0f}",
        "wait, mean": as_duration(metrics.mean_wait_s),
        "wait, median": as_duration(metrics.median_wait_s),
        "wait, 95th percentile": as_duration(metrics.p95_wait_s),
        "wait, maximum": as_duration(metrics.max_wait_s),
        "utilisation": f"{metrics.utilisation:.1%}",
        "makespan": as_duration(metrics.makespan_s),
    }
