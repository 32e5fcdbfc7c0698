"""Plot what policies gave to accounts over time: decayed usage against targets, the machine, waits.

Writes a file. One row of plots for each policy. An SVG of the same runs has the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from hal.daemons.twin.account_figures import Party, Used, by_account, by_user
from hal.daemons.twin.common_jobs import compare_runs
from hal.daemons.twin.plot import COLOURS, DAY_S, HOUR_S, INK, STYLE, short
from hal.daemons.twin.policy_replay import PolicyRun

FloatArray = NDArray[np.float64]

BINS = 120
"""Bins of the time axis."""
DRAWN = 8
"""Accounts with a colour of their own, those with the highest usage; the others are drawn together."""
_OTHERS = "others"
_PALETTE = (*COLOURS, "#7a5195", "#4d4d4d", "#bdbdbd")


def plot_shares(runs: Sequence[PolicyRun], title: str, path: Path) -> None:
    """Write one figure: for each run its shares over time, the machine, and mean waits.

    Args:
        path: its suffix (.svg, .png, .pdf) chooses the format.
    Raises: OSError when the file cannot be written.
    """
    parties = [_parties(run) for run in runs]
    names = _most_used(parties)
    begin = min(int(run.submit_s[0]) for run in runs)
    end = max(max(run.until_s for run in runs), begin + 1)
    edges = np.linspace(begin, end, BINS + 1)
    unit_s, unit = (DAY_S, "days") if end - begin > 3 * DAY_S else (HOUR_S, "hours")
    clock = (edges - begin) / unit_s
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12.0, 1.2 + 2.9 * len(runs)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(runs), 3, squeeze=False, width_ratios=(1.5, 1.5, 1.0))
        comparison = compare_runs(runs)
        longest = max((party.mean_wait_s or 0.0) for some in parties for party in some)
        for run, some, lacking, (shares, machine, waits) in zip(runs, parties, comparison.lacking, grid, strict=True):
            used = _used_by(run, names, edges)
            _draw_shares(shares, run, some, names, used, edges, clock)
            _draw_machine(machine, run, used, edges, clock)
            note = f"{lacking:,} jobs that started elsewhere did not" if lacking else ""
            _draw_waits(waits, some, names, longest, note or ("over more jobs" if comparison.unequal else ""))
        for axes in grid[-1][:2]:
            axes.set_xlabel(f"time since the first submit [{unit}]")
        handles = [mpl.patches.Patch(color=_PALETTE[k], label=name or "no account") for k, name in enumerate(names)]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(names), 9), frameon=False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")


def _whose(run: PolicyRun) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the accounts, or the users if no job names an account."""
    if any(run.people.accounts):
        return run.people.account, run.people.accounts
    return run.people.user, run.people.users


def _parties(run: PolicyRun) -> list[Party]:
    return by_account(run) if any(run.people.accounts) else by_user(run)


def _most_used(parties: Sequence[Sequence[Party]]) -> list[str]:
    hours: dict[str, float] = {}
    for some in parties:
        for party in some:
            hours[party.name] = hours.get(party.name, 0.0) + party.core_hours
    names = sorted(hours, key=lambda name: (-hours[name], name))
    return names if len(names) <= DRAWN + 1 else [*names[:DRAWN], _OTHERS]


def _used_by(run: PolicyRun, names: Sequence[str], edges: FloatArray) -> FloatArray:
    """Return the processor-seconds of each of `names` in each bin, exactly; shape (N, BINS)."""
    whose, table = _whose(run)
    place = {name: at for at, name in enumerate(names)}
    last = len(names) - 1
    held, procs = run.used
    of = np.array([place.get(name, last) for name in table], np.int64)[whose][held.job]
    used = np.zeros((len(names), edges.size - 1))
    for at in range(len(names)):
        legs = np.flatnonzero(of == at)
        mine = Used(held.begin_s[legs], held.end_s[legs], procs[legs])
        used[at] = np.diff(mine.by(edges))
    return used


def _draw_shares(
    axes: Axes,
    run: PolicyRun,
    parties: Sequence[Party],
    names: Sequence[str],
    used: FloatArray,
    edges: FloatArray,
    clock: FloatArray,
) -> None:
    """Draw decayed usage as fractions of its sum, as fair-share sees it, and each target as a dashed line."""
    half_life_s = max(int(run.site.policy.fairshare.half_life) / 1000.0, 1.0)
    kept = 2.0 ** (-(edges[1] - edges[0]) / half_life_s)
    decayed = np.zeros(used.shape)
    before = np.zeros(used.shape[0])
    for at in range(used.shape[1]):
        before = decayed[:, at] = before * kept + used[:, at]
    total = decayed.sum(axis=0)
    part = np.where(total > 0, decayed / np.maximum(total, 1e-9), np.nan)
    targets = {party.name: party.target for party in parties}
    for at, name in enumerate(names):
        axes.plot(clock[1:], part[at], color=_PALETTE[at])
        if name in targets:
            axes.axhline(targets[name], color=_PALETTE[at], linestyle=(0, (4, 3)), linewidth=0.9)
    axes.set_ylim(0, 1)
    axes.set_xlim(0, float(clock[-1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title(f"{run.site.label}: shares of decayed use (dashed: targets)")


def _draw_machine(axes: Axes, run: PolicyRun, used: FloatArray, edges: FloatArray, clock: FloatArray) -> None:
    """Draw who used which fraction of the machine."""
    parts = used / (np.diff(edges) * run.machine.procs)
    axes.stackplot(clock[:-1], parts, colors=_PALETTE[: len(parts)], step="post", linewidth=0)
    axes.set_ylim(0, 1)
    axes.set_xlim(0, float(clock[-1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Part of the machine")


def _draw_waits(axes: Axes, parties: Sequence[Party], names: Sequence[str], longest: float, note: str) -> None:
    """Draw the mean wait of each account that has a colour; `note`: why it is not to be compared with other runs."""
    wait = {party.name: party.mean_wait_s for party in parties}
    shown = [name for name in names if wait.get(name) is not None]
    values = [wait[name] or 0.0 for name in shown]
    colours = [_PALETTE[names.index(name)] for name in shown]
    bars = axes.barh(range(len(shown)), values, color=colours, height=0.6)
    axes.bar_label(bars, [short(round(value)) for value in values], padding=3, color=INK)
    axes.set_yticks(range(len(shown)), [name or "no account" for name in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, max(longest, 1.0) * 1.3)
    axes.set_xticks([])
    axes.grid(False)
    axes.set_title(f"Mean wait, not of the same jobs:\n{note}" if note else "Mean wait")
