"""`hal hostfile`: the nodes of a job as MPI's launchers want to read them: from its variables alone, unless it has
extensions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from hal.cli.jobs.launch import MAX_RANKS_HERE, ranks_asked
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output
from hal.cli.kit.screen import Screen
from hal.core.model.groups import GROUP_CPUS, GROUPS


@command(
    "hostfile",
    examples="""
    hal hostfile > hosts && mpirun --hostfile hosts ./solver        # Open MPI
    mpiexec -f <(hal hostfile --form colon) ./solver                # MPICH, Intel MPI
    hal hostfile --follow hosts --signal USR2 &                     # with extensions: as nodes come and go
    """,
)
@click.option(
    "--form",
    type=click.Choice(["slots", "colon", "lines"]),
    default="slots",
    help="How a node with two ranks is written: 'w1 slots=2' (the default), 'w1:2', or 'w1' twice.",
)
@click.option("-n", "--ranks", type=click.IntRange(1, MAX_RANKS_HERE), metavar="N", help="Ranks in all.")
@click.option("--ranks-per-node", type=click.IntRange(1, MAX_RANKS_HERE), metavar="N", help="Ranks on each node.")
@click.option(
    "--follow",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    help="Write it to FILE, and again whenever nodes come or leave, until whoever began this has ended.",
)
@click.option("--signal", "told", metavar="NAME", help="With --follow: the signal for whoever began this, on changes.")
@pass_screen
@click.pass_context
def hostfile(
    ctx: click.Context,
    screen: Screen,
    /,
    form: str,
    ranks: int | None,
    ranks_per_node: int | None,
    follow: Path | None,
    told: str | None,
) -> None:
    """For use inside a job. A node has as many ranks as the job asks for; of a job that asks for none, as many as it
    has cores there. Of a job with extensions, all nodes are listed that it has now.
    """
    from hal.cli.jobs.present_nodes import follow_nodes, present_nodes, signal_named
    from hal.core.model.rank_variables import hostfile as written

    if ranks is not None and ranks_per_node is not None:
        raise click.UsageError("--ranks and --ranks-per-node cannot be combined", ctx)
    nodes = [name for name in os.environ.get("HAL_NODES", "").split(",") if name]
    if not nodes:
        raise click.UsageError("this runs in no job; begin one with hal alloc", ctx)
    if told is not None and follow is None:
        raise click.UsageError("--signal: there is no --follow whose changes it could tell", ctx)

    def lines_of(nodes: Sequence[str]) -> list[str]:
        return written(nodes, slots_of(len(nodes), ranks, ranks_per_node, os.environ), form)

    job = os.environ.get("HAL_JOB_ID", "")
    if follow is not None:
        follow_nodes(screen, job, follow, lines_of, signal_named(told) if told else 0)
        return
    for line in lines_of(present_nodes(screen, job) if os.environ.get("HAL_ELASTIC") else nodes):
        screen.line(line)


def slots_of(nodes: int, ranks: int | None, per_node: int | None, environ: Mapping[str, str]) -> list[int]:
    """Return how many ranks each node has: as `hal launch` would distribute them, without a word of the job by its
    cores."""
    if ranks is None and per_node is None:
        ranks, per_node = ranks_asked(environ)
    if ranks is None and per_node is None and (of_groups := _cores_of_groups(environ)) and len(of_groups) == nodes:
        return of_groups
    if ranks is None:
        each, more = per_node or _cores(environ), 0
    else:
        each, more = divmod(ranks, nodes)
    return [each + (at < more) for at in range(nodes)]


def _cores_of_groups(environ: Mapping[str, str]) -> list[int]:
    """Whole cores of the job on each node, where its nodes are of several groups; [] where they are not."""
    found: list[int] = []
    cores = environ.get(GROUP_CPUS, "").split(",")
    for part, own in zip(environ.get(GROUPS, "").split(","), cores, strict=False):
        nodes = part.rpartition(":")[2]
        if nodes.isdecimal():
            found += [_cores({"HAL_CPUS": own})] * int(nodes)
    return found


def _cores(environ: Mapping[str, str]) -> int:
    """Whole cores of the job on each node; at least one."""
    try:
        return max(1, int(float(environ.get("HAL_CPUS", "1"))))
    except ValueError:
        return 1
