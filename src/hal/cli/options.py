"""Options that several commands share: what a job needs (`run`, `submit`), and which jobs (listings and actions)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from hal.client.specs import JobOptions

F = TypeVar("F", bound=Callable[..., Any])

_JOB_OPTIONS = (
    click.option("-n", "--name", help="Name, for people."),
    click.option("-c", "--cpus", metavar="N", help="Cores per node; 0.5 is half a core (default: 1)."),
    click.option("-m", "--memory", metavar="SIZE", help="Memory per node, like 512MiB or 1.5GiB."),
    click.option("-g", "--gpus", metavar="N", help="GPUs per node."),
    click.option(
        "-r", "--request", "request", metavar="NAME=N", multiple=True, help="Another resource per node; repeatable."
    ),
    click.option("-N", "--nodes", type=click.IntRange(1), metavar="N", help="Distinct nodes held at once (a gang)."),
    click.option("-t", "--walltime", metavar="TIME", help="Time limit, like 90m, 1d2h or 02:30:00."),
    click.option("-a", "--array", metavar="RANGE", help="Many tasks: 100, 0-99, 0-98:2, 0-99%8; see HAL_ARRAY_INDEX."),
    click.option("--max-running", type=click.IntRange(1), metavar="N", help="Tasks of the array that run at once."),
    click.option("-Q", "--queue", help="Queue (default: default)."),
    click.option("-A", "--account", help="Account to charge."),
    click.option("-u", "--user", help="On whose behalf (default: you)."),
    click.option("--qos", metavar="NAME", help="Quality of service (default: the queue's)."),
    click.option("--licence", metavar="NAME[:N]", multiple=True, help="A licence held while it runs; repeatable."),
    click.option("--booking", metavar="NAME", help="Run inside this booking only."),
    click.option("--deadline", metavar="TIME", help="To have ended by then: 2030-01-31T18:00, or now+2h."),
    click.option("-p", "--priority", type=int, metavar="N", help="Higher goes first (default: 0)."),
    click.option(
        "-d",
        "--after",
        metavar="EXPR",
        multiple=True,
        help="Start after other jobs: 12, afterany:12, 'afterok:12 & (13 | afternotok:14)', singleton; kinds: afterok "
        "(default), afterany, afternotok, after, aftercorr; repeatable.",
    ),
    click.option(
        "--on-dependency-failed",
        type=click.Choice(["cancel", "hold", "run"]),
        help="What to do when that can never come true (default: as the queue says, else cancel).",
    ),
    click.option("-e", "--env", metavar="K=V", multiple=True, help="A variable; K alone passes yours on; repeatable."),
    click.option("--export-all", is_flag=True, help="Pass all of your environment on."),
    click.option("-C", "--workdir", metavar="DIR", help="Where it runs (default: here)."),
    click.option("--retries", type=click.IntRange(0), metavar="N", help="Tries after a failure (default: 0)."),
    click.option("-l", "--label", "label", metavar="K=V", multiple=True, help="A label of the job; repeatable."),
    click.option(
        "--constraint",
        metavar="RULE",
        multiple=True,
        help="What node labels must say: gpu=a100|h100, rack!=r1, ssd, !spot; repeatable.",
    ),
    click.option("--hold", is_flag=True, help="Do not start it before `hal release`."),
    click.option("--begin", metavar="TIME", help="Not before: 2030-01-31T18:00, or now+2h."),
    click.option("--signal", metavar="NAME@TIME", help="Send a signal so long before the limit: USR1@5m."),
)

_FILTERS = (
    click.option("-s", "--state", multiple=True, metavar="STATE", help="Jobs in this state; repeatable."),
    click.option("-u", "--user", help="Jobs of this user."),
    click.option("-Q", "--queue", help="Jobs in this queue."),
    click.option("-n", "--name", help="Jobs of this name."),
    click.option("-A", "--account", help="Jobs of this account."),
    click.option("-l", "--label", multiple=True, metavar="K[=V]", help="Jobs with this label; repeatable."),
)


def job_options(function: F) -> F:
    """What a job needs; the function takes them as `**given`, `options_of` makes keywords of `submit` of them."""
    for option in reversed(_JOB_OPTIONS):
        function = option(function)
    return function


def filter_options(function: F) -> F:
    """Which jobs; the function takes them as `**which`, `filters_from` makes a filter of them."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


def filters_from(which: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that were given.

    Raises:
        click.UsageError: a state that does not exist.
    """
    chosen = {name: value for name, value in which.items() if value}
    if "state" in chosen:
        chosen["state"] = [checked_state(text) for part in chosen["state"] for text in part.split(",") if text]
    return chosen


def checked_state(text: str) -> str:
    """The state of that name.

    Raises:
        click.UsageError: there is none; names the nearest.
    """
    import difflib

    from hal.core.model import TaskState

    known = [state.value for state in TaskState]
    wanted = text.strip().lower().replace("_", "-")
    if wanted in known:
        return wanted
    near = difflib.get_close_matches(wanted, known, n=1)
    raise click.UsageError(
        f"'{text}' is not a state{f'; did you mean {near[0]}?' if near else ''} ({', '.join(known)})"
    )


def options_of(given: Mapping[str, Any]) -> JobOptions:
    """Keywords of `Client.submit` from the values of `job_options`.

    Raises:
        click.UsageError: an option that is malformed.
    """
    out: dict[str, Any] = {}
    for name in (
        "name",
        "cpus",
        "memory",
        "gpus",
        "nodes",
        "walltime",
        "array",
        "max_running",
        "on_dependency_failed",
        "queue",
        "account",
        "user",
        "qos",
        "booking",
        "priority",
    ):
        if given[name] is not None:
            out[name] = given[name]
    if given["retries"] is not None:
        out["retries"] = given["retries"]
    if given["request"]:
        out["request"] = pairs("--request", given["request"])
    if given["after"]:
        out["after"] = list(given["after"])
    if given["label"]:
        out["labels"] = pairs("--label", given["label"])
    if given["constraint"]:
        out["constraints"] = list(given["constraint"])
    if given["hold"]:
        out["hold"] = True
    if given["workdir"]:
        out["workdir"] = given["workdir"]
    if given["licence"]:
        out["licences"] = [name for text in given["licence"] for name in text.split(",")]
    if given["begin"]:
        out["begin"] = given["begin"]
    if given["deadline"]:
        out["deadline"] = given["deadline"]
    if given["signal"]:
        name, at, before = given["signal"].partition("@")
        if not at:
            raise click.UsageError(f"--signal: '{given['signal']}' is not NAME@TIME, like USR1@5m")
        out["signal"] = {"name": name.removeprefix("SIG"), "before": before}
    out["env"] = environment(given["env"], export_all=given["export_all"])
    return cast("JobOptions", out)


def environment(entries: Sequence[str], *, export_all: bool) -> dict[str, str]:
    """Variables to send beside the few that always are.

    Raises:
        click.UsageError: `K` alone names a variable that is not set.
    """
    env = dict(os.environ) if export_all else {}
    # Variables of a HAL step that submits another one belong to that step, and shells export functions under odd names.
    env = {key: text for key, text in env.items() if not key.startswith("HAL_") and key.isidentifier()}
    for entry in entries:
        key, equals, text = entry.partition("=")
        if not equals:
            if key not in os.environ:
                raise click.UsageError(f"--env: '{key}' is not set here; write {key or 'NAME'}=VALUE")
            text = os.environ[key]
        env[key] = text
    return env


def pairs(option: str, entries: Sequence[str]) -> dict[str, str]:
    """`['a=1', 'b=2']` as a dict; commas separate too.

    Raises:
        click.UsageError: an entry without `=`, or a name given twice.
    """
    out: dict[str, str] = {}
    for entry in (part.strip() for text in entries for part in text.split(",")):
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option}: '{entry}' is not NAME=VALUE")
        if key in out:
            raise click.UsageError(f"{option}: '{key}' is given twice")
        out[key] = value
    return out
