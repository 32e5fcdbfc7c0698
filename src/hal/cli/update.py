"""`hal update`: change jobs that have not ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen


@command(
    "update",
    short_help="Change jobs.",
    output=True,
    examples="""
    hal update 42 --priority 10
    hal update 42 43 --walltime 4h --queue long
    """,
)
@click.argument("ids", metavar="JOB...", nargs=-1, required=True)
@click.option("-p", "--priority", type=int, metavar="N", help="Higher goes first.")
@click.option("-t", "--walltime", metavar="TIME", help="Time limit, like 90m; of running tasks too.")
@click.option("-n", "--name", help="Name, for people.")
@click.option("-Q", "--queue", help="Queue.")
@click.option("-A", "--account", help="Account to charge.")
@pass_screen
def update(
    screen: Screen,
    ids: Sequence[str],
    priority: int | None,
    walltime: str | None,
    name: str | None,
    queue: str | None,
    account: str | None,
) -> None:
    """Change jobs that have not ended."""
    from hal.core.model import parse_duration, parse_task_ref

    fields: dict[str, Any] = {"priority": priority, "name": name, "queue": queue, "account": account}
    if walltime is not None:
        fields["walltime"] = str(parse_duration(walltime, field="--walltime"))
    fields = {key: value for key, value in fields.items() if value is not None}
    if not fields:
        raise click.UsageError("nothing to change; name a field, like --priority 10")
    numbers = []
    for one in ids:
        number, task = parse_task_ref(one)
        if task is not None:
            raise click.UsageError(f"'{one}' is a task; only whole jobs can be changed: {number}")
        numbers.append(number)
    changed = [screen.client.job(number).update(**fields) for number in numbers]
    said = ", ".join(f"{key} {value}" for key, value in fields.items())

    def render() -> None:
        for info in changed:
            if not screen.quiet:
                screen.line(f"{info.id} {said}")

    screen.show(changed, render)
