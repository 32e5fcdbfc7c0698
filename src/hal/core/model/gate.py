"""Gates that a job names: services of the node that let its processes begin, or take note that they have ended.

Pure. What a gate's answers mean for the attempt is decided by `hal.core.lifecycle.gates`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.bundle import FILES_GATE
from hal.core.model.errors import SpecError, shown
from hal.core.model.units import Duration

MAX_JOB_GATES: Final = 8
"""Gates that one job may name."""
MAX_ARGUMENT_BYTES: Final = 4_096
"""Longest argument, as UTF-8."""
SHORTEST_DEADLINE_MS: Final = 10
LONGEST_DEADLINE_MS: Final = 86_400_000
DEFAULT_DEADLINE_MS: Final = 300_000
PROLOG: Final = "prolog"
EPILOG: Final = "epilog"
SITE_GATES: Final = frozenset({PROLOG, EPILOG, FILES_GATE})
"""Names of the gates that are programs of the site, or HAL's own; a job cannot name them."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_FIELDS: Final = ("phase", "deadline", "policy", "argument")
_CONTROL: Final = re.compile(r"[\u0000-\u001f\u007f-\u009f]")


class GatePhase(StrEnum):
    """When a gate is asked; named like the task's states."""

    PREPARING = "preparing"
    """Before the attempt's processes begin on a node."""
    FINALISING = "finalising"
    """After they have ended there."""


class GatePolicy(StrEnum):
    """What follows if a gate is absent, slow or dead, refuses, or does not answer by its deadline."""

    WAIT = "wait"
    """A service that is absent, slow or dead is asked again until the deadline; then, or if it refuses, as `fail`."""
    ELSEWHERE = "elsewhere"
    """The attempt does not begin; its task waits again, is not blamed, and does not use this node any more."""
    FAIL = "fail"
    """The attempt has failed; its retries count."""
    IGNORE = "ignore"
    """The attempt continues as if the gate were satisfied."""


class JobGate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A gate that a job names. The name is that of a service on the node, which the site declares."""

    name: str
    phase: GatePhase = GatePhase.PREPARING
    deadline: Annotated[Duration, Meta(description="how long it may take altogether, on each node")] = Duration(
        DEFAULT_DEADLINE_MS
    )
    policy: GatePolicy = GatePolicy.WAIT
    argument: Annotated[
        str,
        Meta(
            description=f"passed to the service as it is; at most {MAX_ARGUMENT_BYTES} bytes, no control characters",
            extra_json_schema={"maxLength": MAX_ARGUMENT_BYTES, "not": {"pattern": _CONTROL.pattern}},
        ),
    ] = ""


def parse_gate(text: str) -> dict[str, str]:
    """Parse `stage`, `stage,policy=elsewhere,deadline=10m,argument=any text, commas too`: plain data of a `JobGate`.

    Raises:
        SpecError: a part is not FIELD=VALUE, or a field is unknown or given twice.
    """
    name, _, rest = text.partition(",")
    out = {"name": name.strip()}
    while rest:
        field, equals, tail = rest.partition("=")
        field = field.strip()
        value, _, rest = (tail, "", "") if field == "argument" else tail.partition(",")
        if not equals or field not in _FIELDS:
            raise SpecError(
                f"gates: '{shown(field)}' is not {', '.join(_FIELDS[:-1])} or {_FIELDS[-1]}",
                hint="write NAME,policy=elsewhere,deadline=10m,argument=TEXT; the argument comes last",
            )
        if field in out:
            raise SpecError(f"gates: '{field}' is given twice for '{shown(out['name'])}'")
        out[field] = value if field == "argument" else value.strip()
    return out


def is_gate_name(text: str) -> bool:
    """Whether the text is valid as the name of a gate."""
    return _NAME.fullmatch(text) is not None and text not in SITE_GATES


def check_gates(gates: tuple[JobGate, ...]) -> None:
    """Check that every gate is well formed, and none is named twice for a phase.

    Raises:
        SpecError: names the gate and its field.
    """
    if len(gates) > MAX_JOB_GATES:
        raise SpecError(f"gates: {len(gates)}; at most {MAX_JOB_GATES} are allowed")
    named: set[tuple[str, GatePhase]] = set()
    for gate in gates:
        if not is_gate_name(gate.name):
            raise SpecError(
                f"gates: '{shown(gate.name)}' is not the name of a gate",
                hint=f"small letters, digits and . _ -, at most 63; not {' or '.join(sorted(SITE_GATES))}",
            )
        if (gate.name, gate.phase) in named:
            raise SpecError(f"gates: '{gate.name}' is named twice for {gate.phase}", hint="name it once for each phase")
        named.add((gate.name, gate.phase))
        if not SHORTEST_DEADLINE_MS <= gate.deadline <= LONGEST_DEADLINE_MS:
            raise SpecError(f"gates.{gate.name}: a deadline of {gate.deadline}", hint="between 10ms and 1d")
        if gate.phase is GatePhase.FINALISING and gate.policy is GatePolicy.ELSEWHERE:
            raise SpecError(
                f"gates.{gate.name}: what has run cannot go elsewhere",
                hint="finalising gates take wait, fail or ignore",
            )
        _check_argument(gate)


def _check_argument(gate: JobGate) -> None:
    if _CONTROL.search(gate.argument):
        raise SpecError(f"gates.{gate.name}: its argument has a control character", hint="encode it, as JSON or base64")
    try:
        size = len(gate.argument.encode())
    except UnicodeEncodeError:
        raise SpecError(f"gates.{gate.name}: its argument is not valid Unicode") from None
    if size > MAX_ARGUMENT_BYTES:
        raise SpecError(
            f"gates.{gate.name}: its argument has {size} bytes; at most {MAX_ARGUMENT_BYTES} are allowed",
            hint="put it in a file, and pass its path",
        )
