"""`hal update`: change jobs that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.command import command, pass_screen
from hal.cli.outcomes import report
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.views import Outcome


@command(
    "update",
    short_help="Change jobs.",
    output=True,
    examples="""
    hal update 42 --priority 10
    hal update 42 43 --walltime 4h --queue long
    hal update 42 --max-running 8 --begin now+2h
    """,
)
@click.argument("ids", metavar="JOB...", nargs=-1, required=True)
@click.option("-p", "--priority", type=int, metavar="N", help="Higher goes first.")
@click.option("-t", "--walltime", metavar="TIME", help="Time limit, like 90m; of running tasks too.")
@click.option("-n", "--name", help="Name, for people.")
@click.option("-Q", "--queue", help="Queue.")
@click.option("-A", "--account", help="Account to charge.")
@click.option("--begin", metavar="TIME", help="Not before: 2030-01-31T18:00, or now+2h.")
@click.option("--max-running", type=click.IntRange(0), metavar="N", help="Tasks of the array at once; 0: no limit.")
@click.option(
    "--on-dependency-failed",
    type=click.Choice(["cancel", "hold", "run"]),
    help="What to do when its dependencies can never be met.",
)
@click.option("--qos", help="Quality of service.")
@click.option("--deadline", metavar="TIME", help="To have ended by then: 2030-01-31T18:00, or now+2h.")
@pass_screen
def update(
    screen: Screen,
    ids: Sequence[str],
    priority: int | None,
    walltime: str | None,
    name: str | None,
    queue: str | None,
    account: str | None,
    begin: str | None,
    max_running: int | None,
    on_dependency_failed: str | None,
    qos: str | None,
    deadline: str | None,
) -> int:
    """Change jobs that have not ended: each on its own, one line for each; the exit code is the worst of theirs."""
    from hal.core.model import parse_duration, parse_task_ref

    fields: dict[str, Any] = {"priority": priority, "name": name, "queue": queue, "account": account}
    fields |= {"max_running": max_running, "on_dependency_failed": on_dependency_failed, "qos": qos}
    if begin is not None or deadline is not None:
        from hal.client.specs import instant_ms

        fields["begin_at_ms"] = None if begin is None else instant_ms(begin)
        fields["deadline_ms"] = None if deadline is None else instant_ms(deadline, "deadline")
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
    return report(screen, _changed(screen, list(dict.fromkeys(numbers)), fields))


def _changed(screen: Screen, numbers: Sequence[int], fields: dict[str, Any]) -> Iterator[Outcome]:
    """One after the other; what is refused for one does not keep the others back."""
    from hal.client import calls
    from hal.client.views import Outcome
    from hal.core.model import ConflictError, NotFoundError, SpecError

    said = ", ".join(f"{key} {value}" for key, value in fields.items())
    for number in numbers:
        try:
            screen.client.call(calls.update(str(number), fields))
        except (ConflictError, NotFoundError, SpecError) as error:
            yield Outcome(id=str(number), ok=False, code=error.code, detail=error.message, hint=error.hint)
        else:
            yield Outcome(id=str(number), state=said)
