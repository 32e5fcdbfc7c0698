"""A Gantt picture of the workflow: one lane a node, one bar an attempt, stacked where attempts ran side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from workflow import Run

COLOURS: Final = ("#cc79a7", "#009e73", "#d55e00", "#0072b2", "#e69f00")
LANE_GAP: Final = 1


def draw_gantt(runs: list[Run], targets: list[Path]) -> None:
    """Write the picture once to each target; the suffix (.svg, .png) chooses the format."""
    began_ms = min(run.start_ms for run in runs)
    jobs = list(dict.fromkeys(run.job for run in runs))
    colour = dict(zip(jobs, COLOURS, strict=False))
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    ticks: list[tuple[float, str]] = []
    base = 0
    for node in sorted({node for run in runs for node in run.nodes}):
        mine = [run for run in runs if node in run.nodes]
        rows = _stack(mine)
        height = max(rows) + 1
        for run, row in zip(mine, rows, strict=True):
            well = run.state == "succeeded"
            axes.broken_barh(
                [((run.start_ms - began_ms) / 1000, max(run.end_ms - run.start_ms, 1) / 1000)],
                (base + row + 0.08, 0.84),
                facecolor=colour[run.job],
                edgecolor="white" if well else "#202020",
                hatch=None if well else "////",
                linewidth=0.4,
            )
        ticks.append((base + height / 2, node))
        base += height + LANE_GAP
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    axes.invert_yaxis()
    axes.set_xlabel("seconds since the first start")
    axes.set_title("Who ran where and when (hatched: did not succeed)", loc="left")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(handles=[Patch(color=colour[job], label=job) for job in jobs], loc="outside right upper")
    for target in targets:
        figure.savefig(target, dpi=150)


def _stack(runs: list[Run]) -> list[int]:
    """For each run, by start, the lowest row of its node's lane that is free by then."""
    free_from_ms: list[int] = []
    rows: list[int] = []
    for run in runs:
        row = next((i for i, free_ms in enumerate(free_from_ms) if free_ms <= run.start_ms), len(free_from_ms))
        if row == len(free_from_ms):
            free_from_ms.append(0)
        free_from_ms[row] = run.end_ms
        rows.append(row)
    return rows
