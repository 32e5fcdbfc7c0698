"""What a change asks for: the fields that may change, when each may, and the spec that would result.

Pure. Everything is checked as at submission, before anything is changed.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hal.core.model import (
    ConflictError,
    Constraint,
    DeniedError,
    Dependency,
    Duration,
    Failed,
    JobGate,
    JobSpec,
    LimitSignal,
    OnNodeLost,
    Resources,
    Retries,
    SpecError,
    check_spec,
    parse_amount,
    plural,
    resource_name,
    shown,
)
from hal.core.model.array import MAX_TASKS
from hal.core.model.codec import convert, loosened_spec
from hal.core.model.job import MAX_NODES
from hal.planes.tasks.admission.policy_rules import (
    admitted,
    check_amounts,
    check_priority,
    check_signal,
    check_walltime,
    longest_walltime,
    with_defaults,
)
from hal.planes.tasks.admission.site_rules import refuse_changed, ruled
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.table import JobTable


class JobPatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes to a job that has not ended; only the given fields change."""

    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    qos: str | UnsetType = UNSET
    """Empty: the queue's default."""
    booking: str | UnsetType = UNSET
    """Empty: outside all bookings."""
    priority: int | UnsetType = UNSET
    walltime: Duration | UnsetType | None = UNSET
    """None: the queue's default."""
    request: dict[str, str | int | float] | UnsetType = UNSET
    """Amounts of these resources per node; those that are not named stay, and 0 takes one out."""
    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES)] | UnsetType = UNSET
    within: str | UnsetType = UNSET
    """Level of the topology; empty: anywhere."""
    pack: str | UnsetType = UNSET
    """LEVEL:TIME; empty: it waits for no domain."""
    spread: str | UnsetType = UNSET
    """Level of the topology, or node; empty: it does not matter."""
    licences: dict[str, int] | UnsetType = UNSET
    """All that it holds while it runs; {}: none."""
    max_running: Annotated[int, Meta(ge=0, le=MAX_TASKS)] | UnsetType = UNSET
    """Tasks of the array that run at once; 0: no limit. What runs already continues."""
    dependencies: tuple[Dependency, ...] | UnsetType = UNSET
    """All that it waits for, instead of what it waits for now; (): nothing."""
    on_dependency_failed: Failed | UnsetType = UNSET
    begin_at_ms: int | UnsetType = UNSET
    deadline_ms: int | UnsetType = UNSET
    """0: none."""
    constraints: tuple[Constraint, ...] | UnsetType = UNSET
    exclude: tuple[str, ...] | UnsetType = UNSET
    """Nodes not to run on; what runs there already continues."""
    tolerate: tuple[str, ...] | UnsetType = UNSET
    """Taints of nodes, as KEY or KEY=VALUE."""
    retries: int | dict[str, int | float | str] | UnsetType = UNSET
    """How often, or a table as in a spec."""
    signal: LimitSignal | UnsetType | None = UNSET
    gates: tuple[str | dict[str, str | int | float], ...] | UnsetType = UNSET
    """All its gates, as text or tables as in a spec."""
    labels: dict[str, str] | UnsetType = UNSET
    """All labels of the job; {}: none."""
    comment: str | UnsetType = UNSET
    hold: bool | UnsetType = UNSET
    wait_for_change: bool | UnsetType = UNSET


class FieldChange(Struct, frozen=True):
    """One field of a job that differs; plain data, as the spec shows it."""

    field: str
    before: Any
    after: Any


IN_SPEC: Final = (
    "begin_at_ms", "qos", "deadline_ms", "exclude", "tolerate", "array", "on_dependency_failed", "booking", "request",
    "nodes", "within", "pack", "spread", "licences", "constraints", "retries", "signal", "gates", "labels", "comment",
    "wait_for_change",
)  # fmt: skip
"""Fields that only the spec says; dependencies, which have a standing, are changed beside them."""
MOVES: Final = (
    "queue", "account", "qos", "begin_at_ms", "max_running", "exclude", "tolerate", "request", "nodes", "within",
    "pack", "spread", "licences", "booking", "constraints", "dependencies", "deadline_ms",
)  # fmt: skip
"""Changes after which waiting tasks wait in another place of the engine."""
HELD_BY_ATTEMPTS: Final = ("request", "nodes", "licences", "booking", "gates", "signal")
"""What an attempt keeps from its start until its end."""
_PLACES: Final = (
    "request", "nodes", "within", "licences", "booking", "constraints", "exclude", "tolerate", "queue", "walltime",
)  # fmt: skip
"""Changes after which other nodes or limits decide whether it could ever start."""
_AMOUNTS: Final = ("request", "nodes", "licences", "booking", "gates")
_RULED: Final = (
    "queue", "account", "qos", "priority", "walltime", "deadline_ms", "request", "nodes", "within", "pack",
    "spread", "licences", "booking", "constraints", "labels", "comment", "gates", "retries", "dependencies",
)  # fmt: skip
"""Changes that the rules of the site are asked about."""
_AS_WRITTEN: Final = ("request", "retries", "gates")
"""Fields that are kept as people write them until the job is known."""
_FIXED_WHY: Final = {
    "command": "what runs is fixed at submission",
    "script": "what runs is fixed at submission",
    "array": "which tasks an array has is fixed at submission; max_running may change",
    "user": "a job stays its submitter's",
    "secrets": "what it may read is checked at submission",
    "sandbox": "what it is kept from is fixed at submission",
    "apart": "where it runs beside other work is fixed at submission",
    "together": "where it runs beside other work is fixed at submission",
    "prefer_apart": "beside which work it would rather run is fixed at submission",
    "prefer_together": "beside which work it would rather run is fixed at submission",
    "interactive": "whether people attach to it is fixed at submission",
    "on_hangup": "what a hangup does is fixed at submission",
}


class _Parts(Struct, frozen=True):
    retries: Retries = Retries()
    gates: tuple[JobGate, ...] = ()


def patch_of(raw: Any) -> JobPatch:
    """Read a change from plain data as people write it (`request: {memory: 4GiB}`, `dependencies: afterok:12`).

    Raises:
        SpecError: malformed, or a field that never changes; says what to do instead.
    """
    if not isinstance(raw, dict):
        raise SpecError(f"a change is a table of fields, not {shown(raw)}")
    for field in raw:
        if field in JobSpec.__struct_fields__ and field not in JobPatch.__struct_fields__:
            raise SpecError(
                f"{field}: cannot be changed: {_FIXED_WHY.get(field, 'it is fixed at submission')}",
                hint="cancel the job and submit it again; `hal show JOB --spec` prints its spec",
            )
    as_written = {field: raw[field] for field in _AS_WRITTEN if field in raw}
    return convert(
        loosened_spec({key: value for key, value in raw.items() if key not in as_written}) | as_written, JobPatch
    )


def is_set(patch: JobPatch, *fields: str) -> bool:
    """Whether the patch sets any of these."""
    return any(getattr(patch, field) is not UNSET for field in fields)


def spec_now(job: LiveJob) -> JobSpec:
    """The job's spec with what has changed since its submission."""
    walltime = None if job.walltime_ms is None else Duration(job.walltime_ms)
    return replace(
        job.spec, name=job.name, queue=job.queue, account=job.account, user=job.user, priority=job.priority,
        walltime=walltime, hold=job.hold,
    )  # fmt: skip


def needs_room(patch: JobPatch) -> bool:
    """Whether it is to be asked again if the job could ever start."""
    return is_set(patch, *_PLACES)


def as_changed(table: JobTable, job: LiveJob, patch: JobPatch, by: Submitter, now_ms: int) -> JobSpec:
    """All of the patch against the rules of a submission, before anything is changed; the spec as it would then be.

    Raises:
        SpecError, ConflictError: a value cannot be accepted.
        DeniedError: a user raises what only operators raise.
    """
    if job.spec.groups and is_set(patch, "request", "nodes"):
        raise SpecError(
            f"job {job.id} has groups of nodes: what they are is fixed at submission",
            hint=f"hal show {job.id} --spec prints it; cancel it and submit another one",
        )
    _check_values(job, patch)
    _check_idle(job, patch)
    asked = _asked(job, patch)
    if asked.priority > job.priority and not by.lengthens:
        raise DeniedError(
            f"priority: job {job.id} has {job.priority}, and only operators raise it",
            hint="lower that of your other jobs, or ask an operator",
        )
    asked = check_spec(asked, job.spec)
    if table.rules and is_set(patch, *_RULED):
        after = ruled(asked, table.rules, partial(with_defaults, policy=table.policy))
        refuse_changed(asked, after, table.rules)
    if is_set(patch, "queue", "account", "qos", "deadline_ms"):
        return admitted(asked, table.policy, user=by.user, now_ms=now_ms)
    # Its queue may have been closed or narrowed since: that does not concern what stays as it was.
    if is_set(patch, "walltime", "booking"):
        queue = table.policy.queues.get(asked.queue)
        default = queue.default_walltime if queue is not None else None
        limit = check_walltime(asked.walltime, longest_walltime(asked, table.policy), default)
        asked = replace(asked, walltime=limit)
    if is_set(patch, "walltime", "signal"):
        check_signal(asked.signal, asked.walltime)
    if is_set(patch, *_AMOUNTS) or (is_set(patch, "walltime") and job.counts.pending + job.counts.held):
        check_amounts(asked, table.policy, now_ms=now_ms)
    return asked


def changes_between(before: JobSpec, after: JobSpec) -> list[FieldChange]:
    """The fields that differ, in the order of a spec; of an array, how many tasks run at once."""
    found: list[FieldChange] = []
    for field in JobSpec.__struct_fields__:
        was, now = getattr(before, field), getattr(after, field)
        if was == now:
            continue
        if field == "array" and before.array is not None and after.array is not None:
            found.append(FieldChange("max_running", before.array.max_running, after.array.max_running))
        else:
            found.append(FieldChange(field, was, now))
    return found


def _check_values(job: LiveJob, patch: JobPatch) -> None:
    if isinstance(patch.walltime, Duration) and patch.walltime <= 0:
        raise SpecError("walltime: must be longer than 0", hint="leave it out for the queue's default")
    for field in ("begin_at_ms", "deadline_ms"):
        value = getattr(patch, field)
        if value is not UNSET and value < 0:
            raise SpecError(f"{field}: is before 1970")
    if patch.max_running is not UNSET and job.spec.array is None:
        raise SpecError(f"max_running: job {job.id} is not an array", hint="it limits how many tasks of an array run")


def _check_idle(job: LiveJob, patch: JobPatch) -> None:
    """Whether all that waits for is still ahead of what the patch changes.

    Raises:
        ConflictError: something of the job has begun that keeps it from changing.
    """
    for field in HELD_BY_ATTEMPTS:
        if job.active and is_set(patch, field):
            raise ConflictError(
                f"{field}: cannot be changed while {plural(len(job.active), 'task')} of job {job.id} "
                f"{'runs' if len(job.active) == 1 else 'run'}",
                hint=f"what they hold is what their job says: hold it (hal hold {job.id}), change it when they have "
                f"ended, and release it; or cancel what waits (hal cancel {job.id} --state pending) and submit it anew"
                if job.spec.tasks > 1
                else f"requeue or cancel it first: hal requeue {job.id}",
            )
    if is_set(patch, "dependencies") and (job.active or job.restarts or job.start_ms is not None):
        raise ConflictError(
            f"dependencies: job {job.id} has begun, so what it waited for is past",
            hint="to run something after another job, submit it as a job of its own",
        )


def _asked(job: LiveJob, patch: JobPatch) -> JobSpec:
    """The spec with what the patch says, not checked."""
    asked = spec_now(job)
    same = {
        field: value
        for field in JobPatch.__struct_fields__
        if field not in (*_AS_WRITTEN, "max_running", "walltime") and (value := getattr(patch, field)) is not UNSET
    }
    asked = replace(asked, **same)
    if patch.priority is not UNSET:
        check_priority(patch.priority)
    if patch.walltime is not UNSET:
        asked = replace(asked, walltime=patch.walltime)
    if patch.request is not UNSET and asked.exclusive:
        raise SpecError("request: the job has whole nodes", hint="submit it again to have it run on others")
    if patch.request is not UNSET:
        named = {resource_name(name): amount for name, amount in patch.request.items()}
        amounts = {name: parse_amount(name, amount, field=f"request.{name}") for name, amount in named.items()}
        asked = replace(asked, request=Resources({**asked.request, **amounts}))
    if is_set(patch, "retries", "gates"):
        written = {field: getattr(patch, field) for field in ("retries", "gates") if is_set(patch, field)}
        parts = convert(loosened_spec(written), _Parts)
        asked = replace(asked, **{field: getattr(parts, field) for field in written})
    if patch.max_running is not UNSET and asked.array is not None:
        asked = replace(asked, array=replace(asked.array, max_running=patch.max_running))
    if patch.queue is not UNSET:
        # Never that of another queue: what runs of it was started with or without a guard.
        asked = replace(asked, on_node_lost=asked.on_node_lost or OnNodeLost.WAIT)
    return asked
