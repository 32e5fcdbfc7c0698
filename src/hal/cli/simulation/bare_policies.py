"""`hal simulate --policy`: a log under bare scheduling policies, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hal.cli.kit.output_files import written_whole
from hal.cli.kit.screen import Screen
from hal.cli.simulation.compiled_kernels import note_compilation
from hal.cli.simulation.placements import add_rows, as_plain
from hal.cli.simulation.policy_names import Entry
from hal.cli.simulation.presentation import PLAIN_WIDTH, BarUpdate, bars, figures_of, plain_table, title

if TYPE_CHECKING:
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.replay import ReplayResult
    from hal.daemons.twin.swf import Log, Workload

USERS_SHOWN = 15
_OF_A_USER = {
    "bounded slowdown, mean": "slowdown",
    "  95th percentile": "p95",
    "  maximum": "max",
    "wait, mean": "mean wait",
    "wait, maximum": "max wait",
    "utilisation": "used",
}
"""Column heading by figure, for the table by user, which must fit 80 columns."""


def replay_all(
    jobs: Workload, machine: Machine, entries: Sequence[Entry], clairvoyant: bool, check: bool, screen: Screen
) -> list[tuple[ReplayResult, float]]:
    """Each policy's result with the wall time of its replay in seconds; a progress bar where somebody looks."""
    note_compilation(screen)
    from hal.daemons.twin.replay import load_kernels, replay

    load_kernels()
    results: list[tuple[ReplayResult, float]] = []
    with bars(screen) as progress:
        for entry in entries:
            bar = progress.add_task(entry.name, total=jobs.jobs)
            began = time.perf_counter()
            result = replay(
                jobs, machine, entry.name, config=entry.policy.engine, clairvoyant=clairvoyant, check=check,
                report=BarUpdate(progress, bar),
            )  # fmt: skip
            results.append((result, time.perf_counter() - began))
            progress.update(bar, completed=jobs.jobs)
    return results


def write_jobs(path: Path, results: list[tuple[ReplayResult, float]]) -> None:
    """Write `id,submit,start,end,procs` of each job, one file for each policy."""
    import numpy as np

    for result, _ in results:
        target = path if len(results) == 1 else path.with_name(f"{path.stem}-{result.policy}{path.suffix}")
        table = np.column_stack([result.id, result.submit_s, result.start_s, result.end_s, result.procs])
        with written_whole(target) as unfinished:
            np.savetxt(unfinished, table, fmt="%d", delimiter=",", header="id,submit,start,end,procs", comments="")


def as_objects(
    log: Log,
    jobs: Workload,
    machine: Machine,
    entries: Sequence[Entry],
    results: list[tuple[ReplayResult, float]],
    by_user: bool,
) -> list[dict[str, Any]]:
    """What --json prints: one object for each policy."""
    from hal.daemons.twin.named_policies import described
    from hal.daemons.twin.replay import on_levels

    printed: list[dict[str, Any]] = []
    for entry, (result, replay_s) in zip(entries, results, strict=True):
        figures = result.metrics().as_dict()
        one: dict[str, Any] = {
            "policy": result.policy,
            "decides": described(on_levels(entry.policy.engine, machine)),
            "clairvoyant": result.clairvoyant,
            "log": log.name,
            "nodes": machine.nodes,
            "cpus_per_node": machine.cpus_per_node,
            "jobs": figures.pop("jobs"),
            "skipped": sum(jobs.skipped.values()),
            "skipped_reasons": jobs.skipped,
            **figures,
            "replay_s": round(replay_s, 6),
            "cycles": result.cycles,
            **as_plain(result.gangs),
        }
        if by_user:
            one["users"] = [{"user": user, **metrics.as_dict()} for user, metrics in result.metrics_by_user().items()]
        printed.append(one)
    return printed


def print_tables(
    screen: Screen,
    log: Log,
    jobs: Workload,
    machine: Machine,
    entries: Sequence[Entry],
    results: list[tuple[ReplayResult, float]],
    by_user: bool,
) -> None:
    """Print the figures of all policies side by side, and with `by_user` those of each user."""
    from hal.cli.kit.tables import console_on
    from hal.daemons.twin.named_policies import described
    from hal.daemons.twin.replay import on_levels

    out = console_on(screen.out)
    if not out.is_terminal:
        out.width = PLAIN_WIDTH
    heading = title(log, jobs, machine)
    if results[0][0].clairvoyant:
        heading += ", clairvoyant"
    table = plain_table("", *(result.policy for result, _ in results))
    columns = [figures_of(result.metrics()) for result, _ in results]
    for figure in columns[0]:
        table.add_row(figure, *(column[figure] for column in columns))
    add_rows(table, [result.gangs for result, _ in results])
    table.add_row("jobs replayed per second", *(f"{jobs.jobs / replay_s:,.0f}" for _, replay_s in results))
    out.print(heading, style="bold", soft_wrap=True)
    out.print(table)
    for entry in entries:
        out.print(f"{entry.name}: {described(on_levels(entry.policy.engine, machine))}", style="dim", soft_wrap=True)
    if jobs.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in jobs.skipped.items())
        out.print(f"left out: {reasons}", style="dim", soft_wrap=True)
    if not by_user:
        return
    for result, _ in results:
        users = result.metrics_by_user()
        table = plain_table("user", "jobs", *_OF_A_USER.values())
        for user, metrics in list(users.items())[:USERS_SHOWN]:
            figures = figures_of(metrics)
            cells = (figures[figure] for figure in _OF_A_USER)
            table.add_row("unknown" if user < 0 else str(user), f"{metrics.jobs:,}", *cells)
        out.print(f"\n{_named(result)}, by user", style="bold", soft_wrap=True)
        out.print(table)
        if len(users) > USERS_SHOWN:
            out.print(f"the {USERS_SHOWN} users with the most usage of {len(users):,}; --json has all", style="dim")


def _named(result: ReplayResult) -> str:
    return f"{result.policy}, clairvoyant" if result.clairvoyant else result.policy
