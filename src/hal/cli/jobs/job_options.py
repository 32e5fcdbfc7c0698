"""Options that describe a job, for `hal run` and `hal submit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from hal.cli.jobs.trailing_command import is_name_alone
from hal.cli.kit.command import UnlikelyValueError
from hal.cli.kit.pairs import pairs
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.specs import JobOptions

F = TypeVar("F", bound=Callable[..., Any])
A_LIST = 'a list in JSON is such as ["a.dat", "b.dat"]'
"""The next step after a file for --from-json that has none."""


class _Nodes(click.ParamType[int | str]):
    """A number of nodes, or `2..8`: at least two, and up to six more beside them; which stays text. Slurm's `2-8` means
    the same."""

    name = "nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """As click's."""
        least, dots, most = str(value).partition(".." if ".." in str(value) else "-")
        numbers = [int(text) for text in (least, most if dots else least) if text.isdecimal() and len(text) < 10]
        if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1]:
            self.fail(f"'{value}' is neither a number from 1 on nor a range like 2..8", param, ctx)
        return numbers[0] if numbers[0] == numbers[1] else f"{numbers[0]}..{numbers[1]}"


class _Priority(click.types.IntParamType):
    """A whole number; whoever types a name means the queue, since -p is Slurm's partition."""

    def fail(self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> NoReturn:
        """As click's, with that word."""
        raise UnlikelyValueError(message, ctx, param, "the queue is -Q, --queue NAME; -p is the priority")


def _not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty path, such as that of an unset variable: the job would run elsewhere, or write elsewhere."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty; give it a value, or leave it out", ctx, param)
    return value


def _workdir(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a mere word that is no directory here: with Slurm, -C names labels of nodes."""
    if _not_empty(ctx, param, value) and is_name_alone(str(value)) and not os.path.isdir(str(value)):
        hint = f"-C is the working directory, ./{value} if it is on the nodes alone; node labels: --constraint {value}"
        raise UnlikelyValueError(f"there is no directory '{value}' here", ctx, param, hint)
    return value


def _name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A name; of one that is a number it is said what it is: with Slurm, -n is a number of tasks."""
    if value is not None and value.isdecimal():
        ctx.ensure_object(Screen).note(
            f"the job's name is {value}: -n is --name; nodes are -N, ranks --ranks-per-node, tasks -a"
        )
    return value


_JOB_OPTIONS = (
    click.option("-n", "--name", callback=_name, help="Name of the job."),
    click.option("-c", "--cpus", metavar="N", help="Cores per node; 0.5 is half a core (default: the queue's, or 1)."),
    click.option("-m", "--memory", metavar="SIZE", help="Memory per node, such as 512MiB or 1.5GiB."),
    click.option(
        "-g",
        "--gpus",
        metavar="[TYPE:]N",
        help="GPUs per node; of a model with that word: a100:2; of one link island: 4@island.",
    ),
    click.option(
        "-r", "--request", "request", metavar="NAME=N", multiple=True, help="Other resource per node; repeatable."
    ),
    click.option(
        "-N",
        "--nodes",
        type=_Nodes(),
        metavar="N[..M]",
        help="Number of distinct nodes to run on at once (a gang); 2..8: on 2, and on up to 8 while there is room.",
    ),
    click.option(
        "--extensions",
        type=click.IntRange(1),
        metavar="N",
        help="Array tasks, the last N, that leave first for others.",
    ),
    click.option("--workers", is_flag=True, help="The array's tasks share work: exit code 0 says that none is left."),
    click.option(
        "--group",
        metavar="FIELDS",
        multiple=True,
        help="A kind of nodes, beside others that start with it: name=gpu,nodes=4,cpus=8,memory=64GiB,gpus=8. Fields: "
        "name, nodes, cpus, memory, gpus, constraint, and last command=TEXT, which runs there instead. Repeatable.",
    ),
    click.option(
        "--first-node",
        is_flag=True,
        help="Run the command on the first of the nodes alone; it begins what runs on the others with `hal launch`.",
    ),
    click.option(
        "--ranks-per-node",
        type=click.IntRange(1),
        metavar="N",
        help="Ranks that `hal launch` in the command begins on each node; the command runs on the first.",
    ),
    click.option("--cpus-per-rank", metavar="N", help="Cores of each rank, instead of --cpus."),
    click.option("--exclusive", is_flag=True, help="Have whole nodes: all cores, memory and devices of each."),
    click.option(
        "--within", metavar="LEVEL", help="Start it only where its nodes are in one domain of that level: rack, switch."
    ),
    click.option(
        "--pack",
        metavar="LEVEL:TIME",
        help="Wait up to TIME for one domain of that level, then start it anywhere: rack:30m.",
    ),
    click.option(
        "--spread",
        metavar="LEVEL",
        help="Put its tasks and their nodes on different domains of that level, where there is room: zone, node.",
    ),
    click.option("-t", "--walltime", metavar="TIME", help="Time limit, such as 90m, 1d2h, 02:30:00 or unlimited."),
    click.option(
        "-a",
        "--array",
        metavar="RANGE",
        help="Run many tasks: 100, 0-99, 1,3,5-9:2, 0-99%8; each sees HAL_ARRAY_INDEX.",
    ),
    click.option("--each-line", metavar="FILE", help="Run a task for each line of FILE, seen as HAL_ITEM."),
    click.option("--from-json", metavar="FILE", help="Run a task for each entry of a JSON list, seen as HAL_ITEM."),
    click.option("--max-running", type=click.IntRange(1), metavar="N", help="Array tasks that may run at once."),
    click.option("-Q", "--queue", help="Queue to submit to (default: default)."),
    click.option("-A", "--account", help="Account to charge."),
    click.option("-u", "--user", help="User to submit for (default: you)."),
    click.option("--qos", metavar="NAME", help="Quality of service (default: the queue's)."),
    click.option("--licence", metavar="NAME[:N]", multiple=True, help="Licence to hold while it runs; repeatable."),
    click.option("--booking", metavar="NAME", help="Run only inside this booking."),
    click.option("--deadline", metavar="TIME", help="Finish by TIME; written as --begin."),
    click.option("-p", "--priority", type=_Priority(), metavar="N", help="Priority; higher starts first (default: 0)."),
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
    click.option(
        "-C", "--workdir", metavar="DIR", callback=_workdir, help="Working directory (default: the current one)."
    ),
    click.option("--umask", metavar="OCTAL", help="Umask of its processes, such as 0027 (default: 0022)."),
    click.option(
        "--ship",
        metavar="DIR",
        callback=_not_empty,
        help="Ship this directory with it: each attempt begins in a copy of its own (left out: what .halignore names).",
    ),
    click.option(
        "--collect",
        metavar="PATTERN",
        multiple=True,
        help="Keep these files of its own directory, for `hal fetch`: results/*.csv, **/*.png; repeatable.",
    ),
    click.option(
        "--collect-when",
        type=click.Choice(["succeeded", "ended"]),
        help="After which attempts they are kept (default: succeeded).",
    ),
    click.option(
        "--stdout",
        metavar="FILE",
        callback=_not_empty,
        help="File for its output, and its errors too unless --stderr names another. In names: %j job, %a array index, "
        "%T task, %n rank, %N node, %r attempt, %u user, %x job name; %05a pads.",
    ),
    click.option("--stderr", metavar="FILE", callback=_not_empty, help="File for its errors; as --stdout."),
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
    click.option("--service", is_flag=True, help="It serves others while it runs, and is restarted when it ends."),
    click.option(
        "--restart",
        type=click.Choice(["always", "on-failure", "never"]),
        help="After which ends to restart a service; --retries says how often within --restart-window.",
    ),
    click.option("--restart-window", metavar="TIME", help="Time in which its restarts count (default: 10m)."),
    click.option(
        "--port",
        metavar="NAME[=N]",
        multiple=True,
        help="TCP port of a service, seen as HAL_PORT_NAME; without N its node chooses a free one. Repeatable.",
    ),
    click.option(
        "--ready",
        metavar="PROBE",
        help="What a service that is ready answers to: http:/PATH, tcp, command:TEXT; tcp:NAME asks port NAME.",
    ),
    click.option("--ready-interval", metavar="TIME", help="Time between two such probes (default: 10s)."),
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
        "--tolerate",
        metavar="KEY[=VALUE]",
        multiple=True,
        help="Taint of nodes in spite of which it may run there; repeatable.",
    ),
    click.option(
        "--apart",
        metavar="KEY[=VALUE]@LEVEL",
        multiple=True,
        help="Not in one domain with work of that label, which then stays away, too: app@node, app=web@rack. "
        "Repeatable.",
    ),
    click.option(
        "--together",
        metavar="KEY[=VALUE]@LEVEL",
        multiple=True,
        help="In a domain in which work of that label runs: app=db@rack. Repeatable.",
    ),
    click.option(
        "--prefer-apart",
        metavar="KEY[=VALUE]@LEVEL[:WEIGHT]",
        multiple=True,
        help="Rather not in one domain with work of that label; WEIGHT is 1 to 100 (default): app@rack:30. Repeatable.",
    ),
    click.option(
        "--prefer-together",
        metavar="KEY[=VALUE]@LEVEL[:WEIGHT]",
        multiple=True,
        help="Rather in a domain in which work of that label runs: app=db@rack. Repeatable.",
    ),
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
    click.option(
        "--notify",
        metavar="STATE[,STATE]:TARGET",
        multiple=True,
        help="Send a message: failed,timed-out:ann@example.org, ended:https://example.org/hook. States: running, "
        "succeeded, failed, timed-out, cancelled, requeued, ended, all; each-task: of each attempt, too. Repeatable.",
    ),
    click.option(
        "--on-node-lost",
        type=click.Choice(["wait", "requeue"]),
        help="What to do with a task whose node is unreachable (default: the queue's setting, else wait).",
    ),
    click.option(
        "--movable/--not-movable",
        default=None,
        help="Let running tasks start again elsewhere to make room for a gang, or not (default: as the queue says).",
    ),
    click.option("--hold", is_flag=True, help="Submit it held; `hal release` lets it start."),
    click.option(
        "--wait-for-change",
        is_flag=True,
        help="Submit it even if nothing known could ever start it; it waits until limits, bookings or nodes change.",
    ),
    click.option(
        "--begin", metavar="TIME", help="Do not start before TIME: now+2h, 18:00, tomorrow 08:00, 2030-01-31T18:00."
    ),
    click.option(
        "--on-resize",
        metavar="SIGNAL",
        help="With --nodes N..M: send this signal to the base when nodes come or go; $HAL_HOSTFILE names them: WINCH.",
    ),
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
    if (items := items_of(given["each_line"], given["from_json"])) is not None:
        out["items"] = items
    if isinstance(given["nodes"], str):
        least, most = map(int, given["nodes"].split(".."))
        out |= {"nodes": least, "extensions": most - least}
    if given["group"]:
        out["groups"] = [group_from(one) if isinstance(one, str) else one for one in given["group"]]
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
    if given["tolerate"]:
        out["tolerate"] = [taint for text in given["tolerate"] for taint in text.split(",")]
    if given["movable"] is not None:
        out["movable"] = given["movable"]
    for field in ("apart", "together", "prefer_apart", "prefer_together"):
        if given[field]:
            out[field] = [term for text in given[field] for term in text.split(",")]
    if given["gate"]:
        out["gates"] = list(given["gate"])
    if given["notify"]:
        out["notify"] = list(given["notify"])
    if given["secret"]:
        out["secrets"] = [name for text in given["secret"] for name in text.split(",")]
    if given["licence"]:
        out["licences"] = [name for text in given["licence"] for name in text.split(",")]
    if (service := _service_of(given)) is not None:
        out["service"] = service
    if given["signal"]:
        name, at, before = given["signal"].partition("@")
        if not at:
            raise click.UsageError(f"--signal: '{given['signal']}' is not NAME@TIME, such as USR1@5m")
        out["signal"] = {"name": name.removeprefix("SIG"), "before": before}
    if given["on_resize"]:
        out["on_resize"] = given["on_resize"].upper().removeprefix("SIG")
    out["env"] = environment(given["env"], export_all=given["export_all"])
    return cast("JobOptions", out)


def group_from(text: str) -> dict[str, Any]:
    """A kind of nodes as `--group` has it.

    Raises:
        click.UsageError: it is malformed.
    """
    found: dict[str, Any] = {}
    text, behind, command = text.partition("command=")
    if behind and text and not text.endswith(","):
        raise click.UsageError(f"--group: '{text}command=…' is not NAME=VALUE,NAME=VALUE")
    if behind:
        found["command"] = command
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in {"name", "nodes", "cpus", "memory", "gpus", "constraint"}:
            raise click.UsageError(
                f"--group: '{part}' is not one of name, nodes, cpus, memory, gpus, constraint and command, each =VALUE"
            )
        if name == "nodes":
            if not value.isdecimal() or not 0 < int(value) < 1_000_000:
                raise click.UsageError(f"--group: nodes: '{value}' is not a number from 1 on")
            found[name] = int(value)
        elif name == "constraint":
            found.setdefault("constraints", []).append(value)
        else:
            found[name] = value
    return found


_SERVICE_OPTIONS = ("restart", "restart_window", "port", "ready", "ready_interval")


def _service_of(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the options say of a service; None if it is none.

    Raises:
        click.UsageError, SpecError: an option is malformed.
    """
    from hal.core.model.service import loosened_service

    if not given["service"] and not any(given[name] for name in _SERVICE_OPTIONS):
        return None
    plain: dict[str, Any] = {}
    if given["restart"]:
        plain["restart"] = given["restart"]
    if given["restart_window"]:
        plain["window"] = given["restart_window"]
    if given["port"]:
        plain["ports"] = list(given["port"])
    if given["ready"]:
        plain["readiness"] = given["ready"]
    found = cast("dict[str, Any]", loosened_service(plain))
    if given["ready_interval"]:
        if "readiness" not in found:
            raise click.UsageError("--ready-interval: there is no probe; give --ready, too")
        found["readiness"]["interval"] = given["ready_interval"]
    return found


def items_of(each_line: str | None, from_json: str | None) -> list[object] | None:
    """The items of an array over the lines of a file, of which blank ones count for nothing, or over a JSON list.

    Raises:
        click.UsageError: both are named.
        SpecError: there is none, or the file is no JSON list.
    """
    from hal.cli.kit.input_files import read_text
    from hal.core.model import SpecError, shown

    if each_line is not None and from_json is not None:
        raise click.UsageError("--each-line and --from-json cannot be combined")
    if each_line is not None:
        return [line for line in read_text(each_line).splitlines() if line.strip()]
    if from_json is None:
        return None
    import json

    try:
        found = json.loads(read_text(from_json))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"--from-json: file '{from_json}' is not JSON: {error}", hint=A_LIST) from None
    if not isinstance(found, list) or not found:
        raise SpecError(f"--from-json: expected a list with entries, found {shown(found)}", hint=A_LIST)
    return found


def _was_given(value: object) -> bool:
    """What click passes for an option that was left out is None; for a flag, False; for a repeatable one, ()."""
    return value is not None and value is not False and value != ()


_OF_STEPS = ("HAL_", "SLURM_", "PBS_")


def environment(entries: Sequence[str], *, export_all: bool) -> dict[str, str]:
    """The environment variables to send beside the few that always are.

    Raises:
        click.UsageError: `K` alone names a variable that is not set.
    """
    env = dict(os.environ) if export_all else {}
    # Variables of a step that submits another one belong to that step, and shells export functions under odd names.
    env = {key: text for key, text in env.items() if not key.startswith(_OF_STEPS) and key.isidentifier()}
    for entry in entries:
        key, equals, text = entry.partition("=")
        if not equals:
            if key not in os.environ:
                raise click.UsageError(
                    f"--env: variable '{key}' is not set; write {key or 'NAME'}=VALUE "
                    "(the file for the job's errors is --stderr FILE)"
                )
            text = os.environ[key]
        env[key] = text
    return env
