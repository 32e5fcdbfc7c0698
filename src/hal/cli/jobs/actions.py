"""`hal cancel`, `hal hold`, `hal release`, `hal requeue`: one action on many jobs, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hal.cli.jobs.job_filters import filter_options, filters_from
from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.outcomes import report
from hal.cli.kit.screen import Screen


def _declare(verb: str, done: str, details: str, examples: str, states: str) -> click.Command:
    """One of the four commands.

    Args:
        verb: its name, and the method of the client.
        done: what to print when the controller names no state.
        details: what its help says behind the first sentence.
        states: which jobs a filter without a state selects, separated by commas.
    """

    every = f"for all jobs of a user: hal {verb} --user NAME; for everybody's: hal {verb} --state {states}"

    @command(verb, help=details, examples=examples, output=True, instead={"--all": every})
    @click.argument("ids", metavar="[JOB[.TASK]]...", nargs=-1)
    @filter_options
    @click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (filters only).")
    @pass_screen
    def act(screen: Screen, /, ids: Sequence[str], yes: bool, **which: Any) -> int:
        from hal.core.model import parse_task_ref

        filters = filters_from(which)
        if bool(ids) == bool(filters):
            what = "ids and filters cannot be combined" if ids else "no job is named"
            raise click.UsageError(f"{what}; give ids, or filters such as --user and --state")
        for one in ids:
            parse_task_ref(one)
        if filters:
            filters.setdefault("state", states.split(","))
            if not yes and not confirm(screen, verb, filters):
                return exit_codes.OK
        outcomes = getattr(screen.client, verb)(*ids, **filters)
        return report(screen, outcomes, done)

    return act


def confirm(screen: Screen, verb: str, filters: dict[str, Any]) -> bool:
    """Ask whether to do that to all jobs that match; False where none does."""
    from hal.core.model import plural

    found = sum(1 for _ in screen.client.jobs(**filters))
    if not found:
        screen.note("no job matches")
        return False
    if not screen.interactive:
        raise click.UsageError(f"{plural(found, 'job')} match; add --yes to {verb} them without confirmation")
    return screen.ask(f"{verb} {plural(found, 'job')}?")


_LIVE = "pending,held,allocated,preparing,running,suspended,finalising"

cancel = _declare(
    "cancel",
    "cancelled",
    "Name jobs (42) and tasks (42.7), or select jobs by filters. Running tasks are stopped.",
    """
    hal cancel 42 43.7
    hal cancel --user alice --state pending
    hal cancel --name 'test' -y
    """,
    _LIVE,
)
hold = _declare(
    "hold",
    "held",
    "Running tasks continue.",
    """
    hal hold 42
    hal hold --queue batch -y
    """,
    "pending",
)
release = _declare(
    "release",
    "pending",
    "They start as soon as their turn comes.",
    """
    hal release 42
    hal release --user alice -y
    """,
    "held",
)
requeue = _declare(
    "requeue",
    "pending",
    "Running tasks are stopped and become pending again; ended ones get a new attempt.",
    """
    hal requeue 42
    hal requeue 42.7
    hal requeue --state failed --name fit -y
    """,
    "running,failed,timed-out,cancelled",
)
