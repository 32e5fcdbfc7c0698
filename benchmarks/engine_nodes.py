"""How the cost of the engine grows: with nodes up to 50,000 (no faster than linearly), with waiting jobs (not at all).

A full cluster of 8-GPU nodes, each GPU busy; one attempt ends, and the pass that follows is timed with its event.
Beside it what a scored placement costs on an empty cluster of as many nodes. Draws docs/img/engine-growth.svg.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

import engine_waiting
from _clusters import (
    ACCOUNTS,
    MINUTE_MS,
    emit,
    empty_cluster,
    fill,
    jobs,
    load_kernels,
    median,
    owners,
    run_pass,
    small_classes,
)
from hal.core.engine import State, apply
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import JobsSubmitted

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "img" / "engine-growth.svg"
NODES = (3_125, 6_250, 12_500, 25_000, 50_000)
WAITING = (10_000, 100_000, 1_000_000)
JOBS_BESIDE_NODES = 100_000
NODES_BESIDE_JOBS = 10_000
PLACED = 20_000
FASTEST_GROWTH = 1.1
"""Exponent of the nodes that still counts as linear: medians of a shared machine scatter."""
JOBS_GROWTH = 1.5
"""A cycle with 100 times as many waiting jobs may cost so many times as much: memory is larger than caches."""


def main() -> int:
    load_kernels()
    by_nodes = [after_release(nodes, JOBS_BESIDE_NODES) for nodes in NODES]
    by_jobs = [after_release(NODES_BESIDE_JOBS, waiting) for waiting in WAITING]
    placed = [placement(nodes) for nodes in NODES]
    emit(
        "growth-cycle-with-nodes", exponent(NODES, by_nodes), "exponent", FASTEST_GROWTH,
        **{f"ms_{nodes}": round(1e3 * took, 3) for nodes, took in zip(NODES, by_nodes, strict=True)},
    )  # fmt: skip
    emit(
        "growth-cycle-with-jobs", by_jobs[-1] / by_jobs[0], "x at 100x jobs", JOBS_GROWTH,
        **{f"ms_{count}": round(1e3 * took, 3) for count, took in zip(WAITING, by_jobs, strict=True)},
    )  # fmt: skip
    emit(
        "growth-placement-with-nodes", exponent(NODES, placed), "exponent", FASTEST_GROWTH,
        **{f"us_{nodes}": round(1e6 * took, 2) for nodes, took in zip(NODES, placed, strict=True)},
    )  # fmt: skip
    draw(by_nodes, by_jobs, placed)
    return 0


def after_release(nodes: int, waiting: int) -> float:
    """Median seconds of AttemptsEnded and the cycle that follows."""
    state = empty_cluster(nodes, EngineConfig())
    fill(state, 8 * nodes)
    block = jobs(
        engine_waiting.FIRST_JOB, waiting, engine_waiting.CLASSES, ACCOUNTS,
        buckets_of_class=engine_waiting.ACCOUNTS_OF_A_CLASS,
    )  # fmt: skip
    apply(state, JobsSubmitted(block, engine_waiting.waiting_classes(), owners()))
    run_pass(state, MINUTE_MS)
    took, _assumed, _started = engine_waiting.release_cycles(state, MINUTE_MS)
    return median(took)


def placement(nodes: int) -> float:
    """Seconds of one scored placement, assumed, in 50 classes."""
    classes = small_classes(50)
    took = []
    for _ in range(3):
        state: State = empty_cluster(nodes, EngineConfig(placement="best-fit"))
        apply(state, JobsSubmitted(jobs(1, PLACED, len(classes), ACCOUNTS), classes, owners()))
        began = time.perf_counter()
        started = run_pass(state, 0)
        took.append((time.perf_counter() - began) / started)
    return median(took)


def exponent(sizes: tuple[int, ...], costs: list[float]) -> float:
    """The slope of log cost over log size, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def draw(by_nodes: list[float], by_jobs: list[float], placed: list[float]) -> None:
    """Three curves on logarithmic axes, the first and last with the line of proportional growth."""
    style = {"font.size": 9.0, "svg.hashsalt": "hal", "svg.fonttype": "none", "axes.spines.top": False}
    with mpl.rc_context(style | {"axes.spines.right": False, "axes.titlesize": 9.0, "axes.titlelocation": "left"}):
        figure = Figure(figsize=(10.5, 3.1), layout="constrained")
        FigureCanvasAgg(figure)
        left, middle, right = figure.subplots(1, 3)
        _curve(left, NODES, [1e3 * took for took in by_nodes], "an attempt ended, next cycle (ms)", "nodes", True)
        _curve(
            middle, WAITING, [1e3 * took for took in by_jobs], "the same on 10,000 nodes (ms)", "waiting jobs", False
        )
        _curve(right, NODES, [1e6 * took for took in placed], "a scored placement (µs)", "nodes", True)
        figure.savefig(PICTURE, metadata={"Date": None})


def _curve(axes: Axes, sizes: tuple[int, ...], costs: list[float], title: str, label: str, line: bool) -> None:
    axes.loglog(sizes, costs, marker="o", color="#0072b2")
    if line:
        axes.loglog(sizes, [costs[0] * size / sizes[0] for size in sizes], "--", color="#6b7280", linewidth=0.8)
    axes.set_title(title)
    axes.set_xlabel(label)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=7)
    axes.minorticks_off()
    axes.set_ylim(bottom=min(costs) / 3, top=3 * max(costs))
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:g}"))
    axes.grid(True, color="#e5e7eb")
    if line:
        axes.text(sizes[0], max(costs) * 1.6, "dashed: proportional growth", color="#6b7280", fontsize=7)


if __name__ == "__main__":
    sys.exit(main())
