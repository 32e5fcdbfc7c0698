"""`hal why`: what keeps a job from running, when it may start, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.views import TaskInfo, WhyInfo

WAITING = ("pending", "held", "suspended")
"""States of a task that its job's answer speaks of."""


@command(
    "why",
    short_help="Why a job is not running.",
    output=True,
    examples="""
    hal why 42
    hal why 42.7
    hal why 42 -o json
    """,
)
@click.argument("job")
@pass_screen
def why(screen: Screen, job: str) -> None:
    """Why JOB is not running, when it is forecast to start, and what would help. Of an array it is the first task that
    waits; JOB.TASK asks whether that one waits at all."""
    from hal.core.model import parse_task_ref

    number, task = parse_task_ref(job)
    found = screen.client.job(number)
    answer = (None if task is None else _does_not_wait(found.task(task))) or found.why()
    screen.show(answer, lambda: _render(screen, answer))


def _does_not_wait(task: TaskInfo) -> WhyInfo | None:
    """What is to be said of a task that runs or has ended; None for one that waits: its job knows why."""
    from hal.client.views import WhyInfo

    if task.state in WAITING:
        return None
    ended = f" ({task.reason})" if task.reason else ""
    return WhyInfo(
        job=task.job, state=task.state, reason="none", message=f"task {task.task} does not wait: {task.state}{ended}"
    )


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
