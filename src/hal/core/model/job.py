"""JobSpec: what a user submits, and the rules that it must meet before anything is stored.

Pure. Decoding accepts what people write (`walltime: 90m`, `request: {cpu: 4, memory: 1.5GiB}`, `array: 0-99`); encoding
returns one canonical form, so `decode(encode(spec)) == spec` exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from hal.core.model.affinity import NODE_LEVEL, check_preferred, check_terms
from hal.core.model.array import ArrayRange
from hal.core.model.bundle import CollectWhen, FilesOrder, check_patterns
from hal.core.model.dependency import (
    Dependency,
    DependencyKind,
    Failed,
    canonical_dependencies,
    each_dependency,
)
from hal.core.model.devices import GPU, GPU_ISLAND, WHOLE
from hal.core.model.errors import SpecError, shown
from hal.core.model.gate import JobGate, check_gates
from hal.core.model.groups import with_groups
from hal.core.model.notification import Notification, check_notifications
from hal.core.model.path_patterns import check_path
from hal.core.model.rank_variables import MAX_RANKS_OF_NODE
from hal.core.model.resources import Resources
from hal.core.model.sandbox import NO_NETWORK, READ_ONLY, check_sandbox
from hal.core.model.secret import check_secret_names
from hal.core.model.service import DEFAULT_RESTARTS, Restart, Service, check_service
from hal.core.model.taint import check_tolerated
from hal.core.model.topology.packing import packing_of
from hal.core.model.topology.tree import check_level_name
from hal.core.model.trace_context import trace_id_of
from hal.core.model.umask import UMASK_PATTERN, check_umask
from hal.core.model.units import MAX_AMOUNT, Duration, format_amount

MAX_NODES: Final = 100_000
"""Widest gang."""
MAX_EXTENSIONS: Final = 1_000
"""Most extensions of one job."""
MAX_RETRIES: Final = 1_000
MAX_PRIORITY: Final = 100_000
"""Largest absolute value of a priority; well within what the engine's order key can hold."""
MAX_SCRIPT_BYTES: Final = 4 << 20
MAX_ENV_BYTES: Final = 1 << 20
MAX_COMMAND_BYTES: Final = 1 << 20
MAX_WORD_BYTES: Final = (128 << 10) - 1
"""Longest argument, or `NAME=value` of a variable, that Linux passes to a program."""
MAX_PATH_BYTES: Final = 4_095
MAX_COMMENT_CHARS: Final = 200
MAX_LABELS: Final = 64
MAX_LICENCES: Final = 64
"""Licences that one job may name."""
MAX_CONSTRAINTS: Final = 64
MAX_CONSTRAINT_VALUES: Final = 1_000
MAX_EXCLUDED: Final = 64
"""Nodes that one job may exclude."""

SIGNALS: Final = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH", "ALRM", "URG")
"""Signals that a job may request before its limit."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,127}")
_LICENCE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,62}[A-Za-z0-9])?")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9])?")
_CONTROL: Final = re.compile(r"[\u0000-\u001f\u007f-\u009f]")
"""C0, DEL and C1; readers of the JSON Schema understand the pattern too."""
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

S = TypeVar("S", bound=Struct)


class Operator(StrEnum):
    """How a constraint compares a node's label."""

    IN = "in"
    NOT_IN = "not-in"
    EXISTS = "exists"
    ABSENT = "absent"


class Constraint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A condition on a label of a node. `values` is used by `in` and `not-in` only."""

    label: str
    op: Operator = Operator.IN
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels satisfies it, as the engine's requirements do."""
        found = labels.get(self.label)
        if self.op is Operator.IN:
            return found in self.values
        if self.op is Operator.NOT_IN:
            return found not in self.values
        return (found is not None) is (self.op is Operator.EXISTS)


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes of one kind, of a job that needs several kinds at once."""

    name: str
    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES)] = 1
    request: Annotated[Resources, Meta(description="amounts on each of its nodes")] = Resources(
        {"cpu": 1000}, says_cpu=False
    )
    constraints: Annotated[tuple[Constraint, ...], Meta(description="beside those of the job")] = ()
    command: Annotated[
        tuple[str, ...], Meta(description="program and arguments on its nodes, instead of what the job runs")
    ] = ()


class Retries(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How often a failed task is retried, and the delay before each retry.

    The delay before retry n (from 1) is min(backoff · factor**(n-1), longest).
    """

    max: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = 0
    backoff: Duration = Duration(1_000)
    factor: Annotated[float, Meta(ge=1.0, le=100.0)] = 2.0
    longest: Duration = Duration(600_000)

    def delay_ms(self, retry: int) -> int:
        """Milliseconds before retry number `retry` (from 1)."""
        wait = float(self.backoff) * self.factor ** min(retry - 1, 64)
        return int(self.longest) if wait >= self.longest else int(wait)


class LimitSignal(Struct, frozen=True, forbid_unknown_fields=True):
    """A signal that is sent to the job before its walltime ends, so that it can save its work."""

    before: Duration
    name: str = "USR1"


class OnNodeLost(StrEnum):
    """What happens to a task whose node is unreachable (see docs/failures)."""

    WAIT = "wait"
    """It stays there, and runs nowhere else until the node returns or a person declares the node gone."""
    REQUEUE = "requeue"
    """Its node ends it if it cannot reach the controller; once that has certainly happened, it waits again."""


class Interactive(StrEnum):
    """What an interactive job's program has for its input and output, to which people attach."""

    TERMINAL = "terminal"
    PIPES = "pipes"


class OnHangup(StrEnum):
    """What becomes of an interactive job to which nobody is attached any more."""

    END = "end"
    """Its program gets SIGHUP, and is killed after 5 s."""
    CONTINUE = "continue"


class OpenMode(StrEnum):
    """What happens to what is in the files of `stdout` and `stderr` when a step opens them."""

    TRUNCATE = "truncate"
    APPEND = "append"


class Dialect(StrEnum):
    """The scheduler whose variables a job's steps get beside HAL's."""

    HAL = "hal"
    """None but HAL's own."""
    SLURM = "slurm"
    """SLURM_JOB_ID, SLURM_ARRAY_TASK_ID and the like."""
    PBS = "pbs"
    """PBS_JOBID, PBS_ARRAY_INDEX and the like."""


FIELDS_BY_OTHER_NAMES: Final = {
    **dict.fromkeys(("cpu", "cpus", "cores"), "request.cpu"),
    **dict.fromkeys(("memory", "mem"), "request.memory"),
    **dict.fromkeys(("gpu", "gpus"), "request.gpu"),
    "resources": "request",
    **dict.fromkeys(("after", "depends_on", "dependency"), "dependencies"),
    "begin": "begin_at_ms",
    "deadline": "deadline_ms",
    "max_running": "array.max_running",
    **dict.fromkeys(("time", "timeout", "time_limit"), "walltime"),
    "partition": "queue",
    **dict.fromkeys(("switches", "topology", "level"), "within"),
    **dict.fromkeys(("chdir", "cwd"), "workdir"),
    "environment": "env",
    "output": "stdout",
    "error": "stderr",
    **dict.fromkeys(("licence", "licenses", "license"), "licences"),
    "label": "labels",
    "constraint": "constraints",
    **dict.fromkeys(("tolerations", "tolerates"), "tolerate"),
}
"""Names of options and keywords, and of other schedulers, by which people look for a field."""


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What a user submits: one task, or an array of tasks."""

    INSTEAD: ClassVar[Mapping[str, str]] = FIELDS_BY_OTHER_NAMES

    name: Annotated[str, Meta(description="for people; need not be unique")] = ""
    queue: str = "default"
    account: str = ""
    user: str = ""
    qos: Annotated[str, Meta(description="quality of service; empty: the queue's default")] = ""
    booking: Annotated[str, Meta(description="run inside this booking only")] = ""
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="higher goes first")] = 0
    command: Annotated[tuple[str, ...], Meta(description="program and arguments, run without a shell")] = ()
    script: Annotated[str, Meta(description="text of a script with a #! line; instead of `command`")] = ""
    arguments: Annotated[tuple[str, ...], Meta(description="arguments of `script`")] = ()
    array: ArrayRange | None = None
    request: Resources = Resources({"cpu": 1000}, says_cpu=False)
    licences: Annotated[
        dict[str, int], Meta(description="amounts of the whole cluster that each task holds while it runs, by name")
    ] = {}
    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES, description="distinct nodes that each task needs at once")] = 1
    groups: Annotated[
        tuple[Group, ...],
        Meta(description="several kinds of nodes that start together, instead of nodes and request; see parallel.md"),
    ] = ()
    extensions: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_EXTENSIONS,
            description="further tasks on one node each, that run only beside its base and leave first; of an array: "
            "how many of its tasks do; see elastic.md",
        ),
    ] = 0
    workers: Annotated[
        bool,
        Meta(
            description="the tasks of its array are workers that share work: one that exits with 0 says that none is "
            "left, one that exits with 75 gives its place back; see elastic.md",
        ),
    ] = False
    first_node: Annotated[
        bool,
        Meta(description="its command runs on the first of its nodes alone, and begins what runs on the others itself"),
    ] = False
    ranks_per_node: Annotated[
        int,
        Meta(
            ge=0, le=MAX_RANKS_OF_NODE, description="ranks that `hal launch` in it begins on each of its nodes; 0: one"
        ),
    ] = 0
    exclusive: Annotated[
        bool, Meta(description="whole nodes: all that they have; the request says how much that is at least")
    ] = False
    within: Annotated[
        str, Meta(description="level of the topology: the nodes of each task are in one domain of it; empty: anywhere")
    ] = ""
    pack: Annotated[
        str,
        Meta(
            description="LEVEL:TIME: the nodes of each task are in one domain of that level of the topology until the "
            "job has waited for that time; then anywhere"
        ),
    ] = ""
    spread: Annotated[
        str,
        Meta(
            description="level of the topology, or node: its tasks and their nodes are on different domains of it, as "
            "evenly as there is room; it never waits for that; empty: it does not matter"
        ),
    ] = ""
    walltime: Duration | None = None
    dependencies: Annotated[tuple[Dependency, ...], Meta(description="all of them must be met")] = ()
    on_dependency_failed: Annotated[
        Failed | None, Meta(description="what happens if a dependency can no longer be met; unset: the queue's setting")
    ] = None
    begin_at_ms: Annotated[int, Meta(ge=0, le=MAX_AMOUNT, description="not before this instant (ms since 1970)")] = 0
    deadline_ms: Annotated[
        int, Meta(ge=0, le=MAX_AMOUNT, description="the instant by which it should have ended (ms since 1970); 0: none")
    ] = 0
    hold: bool = False
    wait_for_change: Annotated[
        bool, Meta(description="accept it even if nothing that is known could ever start it; it waits for a change")
    ] = False
    env: dict[str, str] = {}
    dialect: Annotated[
        Dialect, Meta(description="the scheduler for which it was written: its steps get that one's variables, too")
    ] = Dialect.HAL
    workdir: str = ""
    umask: Annotated[
        str,
        Meta(
            description="umask of its processes, as octal text: 0027; empty: 0022",
            extra_json_schema={"pattern": f"^({UMASK_PATTERN})?$"},
        ),
    ] = ""
    stdin: Annotated[str, Meta(description="file that it reads; relative to workdir; patterns as in stdout")] = ""
    stdout: Annotated[
        str, Meta(description="file that gets its output instead of HAL; relative to workdir; %j %a %T %n %N %r %u %x")
    ] = ""
    stderr: Annotated[str, Meta(description="the same for its errors; unset: the file of stdout, if there is one")] = ""
    interactive: Annotated[
        Interactive | None, Meta(description="its program runs on a terminal, or on pipes, to which people attach")
    ] = None
    on_hangup: Annotated[
        OnHangup, Meta(description="what becomes of an interactive job to which nobody is attached any more")
    ] = OnHangup.END
    open_mode: Annotated[OpenMode, Meta(description="what happens to what is in these files")] = OpenMode.TRUNCATE
    retries: Retries = Retries()
    labels: dict[str, str] = {}
    comment: Annotated[
        str,
        Meta(
            description="one line for people, without control characters; the job sees it as HAL_JOB_COMMENT",
            extra_json_schema={"maxLength": MAX_COMMENT_CHARS, "not": {"pattern": _CONTROL.pattern}},
        ),
    ] = ""
    traceparent: Annotated[
        str, Meta(description="W3C Trace Context: the trace that it belongs to; the job sees it as TRACEPARENT")
    ] = ""
    constraints: tuple[Constraint, ...] = ()
    exclude: Annotated[
        tuple[str, ...],
        Meta(description="nodes not to run on, by name; a gate with the policy `elsewhere` adds its node"),
    ] = ()
    tolerate: Annotated[
        tuple[str, ...],
        Meta(description="taints of nodes on which it may run in spite of them: KEY, or KEY=VALUE; see nodes.md"),
    ] = ()
    movable: Annotated[
        bool | None,
        Meta(description="running tasks may start again elsewhere to make room for a gang; unset: the queue's setting"),
    ] = None
    apart: Annotated[
        tuple[str, ...],
        Meta(description="KEY[=VALUE]@LEVEL: not in a domain with work of that label; both ways; see affinity.md"),
    ] = ()
    together: Annotated[
        tuple[str, ...],
        Meta(description="KEY[=VALUE]@LEVEL: in domains in which work of that label runs; see affinity.md"),
    ] = ()
    prefer_apart: Annotated[
        tuple[str, ...],
        Meta(description="KEY[=VALUE]@LEVEL[:WEIGHT]: rather not in a domain with work of that label; see affinity.md"),
    ] = ()
    prefer_together: Annotated[
        tuple[str, ...],
        Meta(description="KEY[=VALUE]@LEVEL[:WEIGHT]: rather in domains with work of that label; see affinity.md"),
    ] = ()
    gates: Annotated[
        tuple[JobGate, ...], Meta(description="services of the node that let each attempt begin, or end; see gates.md")
    ] = ()
    sandbox: Annotated[
        tuple[str, ...],
        Meta(description="what its processes are kept from on their nodes; true: own-proc, private-tmp, read-only"),
    ] = ()
    on_node_lost: Annotated[
        OnNodeLost | None,
        Meta(description="what happens if the node of a task is unreachable; unset: the queue's setting"),
    ] = None
    signal: LimitSignal | None = None
    on_resize: Annotated[
        str,
        Meta(description="signal for its base when extensions come or go; its HAL_HOSTFILE names the nodes then"),
    ] = ""
    ship: Annotated[
        str,
        Meta(
            description="bundle of files, `sha256:…`, of which each attempt begins in a copy of its own; see files.md"
        ),
    ] = ""
    collect: Annotated[
        tuple[str, ...],
        Meta(description="patterns of files that are kept of each attempt's own directory, for `hal fetch`"),
    ] = ()
    collect_when: Annotated[CollectWhen, Meta(description="after which ends of an attempt they are collected")] = (
        CollectWhen.SUCCEEDED
    )
    service: Annotated[
        Service | None, Meta(description="it serves others while it runs: readiness, restarts, ports; see services.md")
    ] = None
    notify: Annotated[
        tuple[Notification, ...], Meta(description="messages by mail or webhook; as text: failed:ann@example.org")
    ] = ()
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    environment: Any = None
    secrets: Annotated[
        tuple[str, ...],
        Meta(description="names of secrets, which its steps find as files in HAL_SECRETS_DIR; see secrets.md"),
    ] = ()

    @property
    def files(self) -> FilesOrder | None:
        """What its steps need of their node's file service; None: nothing."""
        if not (self.ship or self.collect):
            return None
        return FilesOrder(ship=self.ship, collect=self.collect, when=self.collect_when)

    @property
    def tasks(self) -> int:
        """Number of tasks of the array; without an array 1, and one more for each extension."""
        return self.array.count if self.array else 1 + self.extensions

    @property
    def several(self) -> bool:
        """Whether it may have more tasks than one: an array, or a base with extensions."""
        return self.array is not None or self.extensions > 0

    @property
    def has_base(self) -> bool:
        """Whether its first task is a base, beside which its extensions run. Those of an array need none."""
        return self.extensions > 0 and self.array is None

    @property
    def ranks_of_node(self) -> int:
        """How many ranks a hostfile gives each of its nodes: what it says itself, else one for each whole core."""
        return self.ranks_per_node or max(1, self.request.get("cpu", 0) // 1000)

    @property
    def first_extension(self) -> int:
        """The number of its first task that is an extension; as many as it has tasks if none is."""
        return self.tasks - self.extensions

    def is_extension(self, task: int) -> bool:
        """Whether that task is an extension: the last ones of a job that has any."""
        return self.extensions > 0 and task >= self.first_extension

    @property
    def title(self) -> str:
        """The name, or else the program."""
        if self.name:
            return self.name
        return title_of(self.command)

    @property
    def error_path(self) -> str:
        """The path of the file that gets its stderr, with patterns; '' if HAL keeps it."""
        return self.stderr or self.stdout


def title_of(command: Sequence[str]) -> str:
    """What a job without a name is called: its program, or `script`."""
    return command[0].rsplit("/", 1)[-1] if command else "script"


def check_spec(spec: JobSpec, known: JobSpec | None = None) -> JobSpec:
    """Return the spec in canonical form, if it is valid in itself.

    Queues and nodes are not checked here.

    Args:
        known: one that was checked; the 100,000 indices or items that it shares with this one are not checked again.
    Raises:
        SpecError: names the field and what to write instead.
    """
    _check_program(spec)
    for field in ("queue", "account", "user", "qos", "booking", "name"):
        value = getattr(spec, field)
        if (value or field == "queue") and not is_name(value):
            raise SpecError(
                f"{field}: '{shown(value)}' is not a name", hint="letters, digits and _ . : @ / + -, at most 128"
            )
    if spec.array is not None:
        spec.array.check(known.array if known is not None else None)
    if spec.groups:
        spec = with_groups(spec, MAX_NODES)
        _check_groups(spec.groups)
    if not spec.request:
        raise SpecError("request: no resource is given", hint="a task needs at least some cpu, like cpu = 0.1")
    _check_island(spec.request)
    _check_licences(spec.licences)
    _check_env(spec.env)
    _check_labels(spec)
    _check_excluded(spec.exclude)
    check_tolerated(spec.tolerate)
    check_terms(spec.apart, spec.labels, "apart")
    check_terms(spec.together, spec.labels, "together")
    check_preferred(spec.prefer_apart, spec.labels, "prefer_apart")
    check_preferred(spec.prefer_together, spec.labels, "prefer_together")
    if spec.within:
        check_level_name(spec.within, "within")
    spec = _check_pack(spec)
    if spec.spread and spec.spread != NODE_LEVEL:
        check_level_name(spec.spread, "spread")
    check_gates(spec.gates)
    check_notifications(spec.notify)
    spec = _check_sandbox(spec)
    spec = _check_umask(spec)
    check_secret_names(spec.secrets)
    spec = _check_service(spec)
    _check_comment(spec.comment)
    _check_streams(spec)
    _check_interactive(spec)
    _check_ranks(spec)
    _check_extensions(spec)
    _check_workers(spec)
    _check_files(spec)
    if spec.traceparent and not trace_id_of(spec.traceparent):
        raise SpecError(
            f"traceparent: '{shown(spec.traceparent)}' is not one of W3C Trace Context",
            hint="write 00-TRACE-PARENT-FLAGS: 32, 16 and 2 digits 0-9 a-f, ids not all zeros",
        )
    spec = _check_dependencies(spec)
    if spec.walltime is not None and spec.walltime <= 0:
        raise SpecError("walltime: must be longer than 0", hint="leave it out for the queue's default")
    if spec.signal is not None:
        if spec.signal.name not in SIGNALS:
            raise SpecError(f"signal: '{shown(spec.signal.name)}' is not one of {', '.join(SIGNALS)}")
        if spec.walltime is not None and spec.signal.before >= spec.walltime:
            raise SpecError("signal: would be sent before the job starts", hint="make `before` shorter than walltime")
    _refuse_unbuilt(spec)
    return _canonical(spec)


def _check_island(request: Mapping[str, int]) -> None:
    linked = request.get(GPU_ISLAND, 0)
    if linked and linked * WHOLE != request.get(GPU, 0):
        raise SpecError(
            f"request.{GPU_ISLAND}: {linked}, beside {format_amount(GPU, request.get(GPU, 0))} gpu",
            hint="all GPUs of the job are of one link island, or it does not matter: write the same number, or none",
        )


def _check_pack(spec: JobSpec) -> JobSpec:
    if not spec.pack:
        return spec
    if spec.within:
        raise SpecError(
            f"pack: beside within '{shown(spec.within)}'",
            hint="`within` waits as long as it takes, `pack` for some time: give one of them",
        )
    text = packing_of(spec.pack).text
    return spec if text == spec.pack else msgspec.structs.replace(spec, pack=text)


def is_licence(text: str) -> bool:
    """Whether the text is valid as the name of a licence."""
    return _LICENCE.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether the text is valid as the name of a job, queue, account, user and the like."""
    return _NAME.fullmatch(text) is not None


def _check_program(spec: JobSpec) -> None:
    if bool(spec.command) == bool(spec.script):
        which = "both" if spec.command else "neither"
        raise SpecError(f"command, script: {which} given", hint="a job has exactly one of the two")
    if spec.command and not spec.command[0]:
        raise SpecError("command: the program's name is empty")
    if spec.arguments and not spec.script:
        raise SpecError("arguments: there is no script", hint="a command's arguments are words of `command`")
    sizes = [_bytes_of(word, "command") for word in spec.command or spec.arguments]
    if sum(sizes) > MAX_COMMAND_BYTES or max(sizes, default=0) > MAX_WORD_BYTES:
        raise SpecError(
            f"command: a word exceeds {MAX_WORD_BYTES} bytes, or all words together exceed {MAX_COMMAND_BYTES}",
            hint="pass long texts in a file, or use `script`",
        )
    if spec.script and not spec.script.startswith("#!"):
        raise SpecError("script: the first line must name its interpreter", hint="begin it with #!/bin/sh")
    if _bytes_of(spec.script, "script") > MAX_SCRIPT_BYTES:
        raise SpecError(f"script: longer than {MAX_SCRIPT_BYTES} bytes", hint="put it in a file and run that")
    if spec.workdir and not spec.workdir.startswith("/"):
        raise SpecError(f"workdir: '{shown(spec.workdir)}' is not absolute", hint="write the absolute path, from /")
    if _bytes_of(spec.workdir, "workdir") > MAX_PATH_BYTES:
        raise SpecError(f"workdir: longer than {MAX_PATH_BYTES} bytes")


def _check_licences(licences: Mapping[str, int]) -> None:
    if len(licences) > MAX_LICENCES:
        raise SpecError(f"licences: {len(licences)} names; at most {MAX_LICENCES} are allowed")
    for name, amount in licences.items():
        if not is_licence(name):
            raise SpecError(f"licences: '{shown(name)}' is not a licence name", hint="letters, digits and _ . / -")
        if not 1 <= amount <= MAX_AMOUNT:
            raise SpecError(f"licences.{name}: {shown(amount)} is out of range", hint="at least 1; or leave it out")


def _check_env(env: Mapping[str, str]) -> None:
    total = 0
    for key, value in env.items():
        if not _ENV_NAME.fullmatch(key):
            raise SpecError(
                f"env: '{shown(key)}' cannot be an environment variable", hint="a letter or _, then letters, digits, _"
            )
        size = len(key) + 1 + _bytes_of(value, f"env.{shown(key)}")
        if size > MAX_WORD_BYTES:
            raise SpecError(f"env: '{shown(key)}' is longer than {MAX_WORD_BYTES} bytes", hint="put it in a file")
        total += size
    if total > MAX_ENV_BYTES:
        raise SpecError(f"env: longer than {MAX_ENV_BYTES} bytes", hint="put long values in a file")


def _check_labels(spec: JobSpec) -> None:
    if len(spec.labels) > MAX_LABELS:
        raise SpecError(f"labels: {len(spec.labels)}; at most {MAX_LABELS} are allowed")
    for key, value in spec.labels.items():
        if not _LABEL.fullmatch(key) or (value and not _LABEL.fullmatch(value)):
            raise SpecError(
                f"labels: '{shown(key)}={shown(value)}' is not a label", hint="letters, digits and _ . / - inside"
            )
    check_constraints(spec.constraints)


def _check_comment(comment: str) -> None:
    if len(comment) > MAX_COMMENT_CHARS:
        raise SpecError(f"comment: {len(comment)} characters; at most {MAX_COMMENT_CHARS} are allowed")
    if _CONTROL.search(comment):
        raise SpecError(f"comment: '{shown(comment)}' has a control character", hint="write it as one line of text")
    _bytes_of(comment, "comment")


def _check_streams(spec: JobSpec) -> None:
    for field in ("stdin", "stdout", "stderr"):
        check_path(field, getattr(spec, field), MAX_PATH_BYTES)
    if spec.open_mode is not OpenMode.TRUNCATE and not spec.error_path:
        raise SpecError("open_mode: has no effect without stdout or stderr", hint="name a file, or leave it out")


def _check_interactive(spec: JobSpec) -> None:
    if spec.interactive is None:
        if spec.on_hangup is not OnHangup.END:
            raise SpecError("on_hangup: has no effect on a job that is not interactive", hint="leave it out")
        return
    if spec.array is not None or (spec.nodes > 1 and not spec.first_node):
        raise SpecError(
            "interactive: people attach to one program, and this job has several",
            hint="leave out array; of several nodes, `first_node` runs it on the first one; `hal exec` enters any step",
        )
    if spec.stdin or spec.error_path:
        raise SpecError("interactive: its input and output are not files", hint="leave out stdin, stdout and stderr")


def _check_ranks(spec: JobSpec) -> None:
    if spec.ranks_per_node and spec.nodes > 1 and not spec.first_node:
        raise SpecError(
            "ranks_per_node: the command of this job runs on each of its nodes, and would launch them all on each",
            hint="write `first_node: true`, too: `hal launch` in the command begins the ranks",
        )


def _check_groups(groups: tuple[Group, ...]) -> None:
    for group in groups:
        check_constraints(group.constraints, f"groups.{group.name}.constraints")
        _check_island(group.request)
        if group.command and not group.command[0]:
            raise SpecError(f"groups.{group.name}.command: the program's name is empty")
        sizes = [_bytes_of(word, f"groups.{group.name}.command") for word in group.command]
        if sum(sizes) > MAX_COMMAND_BYTES or max(sizes, default=0) > MAX_WORD_BYTES:
            raise SpecError(f"groups.{group.name}.command: longer than {MAX_COMMAND_BYTES} bytes, or a word is")


def _check_extensions(spec: JobSpec) -> None:
    if spec.on_resize:
        if spec.on_resize not in SIGNALS:
            raise SpecError(f"on_resize: '{shown(spec.on_resize)}' is not one of {', '.join(SIGNALS)}")
        if not spec.has_base:
            raise SpecError("on_resize: has no effect without extensions beside a base", hint="leave it out")
    if not spec.extensions:
        return
    if spec.array is not None and spec.extensions > spec.array.count:
        raise SpecError(
            f"extensions: {spec.extensions} of {spec.array.count} tasks", hint="at most as many as the array has tasks"
        )
    for field, there in (
        ("nodes", spec.array is not None and spec.nodes > 1),
        ("service", spec.service is not None),
        ("interactive", spec.interactive is not None),
        ("movable", bool(spec.movable)),
    ):
        if there:
            what = "an array" if field == "nodes" else "a job"
            raise SpecError(
                f"extensions: {what} with `{field}` cannot have any", hint=f"leave out extensions, or {field}"
            )


def _check_workers(spec: JobSpec) -> None:
    if not spec.workers:
        return
    if spec.array is None:
        raise SpecError("workers: the job has no array", hint="write how many there are at most: array: 8")
    for field, there in (("service", spec.service is not None), ("nodes", spec.nodes > 1)):
        if there:
            raise SpecError(f"workers: a job with `{field}` has none", hint=f"leave out workers, or {field}")


def _check_files(spec: JobSpec) -> None:
    check_patterns(spec.collect)
    if spec.collect_when is not CollectWhen.SUCCEEDED and not spec.collect:
        raise SpecError("collect_when: has no effect without collect", hint="leave it out")
    if spec.workdir and spec.files is not None:
        field = "ship" if spec.ship else "collect"
        raise SpecError(
            f"workdir: a job with `{field}` begins in a directory of its own on its node",
            hint=f"leave out workdir, or {field}",
        )
    if _bytes_of(spec.ship, "ship") > MAX_PATH_BYTES:
        raise SpecError(f"ship: longer than {MAX_PATH_BYTES} bytes")


def _check_sandbox(spec: JobSpec) -> JobSpec:
    words = check_sandbox(spec.sandbox)
    if READ_ONLY in words and spec.workdir == "/":
        raise SpecError(f"workdir: / would undo {READ_ONLY} of its sandbox", hint="name a directory below it")
    return spec if words == spec.sandbox else msgspec.structs.replace(spec, sandbox=words)


def _check_umask(spec: JobSpec) -> JobSpec:
    umask = check_umask(spec.umask)
    return spec if umask == spec.umask else msgspec.structs.replace(spec, umask=umask)


def _check_service(spec: JobSpec) -> JobSpec:
    """With its ports by name, and with how often its tasks are restarted, if it is a service that does not say so."""
    service = spec.service
    if service is None:
        return spec
    check_service(service)
    if list(service.ports) != sorted(service.ports):
        # As they are stored: nodes report numbers in this order.
        service = msgspec.structs.replace(service, ports=dict(sorted(service.ports.items())))
        spec = msgspec.structs.replace(spec, service=service)
    if spec.interactive is not None:
        raise SpecError("service: people attach to an interactive job", hint="leave out interactive; use hal exec")
    if service.ports and NO_NETWORK in spec.sandbox:
        raise SpecError(f"service.ports: nobody reaches a task with {NO_NETWORK} in its sandbox", hint="leave one out")
    if service.restart is Restart.NEVER:
        if spec.retries.max:
            raise SpecError(
                "retries: the service is restarted never", hint="write restart = on-failure, or leave it out"
            )
        return spec
    if spec.retries.max:
        return spec
    return msgspec.structs.replace(spec, retries=msgspec.structs.replace(spec.retries, max=DEFAULT_RESTARTS))


def check_constraints(constraints: tuple[Constraint, ...], field: str = "constraints") -> None:
    """Check that every condition is well formed and none has too many values.

    Raises:
        SpecError: names `field` and the condition.
    """
    if len(constraints) > MAX_CONSTRAINTS:
        raise SpecError(f"{field}: {len(constraints)}; at most {MAX_CONSTRAINTS} are allowed")
    for rule in constraints:
        if not _LABEL.fullmatch(rule.label):
            raise SpecError(f"{field}: '{shown(rule.label)}' is not a label", hint="letters, digits and _ . / - inside")
        if (rule.op in (Operator.IN, Operator.NOT_IN)) != bool(rule.values):
            raise SpecError(
                f"{field}: '{rule.label} {rule.op}' has {len(rule.values)} values",
                hint="in and not-in take values, exists and absent take none",
            )
        if len(rule.values) > MAX_CONSTRAINT_VALUES:
            raise SpecError(f"{field}: '{rule.label}' has more than {MAX_CONSTRAINT_VALUES} values")
        for value in rule.values:
            if not _LABEL.fullmatch(value):
                raise SpecError(
                    f"{field}: '{shown(value)}' is not a value of label '{rule.label}'",
                    hint="letters, digits and _ . / - inside",
                )


def _check_excluded(names: tuple[str, ...]) -> None:
    if len(names) > MAX_EXCLUDED:
        raise SpecError(
            f"exclude: {len(names)} nodes; at most {MAX_EXCLUDED} are allowed", hint="exclude many by a constraint"
        )
    for name in names:
        if not _LABEL.fullmatch(name):
            raise SpecError(f"exclude: '{shown(name)}' is not the name of a node")
        if names.count(name) > 1:
            raise SpecError(f"exclude: '{name}' is named twice")


def _check_dependencies(spec: JobSpec) -> JobSpec:
    if not spec.dependencies:
        return spec
    entries = canonical_dependencies(spec.dependencies)
    for dependency in each_dependency(entries):
        if dependency.kind is DependencyKind.SINGLETON:
            if dependency.job:
                raise SpecError(
                    "dependencies: singleton takes no job", hint="it waits for all jobs of the same name and user"
                )
            if not spec.name:
                raise SpecError("dependencies: singleton needs a job name", hint="give the job a name")
            continue
        if not dependency.job:
            raise SpecError("dependencies: an entry names no job", hint="give it a job, or any_of with several")
        if not is_name(dependency.job):
            raise SpecError(
                f"dependencies: '{shown(dependency.job)}' is neither a job nor a name",
                hint="write 42, afterany:42, or the name of a job of the same submission",
            )
        if spec.name and dependency.job == spec.name:
            raise SpecError(f"dependencies: job '{spec.name}' would wait for itself")
        if dependency.kind is DependencyKind.AFTERCORR and spec.array is None:
            raise SpecError(
                f"dependencies: {dependency} pairs tasks one by one, and this job is not an array",
                hint=f"write afterok:{dependency.job}, or make it an array of the same length",
            )
    return spec if entries == spec.dependencies else msgspec.structs.replace(spec, dependencies=entries)


def _bytes_of(text: str, field: str) -> int:
    """Return the length of what is passed to a program, which must be UTF-8 without NUL."""
    if "\0" in text:
        raise SpecError(f"{field}: a NUL character cannot be passed to a program")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise SpecError(
            f"{field}: '{shown(text)}' is not valid Unicode", hint="HAL stores text as UTF-8; rename the file"
        ) from None


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.encode_name, field.default) for field in msgspec.structs.fields(kind))


def _canonical(value: S) -> S:
    """Return the same value, with each field that equals its default being the default object itself.

    msgspec omits a default only if it is the identical object; equal specs must give equal bytes. A request of one core
    that a person has written stays: the queue's default is for jobs that say nothing.
    """
    changes: dict[str, Any] = {}
    for name, default in _defaults(type(value)):
        current = getattr(value, name)
        if current is default:
            continue
        if current == default and getattr(current, "says_cpu", None) is not True:
            changes[name] = default
        elif isinstance(current, Struct):
            inner = _canonical(current)
            if inner is not current:
                changes[name] = inner
        elif isinstance(current, tuple) and current and isinstance(current[0], Struct):
            changes[name] = tuple(_canonical(item) for item in current)
    return msgspec.structs.replace(value, **changes) if changes else value


def _refuse_unbuilt(spec: JobSpec) -> None:
    for field in ("inputs", "outputs", "environment"):
        if getattr(spec, field) not in (None, ()):
            raise SpecError(
                f"{field}: not supported by this version of HAL",
                hint="leave it out; variables go into `env`" if field == "environment" else "leave it out",
            )
