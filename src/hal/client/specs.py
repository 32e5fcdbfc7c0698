"""A JobSpec from what people write in Python: `submit(['train.py'], cpus=4, memory='8GiB', walltime='2h')`.

Reads nothing of its own: environment and working directory are passed in.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict

import msgspec

from hal.client.instants import instant_ms
from hal.core.model import (
    ArrayRange,
    Constraint,
    Dependency,
    JobGate,
    JobSpec,
    LimitSignal,
    Resources,
    Retries,
    Service,
    SpecError,
    parse_amount,
    parse_dependencies,
    parse_duration,
    resource_name,
    shown,
    spec_from_plain,
    to_plain,
)
from hal.core.model.array import item_text
from hal.core.model.bundle import is_bundle_name
from hal.core.model.devices import GPU, GPU_ISLAND
from hal.core.model.facts import GPU_LABEL, label_word
from hal.core.model.gpu_slices import slice_resource, slice_type
from hal.core.model.notification import Notification
from hal.core.model.trace_context import trace_id_of

SENT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ")
"""Variables of the submitter that every job gets; those that begin with LC_, too."""


class Submitted(Protocol):
    """A job: a `Job` or an `AsyncJob`."""

    id: str


class JobOptions(TypedDict, total=False):
    """Keywords of `submit`; docs/python.md describes each."""

    cpus: float | str
    """Cores per node (1 when nothing is asked for)."""
    memory: int | str
    """Bytes, or text like '8GiB', per node."""
    gpus: float | str
    """Devices per node; 'a100:2': whose model has that word; '4@island': of one link island; '1g.10gb:1': a slice."""
    request: Mapping[str, Any]
    """More resources per node, by name."""
    nodes: int
    """Distinct nodes that each task holds at once."""
    groups: Sequence[Mapping[str, Any]]
    """Several kinds of nodes that start together: {'name': 'gpu', 'nodes': 4, 'cpus': 8, 'memory': '64GiB', 'gpus': 8},
    and perhaps 'request', 'constraints' and 'command', for each kind."""
    extensions: int
    """Further tasks on one node each, that run only beside these nodes and leave first; of an array, how many of its
    tasks leave first."""
    workers: bool
    """The tasks of its array are workers that share work; one that exits with 0 says that none is left."""
    on_resize: str
    """Signal for its base whenever extensions have come or gone: 'WINCH'."""
    first_node: bool
    """Its command runs on the first of its nodes alone, and begins what runs on the others with `hal launch`."""
    ranks_per_node: int
    """Ranks that `hal launch` in it begins on each of its nodes; of several nodes, its command runs on the first."""
    cpus_per_rank: float | str
    """Cores of each of these, instead of `cpus`."""
    exclusive: bool
    """Whole nodes: all that they have, whatever else is asked for."""
    within: str
    """Level of the topology: the nodes of each task are in one domain of it: 'rack'."""
    pack: str
    """'rack:30m': the same, until it has waited so long; then its nodes may be anywhere."""
    spread: str
    """Level of the topology, or 'node': its tasks and their nodes are on different domains of it, as room allows."""
    walltime: float | str | timedelta
    """Seconds, or text like '90m'."""
    array: int | str | range | Sequence[int] | ArrayRange
    """A count, '0-99', '1,3,5-9:2', a range or a list of indices; '0-99%8' runs at most 8 of them at once."""
    items: Sequence[object]
    """One task for each of these: text as it is, everything else as JSON; the task sees its own as HAL_ITEM."""
    max_running: int
    """Tasks of the array that run at once."""
    name: str
    queue: str
    account: str
    user: str
    qos: str
    """Quality of service; default: the queue's."""
    licences: str | Sequence[str] | Mapping[str, int]
    """Licences held while it runs: 'matlab:2', or {'matlab': 2}."""
    booking: str
    """Run only inside this booking."""
    priority: int
    after: Submitted | Dependency | int | str | Sequence[Submitted | Dependency | int | str]
    """Start after these jobs have succeeded; 'afterany:42' and the like for other kinds, 'afterok:42 & (43 | 44)'."""
    on_dependency_failed: str
    """'cancel', 'hold' or 'run', if the dependencies can no longer be met (default: the queue's setting)."""
    env: Mapping[str, object]
    """Environment variables, beside the few that are always sent (`SENT_VARIABLES`)."""
    workdir: str | os.PathLike[str]
    """Default: the current directory."""
    umask: str
    """Umask of its processes, as octal text: '0027' (default: '0022')."""
    stdin: str | os.PathLike[str]
    """File that it reads; relative to workdir; with patterns: %j, %a, %n and others (docs/jobspec.md)."""
    stdout: str | os.PathLike[str]
    """File that gets its output, and its errors too unless `stderr` names another; HAL then keeps neither."""
    stderr: str | os.PathLike[str]
    interactive: str
    """'terminal' or 'pipes': people attach to its program (docs/interactive.md)."""
    on_hangup: str
    """'end' (the default) or 'continue': what becomes of it when nobody is attached any more."""
    open_mode: str
    """'truncate' (the default) or 'append': what happens to what is in these files."""
    traceparent: str
    """W3C Trace Context; default: TRACEPARENT of the environment, if it is valid."""
    retries: int | Mapping[str, Any] | Retries
    labels: Mapping[str, str]
    comment: str
    """A line for people, at most 200 characters; the job sees it as HAL_JOB_COMMENT."""
    constraints: str | Sequence[str | Constraint]
    """Labels that its nodes must have: 'gpu=a100|h100', '!spot'."""
    exclude: str | Sequence[str]
    """Nodes not to run on, by name."""
    tolerate: str | Sequence[str]
    """Taints of nodes in spite of which it may run there: 'gpu', 'team=bio'."""
    apart: str | Sequence[str]
    """Not in a domain with work of that label: 'app@node' (its own), 'app=web@rack' (docs/affinity.md)."""
    together: str | Sequence[str]
    """In domains in which work of that label runs, written alike."""
    prefer_apart: str | Sequence[str]
    """The same, rather than required: 'app@node', 'app=web@rack:30' with a weight from 1 to 100 (the default)."""
    prefer_together: str | Sequence[str]
    gates: str | JobGate | Sequence[str | JobGate]
    """Services of the node that let each attempt begin, or end: 'stage,policy=elsewhere,argument=genome'."""
    sandbox: bool | str | Sequence[str]
    """What to keep it from on its node: True, or 'private-tmp,no-network' (docs/sandbox.md)."""
    notify: str | Notification | Sequence[str | Notification]
    """Messages about it: 'failed,timed-out:ann@example.org', 'ended:https://example.org/hook'."""
    secrets: str | Sequence[str]
    """Names of secrets, which its steps find as files in HAL_SECRETS_DIR."""
    ship: str | os.PathLike[str]
    """Directory whose files are shipped: each attempt begins in a copy of its own (docs/files.md)."""
    collect: str | Sequence[str]
    """Patterns of files that are kept of each attempt's own directory, for `Job.fetch`."""
    collect_when: str
    """'succeeded' (the default) or 'ended': after which attempts they are collected."""
    service: bool | Mapping[str, Any] | Service
    """It serves others while it runs: True, or {'ports': ['http'], 'readiness': 'http:/healthz'} (docs/services.md)."""
    hold: bool
    wait_for_change: bool
    """Accept it even if nothing that is known could ever start it; it waits until limits, bookings or nodes change."""
    script: str
    """Text of a script, instead of a command."""
    arguments: Sequence[object]
    """Arguments of the script."""
    dialect: str
    """'slurm' or 'pbs': its steps get the variables of that scheduler, too (docs/from-slurm.md)."""
    on_node_lost: str
    """'wait' or 'requeue', if the node of a task is unreachable (default: the queue's setting)."""
    movable: bool
    """Whether a running task may be started again elsewhere to make room for a gang (default: the queue's setting)."""
    begin: float | str | datetime | timedelta
    """Do not start before: a datetime, ISO text, seconds since 1970; or from now, a timedelta or 'now+2h'."""
    deadline: float | str | datetime | timedelta
    """Finish by then; written as `begin`."""
    signal: Mapping[str, Any] | LimitSignal
    """Sent before the walltime ends: {'name': 'USR1', 'before': '5m'}."""


_KEYWORDS = frozenset(JobOptions.__annotations__)
_FIELDS = frozenset(JobSpec.__struct_fields__)


def sent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that every job gets."""
    return {key: value for key, value in environ.items() if key in SENT_VARIABLES or key.startswith("LC_")}


def inherited_traceparent(environ: Mapping[str, str]) -> str:
    """The trace of the submitter, which its jobs belong to; '' without a valid one, as W3C Trace Context says."""
    traceparent = environ.get("TRACEPARENT", "")
    return traceparent if trace_id_of(traceparent) else ""


def spec_from_options(
    command: str | Sequence[str] | None, options: JobOptions, *, environ: Mapping[str, str], workdir: str
) -> JobSpec:
    """Make and check the spec of one job.

    Args:
        command: program and arguments; text is run by /bin/sh.
        options: keywords of `submit`.
        environ: the submitter's environment, of which `SENT_VARIABLES` are sent.
        workdir: where the job runs unless `options` names another directory.
    Raises:
        SpecError: it names the keyword and what to write instead.
    """
    unknown = [key for key in options if key not in _KEYWORDS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(_KEYWORDS), n=1)
        raise SpecError(
            f"submit has no keyword '{unknown[0]}'",
            hint=f"did you mean '{near[0]}'?" if near else f"keywords: {', '.join(sorted(_KEYWORDS))}",
        )
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    plain: dict[str, Any] = {key: value for key, value in given.items() if key in _FIELDS}
    if command is not None:
        plain["command"] = _words(command)
    plain["env"] = {**sent_environment(environ), **_environment(given.get("env", {}))}
    if "workdir" in given or not (given.get("ship") or given.get("collect")):
        plain["workdir"] = os.path.normpath(os.path.join(workdir, os.path.expanduser(given.get("workdir", ""))))
    if "ship" in given:
        plain["ship"] = _shipped(_text(given["ship"], "ship"), workdir)
    if "collect" in given:
        plain["collect"] = listed(given["collect"])
    if "groups" in given:
        plain["groups"] = [_group(one) for one in listed(given["groups"])]
    if given.get("ranks_per_node") and (given.get("nodes", 1) != 1 or "groups" in given):
        plain.setdefault("first_node", True)
    kind = ""
    if isinstance(given.get("gpus"), str):
        kind, amounts = gpus_asked(given["gpus"])
        given = with_gpus(given, amounts)
    if request := _request(given):
        plain["request"] = request
    if "walltime" in given:
        plain["walltime"] = seconds_of(given["walltime"])
    for stream in ("stdin", "stdout", "stderr"):
        if stream in given:
            plain[stream] = _text(given[stream], stream)
    if "arguments" in given:
        plain["arguments"] = [_text(word, "arguments") for word in given["arguments"]]
    if "traceparent" not in given:
        plain["traceparent"] = inherited_traceparent(environ)
    if "array" in given:
        plain["array"] = _array(given["array"])
    if "items" in given:
        plain["array"] = _over_items(given)
    if "max_running" in given:
        plain["array"] = _narrowed(plain.get("array"), given["max_running"])
    if "after" in given:
        plain["dependencies"] = [dependency for one in listed(given["after"]) for dependency in dependencies_of(one)]
    if "retries" in given:
        plain["retries"] = {"max": given["retries"]} if isinstance(given["retries"], int) else given["retries"]
    if "labels" in given:
        plain["labels"] = _labels(given["labels"])
    if "constraints" in given:
        plain["constraints"] = listed(given["constraints"])
    if kind:
        plain["constraints"] = [*plain.get("constraints", ()), f"{GPU_LABEL}.{kind}"]
    if "exclude" in given:
        plain["exclude"] = listed(given["exclude"])
    if "tolerate" in given:
        plain["tolerate"] = listed(given["tolerate"])
    for field in ("apart", "together", "prefer_apart", "prefer_together"):
        if field in given:
            plain[field] = listed(given[field])
    if "gates" in given:
        plain["gates"] = listed(given["gates"])
    if "notify" in given:
        plain["notify"] = listed(given["notify"])
    if "secrets" in given:
        plain["secrets"] = listed(given["secrets"])
    if given.get("service") is False:
        del plain["service"]
    if "begin" in given:
        plain["begin_at_ms"] = instant_ms(given["begin"])
    if "deadline" in given:
        plain["deadline_ms"] = instant_ms(given["deadline"], "deadline")
    return spec_from_plain({key: _as_plain(value) for key, value in plain.items()})


_OF_GROUP = frozenset({"name", "nodes", "cpus", "memory", "gpus", "request", "constraints", "command"})


def _group(given: Any) -> dict[str, Any]:
    """One kind of nodes, as in a spec."""
    if not isinstance(given, Mapping):
        raise SpecError(f"groups: expected a mapping, got {given!r}", hint="such as {'name': 'gpu', 'nodes': 4}")
    for key in given:
        if key not in _OF_GROUP:
            raise SpecError(f"groups: '{shown(key)}' is not known", hint=f"a group has {', '.join(sorted(_OF_GROUP))}")
    plain: dict[str, Any] = {key: given[key] for key in ("name", "nodes") if key in given}
    kind = ""
    if isinstance(given.get("gpus"), str):
        kind, amounts = gpus_asked(given["gpus"])
        given = with_gpus(given, amounts)
    if request := _request(given):
        plain["request"] = request
    constraints = listed(given["constraints"]) if "constraints" in given else []
    if kind:
        constraints = [*constraints, f"{GPU_LABEL}.{kind}"]
    if constraints:
        plain["constraints"] = constraints
    if "command" in given:
        plain["command"] = _words(given["command"])
    return {"name": "", **plain}


def _words(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    return [_text(word, "command") for word in command]


def _shipped(place: str, workdir: str) -> str:
    """A directory by its absolute path; the name of a bundle as it is."""
    if not place or is_bundle_name(place):
        return place
    return os.path.normpath(os.path.join(workdir, os.path.expanduser(place)))


def _labels(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SpecError(
            f"labels: expected a mapping of names to values, got {given!r}", hint="such as {'project': 'fit'}"
        )
    return dict(given)


def _environment(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise SpecError(f"env: expected a mapping of names to values, got {given!r}", hint="such as {'SEED': 1}")
    return {_text(key, "env"): _text(value, f"env.{key}") for key, value in given.items()}


def _text(value: object, field: str) -> str:
    """Text, a path or a number as a program gets it.

    Raises:
        SpecError: anything else; its text would hardly be what is meant.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else os.fsdecode(path)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise SpecError(
        f"{field}: expected text or a number, got {shown(value)}", hint="convert it with str() if you mean its text"
    )


def gpus_asked(text: str) -> tuple[str, dict[str, str]]:
    """Read `2`, `a100:2`, `a100:4@island`, `1g.10gb:2` or `a100-1g.10gb:2`: the word of the model, or '', and amounts.

    Raises:
        SpecError: it is not the name of a type, or what is behind the @ is no `island`.
    """
    kind, colon, count = text.rpartition(":")
    count, at, place = count.partition("@")
    model, _, last = kind.rpartition("-")
    part = slice_type(last)
    model = model if part else kind
    if (colon and not kind) or label_word(model) != model:
        raise SpecError(
            f"gpus: '{shown(kind)}' is not a type of GPUs",
            hint="a word of their model in small letters, or a type of slices: a100:2, 1g.10gb:2, a100-1g.10gb:2",
        )
    if at and (place.strip() != "island" or part):
        raise SpecError(
            f"gpus: '{shown(text)}' is not a number of GPUs", hint="4@island: four of one link island; slices have none"
        )
    if part:
        return model, {slice_resource(part): count}
    return model, {GPU: count, GPU_ISLAND: count} if at else {GPU: count}


def with_gpus(given: Mapping[str, Any], amounts: Mapping[str, str]) -> dict[str, Any]:
    """The keywords with these amounts in place of `gpus`."""
    request = dict(given.get("request") or {})
    named = [name for name in request if resource_name(str(name)) in amounts]
    if named:
        raise SpecError(f"gpus: `request` has '{shown(str(named[0]))}', too", hint="give it once")
    return {**given, "gpus": amounts.get(GPU), "request": {**request, **{n: a for n, a in amounts.items() if n != GPU}}}


def _request(given: Mapping[str, Any]) -> dict[str, str]:
    amounts: dict[str, int] = {}
    for name, amount in (given.get("request") or {}).items():
        name = resource_name(str(name))
        amounts[name] = parse_amount(name, amount, field=f"request.{name}")
    for keyword, name in (("cpus", "cpu"), ("memory", "memory"), ("gpus", "gpu")):
        if given.get(keyword) is not None:
            if name in amounts:
                raise SpecError(f"{keyword}: `request` has '{name}', too", hint="give it once")
            amounts[name] = parse_amount(name, given[keyword], field=keyword)
    if "cpus_per_rank" in given:
        if "cpu" in amounts:
            raise SpecError("cpus_per_rank: the cores of the node are given, too", hint="give one of them")
        each = parse_amount("cpu", given["cpus_per_rank"], field="cpus_per_rank")
        amounts["cpu"] = each * max(given.get("ranks_per_node") or 1, 1)
    if amounts and not any(amounts.values()):
        raise SpecError("cpus: 0 requests nothing", hint="request at least some cpu, such as 0.1; the default is 1")
    return Resources(amounts, says_cpu="cpu" in amounts).plain()


def seconds_of(value: Any) -> str:
    """A walltime as REST takes it.

    Raises:
        SpecError: no duration.
    """
    if isinstance(value, timedelta):
        value = f"{value / timedelta(milliseconds=1):.0f}ms"
    return str(parse_duration(value, field="walltime"))


def _array(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ArrayRange.parse(value)
    if not isinstance(value, range):
        return value
    if value.step < 1 or not value:
        raise SpecError(f"array: {value} has no task", hint="write a range that counts up")
    return ArrayRange(count=len(value), first=value.start, step=value.step)


def _over_items(given: Mapping[str, Any]) -> dict[str, Any]:
    items = given["items"]
    if "array" in given:
        raise SpecError("items: `array` is given, too", hint="give one of them; each item is a task")
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise SpecError(
            f"items: expected a list, got {shown(items)}", hint="such as ['a.dat', 'b.dat'], a task for each"
        )
    return {"items": [item_text(one) for one in items]}


def listed(value: Any) -> list[Any]:
    """Several values as a list; one alone, too."""
    return list(value) if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str) else [value]


def _narrowed(array: Any, max_running: int) -> ArrayRange:
    if array is None:
        raise SpecError("max_running: the job has no array", hint="give `array`, too")
    whole = ArrayRange.parse(array)
    if isinstance(max_running, bool) or not isinstance(max_running, int) or max_running < 1:
        raise SpecError(f"max_running: {max_running!r} is not a number of tasks", hint="write 1 or more")
    if whole.max_running not in (0, max_running):
        raise SpecError(f"max_running: {max_running}, but the array has %{whole.max_running}", hint="give it once")
    return msgspec.structs.replace(whole, max_running=max_running)


def dependencies_of(value: Any) -> tuple[Dependency, ...]:
    """A job, a dependency or text like `afterok:12` as dependencies.

    Raises:
        SpecError: none of these.
    """
    if isinstance(value, Dependency):
        return (value,)
    return parse_dependencies(str(getattr(value, "id", value)))


def _as_plain(value: Any) -> Any:
    """Values of the model as plain data, lists of them too; everything else as it is."""
    if isinstance(value, list):
        return [_as_plain(item) for item in value]
    return to_plain(value) if isinstance(value, msgspec.Struct) else value
