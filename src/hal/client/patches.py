"""A change of a job from what people write in Python: `job.update(cpus=4, walltime='2h', after=None)`.

Pure but for the clock, for instants that are relative to now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hal.client.instants import instant_ms
from hal.client.specs import dependencies_of, gpus_asked, listed, seconds_of, with_gpus
from hal.core.model import SpecError, parse_amount, resource_name, to_plain
from hal.core.model.facts import GPU_LABEL

_AMOUNTS = (("cpus", "cpu"), ("memory", "memory"), ("gpus", "gpu"))
_EMPTY: dict[str, Any] = {
    "constraints": [], "exclude": [], "tolerate": [], "gates": [], "labels": {}, "licences": {}, "retries": 0,
    "comment": "", "qos": "", "booking": "", "within": "", "pack": "", "spread": "", "account": "", "name": "",
    "max_running": 0,
}  # fmt: skip
"""What None means where it does not mean the default of the queue."""


def patch_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of PATCH /v1/jobs/JOB from keywords of `submit`, and from names of these fields themselves.

    Args:
        given: None takes out: no dependencies, no labels, the queue's walltime.
    Raises:
        SpecError: a value that cannot be read; names the keyword.
    """
    if isinstance(given.get("gpus"), str):
        given = _with_gpus_asked(given)
    fields = {key: value for key, value in given.items() if key not in dict(_AMOUNTS)}
    request: dict[str, Any] = {}
    if "request" in fields:
        for name, amount in (fields.pop("request") or {}).items():
            request[resource_name(str(name))] = amount
    for keyword, name in _AMOUNTS:
        if keyword in given:
            if name in request:
                raise SpecError(f"{keyword}: `request` has '{name}', too", hint="give it once")
            value = 0 if given[keyword] is None else given[keyword]
            parse_amount(name, value, field=keyword)
            request[name] = value
    if request:
        fields["request"] = request
    if "after" in fields:
        after = fields.pop("after")
        fields["dependencies"] = (
            [] if after is None else [one for some in listed(after) for one in dependencies_of(some)]
        )
    for keyword, field in (("begin", "begin_at_ms"), ("deadline", "deadline_ms")):
        if keyword in fields:
            value = fields.pop(keyword)
            fields[field] = 0 if value is None else instant_ms(value, keyword)
    if fields.get("walltime") is not None:
        fields["walltime"] = seconds_of(fields["walltime"])
    for field in ("constraints", "exclude", "tolerate", "gates"):
        if fields.get(field) is not None:
            fields[field] = listed(fields[field])
    return {key: to_plain(_EMPTY.get(key) if value is None else value) for key, value in fields.items()}


def _with_gpus_asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same with `4@island` and `1g.10gb:1` as amounts."""
    kind, amounts = gpus_asked(given["gpus"])
    if kind:
        raise SpecError(
            f"gpus: the type '{kind}' is a constraint of the job",
            hint=f"give it among the constraints: {GPU_LABEL}.{kind}",
        )
    return with_gpus(given, amounts)
