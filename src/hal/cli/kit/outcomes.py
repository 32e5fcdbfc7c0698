"""The result for each of several jobs, tasks or nodes: one line each, and one exit code for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.screen import Screen
from hal.core.model.printable import printable

if TYPE_CHECKING:
    from hal.client.rest.views import Outcome


_SHOWN = {"finalising": "is being stopped"}
"""States that are shown in other words."""


def report(
    screen: Screen, outcomes: Iterable[Outcome], done: str = "", *, details: bool = False, counts: bool = False
) -> int:
    """Print each outcome as it comes; returns the largest of their exit codes, 0 when all succeeded.

    Args:
        done: what to print when the controller names no state.
        details: print the details of what was done in place of the state.
        counts: print them, which say of how many tasks that was, behind the state.
    """
    code = exit_codes.OK
    reported = []
    for outcome in outcomes:
        reported.append(outcome)
        if not outcome.ok:
            code = max(code, exit_codes.of_error(outcome.code))
        if screen.plain:
            continue
        if not outcome.ok:
            click.echo(printable(f"error: {outcome.detail or f'{outcome.id}: {outcome.code}'}"), err=True)
            if outcome.hint:
                click.echo(printable(f"hint: {outcome.hint}"), err=True)
        elif not screen.quiet:
            shown = outcome.detail if details else _SHOWN.get(outcome.state, outcome.state)
            more = f": {outcome.detail}" if outcome.detail and counts else ""
            screen.line(f"{outcome.id} {shown or done}{more}")
    if screen.plain:
        screen.emit(reported)
    return code
