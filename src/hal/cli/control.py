"""`hal cancel`, `hal hold`, `hal release`, `hal requeue`: one action on many jobs, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hal.cli import exit_codes
from hal.cli.command import command, pass_screen
from hal.cli.options import filter_options, filters_from
from hal.cli.outcomes import report
from hal.cli.screen import Screen


def _declare(verb: str, done: str, short_help: str, long_help: str, examples: str, states: str) -> click.Command:
    """One of the four commands.

    Args:
        verb: its name, and the method of the client.
        done: what an outcome says when the controller names no state.
        states: what a filter without a state is narrowed to (comma list).
    """

    every = f"all of one user: hal {verb} --user NAME; everybody's: hal {verb} --state {states}"

    @command(verb, short_help=short_help, help=long_help, examples=examples, output=True, instead={"--all": every})
    @click.argument("ids", metavar="[JOB[.TASK]]...", nargs=-1)
    @filter_options
    @click.option("-y", "--yes", is_flag=True, help="Do not ask (filters only).")
    @pass_screen
    def act(screen: Screen, /, ids: Sequence[str], yes: bool, **which: Any) -> int:
        from hal.core.model import parse_task_ref

        filters = filters_from(which)
        if bool(ids) == bool(filters):
            what = "both ids and filters" if ids else "no job"
            raise click.UsageError(f"{what} named; give ids, or filters like --user and --state")
        for one in ids:
            parse_task_ref(one)
        if filters:
            filters.setdefault("state", states.split(","))
            if not yes and not _sure(screen, verb, filters):
                return exit_codes.OK
        outcomes = getattr(screen.client, verb)(*ids, **filters)
        return report(screen, outcomes, done)

    return act


def _sure(screen: Screen, verb: str, filters: dict[str, Any]) -> bool:
    from hal.core.model import plural

    found = sum(1 for _ in screen.client.jobs(**filters))
    if not found:
        screen.note("no job matches")
        return False
    if not screen.interactive:
        raise click.UsageError(f"{plural(found, 'job')} match; add --yes to {verb} them without being asked")
    return screen.ask(f"{verb} {plural(found, 'job')}?")


_LIVE = "pending,held,allocated,preparing,running,suspended,finalising"

cancel = _declare(
    "cancel",
    "cancelled",
    "Cancel jobs or tasks.",
    "Cancel jobs (42), tasks (42.7), or all that the filters name. Running ones are stopped.",
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
    "Keep jobs from starting.",
    "Keep jobs that wait from starting; tasks that run go on.",
    """
    hal hold 42
    hal hold --queue batch -y
    """,
    "pending",
)
release = _declare(
    "release",
    "pending",
    "Let held jobs start.",
    "Let held jobs start.",
    """
    hal release 42
    hal release --user alice -y
    """,
    "held",
)
requeue = _declare(
    "requeue",
    "pending",
    "Run jobs or tasks again.",
    "Stop running tasks and put them back into the queue, or run ended ones again: a new attempt of the same job.",
    """
    hal requeue 42
    hal requeue 42.7
    hal requeue --state failed --name fit -y
    """,
    "running,failed,timed-out,cancelled",
)
