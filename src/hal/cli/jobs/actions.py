"""`hal cancel`, `hal hold`, `hal release`, `hal requeue`: one action on many jobs, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from hal.cli.jobs.job_filters import FAILED_STATES, filter_options, filters_from
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
    again = verb == "requeue"

    @command(verb, help=details, examples=examples, output=True, instead={} if again else {"--all": every})
    @click.argument("ids", metavar="[JOB[.TASKS]]...", nargs=-1)
    @filter_options
    @_again_options(again)
    @click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation (filters only).")
    @pass_screen
    def act(
        screen: Screen, /, ids: Sequence[str], yes: bool, failed: bool = False, every_task: bool = False, **which: Any
    ) -> int:
        if failed and every_task:
            raise click.UsageError("--failed and --all cannot be combined")
        if every_task and not ids:
            raise click.UsageError(f"--all means all tasks of the jobs that are named; {every}")
        filters = filters_from(which)
        if failed or every_task:
            if "state" in filters:
                raise click.UsageError(f"--state and {'--failed' if failed else '--all'} cannot be combined")
            filters["state"] = (FAILED_STATES if failed else f"{_LIVE},{_ENDED}").split(",")
        check_named(ids, filters)
        if not ids:
            filters.setdefault("state", states.split(","))
            if not yes and not confirm(screen, verb, filters):
                return exit_codes.OK
        outcomes = getattr(screen.client, verb)(*ids, **filters)
        if not outcomes:
            screen.note("no job matches")
        return report(screen, outcomes, done, counts=True)

    return act


def _again_options(wanted: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that only `hal requeue` has."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        if not wanted:
            return function
        function = click.option("--all", "every_task", is_flag=True, help="All tasks, those that succeeded too.")(
            function
        )
        return click.option("--failed", is_flag=True, help="Only tasks that failed or timed out.")(function)

    return add


def check_named(ids: Sequence[str], filters: Mapping[str, Any]) -> None:
    """Check that jobs and tasks are named by ids, perhaps with states, or by filters.

    Raises:
        click.UsageError: by neither, or by both.
        SpecError: an id is malformed.
    """
    from hal.core.model import parse_tasks_ref

    if not ids and not filters:
        raise click.UsageError("no job is named; give ids, or filters such as --user and --state")
    if ids and set(filters) - {"state"}:
        raise click.UsageError("ids and filters cannot be combined, except --state; give ids, or filters")
    for one in ids:
        parse_tasks_ref(one)


def confirm(screen: Screen, verb: str, filters: dict[str, Any]) -> bool:
    """Ask whether to do that to all jobs that match; False where none does."""
    from hal.core.model import plural

    found = getattr(screen.client, verb)(dry_run=True, **filters)
    if not found:
        screen.note("no job matches")
        return False
    tasks = sum(one.tasks for one in found)
    what = (
        plural(len(found), "job") if tasks <= len(found) else f"{plural(tasks, 'task')} of {plural(len(found), 'job')}"
    )
    if not screen.interactive:
        verb_form = "matches" if len(found) == 1 and tasks <= 1 else "match"
        raise click.UsageError(f"{what} {verb_form}; add --yes to {verb} them without confirmation")
    return screen.ask(f"{verb} {what}?")


_LIVE = "pending,held,allocated,preparing,running,suspended,finalising"
_ENDED = "succeeded,failed,timed-out,cancelled"

cancel = _declare(
    "cancel",
    "cancelled",
    "Name jobs (42) and tasks (42.7-9, or by array index '42[7-9]'), or select them by filters. Running tasks are "
    "stopped.",
    """
    hal cancel 42 43.7
    hal cancel 42.100-199             # tasks of an array
    hal cancel 42 --state pending     # what runs continues
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
    "Running tasks are stopped and become pending again; ended ones get a new attempt. Of a whole job: the tasks that "
    "did not succeed, or all if every one did.",
    """
    hal requeue 42
    hal requeue 42 --all              # also what succeeded
    hal requeue 42.7-9 43 --failed
    hal requeue --state failed --name fit -y
    """,
    "running,failed,timed-out,cancelled",
)
