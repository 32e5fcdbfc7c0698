"""`hal why`: what keeps a job from running, when it may start, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.views import WhyInfo


@command(
    "why",
    short_help="Why a job is not running.",
    output=True,
    examples="""
    hal why 42
    hal why 42 -o json
    """,
)
@click.argument("job")
@pass_screen
def why(screen: Screen, job: str) -> None:
    """Why JOB is not running, when it is forecast to start, and what would help."""
    from hal.core.model import parse_task_ref

    number, _ = parse_task_ref(job)
    answer = screen.client.job(number).why()
    screen.show(answer, lambda: _render(screen, answer))


def _render(screen: Screen, answer: WhyInfo) -> None:
    from hal.cli.wording import instant
    from hal.core.model import plural, told_apart

    screen.line(answer.message)
    wanted, free = told_apart(answer.resource, answer.asked, answer.available)
    counted = bool(answer.resource and answer.asked)  # resource-hours are told in the message only
    asked = f"{answer.resource} {wanted}" if counted else ""
    there = free if counted else ""
    where = f" on {answer.node}" if answer.node and there else ""
    forecast = instant(answer.starts_at_ms)
    screen.fields(
        {
            "reason": answer.reason if answer.reason != "none" else "",
            "asks for": asked,
            "free now": f"{there}{where}",
            "ahead of it": ""
            if answer.position is None
            else plural(answer.position, "job")
            if answer.position
            else "nobody",
            "starts": f"{forecast}{_basis(answer)}" if forecast else "",
        }
    )
    for change in answer.helps:
        screen.line(f"would help: {change}")


def _basis(answer: WhyInfo) -> str:
    """What the forecast rests on, and of when it is."""
    from hal.cli.wording import instant

    of_when = instant(answer.forecast_at_ms)
    return f" ({answer.basis}{f'; as of {of_when}' if of_when else ''})" if answer.basis else ""
