"""A JobSpec from what people write in Python: `submit(['train.py'], cpus=4, memory='8GiB', walltime='2h')`.

Reads nothing of its own: environment and working directory are passed in.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict

import msgspec

from hal.core.model import (
    ArrayRange,
    Constraint,
    Dependency,
    JobGate,
    JobSpec,
    LimitSignal,
    Resources,
    Retries,
    SpecError,
    parse_amount,
    parse_dependencies,
    parse_duration,
    resource_name,
    shown,
    spec_from_plain,
    to_plain,
)
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
    """Devices per node."""
    request: Mapping[str, Any]
    """More resources per node, by name."""
    nodes: int
    """Distinct nodes that each task holds at once."""
    walltime: float | str | timedelta
    """Seconds, or text like '90m'."""
    array: int | str | range | ArrayRange
    """A count, '0-99', '0-98:2' or a range; '0-99%8' runs at most 8 of them at once."""
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
    stdin: str | os.PathLike[str]
    """File that it reads; relative to workdir; with patterns: %j, %a, %n and others (docs/jobspec.md)."""
    stdout: str | os.PathLike[str]
    """File that gets its output, and its errors too unless `stderr` names another; HAL then keeps neither."""
    stderr: str | os.PathLike[str]
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
    gates: str | JobGate | Sequence[str | JobGate]
    """Services of the node that let each attempt begin, or end: 'stage,policy=elsewhere,argument=genome'."""
    sandbox: bool | str | Sequence[str]
    """What to keep it from on its node: True, or 'private-tmp,no-network' (docs/sandbox.md)."""
    secrets: str | Sequence[str]
    """Names of secrets, which its steps find as files in HAL_SECRETS_DIR."""
    hold: bool
    script: str
    """Text of a script, instead of a command."""
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
    plain["workdir"] = os.path.normpath(os.path.join(workdir, os.path.expanduser(given.get("workdir", ""))))
    if request := _request(given):
        plain["request"] = request
    if "walltime" in given:
        plain["walltime"] = _seconds(given["walltime"])
    for stream in ("stdin", "stdout", "stderr"):
        if stream in given:
            plain[stream] = _text(given[stream], stream)
    if "traceparent" not in given:
        plain["traceparent"] = inherited_traceparent(environ)
    if "array" in given:
        plain["array"] = _array(given["array"])
    if "max_running" in given:
        plain["array"] = _narrowed(plain.get("array"), given["max_running"])
    if "after" in given:
        plain["dependencies"] = [dependency for one in _listed(given["after"]) for dependency in _dependencies(one)]
    if "retries" in given:
        plain["retries"] = {"max": given["retries"]} if isinstance(given["retries"], int) else given["retries"]
    if "labels" in given:
        plain["labels"] = dict(given["labels"])
    if "constraints" in given:
        plain["constraints"] = _listed(given["constraints"])
    if "exclude" in given:
        plain["exclude"] = _listed(given["exclude"])
    if "gates" in given:
        plain["gates"] = _listed(given["gates"])
    if "secrets" in given:
        plain["secrets"] = _listed(given["secrets"])
    if "begin" in given:
        plain["begin_at_ms"] = instant_ms(given["begin"])
    if "deadline" in given:
        plain["deadline_ms"] = instant_ms(given["deadline"], "deadline")
    return spec_from_plain({key: _as_plain(value) for key, value in plain.items()})


def _words(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    return [_text(word, "command") for word in command]


def _environment(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise SpecError(f"env: expected a mapping of names to values, got {given!r}")
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


def _request(given: Mapping[str, Any]) -> dict[str, str]:
    amounts: dict[str, int] = {}
    for name, amount in (given.get("request") or {}).items():
        name = resource_name(str(name))
        amounts[name] = parse_amount(name, amount, field=f"request.{name}")
    for keyword, name in (("cpus", "cpu"), ("memory", "memory"), ("gpus", "gpu")):
        if keyword in given:
            if name in amounts:
                raise SpecError(f"{keyword}: `request` has '{name}', too", hint="give it once")
            amounts[name] = parse_amount(name, given[keyword], field=keyword)
    if amounts and not any(amounts.values()):
        raise SpecError("cpus: 0 requests nothing", hint="request at least some cpu, such as 0.1; the default is 1")
    if amounts and "cpu" not in amounts:
        amounts["cpu"] = 1000
    return Resources(amounts).plain()


def _seconds(value: Any) -> str:
    if isinstance(value, timedelta):
        value = f"{value / timedelta(milliseconds=1):.0f}ms"
    return str(parse_duration(value, field="walltime"))


def _array(value: Any) -> Any:
    if not isinstance(value, range):
        return value
    if value.step < 1 or not value:
        raise SpecError(f"array: {value} has no task", hint="write a range that counts up")
    return ArrayRange(count=len(value), first=value.start, step=value.step)


def _listed(value: Any) -> list[Any]:
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


def _dependencies(value: Any) -> tuple[Dependency, ...]:
    if isinstance(value, Dependency):
        return (value,)
    return parse_dependencies(str(getattr(value, "id", value)))


def instant_ms(value: Any, field: str = "begin") -> int:
    """Milliseconds since 1970 of a datetime, ISO text (local time without a zone), seconds, or `now+2h`, `+2h`,
    `now-30d`.

    Raises:
        SpecError: none of these; names `field`.
    """
    if isinstance(value, timedelta):
        value = time.time() + value.total_seconds()
    if isinstance(value, str):
        value = _instant(value.strip(), field)
    if isinstance(value, datetime):
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{field}: expected a datetime or seconds since 1970, got {value!r}")
    return round(value * 1000)


def _instant(text: str, field: str) -> float | datetime:
    relative = text.removeprefix("now")
    if not relative:
        return time.time()
    if relative.startswith("+"):
        return time.time() + parse_duration(relative[1:].strip(), field=field) / 1000
    if relative != text and relative.startswith("-"):
        return time.time() - parse_duration(relative[1:].strip(), field=field) / 1000
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(
            f"{field}: '{text}' is not an instant",
            hint="write, for example, 2030-01-31T18:00 (local time unless a zone is given) or now+2h",
        ) from None


def _as_plain(value: Any) -> Any:
    """Values of the model as plain data, lists of them too; everything else as it is."""
    if isinstance(value, list):
        return [_as_plain(item) for item in value]
    return to_plain(value) if isinstance(value, msgspec.Struct) else value
