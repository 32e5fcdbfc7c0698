"""Plot a comparison of replays: waits and utilisation over time, the distribution of waits, mean bounded slowdowns.

Writes a file. Uses matplotlib without pyplot, so no display and no global state; an SVG of the same results has the
same bytes.
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
from matplotlib.ticker import FuncFormatter, PercentFormatter
from numpy.typing import NDArray

from hal.daemons.twin.replay import ReplayResult

BINS = 120
"""Time bins of the two curves over time."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, MUTED, _GRID = "#22272e", "#6b7280", "#e5e7eb"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "svg.hashsalt": "hal",
    "svg.fonttype": "none",
}
DAY_S, HOUR_S, _MINUTE_S = 86_400, 3_600, 60
_WAIT_TICKS_S = (0, 60, 600, 3600, 6 * 3600, 86_400, 10 * 86_400, 100 * 86_400, 1000 * 86_400)
_LEAST_WAIT_S, _LEAST_SPREAD_S = 600, 3600
"""Axes reach at least so far, so that they have several ticks."""
THIN, WIDER = 1.2, 1.4
"""Width of the last curve, and by how much each before it is wider."""
AT_ONCE = "every job started at once"
_SPREAD_TICKS_S = (1, 60, 3600, 86_400, 10 * 86_400)


def plot_replays(results: Sequence[ReplayResult], title: str, path: Path) -> None:
    """Write one figure that compares replays of the same workload.

    Args:
        path: its suffix (.svg, .png, .pdf) chooses the format.
    Raises: OSError when the file cannot be written.
    """
    begin = int(min(result.submit_s.min() for result in results))
    end = int(max(result.end_s.max() for result in results))
    edges = np.linspace(begin, end, BINS + 1)
    unit_s, unit = (DAY_S, "days") if end - begin > 3 * DAY_S else (HOUR_S, "hours")
    clock = (edges - begin) / unit_s
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0, 5.6 + 0.65 * len(results)), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(2.1, 1.0))[0]
        waits, *uses = left.subplots(1 + len(results), 1, sharex=True, height_ratios=[4.0] + [1.0] * len(results))
        spread, slowdown = right.subplots(2, 1)
        widths = _widths(len(results))
        for result, use, colour, width in zip(results, uses, _colours(len(results)), widths, strict=True):
            means = _mean_waits(result, edges)
            waits.stairs(means, clock, color=colour, label=_label(result), baseline=None, lw=width)
            _spread_curve(spread, result, colour, width)
            _use_strip(use, result, edges, clock, colour)
        _dress_waits(waits)
        _dress_spread(spread)
        if all(bool((result.start_s == result.submit_s).all()) for result in results):
            for axes in (waits, spread):
                axes.text(0.5, 0.5, AT_ONCE, transform=axes.transAxes, ha="center", va="center", color=MUTED)
        _slowdown_bars(slowdown, results)
        uses[0].set_title("Utilisation")
        uses[-1].set_xlabel(f"time since the first submit [{unit}]")
        waits.set_xlim(0, float(clock[-1]))
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        waits.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(results), frameon=False, handlelength=1.2,
            columnspacing=1.4, borderaxespad=0.2,
        )  # fmt: skip
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")


def _colours(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _label(result: ReplayResult) -> str:
    return f"{result.policy} (clairvoyant)" if result.clairvoyant else result.policy


def _mean_waits(result: ReplayResult, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean wait of the jobs submitted in each bin; NaN if there were none."""
    wait_s = (result.start_s - result.submit_s).astype(np.float64)
    jobs, _ = np.histogram(result.submit_s, edges)
    total, _ = np.histogram(result.submit_s, edges, weights=wait_s)
    means: NDArray[np.float64] = np.where(jobs > 0, total / np.maximum(jobs, 1), np.nan)
    return means


def _utilisation(result: ReplayResult, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the used fraction of the machine in each bin, exactly: differences of the integral of processors in
    use."""
    at = np.concatenate([result.start_s, result.end_s])
    change = np.concatenate([result.procs, -result.procs])
    order = np.argsort(at, kind="stable")
    at, busy = at[order].astype(np.float64), np.cumsum(change[order])
    used = np.concatenate([np.zeros(1), np.cumsum(busy[:-1] * np.diff(at))])
    part: NDArray[np.float64] = np.diff(np.interp(edges, at, used)) / (np.diff(edges) * result.machine.procs)
    return part


def _use_strip(
    axes: Axes, result: ReplayResult, edges: NDArray[np.float64], clock: NDArray[np.float64], colour: str
) -> None:
    """Draw one policy's utilisation as an area, with its name and mean beside it."""
    axes.stairs(_utilisation(result, edges), clock, color=colour, fill=True, alpha=0.85)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(False)
    mean = f"{_label(result)}\n{result.metrics().utilisation:.1%}"
    axes.text(1.01, 0.5, mean, transform=axes.transAxes, va="center", color=INK)


def _widths(count: int) -> list[float]:
    """Widths of curves that lie on one another: each is drawn over a wider one, whose edges stay to be seen."""
    return [THIN + WIDER * (count - 1 - index) for index in range(count)]


def _spread_curve(axes: Axes, result: ReplayResult, colour: str, width: float) -> None:
    waits = np.sort(result.start_s - result.submit_s)
    part = np.arange(1, waits.size + 1) / waits.size
    # From no job at all on, so that a curve is seen where every job waited as long.
    axes.step(np.maximum(np.append(waits[:1], waits), 1), np.append(0.0, part), where="post", color=colour, lw=width)


def _dress_waits(axes: Axes) -> None:
    axes.set_title("Mean wait by submit time")
    axes.set_yscale("symlog", linthresh=_MINUTE_S, linscale=0.4)
    axes.set_ylim(bottom=0)
    axes.set_ylim(top=max(axes.get_ylim()[1], _LEAST_WAIT_S))
    axes.set_yticks([t for t in _WAIT_TICKS_S if t <= axes.get_ylim()[1]], minor=False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: short(seconds)))
    axes.minorticks_off()


def _dress_spread(axes: Axes) -> None:
    axes.set_title("Jobs that waited at most …")
    axes.set_xscale("log")
    axes.set_xlim(1, max(axes.get_xlim()[1], _LEAST_SPREAD_S))
    axes.set_xticks([t for t in _SPREAD_TICKS_S if t <= axes.get_xlim()[1]], minor=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: short(seconds)))
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def short(seconds: float) -> str:
    """Format a time for a label: its largest unit, three significant digits."""
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:g} s"


def _three_digits(value: float) -> str:
    """`1.25`, `87.8`, `30,600`: as many digits as say something."""
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{float(f'{value:.3g}'):,.0f}"


def _large(value: float) -> str:
    """`100`, `10k`, `1M`"""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _slowdown_bars(axes: Axes, results: Sequence[ReplayResult]) -> None:
    """Draw means on a logarithmic scale from 1, which means that nobody waited."""
    means = [result.metrics().mean_bounded_slowdown for result in results]
    places = np.arange(len(results))
    axes.set_xscale("log")
    bars = axes.barh(places, [mean - 1.0 for mean in means], left=1.0, color=_colours(len(results)), height=0.6)
    axes.bar_label(bars, [_three_digits(mean) for mean in means], padding=3, color=INK)
    axes.set_yticks(places, [_label(result) for result in results])
    axes.invert_yaxis()
    axes.set_xlim(1.0, max(10.0, max(means)) ** 1.35)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _large(x)))
    axes.minorticks_off()
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_title("Mean bounded slowdown")
