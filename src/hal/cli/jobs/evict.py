"""`hal evict`: make running work leave, by job, by filter or by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hal.cli.jobs.actions import check_named, confirm
from hal.cli.jobs.job_filters import filter_options, filters_from
from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.outcomes import report
from hal.cli.kit.screen import Screen

RUNNING = ("allocated", "preparing", "running", "suspended", "finalising")
"""States of jobs of which something runs; a filter without a state selects these."""


@command(
    "evict",
    output=True,
    examples="""
    hal evict 42 43.7 --reason "needs a newer kernel"
    hal evict --node n2 --mode checkpoint --within 2m --reason "spot notice"
    hal evict --queue scavenger --mode cancel -y
    """,
)
@click.argument("ids", metavar="[JOB[.TASKS]]...", nargs=-1)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="All that runs on this node; repeatable.")
@click.option(
    "--mode",
    type=click.Choice(["requeue", "checkpoint", "cancel"]),
    default="requeue",
    help="Run it again (default), let it save its work first, or cancel it.",
)
@click.option("--within", metavar="TIME", default="", help="Time to end before SIGKILL (default: 30s).")
@click.option("--reason", metavar="TEXT", default="", help="Reason, shown to the owners of the jobs.")
@filter_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (filters only).")
@pass_screen
def evict(
    screen: Screen,
    /,
    ids: Sequence[str],
    nodes: Sequence[str],
    mode: str,
    within: str,
    reason: str,
    yes: bool,
    **which: Any,
) -> int:
    """For operators. Requeued tasks wait again, and no retry is counted.

    To close a node as well, use `hal node drain --evict`.
    """
    filters = filters_from(which)
    if bool(ids) + bool(nodes) > 1 or (nodes and filters) or not (ids or filters or nodes):
        raise click.UsageError("name jobs, or nodes (--node), or give filters such as --user and --queue")
    if not nodes:
        check_named(ids, filters)
    if nodes:
        outcomes = screen.client.evict_nodes(*nodes, mode=mode, reason=reason, within=within)
        return report(screen, outcomes, details=True)
    if filters and not ids:
        filters.setdefault("state", list(RUNNING))
        if not yes and not confirm(screen, "evict", filters):
            return exit_codes.OK
    outcomes = screen.client.evict(*ids, mode=mode, reason=reason, within=within, **filters)
    if not outcomes:
        screen.note("no job matches")
    return report(screen, outcomes, "evicted", counts=True)
