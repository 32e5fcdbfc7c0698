"""`hal update`: change jobs that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.outcomes import report
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import Outcome


@command(
    "update",
    output=True,
    examples="""
    hal update 42 --priority 10
    hal update 42 43 --walltime 4h --queue long
    hal update 42 --max-running 8 --begin now+2h
    """,
)
@click.argument("ids", metavar="JOB...", nargs=-1, required=True)
@click.option("-p", "--priority", type=int, metavar="N", help="Priority; higher starts first.")
@click.option("-t", "--walltime", metavar="TIME", help="Time limit, such as 90m; also of running tasks.")
@click.option("-n", "--name", help="Name of the job.")
@click.option("-Q", "--queue", help="Queue to move it to.")
@click.option("-A", "--account", help="Account to charge.")
@click.option("--begin", metavar="TIME", help="Do not start before TIME: 2030-01-31T18:00, or now+2h.")
@click.option(
    "--max-running", type=click.IntRange(0), metavar="N", help="Array tasks that may run at once; 0: no limit."
)
@click.option(
    "--on-dependency-failed",
    type=click.Choice(["cancel", "hold", "run"]),
    help="What to do if its dependencies can no longer be met.",
)
@click.option("--qos", help="Quality of service.")
@click.option("--deadline", metavar="TIME", help="Finish by TIME: 2030-01-31T18:00, or now+2h.")
@click.option("-x", "--exclude", metavar="NODE", multiple=True, help="Node not to run on; repeatable; none: no node.")
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
    exclude: Sequence[str],
) -> int:
    """Each job is changed on its own: one that is refused does not affect the others. Ended jobs cannot be changed."""
    from hal.core.model import parse_duration, parse_task_ref

    fields: dict[str, Any] = {"priority": priority, "name": name, "queue": queue, "account": account}
    fields |= {"max_running": max_running, "on_dependency_failed": on_dependency_failed, "qos": qos}
    if begin is not None or deadline is not None:
        from hal.client.specs import instant_ms

        fields["begin_at_ms"] = None if begin is None else instant_ms(begin)
        fields["deadline_ms"] = None if deadline is None else instant_ms(deadline, "deadline")
    if exclude:
        fields["exclude"] = [name for text in exclude for name in text.split(",") if name != "none"]
    if walltime is not None:
        fields["walltime"] = str(parse_duration(walltime, field="--walltime"))
    fields = {key: value for key, value in fields.items() if value is not None}
    if not fields:
        raise click.UsageError("there is nothing to change; name a field, such as --priority 10")
    numbers = []
    for one in ids:
        number, task = parse_task_ref(one)
        if task is not None:
            raise click.UsageError(f"'{one}' is a task, and only whole jobs can be changed: hal update {number}")
        numbers.append(number)
    return report(screen, _changed(screen, list(dict.fromkeys(numbers)), fields))


def _changed(screen: Screen, numbers: Sequence[int], fields: dict[str, Any]) -> Iterator[Outcome]:
    """Change one job after the other; one that is refused does not affect the others."""
    from hal.client.rest import calls
    from hal.client.rest.views import Outcome
    from hal.core.model import ConflictError, NotFoundError, SpecError

    said = ", ".join(f"{key} {value}" for key, value in fields.items())
    for number in numbers:
        try:
            screen.client.call(calls.update(str(number), fields))
        except (ConflictError, NotFoundError, SpecError) as error:
            yield Outcome(id=str(number), ok=False, code=error.code, detail=error.message, hint=error.hint)
        else:
            yield Outcome(id=str(number), state=said)
