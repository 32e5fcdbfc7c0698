"""What became of each of several jobs or tasks: one line each, and one exit code for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from hal.cli import exit_codes
from hal.cli.screen import Screen
from hal.core.model.printable import printable

if TYPE_CHECKING:
    from hal.client.views import Outcome


_SAID = {"finalising": "is being stopped"}
"""States that say little to people."""


def report(screen: Screen, outcomes: Iterable[Outcome], done: str = "") -> int:
    """Say each as it comes; the exit code is the worst (largest) of theirs, 0 when all went well.

    Args:
        done: what is said of one for which the controller names no state.
    """
    code = exit_codes.OK
    told = []
    for outcome in outcomes:
        told.append(outcome)
        if not outcome.ok:
            code = max(code, exit_codes.of_error(outcome.code))
        if screen.plain:
            continue
        if not outcome.ok:
            click.echo(printable(f"error: {outcome.detail or f'{outcome.id}: {outcome.code}'}"), err=True)
            if outcome.hint:
                click.echo(printable(f"hint: {outcome.hint}"), err=True)
        elif not screen.quiet:
            screen.line(f"{outcome.id} {_SAID.get(outcome.state, outcome.state) or done}")
    if screen.plain:
        screen.emit(told)
    return code
