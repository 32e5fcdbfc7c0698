"""`hal rm`: remove ended jobs, or some of their tasks, with their attempts and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hal.cli.jobs.actions import check_named
from hal.cli.jobs.job_filters import FAILED_STATES, filter_options, filters_from
from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.outcomes import report
from hal.cli.kit.screen import Screen

_EVERY = "for all ended jobs: hal rm --ended-before now; for those of a user: hal rm --user NAME"


@command(
    "rm",
    help="Name ended jobs (42) or tasks of them (42.7-9, '42[7-9]'), or select jobs by filters. What they printed is "
    "deleted on their nodes, too. Jobs that have not ended, or that others wait for, are refused. A job without some "
    "of its tasks stays as it ended, and cannot run again.",
    examples="""
    hal rm 42 43
    hal rm 42.7-9                     # tasks of an array
    hal rm 42 --failed                # or: --state cancelled
    hal rm --state failed --name fit
    hal rm --ended-before now-30d -y
    """,
    output=True,
    instead={"--all": _EVERY},
)
@click.argument("ids", metavar="[JOB[.TASKS]]...", nargs=-1)
@filter_options
@click.option("--failed", is_flag=True, help="Of the jobs named, only tasks that failed or timed out.")
@click.option("--ended-before", metavar="TIME", help="Only jobs that ended before TIME: 2030-01-31T18:00, or now-30d.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (filters only).")
@pass_screen
def rm(screen: Screen, /, ids: Sequence[str], failed: bool, ended_before: str | None, yes: bool, **which: Any) -> int:
    filters = filters_from(which)
    if failed:
        if not ids:
            raise click.UsageError("--failed goes with jobs; for all jobs that failed: hal rm --state failed")
        if "state" in filters:
            raise click.UsageError("--state and --failed cannot be combined")
        filters["state"] = FAILED_STATES.split(",")
    if ids and ended_before:
        raise click.UsageError("ids and filters cannot be combined, except --state; give ids, or filters")
    if ids or not ended_before:
        check_named(ids, filters)
    if not ids and not yes and not _confirm(screen, filters, ended_before):
        return exit_codes.OK
    return report(screen, screen.client.remove(*ids, ended_before=ended_before, **filters), "removed", counts=True)


def _confirm(screen: Screen, filters: dict[str, Any], ended_before: str | None) -> bool:
    from hal.client.instants import instant_ms
    from hal.core.model import TaskState, plural

    before_ms = None if ended_before is None else instant_ms(ended_before, "--ended-before")
    ended = {"state": [state.value for state in TaskState if state.ended], **filters}
    jobs = screen.client.jobs(**ended)
    found = sum(1 for job in jobs if before_ms is None or (job.end_ms or 0) < before_ms)
    if not found:
        screen.note("no job matches")
        return False
    if not screen.interactive:
        raise click.UsageError(f"{plural(found, 'job')} match; add --yes to remove them without confirmation")
    return screen.ask(f"remove {plural(found, 'job')} and their outputs?")
