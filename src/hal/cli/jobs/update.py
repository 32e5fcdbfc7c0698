"""`hal update`: change jobs that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import UnlikelyValueError, command, pass_screen
from hal.cli.kit.outcomes import report
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import ChangeInfo, Outcome, UpdatedInfo

NONE = "none"
"""Takes out what is there."""
_LISTS = {"after": "after", "constraint": "constraints", "exclude": "exclude", "tolerate": "tolerate", "gate": "gates"}
"""Options that may be repeated, and the keyword that takes them all."""
_TEXTS = (
    "name", "queue", "account", "qos", "booking", "priority", "walltime", "cpus", "memory", "gpus", "nodes", "within",
    "pack", "spread", "begin", "deadline", "max_running", "on_dependency_failed", "retries", "comment",
)  # fmt: skip
"""Options whose value is the keyword's."""


_NEVER = "it never changes: cancel the job, and submit it again"
_BY_ID = "name the jobs that are to change: hal update 42 43; hal jobs lists them"


@command(
    "update",
    output=True,
    instead=dict.fromkeys(
        (
            "--array",
            "--collect",
            "-e",
            "--env",
            "--export-all",
            "--each-line",
            "--from-json",
            "--notify",
            "--sandbox",
            "--secret",
            "--ship",
            "--stderr",
            "--stdin",
            "--stdout",
            "--user",
            "--workdir",
        ),
        _NEVER,
    )
    | {"-s": _BY_ID, "--state": _BY_ID, "-u": _BY_ID},
    examples="""
    hal update 42 --priority 10
    hal update 42 43 --walltime 4h --queue long
    hal update 42 --cpus 4 --memory 8GiB --dry-run   # show what would change, and whether it would start
    hal update 42 --after none --constraint gpu=a100
    hal update 42 --max-running 8 --begin now+2h
    """,
)
@click.argument("ids", metavar="JOB...", nargs=-1, required=True)
@click.option("-c", "--cpus", metavar="N", help="Cores per node.")
@click.option("-m", "--memory", metavar="SIZE", help="Memory per node, such as 8GiB; none: no limit.")
@click.option("-g", "--gpus", metavar="N", help="GPUs per node, such as 2 or 4@island; none: none.")
@click.option("-r", "--request", metavar="NAME=N", multiple=True, help="Other resource per node; repeatable; 0: none.")
@click.option("-N", "--nodes", type=click.IntRange(1), metavar="N", help="Number of distinct nodes (a gang).")
@click.option(
    "--within", metavar="LEVEL", help="Level of the topology of which one domain has its nodes; none: anywhere."
)
@click.option(
    "--pack", metavar="LEVEL:TIME", help="Wait so long for one domain, then start it anywhere; none: at once."
)
@click.option(
    "--spread", metavar="LEVEL", help="Level over whose domains what waits of it is spread; none: it does not matter."
)
@click.option("-p", "--priority", type=int, metavar="N", help="Priority; higher starts first.")
@click.option("-t", "--walltime", metavar="TIME", help="Time limit, such as 90m; also of running tasks.")
@click.option("-n", "--name", help="Name of the job.")
@click.option("-Q", "--queue", help="Queue to move it to.")
@click.option("-A", "--account", help="Account to charge.")
@click.option("--qos", help="Quality of service; none: the queue's.")
@click.option("--licence", metavar="NAME[:N]", multiple=True, help="Licence to hold; repeatable; none: no licence.")
@click.option("--booking", metavar="NAME", help="Run only inside this booking; none: outside all.")
@click.option(
    "-d",
    "--after",
    metavar="EXPR",
    multiple=True,
    help="What to wait for, as in `hal submit`; repeatable; none: nothing.",
)
@click.option(
    "--on-dependency-failed",
    type=click.Choice(["cancel", "hold", "run"]),
    help="What to do if its dependencies can no longer be met.",
)
@click.option("--begin", metavar="TIME", help="Do not start before TIME: now+2h, 18:00, tomorrow 08:00; none: at once.")
@click.option("--deadline", metavar="TIME", help="Finish by TIME; written as --begin; none: no deadline.")
@click.option(
    "--max-running", type=click.IntRange(0), metavar="N", help="Array tasks that may run at once; 0: no limit."
)
@click.option("--retries", type=click.IntRange(0), metavar="N", help="How often to try again after a failure.")
@click.option("-l", "--label", metavar="K=V", multiple=True, help="Label; replaces all labels; repeatable; none: none.")
@click.option("--constraint", metavar="RULE", multiple=True, help="Node labels to require; repeatable; none: any node.")
@click.option("-x", "--exclude", metavar="NODE", multiple=True, help="Node not to run on; repeatable; none: no node.")
@click.option(
    "--tolerate", metavar="KEY[=VALUE]", multiple=True, help="Taint of nodes to tolerate; repeatable; none: no taint."
)
@click.option("--gate", metavar="NAME[,FIELD=VALUE...]", multiple=True, help="Gate; repeatable; none: no gate.")
@click.option("--signal", metavar="NAME@TIME", help="Send a signal TIME before the walltime ends: USR1@5m; none: no.")
@click.option("--comment", metavar="TEXT", help="A line for people; none: no comment.")
@click.option(
    "--wait-for-change/--no-wait-for-change",
    default=None,
    help="Change it even if nothing known could ever start it then.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and whether it would start; change nothing.")
@pass_screen
def update(screen: Screen, /, ids: Sequence[str], dry_run: bool, **given: Any) -> int:
    """Each job is changed on its own: one that is refused does not affect the others. Ended jobs cannot be changed.

    What waits takes the change. What runs keeps what it was started with, but for walltime, priority and --max-running.
    """
    from hal.cli.kit.synonyms import option_hint
    from hal.client.patches import patch_fields
    from hal.core.model import parse_task_ref

    for one in ids:
        option, equals, _value = one.partition("=")
        if equals:  # scontrol update 42 TimeLimit=10
            known = {name for parameter in update.params for name in parameter.opts}
            hint = f"--{option}" if f"--{option}" in known else option_hint(f"--{option}", known)
            raise UnlikelyValueError(f"'{one}' is not a job; a field is an option", None, None, hint)
    fields = patch_fields(_keywords(given))
    if not fields:
        raise click.UsageError("there is nothing to change; name a field, such as --priority 10")
    numbers = []
    for one in ids:
        number, task = parse_task_ref(one)
        if task is not None:
            raise click.UsageError(f"'{one}' is a task, and only whole jobs can be changed: hal update {number}")
        numbers.append(number)
    return report(screen, _changed(screen, list(dict.fromkeys(numbers)), fields, dry_run=dry_run), "is as it was")


def _keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `Job.update` from the options that were given.

    Raises:
        click.UsageError: an option is malformed.
    """
    from hal.cli.kit.pairs import pairs

    out = {name: None if given[name] == NONE else given[name] for name in _TEXTS if given[name] is not None}
    for option, keyword in _LISTS.items():
        if given[option]:
            separate = option in ("exclude", "tolerate")
            entries = [part for text in given[option] for part in (text.split(",") if separate else [text])]
            out[keyword] = None if entries == [NONE] else entries
    if given["request"]:
        out["request"] = pairs("--request", given["request"])
    if given["label"]:
        out["labels"] = None if list(given["label"]) == [NONE] else pairs("--label", given["label"])
    if given["licence"]:
        names = [name for text in given["licence"] for name in text.split(",")]
        out["licences"] = None if names == [NONE] else names
    if given["signal"]:
        name, at, before = given["signal"].partition("@")
        if not at and given["signal"] != NONE:
            raise click.UsageError(f"--signal: '{given['signal']}' is not NAME@TIME, such as USR1@5m")
        out["signal"] = {"name": name.removeprefix("SIG"), "before": before} if at else None
    if given["wait_for_change"] is not None:
        out["wait_for_change"] = given["wait_for_change"]
    return out


def _changed(screen: Screen, numbers: Sequence[int], fields: Mapping[str, Any], *, dry_run: bool) -> Iterator[Outcome]:
    """Change one job after the other; one that is refused does not affect the others."""
    from hal.client.rest import calls
    from hal.client.rest.views import Outcome
    from hal.core.model import ConflictError, DeniedError, NotFoundError, SpecError

    for number in numbers:
        try:
            answer = screen.client.call(calls.update(str(number), fields, dry_run=dry_run))
        except (ConflictError, DeniedError, NotFoundError, SpecError) as error:
            yield Outcome(id=str(number), ok=False, code=error.code, detail=error.message, hint=error.hint)
        else:
            yield Outcome(id=str(number), state=_said(answer))


def _said(answer: UpdatedInfo) -> str:
    """What changed or would change, and what follows."""
    parts = [", ".join(_change(one) for one in answer.changes)]
    if answer.never:
        parts.append(answer.never)
    elif answer.dry_run and answer.starts_now is not None:
        parts.append("would start now" if answer.starts_now else "would still wait")
    return "; ".join(part for part in parts if part)


_NAMES = {"begin_at_ms": "begin", "deadline_ms": "deadline"}
"""Fields that hold instants, by the options that set them."""


def _change(one: ChangeInfo) -> str:
    return (
        f"{_NAMES.get(one.field, one.field)} {field_text(one.field, one.before)} → {field_text(one.field, one.after)}"
    )


def field_text(field: str, value: Any) -> str:
    """A value of a spec in a few words."""
    from hal.cli.kit.formats import instant
    from hal.core.model import Dependency, convert

    if value in (None, "", [], {}) or (value == 0 and field in ("begin_at_ms", "deadline_ms", "max_running")):
        return NONE
    if field in ("begin_at_ms", "deadline_ms"):
        return instant(value)
    if field == "dependencies":
        return " & ".join(str(convert(one, Dependency)) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ",".join(f"{key}={text}" for key, text in value.items())
    if isinstance(value, list):
        return ",".join(field_text("", one) for one in value)
    return str(value)
