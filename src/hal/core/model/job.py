"""JobSpec: what a person submits, and the rules it must meet before anything is stored.

Pure. Decoding accepts what people write (`walltime: 90m`, `request: {cpu: 4, memory: 1.5GiB}`, `array: 0-99`);
encoding gives it back in one canonical form, so `decode(encode(spec)) == spec` exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from hal.core.model.errors import SpecError
from hal.core.model.resources import Resources
from hal.core.model.units import Duration

MAX_TASKS: Final = 10_000_000
"""Longest array."""
MAX_NODES: Final = 100_000
"""Widest gang."""
MAX_RETRIES: Final = 1_000
MAX_PRIORITY: Final = 100_000
"""Farthest from 0 that a priority may be; well inside what the engine's order key can hold."""
MAX_SCRIPT_BYTES: Final = 4 << 20
MAX_ENV_BYTES: Final = 1 << 20
MAX_DEPENDENCIES: Final = 10_000

SIGNALS: Final = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH", "ALRM", "URG")
"""What a job may ask to be sent before its limit."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,127}$")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9])?$")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_ARRAY: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?(?:%(\d+))?$")


class ArrayRange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An array of `count` tasks; task t (from 0) sees HAL_ARRAY_INDEX = first + t * step."""

    count: Annotated[int, Meta(ge=1, le=MAX_TASKS)]
    first: Annotated[int, Meta(ge=0)] = 0
    step: Annotated[int, Meta(ge=1)] = 1

    @classmethod
    def parse(cls, value: object) -> ArrayRange:
        """`100` (tasks 0-99), `'1-100'`, `'0-98:2'`, or the table this class prints.

        Raises:
            SpecError: none of these, empty, or longer than `MAX_TASKS`.
        """
        if isinstance(value, ArrayRange):
            return value
        if isinstance(value, Mapping):
            try:
                return msgspec.convert(dict(value), cls)
            except msgspec.ValidationError as error:
                raise SpecError(f"array: {error}") from error
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SpecError(f"array: expected a count or a range like '0-99', got {value!r}")
        match = _ARRAY.match(str(value).strip())
        if match is None or match.group(4):
            raise SpecError(f"array: '{value}' is not a range", hint="write 100, 0-99 or 0-98:2")
        if match.group(2) is None:
            count, first, step = int(match.group(1)), 0, 1
        else:
            first, last, step = int(match.group(1)), int(match.group(2)), int(match.group(3) or 1)
            if last < first or step < 1:
                raise SpecError(f"array: '{value}' holds no task", hint="write the smaller index first")
            count = (last - first) // step + 1
        if not 1 <= count <= MAX_TASKS:
            raise SpecError(f"array: {count} tasks; between 1 and {MAX_TASKS} are allowed")
        return cls(count=count, first=first, step=step)

    def index(self, task: int) -> int:
        """What HAL_ARRAY_INDEX says in task `task`."""
        return self.first + task * self.step


class DependencyKind(StrEnum):
    """When a dependency is met: `after` its start, the others at its end (any, all succeeded, any failed)."""

    AFTER = "after"
    AFTERANY = "afterany"
    AFTEROK = "afterok"
    AFTERNOTOK = "afternotok"


class Dependency(Struct, frozen=True, forbid_unknown_fields=True):
    """This job waits for another one."""

    job: Annotated[str, Meta(description="job id, or the name of a job in the same submission")]
    kind: DependencyKind = DependencyKind.AFTEROK


class Operator(StrEnum):
    """How a constraint compares a node's label."""

    IN = "in"
    NOT_IN = "not-in"
    EXISTS = "exists"
    ABSENT = "absent"


class Constraint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A label that a node must (not) have. `values` is for `in` and `not-in`."""

    label: str
    op: Operator = Operator.IN
    values: tuple[str, ...] = ()


class Retries(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How often a failed task is tried again, and how long to wait before each try.

    The wait before retry n (from 1) is min(backoff · factor**(n-1), longest).
    """

    max: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = 0
    backoff: Duration = Duration(1_000)
    factor: Annotated[float, Meta(ge=1.0, le=100.0)] = 2.0
    longest: Duration = Duration(600_000)

    def delay_ms(self, retry: int) -> int:
        """Milliseconds before retry number `retry` (from 1)."""
        exponent = min(retry - 1, 64)
        return int(min(float(self.backoff) * self.factor**exponent, float(self.longest)))


class LimitSignal(Struct, frozen=True, forbid_unknown_fields=True):
    """A signal sent to the job some time before its walltime ends, so that it can save its work."""

    before: Duration
    name: str = "USR1"


class OnNodeLost(StrEnum):
    """What happens to a task whose node is no longer heard (see docs/failures)."""

    WAIT = "wait"
    REQUEUE = "requeue"


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person submits: one or more tasks that are alike."""

    name: Annotated[str, Meta(description="for people; not unique")] = ""
    queue: str = "default"
    account: str = ""
    user: str = ""
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="higher goes first")] = 0
    command: Annotated[tuple[str, ...], Meta(description="program and arguments, run without a shell")] = ()
    script: Annotated[str, Meta(description="text of a script with a #! line; instead of `command`")] = ""
    array: ArrayRange | None = None
    request: Resources = Resources({"cpu": 1000})
    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES, description="distinct nodes that each task needs at once")] = 1
    walltime: Duration | None = None
    dependencies: tuple[Dependency, ...] = ()
    begin_at_ms: Annotated[int, Meta(ge=0, description="not before this instant (ms since 1970)")] = 0
    hold: bool = False
    env: dict[str, str] = {}
    workdir: str = ""
    retries: Retries = Retries()
    labels: dict[str, str] = {}
    constraints: tuple[Constraint, ...] = ()
    on_node_lost: OnNodeLost = OnNodeLost.WAIT
    signal: LimitSignal | None = None
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    environment: Any = None
    secrets: tuple[Any, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks the array has; 1 without one."""
        return self.array.count if self.array else 1

    @property
    def title(self) -> str:
        """The name, or the program it runs."""
        if self.name:
            return self.name
        return self.command[0].rsplit("/", 1)[-1] if self.command else "script"


def check_spec(spec: JobSpec) -> JobSpec:
    """The spec itself when it is well formed in itself (nothing about queues or machines is asked here).

    Raises:
        SpecError: naming the field and what to write instead.
    """
    if bool(spec.command) == bool(spec.script):
        which = "both" if spec.command else "neither"
        raise SpecError(f"command, script: {which} given", hint="a job has exactly one of the two")
    if spec.command and not spec.command[0]:
        raise SpecError("command: the program's name is empty")
    if any("\0" in part for part in spec.command) or "\0" in spec.script or "\0" in spec.workdir:
        raise SpecError("command, script, workdir: a NUL character cannot be passed to a program")
    if spec.script:
        if not spec.script.startswith("#!"):
            raise SpecError("script: the first line must name its interpreter", hint="begin it with #!/bin/sh")
        if len(spec.script.encode()) > MAX_SCRIPT_BYTES:
            raise SpecError(f"script: longer than {MAX_SCRIPT_BYTES} bytes", hint="put it in a file and run that")
    for field in ("queue", "account", "user", "name"):
        value = getattr(spec, field)
        if (value or field == "queue") and not _NAME.match(value):
            raise SpecError(f"{field}: '{value}' is not a name", hint="letters, digits and _ . : @ / + -, at most 128")
    if not spec.request:
        raise SpecError("request: asks for nothing", hint="a task needs at least some cpu, like cpu = 0.1")
    if spec.workdir and not spec.workdir.startswith("/"):
        raise SpecError(f"workdir: '{spec.workdir}' is not absolute")
    if sum(len(k) + len(v) for k, v in spec.env.items()) > MAX_ENV_BYTES:
        raise SpecError(f"env: longer than {MAX_ENV_BYTES} bytes")
    for key, value in spec.env.items():
        if not _ENV_NAME.match(key) or "\0" in value:
            raise SpecError(f"env: '{key}' cannot be an environment variable")
    for key, value in spec.labels.items():
        if not _LABEL.match(key) or (value and not _LABEL.match(value)):
            raise SpecError(f"labels: '{key}={value}' is not a label", hint="letters, digits and _ . / - inside")
    for rule in spec.constraints:
        if not _LABEL.match(rule.label):
            raise SpecError(f"constraints: '{rule.label}' is not a label")
        if (rule.op in (Operator.IN, Operator.NOT_IN)) != bool(rule.values):
            raise SpecError(f"constraints: '{rule.label} {rule.op}' has {len(rule.values)} values")
    if len(spec.dependencies) > MAX_DEPENDENCIES:
        raise SpecError(f"dependencies: {len(spec.dependencies)}; at most {MAX_DEPENDENCIES} are allowed")
    if spec.walltime is not None and spec.walltime <= 0:
        raise SpecError("walltime: must be longer than nothing", hint="leave it out for the queue's default")
    if spec.signal is not None:
        if spec.signal.name not in SIGNALS:
            raise SpecError(f"signal: '{spec.signal.name}' is not one of {', '.join(SIGNALS)}")
        if spec.walltime is not None and spec.signal.before >= spec.walltime:
            raise SpecError("signal: would be sent before the job starts", hint="make `before` shorter than walltime")
    _refuse_unbuilt(spec)
    return spec


def _refuse_unbuilt(spec: JobSpec) -> None:
    for field in ("inputs", "outputs", "environment", "secrets"):
        if getattr(spec, field):
            raise SpecError(
                f"{field}: not supported by this version of HAL",
                hint="leave it out; variables go into `env`" if field == "environment" else "leave it out",
            )
    if spec.on_node_lost is OnNodeLost.REQUEUE:
        raise SpecError(
            "on_node_lost: 'requeue' is not supported by this version of HAL",
            hint="leave it out: a task then waits for its node to return",
        )
