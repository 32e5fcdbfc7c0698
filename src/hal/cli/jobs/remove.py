"""`hal rm`: remove ended jobs with their attempts and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hal.cli.jobs.job_filters import filter_options, filters_from
from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.outcomes import report
from hal.cli.kit.screen import Screen

_EVERY = "for all ended jobs: hal rm --ended-before now; for those of a user: hal rm --user NAME"


@command(
    "rm",
    help="Name ended jobs (42), or select them by filters. What they printed is deleted on their nodes, too. Jobs that "
    "have not ended, or that others wait for, are refused.",
    examples="""
    hal rm 42 43
    hal rm --state failed --name fit
    hal rm --ended-before now-30d -y
    """,
    output=True,
    instead={"--all": _EVERY},
)
@click.argument("ids", metavar="[JOB]...", nargs=-1)
@filter_options
@click.option("--ended-before", metavar="TIME", help="Only jobs that ended before TIME: 2030-01-31T18:00, or now-30d.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (filters only).")
@pass_screen
def rm(screen: Screen, /, ids: Sequence[str], ended_before: str | None, yes: bool, **which: Any) -> int:
    from hal.core.model import parse_task_ref

    filters = filters_from(which)
    if bool(ids) == bool(filters or ended_before):
        what = "ids and filters cannot be combined" if ids else "no job is named"
        raise click.UsageError(f"{what}; give ids, or filters such as --user and --ended-before")
    for one in ids:
        if parse_task_ref(one)[1] is not None:
            raise click.UsageError(f"'{one}' names a task; only whole jobs can be removed")
    if not ids and not yes and not _confirm(screen, filters, ended_before):
        return exit_codes.OK
    return report(screen, screen.client.remove(*ids, ended_before=ended_before, **filters), "removed")


def _confirm(screen: Screen, filters: dict[str, Any], ended_before: str | None) -> bool:
    from hal.client.specs import instant_ms
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
