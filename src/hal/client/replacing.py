"""The spec of a job that replaces a service: as the old one, but for what is named.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hal.client.specs import JobOptions, spec_from_options
from hal.core.model import JobSpec, SpecError, to_plain

_FIELD_OF: Final = {
    **dict.fromkeys(("cpus", "memory", "gpus"), "request"),
    **dict.fromkeys(("items", "max_running"), "array"),
    "after": "dependencies",
    "begin": "begin_at_ms",
    "deadline": "deadline_ms",
}
"""The field of a spec that a keyword sets, where that has another name."""


def replacing_spec(
    old: Mapping[str, Any],
    what: str | Sequence[str] | JobSpec | Mapping[str, Any] | None,
    options: JobOptions,
    *,
    environ: Mapping[str, str],
    workdir: str,
    replaces: Mapping[str, Any],
) -> dict[str, Any]:
    """Plain data of the new job.

    Args:
        old: the spec of the job that is replaced.
        what: a command, or a whole job; None: the command of the old one.
        options: keywords of `submit`; beside a whole job there are none.
        replaces: what its service says of the replacement.
    Raises:
        SpecError: malformed, or the old job is no service.
    """
    if isinstance(what, JobSpec | Mapping):
        if options:
            raise SpecError("replace: a whole job takes no keywords beside it", hint="change the job itself")
        out = dict(to_plain(what) if isinstance(what, JobSpec) else what)
        out.setdefault("name", old.get("name", ""))
    else:
        out = {**old, **_changed(old, what, options, environ, workdir)}
    service = out.get("service", old.get("service"))
    if service is None or service is False:
        raise SpecError("replace: only a service is replaced", hint="cancel the job, and submit the new one")
    out["service"] = {**(service if isinstance(service, Mapping) else {}), "replaces": dict(replaces)}
    return out


def _changed(
    old: Mapping[str, Any],
    command: str | Sequence[str] | None,
    options: JobOptions,
    environ: Mapping[str, str],
    workdir: str,
) -> dict[str, Any]:
    """The fields that a command and keywords name."""
    scripted = "script" in options
    made = to_plain(
        spec_from_options(command if command or scripted else ["x"], options, environ=environ, workdir=workdir)
    )
    fields = {_FIELD_OF.get(name, name) for name in options}
    out = {name: made[name] for name in fields - {"env"} if name in made}
    if options.get("env"):
        out["env"] = {**old.get("env", {}), **{key: str(value) for key, value in options["env"].items()}}
    if command:
        out |= {"command": made["command"], "script": "", "arguments": []}
    elif scripted:
        out["command"] = []
    return out
