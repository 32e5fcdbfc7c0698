"""`hal why`: explain what keeps a job from running, when it should start, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import ScoresInfo, TaskInfo, WhyInfo

WAITING = ("pending", "held", "suspended")
"""States of a task to which its job's answer applies."""


@command(
    "why",
    output=True,
    examples="""
    hal why 42
    hal why 42.7
    hal why 42 -o json
    hal why 42 --score
    """,
)
@click.argument("job", metavar="JOB[.TASK]")
@click.option("--score", is_flag=True, help="Instead: the best nodes that have room for it now, with their scores.")
@pass_screen
def why(screen: Screen, job: str, score: bool) -> None:
    """Shows what it waits for, when it is forecast to start, and the smallest change that would help.

    For an array, the answer is about its first pending task.
    """
    from hal.core.model import parse_task_ref

    number, task = parse_task_ref(job)
    found = screen.client.job(number)
    if score:
        scores = found.scores()
        screen.show(scores, lambda: _scored(screen, scores))
        return
    answer = (None if task is None else _does_not_wait(found.task(task))) or found.why()
    screen.show(answer, lambda: _render(screen, answer))


def _scored(screen: Screen, scores: ScoresInfo) -> None:
    room = "1 node has room" if scores.fits == 1 else f"{scores.fits or 'no'} nodes have room"
    of_group = f" for group {scores.group}" if scores.group else ""
    screen.line(f"placement {scores.placement}: {room}{of_group} now")
    if scores.domains:
        table = [(one.domain, one.level, f"{one.score:.3f}", str(one.fits)) for one in scores.domains]
        screen.table(("DOMAIN", "LEVEL", "SCORE", "NODES"), table)
        screen.line("")
    if scores.spread:
        screen.line(f"spread over {scores.spread}s: those that hold fewest of its nodes (HELD) come first")
    if scores.nodes:
        parts = list(dict.fromkeys(part for one in scores.nodes for part in one.parts))
        terms = list(scores.nodes[0].terms)
        rows = []
        for one in scores.nodes:
            held = ("-" if one.held is None else str(one.held),) if scores.spread else ()
            values = [one.score, *(one.parts.get(part, 0.0) for part in parts)]
            values += [one.terms.get(term, 0.0) for term in terms]
            rows.append((one.node, *held, *(f"{value:.3f}" for value in values)))
        heads = ("NODE", *(("HELD",) if scores.spread else ()), "SCORE", *(f"+{part.upper()}" for part in parts))
        screen.table((*heads, *(term.upper() for term in terms)), rows)


def _does_not_wait(task: TaskInfo) -> WhyInfo | None:
    """The answer for a task that runs or has ended; None for one that waits: its job has the answer."""
    from hal.client.rest.views import WhyInfo

    if task.state in WAITING:
        return None
    ended = f" ({task.reason})" if task.reason else ""
    return WhyInfo(
        job=task.job,
        state=task.state,
        reason="none",
        message=f"task {task.task} is not waiting: it is {task.state}{ended}",
    )


def _render(screen: Screen, answer: WhyInfo) -> None:
    from hal.cli.kit.formats import instant
    from hal.core.model import format_distinctly

    screen.line(answer.message)
    wanted, free = format_distinctly(answer.resource, answer.asked, answer.available)
    counted = bool(answer.resource and answer.asked)  # resource-hours are in the message only
    asked = f"{answer.resource} {wanted}" if counted else ""
    there = free if counted else ""
    where = f" on {answer.node}" if answer.node and there else ""
    forecast = instant(answer.starts_at_ms)
    screen.fields(
        {
            "reason": answer.reason if answer.reason != "none" else "",
            "requested": asked,
            "free now": f"{there}{where}",
            "jobs ahead": "" if answer.position is None else str(answer.position) if answer.position else "none",
            "start": f"{forecast}{_basis(answer)}" if forecast else "",
        }
    )
    for change in answer.helps:
        screen.line(f"would help: {change}")


def _basis(answer: WhyInfo) -> str:
    """What the forecast is based on, and how old it is."""
    from hal.cli.kit.formats import instant

    of_when = instant(answer.forecast_at_ms)
    return f" ({answer.basis}{f'; as of {of_when}' if of_when else ''})" if answer.basis else ""
