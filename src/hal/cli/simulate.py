"""`hal simulate`: replay a workload log on the production engine and compare policies."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hal.cli.command import command, pass_screen
from hal.cli.output_files import checked_output, written_whole
from hal.cli.screen import Screen
from hal.cli.simulate_show import PLAIN_WIDTH, BarUpdate, as_duration, bars, plain_table

if TYPE_CHECKING:
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.metrics import Metrics
    from hal.daemons.twin.replay import ReplayResult
    from hal.daemons.twin.swf import Log, Workload

EXAMPLES = """
hal simulate SDSC-SP2.swf.gz --policy fcfs,easy,easy-sjbf --plot waits.svg
hal simulate log.swf --policy easy --nodes 128 --cpus-per-node 4    # gangs on nodes instead of one pool
hal simulate log.swf --policy easy --scale-arrivals 0.5 --json      # twice the load, figures for programs
hal simulate log.swf --config hal.toml --config new.toml --plot shares.svg     # what a change of policy would do
hal simulate log.swf --config hal.toml --accounts physics=1,biology=2 --until 30d
"""

BAD_LINES_SHOWN = 5
USERS_SHOWN = 15
NODES_MAX = 1_000_000
CPUS_PER_NODE_MAX = 1_000_000_000
PLOT_FORMATS = (".svg", ".png", ".pdf")


def _plot_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix not in PLOT_FORMATS:
        raise click.BadParameter(f"{path} should end in {', '.join(PLOT_FORMATS)}", ctx, param)
    return checked_output(ctx, param, path)


def _policy_names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """Names with commas between them, in the order given; doubles are dropped."""
    from hal.daemons.twin.machine import POLICIES

    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in POLICIES:
            raise click.BadParameter(f"unknown policy {name!r}; valid are {', '.join(POLICIES)}", ctx, param)
    return tuple(dict.fromkeys(names))


@command("simulate", output=True, examples=EXAMPLES)
@click.argument("log", metavar="LOG.swf[.gz]")
@click.option(
    "--policy",
    "policies",
    callback=_policy_names,
    metavar="P,…",
    default="fcfs,easy",
    show_default=True,
    help="fcfs, easy, easy-sjbf, conservative; several with commas.",
)
@click.option("--clairvoyant", is_flag=True, help="Plan with the true run times instead of the requested ones.")
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N usable jobs.")
@click.option(
    "--scale-arrivals", type=float, default=1.0, metavar="F", help="Factor on gaps between submits (0.5: 2x)."
)
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), metavar="N", help="Nodes of the machine; default: one pool."
)
@click.option(
    "--cpus-per-node", type=click.IntRange(1, CPUS_PER_NODE_MAX), metavar="C", help="Processors of each node."
)
@click.option("--by-user", is_flag=True, help="Also figures for each user.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="FILE",
    help="Replay under the policy of a hal.toml instead; several are compared side by side.",
)
@click.option(
    "--accounts",
    metavar="WHO",
    help="With --config, whose the jobs are: log, policy, a number, or NAME=PART,… (default: log, else policy).",
)
@click.option("--queue", metavar="NAME", help="With --config: all jobs in this queue.")
@click.option(
    "--seed", type=click.IntRange(0, (1 << 64) - 1), default=1, show_default=True, help="Of dealing jobs to accounts."
)
@click.option("--until", metavar="TIME", help="With --config: stop that long after the first submit (30d, 12h).")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_plot_file,
    help="Draw waits and utilisation: svg, png, pdf.",
)
@click.option(
    "--out-jobs",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    callback=checked_output,
    help="Write id,submit,start,end,procs of each job; with several policies one file each, FILE-POLICY.csv.",
)
@click.option("--check", is_flag=True, help="Verify the engine's whole state after every cycle (slow).")
@pass_screen
def simulate(
    screen: Screen,
    log: str,
    policies: tuple[str, ...],
    clairvoyant: bool,
    first: int | None,
    scale_arrivals: float,
    nodes: int | None,
    cpus_per_node: int | None,
    by_user: bool,
    configs: tuple[str, ...],
    accounts: str | None,
    queue: str | None,
    seed: int,
    until: str | None,
    plot: Path | None,
    out_jobs: Path | None,
    check: bool,
) -> None:
    """Replay a log in the Standard Workload Format on HAL's own engine, and compare policies.

    With --config the whole policy of a hal.toml holds: queues, accounts and shares, QOS, limits, the site's plugins.
    The machine's size comes from the log's header unless --nodes and --cpus-per-node are given. '-' reads standard
    input. See docs/simulate.md for the filter and the definition of every figure.
    """
    if not 0.0 < scale_arrivals < float("inf"):
        raise click.BadParameter("give a positive number", param_hint="--scale-arrivals")
    if (nodes is None) != (cpus_per_node is None):
        raise click.UsageError("--nodes and --cpus-per-node go together: give both, or neither for one pool")
    _check_together(configs, accounts, queue, until)
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.swf import LogError, read_log, usable_jobs

    _use_cache(screen)
    sites = []
    if configs:
        from hal.cli.simulate_config import read_sites

        sites = read_sites(configs)
    stdin = log == "-"
    read = read_log("standard input" if stdin else log, sys.stdin.buffer if stdin else None)
    if nodes is not None and cpus_per_node is not None:
        machine = Machine(nodes, cpus_per_node)
    elif read.machine_procs is not None:
        machine = Machine.pool(read.machine_procs)
    else:
        raise LogError(
            f"{read.name} does not say how large its machine is (no MaxProcs or MaxNodes in its header)",
            hint="give --nodes and --cpus-per-node",
        )
    jobs = usable_jobs(read, machine.procs, first=first, scale_arrivals=scale_arrivals)
    _report_bad_lines(read, screen)
    if sites:
        from hal.cli.simulate_config import Wanted, compare

        _say_compiling(screen)
        wanted = Wanted(accounts, queue, seed, until, clairvoyant, by_user, check, plot, out_jobs)
        compare(screen, read, jobs, machine, sites, wanted)
        return
    results = _replay_all(jobs, machine, policies, clairvoyant, check, screen)
    if out_jobs is not None:
        _write_jobs(out_jobs, results)
    if plot is not None:
        from hal.daemons.twin.plot import plot_replays

        with written_whole(plot) as unfinished:
            plot_replays([result for result, _ in results], title(read, jobs, machine), unfinished)
    if screen.plain:
        screen.emit(_as_objects(read, jobs, machine, results, by_user))
    else:
        _print_tables(screen, read, jobs, machine, results, by_user)


def _check_together(configs: tuple[str, ...], accounts: str | None, queue: str | None, until: str | None) -> None:
    """Raise UsageError for options that do not go together."""
    if not configs:
        for name, value in (("--accounts", accounts), ("--queue", queue), ("--until", until)):
            if value is not None:
                raise click.UsageError(f"{name} goes with --config: the plain policies replay the whole log as it is")
    elif click.get_current_context().get_parameter_source("policies") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--policy and --config exclude each other: [engine] backfill of a hal.toml says which")


def _use_cache(screen: Screen) -> None:
    """Set where compiled kernels lie, before anything of the engine is imported."""
    from hal.runtime.home import find_home
    from hal.runtime.kernel_cache import check_cache

    os.environ.setdefault("NUMBA_CACHE_DIR", str(find_home(screen.home).cache))
    check_cache(Path(os.environ["NUMBA_CACHE_DIR"]))


def _say_compiling(screen: Screen) -> None:
    """Say so when the kernels must be compiled first."""
    from hal.core.kernels.jit import kernel_source_hash, stamp_of_all
    from hal.runtime.kernel_cache import mark_used

    mark_used(stamp_of_all())
    compiled = Path(os.environ["NUMBA_CACHE_DIR"]) / f"kernels-{kernel_source_hash()}"
    if next(compiled.rglob("*.nbi"), None) is None:
        screen.note("compiling kernels… (once after an installation or an update; two or three minutes)")


def _report_bad_lines(log: Log, screen: Screen) -> None:
    if not log.bad_lines:
        return
    screen.note(f"{log.name}: {log.bad_lines:,} bad line{'s' if log.bad_lines > 1 else ''} left out")
    for line in log.bad[:BAD_LINES_SHOWN]:
        screen.note(f"  line {line.number}: {line.reason}")
    if log.bad_lines > BAD_LINES_SHOWN:
        screen.note(f"  … and {log.bad_lines - BAD_LINES_SHOWN:,} more")


def _replay_all(
    jobs: Workload, machine: Machine, policies: tuple[str, ...], clairvoyant: bool, check: bool, screen: Screen
) -> list[tuple[ReplayResult, float]]:
    """Each policy's result with the wall time of its replay in seconds; a progress bar where somebody looks."""
    _say_compiling(screen)
    from hal.daemons.twin.replay import load_kernels, replay

    load_kernels()
    results: list[tuple[ReplayResult, float]] = []
    with bars(screen) as progress:
        for policy in policies:
            bar = progress.add_task(policy, total=jobs.jobs)
            began = time.perf_counter()
            result = replay(
                jobs, machine, policy, clairvoyant=clairvoyant, check=check, report=BarUpdate(progress, bar)
            )
            results.append((result, time.perf_counter() - began))
            progress.update(bar, completed=jobs.jobs)
    return results


def title(log: Log, jobs: Workload, machine: Machine) -> str:
    where = "one pool" if machine.nodes == 1 else f"{machine.nodes:,} nodes × {machine.cpus_per_node:,}"
    return f"{Path(log.name).name}: {jobs.jobs:,} jobs on {machine.procs:,} processors ({where})"


def _write_jobs(path: Path, results: list[tuple[ReplayResult, float]]) -> None:
    import numpy as np

    for result, _ in results:
        target = path if len(results) == 1 else path.with_name(f"{path.stem}-{result.policy}{path.suffix}")
        table = np.column_stack([result.id, result.submit_s, result.start_s, result.end_s, result.procs])
        with written_whole(target) as unfinished:
            np.savetxt(unfinished, table, fmt="%d", delimiter=",", header="id,submit,start,end,procs", comments="")


def _as_objects(
    log: Log, jobs: Workload, machine: Machine, results: list[tuple[ReplayResult, float]], by_user: bool
) -> list[dict[str, Any]]:
    """What --json prints: one object for each policy."""
    printed: list[dict[str, Any]] = []
    for result, replay_s in results:
        figures = result.metrics().as_dict()
        one: dict[str, Any] = {
            "policy": result.policy,
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
        }
        if by_user:
            one["users"] = [{"user": user, **metrics.as_dict()} for user, metrics in result.metrics_by_user().items()]
        printed.append(one)
    return printed


def _print_tables(
    screen: Screen,
    log: Log,
    jobs: Workload,
    machine: Machine,
    results: list[tuple[ReplayResult, float]],
    by_user: bool,
) -> None:
    from hal.cli.tables import console_on

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
    table.add_row("jobs replayed per second", *(f"{jobs.jobs / replay_s:,.0f}" for _, replay_s in results))
    out.print(heading, style="bold", soft_wrap=True)
    out.print(table)
    if jobs.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in jobs.skipped.items())
        out.print(f"{sum(jobs.skipped.values()):,} left out: {reasons}", style="dim", soft_wrap=True)
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
            out.print(f"the {USERS_SHOWN} who used most of {len(users):,}; --json has them all", style="dim")


_OF_A_USER = {
    "bounded slowdown, mean": "slowdown",
    "  95th percentile": "p95",
    "  maximum": "max",
    "wait, mean": "mean wait",
    "wait, maximum": "max wait",
    "utilisation": "used",
}
"""Figure -> head of its column in the table by user, which must fit 80 columns."""


def figures_of(metrics: Metrics) -> dict[str, str]:
    """The figures by the names that people read."""
    return {
        "bounded slowdown, mean": f"{metrics.mean_bounded_slowdown:,.2f}",
        "  median": f"{metrics.median_bounded_slowdown:,.2f}",
        "  95th percentile": f"{metrics.p95_bounded_slowdown:,.1f}",
        "  maximum": f"{metrics.max_bounded_slowdown:,.0f}",
        "wait, mean": as_duration(metrics.mean_wait_s),
        "wait, median": as_duration(metrics.median_wait_s),
        "wait, 95th percentile": as_duration(metrics.p95_wait_s),
        "wait, maximum": as_duration(metrics.max_wait_s),
        "utilisation": f"{metrics.utilization:.1%}",
        "makespan": as_duration(metrics.makespan_s),
    }


def _named(result: ReplayResult) -> str:
    return f"{result.policy}, clairvoyant" if result.clairvoyant else result.policy
