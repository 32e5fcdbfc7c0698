"""`hal simulate`: replay a workload log on the production engine and compare policies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.metrics import Metrics
    from hal.daemons.twin.replay import ReplayResult
    from hal.daemons.twin.swf import Log, Workload

EXIT_BAD_INPUT = 2
BAD_LINES_SHOWN = 5
USERS_SHOWN = 15
PLAIN_WIDTH = 132
"""Columns of a table that is not written to a terminal."""


def bad_input(message: str) -> click.ClickException:
    """The error to raise for input that cannot be used: one line on stderr, exit code 2."""
    error = click.ClickException(message)
    error.exit_code = EXIT_BAD_INPUT
    return error


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Hand out a temporary path beside `path`; it takes the name `path` only when all went well.

    Raises: the error of `bad_input` when the file cannot be written; then `path` is as it was.
    """
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        raise bad_input(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


class PolicyList(click.ParamType):
    """Names of policies with commas between them; doubles are dropped."""

    name = "policy,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names as a tuple, in the order given."""
        if isinstance(value, tuple):
            return value
        from hal.daemons.twin.machine import POLICIES

        names = [name.strip() for name in str(value).split(",")]
        for name in names:
            if name not in POLICIES:
                self.fail(f"unknown policy {name!r}; valid are: {', '.join(POLICIES)}", param, ctx)
        return tuple(dict.fromkeys(names))


@click.command()
@click.argument("log", metavar="LOG.swf[.gz]")
@click.option(
    "--policy",
    "policies",
    type=PolicyList(),
    default="fcfs,easy",
    show_default=True,
    help="fcfs, easy, easy-sjbf, conservative; several with commas.",
)
@click.option("--clairvoyant", is_flag=True, help="Plan with the true run times instead of the requested ones.")
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N usable jobs.")
@click.option(
    "--scale-arrivals", type=float, default=1.0, metavar="F", help="Factor on gaps between submits (0.5: 2x)."
)
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Nodes of the machine; default: one pool.")
@click.option("--cpus-per-node", type=click.IntRange(min=1), metavar="C", help="Processors of each node.")
@click.option("--by-user", is_flag=True, help="Also figures for each user.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object for each policy.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw waits and utilisation: svg, png, pdf."
)
@click.option(
    "--out-jobs",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Write id,submit,start,end,procs of each job; with several policies one file each, FILE-POLICY.csv.",
)
@click.option("--check", is_flag=True, help="Verify the engine's whole state after every cycle (slow).")
def simulate(
    log: str,
    policies: tuple[str, ...],
    clairvoyant: bool,
    first: int | None,
    scale_arrivals: float,
    nodes: int | None,
    cpus_per_node: int | None,
    by_user: bool,
    as_json: bool,
    plot: Path | None,
    out_jobs: Path | None,
    check: bool,
) -> None:
    """Replay a log in the Standard Workload Format on HAL's own engine, and compare policies.

    The machine's size comes from the log's header unless --nodes and --cpus-per-node are given. '-' reads standard
    input. See docs/simulate.md for the filter and the definition of every figure.

    \b
    Example:
      hal simulate SDSC-SP2.swf.gz --policy fcfs,easy,easy-sjbf --plot waits.svg
    """
    if not 0.0 < scale_arrivals < float("inf"):
        raise click.BadParameter("give a positive number", param_hint="--scale-arrivals")
    if (nodes is None) != (cpus_per_node is None):
        raise click.UsageError("--nodes and --cpus-per-node go together: give both, or neither for one pool")
    _check_outputs(plot, out_jobs)

    from rich.console import Console

    from hal.core.model.errors import SpecError
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.swf import LogError, read_log, usable_jobs

    notes = Console(stderr=True, highlight=False)
    try:
        stream = click.get_binary_stream("stdin") if log == "-" else None
        read = read_log("standard input" if log == "-" else log, stream)
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
    except SpecError as error:
        raise bad_input(str(error)) from None
    _report_bad_lines(read, notes)
    results = _replay_all(jobs, machine, policies, clairvoyant, check, notes)
    if out_jobs is not None:
        _write_jobs(out_jobs, results)
    if plot is not None:
        from hal.daemons.twin.plot import plot_replays

        with written_whole(plot) as unfinished:
            plot_replays([result for result, _ in results], _title(read, jobs, machine), unfinished)
    if as_json:
        _print_json(read, jobs, machine, results, by_user)
    else:
        _print_tables(read, jobs, machine, results, by_user)


def _check_outputs(plot: Path | None, out_jobs: Path | None) -> None:
    """Refuse before the work what would fail after it."""
    if plot is not None and plot.suffix not in (".svg", ".png", ".pdf"):
        raise click.BadParameter(f"{plot} should end in .svg, .png or .pdf", param_hint="--plot")
    for option, path in (("--plot", plot), ("--out-jobs", out_jobs)):
        if path is None:
            continue
        if path.is_dir():
            raise click.BadParameter(f"{path} is a directory", param_hint=option)
        if not path.parent.is_dir():
            raise click.BadParameter(f"there is no directory {path.parent}", param_hint=option)


def _load_kernels(notes: Console) -> None:
    """Load the engine's kernels before anything is timed; say so when they must be compiled first."""
    if "HAL_CACHE" in os.environ:
        os.environ.setdefault("NUMBA_CACHE_DIR", os.environ["HAL_CACHE"])
    from numba import config

    from hal.core.kernels import jit

    assert jit.kernel_source_hash() in config.CACHE_DIR
    if next(Path(config.CACHE_DIR).rglob("*.nbi"), None) is None:
        notes.print("compiling kernels… (once after an installation or update; about half a minute)")
    from hal.daemons.twin.replay import load_kernels

    load_kernels()


def _report_bad_lines(log: Log, notes: Console) -> None:
    if not log.bad_lines:
        return
    notes.print(f"{log.name}: {log.bad_lines} bad line{'s' if log.bad_lines > 1 else ''} left out", style="yellow")
    for line in log.bad[:BAD_LINES_SHOWN]:
        notes.print(f"  line {line.number}: {line.reason}", markup=False)
    if log.bad_lines > BAD_LINES_SHOWN:
        notes.print(f"  … and {log.bad_lines - BAD_LINES_SHOWN} more")


def _replay_all(
    jobs: Workload, machine: Machine, policies: tuple[str, ...], clairvoyant: bool, check: bool, notes: Console
) -> list[tuple[ReplayResult, float]]:
    """Each policy's result with the wall time of its replay in seconds; a progress bar where there is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    _load_kernels(notes)
    from hal.daemons.twin.replay import replay

    results: list[tuple[ReplayResult, float]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=notes, transient=True, disable=not notes.is_terminal
    ) as progress:
        for policy in policies:
            bar = progress.add_task(policy, total=jobs.jobs)
            began = time.perf_counter()
            result = replay(
                jobs,
                machine,
                policy,
                clairvoyant=clairvoyant,
                check=check,
                report=lambda arrived, bar=bar: progress.update(bar, completed=arrived),
            )
            results.append((result, time.perf_counter() - began))
            progress.update(bar, completed=jobs.jobs)
    return results


def _title(log: Log, jobs: Workload, machine: Machine) -> str:
    where = "one pool" if machine.nodes == 1 else f"{machine.nodes:,} nodes × {machine.cpus_per_node:,}"
    return f"{Path(log.name).name}: {jobs.jobs:,} jobs on {machine.procs:,} processors ({where})"


def _write_jobs(path: Path, results: list[tuple[ReplayResult, float]]) -> None:
    import numpy as np

    for result, _ in results:
        target = path if len(results) == 1 else path.with_name(f"{path.stem}-{result.policy}{path.suffix}")
        table = np.column_stack([result.id, result.submit_s, result.start_s, result.end_s, result.procs])
        with written_whole(target) as unfinished:
            np.savetxt(unfinished, table, fmt="%d", delimiter=",", header="id,submit,start,end,procs", comments="")


def _print_json(
    log: Log, jobs: Workload, machine: Machine, results: list[tuple[ReplayResult, float]], by_user: bool
) -> None:
    import msgspec

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
    click.echo(msgspec.json.format(msgspec.json.encode(printed), indent=2).decode())


def _print_tables(
    log: Log, jobs: Workload, machine: Machine, results: list[tuple[ReplayResult, float]], by_user: bool
) -> None:
    from rich.console import Console
    from rich.table import Table

    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=PLAIN_WIDTH)
    table = Table(title=_title(log, jobs, machine), title_justify="left", title_style="bold", caption_justify="left")
    table.add_column("policy", no_wrap=True)
    for column in _FIGURES:
        table.add_column(column, justify="right")
    table.add_column("jobs/s", justify="right")
    for result, replay_s in results:
        table.add_row(_named(result), *_figures(result.metrics()), f"{jobs.jobs / replay_s:,.0f}")
    if jobs.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in jobs.skipped.items())
        table.caption = f"{sum(jobs.skipped.values()):,} lines left out: {reasons}"
    out.print(table)
    if not by_user:
        return
    for result, _ in results:
        users = result.metrics_by_user()
        table = Table(title=f"{_named(result)}, by user", title_justify="left", title_style="bold")
        table.add_column("user", justify="right")
        table.add_column("jobs", justify="right")
        for column in _FIGURES:
            table.add_column(column, justify="right")
        for user, metrics in list(users.items())[:USERS_SHOWN]:
            table.add_row("unknown" if user < 0 else str(user), f"{metrics.jobs:,}", *_figures(metrics))
        if len(users) > USERS_SHOWN:
            table.caption = f"the {USERS_SHOWN} who used most of {len(users):,}; --json has them all"
        out.print(table)


_FIGURES = (
    "mean slowdown",
    "median",
    "p95",
    "max",
    "mean wait",
    "max wait",
    "used",
    "makespan",
)


def _figures(metrics: Metrics) -> tuple[str, ...]:
    """The cells under _FIGURES."""
    return (
        f"{metrics.mean_bounded_slowdown:,.2f}",
        f"{metrics.median_bounded_slowdown:,.2f}",
        f"{metrics.p95_bounded_slowdown:,.1f}",
        f"{metrics.max_bounded_slowdown:,.0f}",
        _duration(metrics.mean_wait_s),
        _duration(metrics.max_wait_s),
        f"{metrics.utilization:.1%}",
        _duration(metrics.makespan_s),
    )


def _named(result: ReplayResult) -> str:
    return f"{result.policy} (clairvoyant)" if result.clairvoyant else result.policy


def _duration(seconds: float) -> str:
    """The two largest units: 3d 4h, 2h 05m, 7m 09s, 12s."""
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days:,}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {left:02d}s"
    return f"{left}s"
