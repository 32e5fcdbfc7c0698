"""Draws a comparison of replays: waits and utilisation over time, how waits are spread, mean bounded slowdowns.

Shell (writes a file). Uses matplotlib without pyplot, so no display and no global state; an SVG of the same results
has the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from hal.daemons.twin.replay import ReplayResult

BINS = 120
"""Time bins of the two curves over time."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_INK, _MUTED, _GRID = "#22272e", "#6b7280", "#e5e7eb"
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": _INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "svg.hashsalt": "hal",
    "svg.fonttype": "none",
}
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


def plot_replays(results: Sequence[ReplayResult], title: str, path: Path) -> None:
    """Write one figure that compares replays of the same workload.

    Args:
        path: its suffix (.svg, .png, .pdf) chooses the format.
    Raises: OSError when the file cannot be written.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 6.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplot_mosaic([["waits", "spread"], ["use", "slowdown"]], width_ratios=(2.2, 1.0))
        begin = int(min(result.submit_s.min() for result in results))
        end = int(max(result.end_s.max() for result in results))
        edges = np.linspace(begin, end, BINS + 1)
        unit_s, unit = (_DAY_S, "days") if end - begin > 3 * _DAY_S else (_HOUR_S, "hours")
        clock = (edges - begin) / unit_s
        for result, colour in zip(results, _colours(len(results)), strict=True):
            label = _label(result)
            grid["waits"].stairs(_mean_waits(result, edges), clock, color=colour, label=label, baseline=None, lw=1.5)
            grid["use"].stairs(_utilisation(result, edges), clock, color=colour, baseline=None, lw=1.5)
            waits = np.sort(result.start_s - result.submit_s)
            part = np.arange(1, waits.size + 1) / waits.size
            grid["spread"].step(np.maximum(waits, 1), part, where="post", color=colour)
        _dress(grid, f"time since the first submit [{unit}]", float(clock[-1]))
        _slowdown_bars(grid["slowdown"], results)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        figure.legend(
            *grid["waits"].get_legend_handles_labels(), loc="outside upper right", ncols=len(results), frameon=False
        )
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")


def _colours(count: int) -> list[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(count)]


def _label(result: ReplayResult) -> str:
    return f"{result.policy} (clairvoyant)" if result.clairvoyant else result.policy


def _mean_waits(result: ReplayResult, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean wait of the jobs submitted in each bin; NaN where none was."""
    wait_s = (result.start_s - result.submit_s).astype(np.float64)
    jobs, _ = np.histogram(result.submit_s, edges)
    total, _ = np.histogram(result.submit_s, edges, weights=wait_s)
    means: NDArray[np.float64] = np.where(jobs > 0, total / np.maximum(jobs, 1), np.nan)
    return means


def _utilisation(result: ReplayResult, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Used part of the machine in each bin, exactly: differences of the integral of processors in use."""
    at = np.concatenate([result.start_s, result.end_s])
    change = np.concatenate([result.procs, -result.procs])
    order = np.argsort(at, kind="stable")
    at, busy = at[order].astype(np.float64), np.cumsum(change[order])
    used = np.concatenate([np.zeros(1), np.cumsum(busy[:-1] * np.diff(at))])
    part: NDArray[np.float64] = np.diff(np.interp(edges, at, used)) / (np.diff(edges) * result.machine.procs)
    return part


def _dress(grid: dict[str, Axes], time_label: str, last: float) -> None:
    duration = FuncFormatter(lambda seconds, _: _short(seconds))
    waits, use, spread = grid["waits"], grid["use"], grid["spread"]
    waits.set_title("Mean wait of the jobs submitted at that time")
    waits.set_yscale("symlog", linthresh=_MINUTE_S, linscale=0.4)
    waits.set_ylim(bottom=0)
    waits.set_yticks([t for t in _TICKS_S if t <= max(waits.get_ylim()[1], _MINUTE_S)], minor=False)
    waits.yaxis.set_major_formatter(duration)
    waits.minorticks_off()
    use.set_title("Utilisation")
    use.set_ylim(0, 1.02)
    use.yaxis.set_major_formatter(PercentFormatter(1.0))
    use.set_xlabel(time_label)
    for axes in (waits, use):
        axes.set_xlim(0, last)
    spread.set_title("Jobs that waited at most …")
    spread.set_xscale("log")
    spread.set_xlim(left=1)
    spread.set_xticks([t for t in (1, 60, 3600, 86_400, 864_000) if t <= spread.get_xlim()[1]], minor=False)
    spread.xaxis.set_major_formatter(duration)
    spread.minorticks_off()
    spread.set_ylim(0, 1.02)
    spread.yaxis.set_major_formatter(PercentFormatter(1.0))


_TICKS_S = (0, 60, 600, 3600, 6 * 3600, 86_400, 10 * 86_400, 100 * 86_400)


def _short(seconds: float) -> str:
    for size, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _slowdown_bars(axes: Axes, results: Sequence[ReplayResult]) -> None:
    means = [result.metrics().mean_bounded_slowdown for result in results]
    places = np.arange(len(results))
    bars = axes.barh(places, means, color=_colours(len(results)), height=0.6)
    axes.bar_label(bars, [f"{mean:,.1f}" for mean in means], padding=3, color=_INK)
    axes.set_yticks(places, [_label(result) for result in results])
    axes.invert_yaxis()
    axes.set_xlim(0, max(means) * 1.22)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=_INK)
    axes.set_title("Mean bounded slowdown")
