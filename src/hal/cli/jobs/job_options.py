"""Options that describe a job, for `hal run` and `hal submit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from hal.cli.kit.pairs import pairs

if TYPE_CHECKING:
    from hal.client.specs import JobOptions

F = TypeVar("F", bound=Callable[..., Any])

_JOB_OPTIONS = (
    click.option("-n", "--name", help="Name of the job."),
    click.option("-c", "--cpus", metavar="N", help="Cores per node; 0.5 is half a core (default: 1)."),
    click.option("-m", "--memory", metavar="SIZE", help="Memory per node, such as 512MiB or 1.5GiB."),
    click.option("-g", "--gpus", metavar="N", help="GPUs per node."),
    click.option(
        "-r", "--request", "request", metavar="NAME=N", multiple=True, help="Other resource per node; repeatable."
    ),
    click.option(
        "-N",
        "--nodes",
        type=click.IntRange(1),
        metavar="N",
        help="Number of distinct nodes to run on at once (a gang).",
    ),
    click.option("-t", "--walltime", metavar="TIME", help="Time limit, such as 90m, 1d2h or 02:30:00."),
    click.option(
        "-a", "--array", metavar="RANGE", help="Run many tasks: 100, 0-99, 0-98:2, 0-99%8; each sees HAL_ARRAY_INDEX."
    ),
    click.option("--max-running", type=click.IntRange(1), metavar="N", help="Array tasks that may run at once."),
    click.option("-Q", "--queue", help="Queue to submit to (default: default)."),
    click.option("-A", "--account", help="Account to charge."),
    click.option("-u", "--user", help="User to submit for (default: you)."),
    click.option("--qos", metavar="NAME", help="Quality of service (default: the queue's)."),
    click.option("--licence", metavar="NAME[:N]", multiple=True, help="Licence to hold while it runs; repeatable."),
    click.option("--booking", metavar="NAME", help="Run only inside this booking."),
    click.option("--deadline", metavar="TIME", help="Finish by TIME: 2030-01-31T18:00, or now+2h."),
    click.option("-p", "--priority", type=int, metavar="N", help="Priority; higher starts first (default: 0)."),
    click.option(
        "-d",
        "--after",
        metavar="EXPR",
        multiple=True,
        help="Start after other jobs: 12, afterany:12, 'afterok:12 & (13 | afternotok:14)', singleton. Kinds: afterok "
        "(default), afterany, afternotok, after, aftercorr. Repeatable.",
    ),
    click.option(
        "--on-dependency-failed",
        type=click.Choice(["cancel", "hold", "run"]),
        help="What to do if the dependencies can no longer be met (default: the queue's setting, else cancel).",
    ),
    click.option(
        "-e", "--env", metavar="K=V", multiple=True, help="Environment variable; K alone passes yours on; repeatable."
    ),
    click.option("--export-all", is_flag=True, help="Pass your whole environment on."),
    click.option("-C", "--workdir", metavar="DIR", help="Working directory (default: the current one)."),
    click.option(
        "--stdout",
        metavar="FILE",
        help="File for its output, and its errors too unless --stderr names another. In names: %j job, %a array index, "
        "%n rank, %N node, %r attempt, %u user, %x job name; %05a pads.",
    ),
    click.option("--stderr", metavar="FILE", help="File for its errors; as --stdout."),
    click.option("--stdin", metavar="FILE", help="File that it reads; as --stdout (default: nothing)."),
    click.option(
        "--open-mode",
        type=click.Choice(["truncate", "append"]),
        help="What to do with files that are there already (default: truncate).",
    ),
    click.option(
        "--traceparent",
        metavar="TEXT",
        help="W3C trace that it belongs to (default: TRACEPARENT of your environment, if valid).",
    ),
    click.option(
        "--retries", type=click.IntRange(0), metavar="N", help="How often to try again after a failure (default: 0)."
    ),
    click.option("-l", "--label", "label", metavar="K=V", multiple=True, help="Label of the job; repeatable."),
    click.option("--comment", metavar="TEXT", help="A line for people, at most 200 characters; `hal show` shows it."),
    click.option(
        "--constraint",
        metavar="RULE",
        multiple=True,
        help="Node labels to require: gpu=a100|h100, rack!=r1, ssd, !spot; repeatable.",
    ),
    click.option("-x", "--exclude", metavar="NODE", multiple=True, help="Node not to run on; repeatable."),
    click.option(
        "--gate",
        metavar="NAME[,FIELD=VALUE...]",
        multiple=True,
        help="Service of the node that lets it begin, or end: stage,policy=elsewhere,deadline=10m,argument=TEXT. "
        "Fields: phase (preparing, finalising), policy (wait, elsewhere, fail, ignore), deadline, argument. "
        "Repeatable.",
    ),
    click.option(
        "--sandbox",
        metavar="WORDS",
        help="What to keep it from on its node: yes (own-proc,private-tmp,read-only), no-network, writable=/DIR.",
    ),
    click.option(
        "--secret",
        metavar="NAME",
        multiple=True,
        help="Secret that its steps find as a file NAME in HAL_SECRETS_DIR; repeatable.",
    ),
    click.option("--hold", is_flag=True, help="Submit it held; `hal release` lets it start."),
    click.option("--begin", metavar="TIME", help="Do not start before TIME: 2030-01-31T18:00, or now+2h."),
    click.option("--signal", metavar="NAME@TIME", help="Send a signal TIME before the walltime ends: USR1@5m."),
)


def job_options(function: F) -> F:
    """Add the options that describe a job; the function takes them as `**given`, and `options_of` reads them."""
    for option in reversed(_JOB_OPTIONS):
        function = option(function)
    return function


def options_of(given: Mapping[str, Any]) -> JobOptions:
    """Keywords of `Client.submit` from the values of `job_options`.

    Raises:
        click.UsageError: an option is malformed.
    """
    from hal.client.specs import JobOptions

    names = JobOptions.__annotations__
    out: dict[str, Any] = {name: given[name] for name in names if name in given and _was_given(given[name])}
    if given["request"]:
        out["request"] = pairs("--request", given["request"])
    if given["after"]:
        out["after"] = list(given["after"])
    if given["label"]:
        out["labels"] = pairs("--label", given["label"])
    if given["constraint"]:
        out["constraints"] = list(given["constraint"])
    if given["exclude"]:
        out["exclude"] = [name for text in given["exclude"] for name in text.split(",")]
    if given["gate"]:
        out["gates"] = list(given["gate"])
    if given["secret"]:
        out["secrets"] = [name for text in given["secret"] for name in text.split(",")]
    if given["licence"]:
        out["licences"] = [name for text in given["licence"] for name in text.split(",")]
    if given["signal"]:
        name, at, before = given["signal"].partition("@")
        if not at:
            raise click.UsageError(f"--signal: '{given['signal']}' is not NAME@TIME, such as USR1@5m")
        out["signal"] = {"name": name.removeprefix("SIG"), "before": before}
    out["env"] = environment(given["env"], export_all=given["export_all"])
    return cast("JobOptions", out)


def _was_given(value: object) -> bool:
    """What click passes for an option that was left out is None; for a flag, False; for a repeatable one, ()."""
    return value is not None and value is not False and value != ()


def environment(entries: Sequence[str], *, export_all: bool) -> dict[str, str]:
    """The environment variables to send beside the few that always are.

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
                raise click.UsageError(f"--env: variable '{key}' is not set; write {key or 'NAME'}=VALUE")
            text = os.environ[key]
        env[key] = text
    return env
