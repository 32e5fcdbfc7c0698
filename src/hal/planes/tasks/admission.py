"""What may be submitted: queues, accounts and users that are declared, the limits they set, the spec that results.

Pure. A refusal is a `SpecError` that names the thing, what was asked, and the valid choices. Rules:

- Queues: `default` always exists; others are declared. An undeclared one is refused.
- Accounts and users: while no list of them is declared, any name is accepted (single-user mode); once a list is
  declared, only its names are. Who submits is always known to HAL, and a job may name no account. A queue that lists
  its accounts or users accepts only those, without these two exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import ConflictError, Duration, JobSpec, OnNodeLost, SpecError, format_duration
from hal.core.model.job import MAX_PRIORITY

DEFAULT_QUEUE = "default"
MAX_JOBS_IN_SUBMISSION = 100_000
"""Most jobs in one call."""
MAX_LIVE_JOBS = 2_000_000
"""Most jobs that have not ended; further submissions are refused as overloaded."""


class Queue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for the jobs of one queue."""

    name: str = DEFAULT_QUEUE
    default_walltime: Duration | None = None
    """For jobs that name none."""
    max_walltime: Duration | None = None
    """Longest accepted."""
    max_tasks: int | None = None
    """Longest accepted array."""
    on_node_lost: OnNodeLost = OnNodeLost.WAIT
    accounts: tuple[str, ...] = ()
    """The only accounts that may use it; empty: all."""
    users: tuple[str, ...] = ()
    """The only users that may use it; empty: all."""
    open: bool = True
    """False: nothing new is accepted; what was accepted still runs."""
    description: str = ""


class Site(Struct, frozen=True, kw_only=True):
    """What is declared on this HAL."""

    queues: dict[str, Queue] = msgspec.field(default_factory=lambda: {DEFAULT_QUEUE: Queue()})
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


def admitted(spec: JobSpec, site: Site, *, user: str) -> JobSpec:
    """The spec with the queue's defaults and the submitter filled in.

    Args:
        spec: already well formed (`check_spec`).
        site: what is declared.
        user: who submits; the spec's user when it names none.
    Raises:
        SpecError: an undeclared queue, account or user, or more than the queue allows.
        ConflictError: the queue is closed.
    """
    queue = site.queues.get(spec.queue)
    if queue is None:
        raise SpecError(
            f"queue: '{spec.queue}' is not a queue{_nearest(spec.queue, site.queues)}",
            hint=_valid("queues", site.queues),
        )
    if not queue.open:
        raise ConflictError(
            f"queue '{queue.name}' is closed: it accepts no new jobs", hint=_valid("queues", _open(site))
        )
    owner = spec.user or user
    if owner != user:
        _declared("user", owner, site.users, "this HAL")
    if spec.account:
        _declared("account", spec.account, site.accounts, "this HAL")
    _declared("user", owner, queue.users, f"queue '{queue.name}'")
    _declared("account", spec.account, queue.accounts, f"queue '{queue.name}'")
    check_priority(spec.priority)
    if queue.max_tasks is not None and spec.tasks > queue.max_tasks:
        raise SpecError(f"array: {spec.tasks} tasks; queue '{queue.name}' allows at most {queue.max_tasks}")
    walltime = check_walltime(spec.walltime, queue)
    if spec.signal is not None and walltime is not None and spec.signal.before >= walltime:
        raise SpecError(
            f"signal: would be sent before the job starts: its walltime is {format_duration(walltime)}",
            hint="make `before` shorter than the walltime",
        )
    if owner == spec.user and walltime == spec.walltime:
        return spec
    return replace(spec, user=owner, walltime=walltime)


def check_priority(asked: int) -> int:
    """The priority itself.

    Raises:
        SpecError: farther from 0 than any job's may be.
    """
    if abs(asked) > MAX_PRIORITY:
        raise SpecError(f"priority: {asked} is out of range", hint=f"between -{MAX_PRIORITY} and {MAX_PRIORITY}")
    return asked


def check_walltime(asked: Duration | None, queue: Queue) -> Duration | None:
    """The walltime that holds in that queue for a job that asks for `asked`.

    Raises:
        SpecError: longer than the queue allows.
    """
    walltime = asked if asked is not None else queue.default_walltime
    if walltime is None:
        walltime = queue.max_walltime
    if queue.max_walltime is not None and walltime is not None and walltime > queue.max_walltime:
        raise SpecError(
            f"walltime: {format_duration(walltime)} is longer than queue '{queue.name}' allows",
            hint=f"at most {format_duration(queue.max_walltime)}",
        )
    return walltime


def _declared(field: str, value: str, names: tuple[str, ...], where: str) -> None:
    if not names or value in names:
        return
    if not value:
        raise SpecError(f"{field}: {where} asks for one", hint=_valid(f"{field}s", names))
    raise SpecError(
        f"{field}: '{value}' is not known to {where}{_nearest(value, names)}", hint=_valid(f"{field}s", names)
    )


def _open(site: Site) -> list[str]:
    return [name for name, queue in site.queues.items() if queue.open]


def _nearest(value: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(value, list(names), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def _valid(what: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
    return f"valid {what}: {shown}"
