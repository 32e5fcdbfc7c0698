"""`hal simulate`: replay a workload log on the production engine, and compare policies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen
from hal.cli.simulation.bare_policies import as_objects, print_tables, replay_all, write_jobs
from hal.cli.simulation.compiled_kernels import note_compilation, use_cache
from hal.cli.simulation.placements import entries_with, machine_of, read_placements, sites_with
from hal.cli.simulation.presentation import title

if TYPE_CHECKING:
    from hal.daemons.twin.swf import Log

EXAMPLES = """
hal simulate SDSC-SP2.swf.gz --policy fcfs,easy,easy-sjbf --plot waits.svg
hal simulate log.swf --policy easy --nodes 128 --cpus-per-node 4    # nodes instead of one pool
hal simulate log.swf --policy easy --topology site.toml --cpus-per-node 4 --placement compact,first-fit
hal simulate jobs.jsonl --cluster cluster.toml --policy easy --placement compact,best-fit    # GPUs, taints, domains
hal simulate log.swf --policy easy --scale-arrivals 0.5 --json      # twice the load, output for programs
hal simulate log.swf --policy fcfs,easy --policy hal.toml           # built-in policies and a whole hal.toml
hal simulate log.swf --config hal.toml --config new.toml --plot shares.svg     # effect of a policy change
hal simulate log.swf --config hal.toml --accounts physics=1,biology=2 --until 30d
"""

BAD_LINES_SHOWN = 5
NODES_MAX = 1_000_000
CPUS_PER_NODE_MAX = 1_000_000_000
PLOT_FORMATS = (".svg", ".png", ".pdf")

DEFAULT_POLICIES: Final = ("fcfs", "easy")


def _plot_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix not in PLOT_FORMATS:
        raise click.BadParameter(f"the name of {path} must end in {', '.join(PLOT_FORMATS)}", ctx, param)
    return checked_output(ctx, param, path)


@command("simulate", output=True, offline=True, examples=EXAMPLES)
@click.argument("log", metavar="LOG.swf[.gz]|JOBS.jsonl[.gz]")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="P,…",
    help="Policies, separated by commas or repeated: fcfs (also: none), easy, easy-sjbf, sjf, top-k, top-K (such as "
    "top-2), conservative, an installed Order, Score or Filter, or a file, as --config takes (default: fcfs,easy).",
)
@click.option("--clairvoyant", is_flag=True, help="Plan with actual run times instead of requested ones.")
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Replay only the first N usable jobs.")
@click.option(
    "--scale-arrivals",
    type=float,
    default=1.0,
    metavar="F",
    help="Factor on the gaps between submissions (0.5: twice the load).",
)
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), metavar="N", help="Number of nodes (default: one pool).")
@click.option("--cpus-per-node", type=click.IntRange(1, CPUS_PER_NODE_MAX), metavar="C", help="Processors per node.")
@click.option(
    "--topology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Nodes in their racks or switches, as in [topology] of hal.toml: those that FILE names, with --cpus-per-node.",
)
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Nodes with GPUs, labels, taints and domains, as FILE describes them; jobs are lines of JSON.",
)
@click.option(
    "--within", metavar="LEVEL", help="With --topology: each job within one domain of this level, such as rack."
)
@click.option(
    "--pack",
    metavar="LEVEL:TIME",
    help="With --topology: the same, until the job has waited for TIME; then it starts anywhere.",
)
@click.option(
    "--spread",
    metavar="LEVEL",
    help="With --topology: the nodes of each job on different domains of this level, as room allows.",
)
@click.option(
    "--placement",
    metavar="P,…",
    help="With --topology or --cluster: compact, first-fit, what `placement` of hal.toml can be, compact+PLACEMENT; "
    "several are compared (default: as each policy says).",
)
@click.option("--by-user", is_flag=True, help="Show figures for each user, too.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="FILE",
    help="Replay under the whole policy of this hal.toml; repeat it to compare several. Same as --policy FILE.",
)
@click.option(
    "--accounts",
    metavar="WHO",
    help="With --config: accounts of the jobs: log, policy, a number, or NAME=PART,… (default: log, else policy).",
)
@click.option("--queue", metavar="NAME", help="With --config: put all jobs into this queue.")
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 64) - 1),
    default=1,
    show_default=True,
    help="Seed for assigning jobs to accounts.",
)
@click.option("--until", metavar="TIME", help="With --config: stop TIME after the first submission (30d, 12h).")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_plot_file,
    help="Plot waits and utilisation to a file: svg, png or pdf.",
)
@click.option(
    "--out-jobs",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    callback=checked_output,
    help="Write id,submit,start,end,procs of each job; for several policies, one FILE-POLICY.csv each.",
)
@click.option("--check", is_flag=True, help="Check the whole state of the engine after every cycle (slow).")
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
    topology: Path | None,
    cluster: Path | None,
    within: str | None,
    pack: str | None,
    spread: str | None,
    placement: str | None,
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
    """The log is in the Standard Workload Format and runs on HAL's own engine; '-' reads it from standard input. With
    --cluster, jobs are lines of JSON.

    With --config, the whole policy of a hal.toml applies: queues, accounts and shares, QOS, limits and plugins. The
    size of the machine comes from the header of the log unless --nodes and --cpus-per-node are given. See
    docs/simulate.md for the jobs that are left out and the definition of every figure.
    """
    if not 0.0 < scale_arrivals < float("inf"):
        raise click.BadParameter("it must be a positive number", param_hint="--scale-arrivals")
    placed = {"--within": within, "--pack": pack, "--spread": spread, "--placement": placement}
    _check_machine(nodes, cpus_per_node, topology, cluster, placed)
    if pack is not None and (within is not None or configs):
        raise click.UsageError(f"--pack and {'--within' if within is not None else '--config'} cannot be combined")
    use_cache(screen)  # before what follows imports numba, which reads once where compiled kernels are
    from hal.cli.simulation.policy_names import read_policies

    placements = read_placements(placement)
    entries = read_policies(policies, configs, DEFAULT_POLICIES)
    files = tuple(entry.name for entry in entries if entry.is_file)
    entries = entries if files or cluster is not None else entries_with(entries, placements)
    _check_together(files, cluster, accounts, queue, until)
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.swf import LogError, read_log, usable_jobs

    if cluster is not None:
        from hal.cli.simulation.cluster_replay import compare_on_cluster
        from hal.cli.simulation.site_policies import Wanted

        wanted = Wanted(None, None, seed, until, clairvoyant, by_user, check, plot, out_jobs)
        compare_on_cluster(screen, cluster, log, entries, placements, first, scale_arrivals, wanted)
        return
    sites = []
    if files:
        from hal.cli.simulation.site_policies import read_sites, with_built_in

        sites = sites_with(with_built_in(entries, read_sites(files)), placements)
    stdin = log == "-"
    read = read_log("standard input" if stdin else log, sys.stdin.buffer if stdin else None)
    if topology is not None and cpus_per_node is not None:
        machine = machine_of(topology, cpus_per_node, within, pack, spread)
    elif nodes is not None and cpus_per_node is not None:
        machine = Machine(nodes, cpus_per_node)
    elif read.machine_procs is not None:
        machine = Machine.pool(read.machine_procs)
    else:
        raise LogError(
            f"{read.name}: the header has no size of the machine (no MaxProcs or MaxNodes)",
            hint="give --nodes and --cpus-per-node",
        )
    part = f"the largest {within}" if within else "the machine"
    jobs = usable_jobs(read, machine.job_procs, first=first, scale_arrivals=scale_arrivals, what=part)
    _report_bad_lines(read, screen)
    if sites:
        from hal.cli.simulation.site_policies import Wanted, compare

        note_compilation(screen)
        wanted = Wanted(accounts, queue, seed, until, clairvoyant, by_user, check, plot, out_jobs)
        compare(screen, read, jobs, machine, sites, wanted)
        return
    results = replay_all(jobs, machine, entries, clairvoyant, check, screen)
    if out_jobs is not None:
        write_jobs(out_jobs, results)
    if plot is not None:
        from hal.daemons.twin.plot import plot_replays

        with written_whole(plot) as unfinished:
            plot_replays([result for result, _ in results], title(read, jobs, machine), unfinished)
    if screen.plain:
        screen.emit(as_objects(read, jobs, machine, entries, results, by_user))
    else:
        print_tables(screen, read, jobs, machine, entries, results, by_user)


def _check_machine(
    nodes: int | None,
    cpus_per_node: int | None,
    topology: Path | None,
    cluster: Path | None,
    placed: dict[str, str | None],
) -> None:
    """Refuse options of the machine that do not go together.

    Args:
        placed: options, by name, that say where in a topology jobs are.
    Raises:
        click.UsageError: there are some.
    """
    if cluster is not None:
        own = {name: value for name, value in placed.items() if name != "--placement"}
        for name, value in {"--nodes": nodes, "--cpus-per-node": cpus_per_node, "--topology": topology, **own}.items():
            if value is not None:
                raise click.UsageError(f"{name} and --cluster cannot be combined: nodes and jobs say it themselves")
        return
    if topology is None:
        if (nodes is None) != (cpus_per_node is None):
            raise click.UsageError("--nodes and --cpus-per-node belong together: give both, or neither for one pool")
        for name, value in placed.items():
            if value is not None:
                raise click.UsageError(f"{name} needs --topology or --cluster, which say where nodes are")
        return
    if nodes is not None:
        raise click.UsageError("--nodes and --topology cannot be combined: the file says which nodes there are")
    if cpus_per_node is None:
        raise click.UsageError("--topology needs --cpus-per-node: the file says nothing of processors")


def _check_together(
    files: tuple[str, ...], cluster: Path | None, accounts: str | None, queue: str | None, until: str | None
) -> None:
    """Refuse options that cannot be combined.

    Raises:
        click.UsageError: there are some.
    """
    if cluster is not None:
        for name, value in (("--accounts", accounts), ("--queue", queue)):
            if value is not None:
                raise click.UsageError(f"{name} and --cluster cannot be combined: jobs say whose they are")
        return
    if not files:
        for name, value in (("--accounts", accounts), ("--queue", queue), ("--until", until)):
            if value is not None:
                raise click.UsageError(f"{name} needs --config: without it the whole log is replayed as it is")


def _report_bad_lines(log: Log, screen: Screen) -> None:
    if not log.bad_lines:
        return
    screen.note(f"{log.name}: {log.bad_lines:,} bad line{'s' if log.bad_lines > 1 else ''} left out")
    for line in log.bad[:BAD_LINES_SHOWN]:
        screen.note(f"  line {line.number}: {line.reason}")
    if log.bad_lines > BAD_LINES_SHOWN:
        screen.note(f"  … and {log.bad_lines - BAD_LINES_SHOWN:,} more")
