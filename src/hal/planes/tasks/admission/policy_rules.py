"""What may be submitted: queues, accounts, users, QOS and limits of the policy, and the spec that results.

Pure. A refusal names the thing, what was asked, what is allowed, and the nearest valid choice. Rules:

- Queues: `default` always exists; others are declared. An undeclared one is refused.
- Accounts and users: while none is declared, any name is accepted (single-user mode); once some are, only they are. Who
  submits is always known to HAL, and a job may name no account. A queue, QOS or booking that lists its accounts (with
  all below them) or users accepts only those, without these two exceptions.
- Rules of the site (`site_rules`) come after the queue's defaults and before everything that limits: what they make of
  a job is judged like what a person wrote.
- How many tasks may wait is judged beside, once for a whole submission (`waiting`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.core.interfaces.admit import Admit
from hal.core.model import (
    ConflictError,
    Duration,
    JobSpec,
    LimitSignal,
    OnNodeLost,
    Resources,
    SpecError,
    format_amount,
    format_duration,
)
from hal.core.model.groups import total_request
from hal.core.model.job import MAX_PRIORITY
from hal.core.model.occurrences import current_occurrence
from hal.core.model.policy import Account, Booking, Limit, Policy, Qos, Queue
from hal.core.model.policy_check import instant_text, near
from hal.core.model.policy_scope import Owner, is_within, ledger, ledger_text
from hal.core.model.sandbox import READ_ONLY, check_sandbox, merge_sandboxes
from hal.planes.tasks.admission.never import NeverStartsError, never_by_policy
from hal.planes.tasks.admission.site_rules import ruled

MAX_JOBS_IN_SUBMISSION: Final = 100_000
"""Most jobs in one call."""
MAX_LIVE_JOBS: Final = 2_000_000
"""Most jobs that have not ended; further submissions are refused as overloaded."""
DEFAULT_CPU_MILLI: Final = 1_000
"""Of a job that says nothing of cpu, in a queue that says nothing either."""
LimitsByOwner = dict[Owner, list[Limit]]
"""The limits in whose scope each owner's work is, as far as somebody asked."""


def admitted(
    spec: JobSpec,
    policy: Policy,
    *,
    user: str,
    now_ms: int,
    known: LimitsByOwner | None = None,
    rules: Sequence[Admit] = (),
) -> JobSpec:
    """The spec with the defaults of its queue and the submitter filled in: the one place where the policy admits.

    Args:
        spec: already well formed (`check_spec`).
        policy: already checked (`check_policy`).
        user: who submits; the spec's user when it names none.
        known: limits found before under the same policy; filled.
        rules: of the site, asked in this order.
    Raises:
        SpecError: something undeclared, or more than is allowed, or refused by a rule.
        NeverStartsError: a limit would never let it start, and it does not say `wait_for_change`.
        InternalError: a rule is faulty.
        ConflictError: the queue is closed, or the booking has ended.
    """
    queue = _queue(spec, policy)
    owner = spec.user or user
    if owner != user and policy.users:
        _allowed("user", owner, policy.users, "this HAL")
    if rules:
        spec = ruled(replace(spec, user=owner), rules, partial(with_defaults, policy=policy, known=known))
        queue = _queue(spec, policy)
    spec = _with_default_request(spec, queue)
    _check_account(spec.account, owner, policy)
    if queue.users:
        _allowed("user", owner, queue.users, f"queue '{queue.name}'")
    if queue.accounts:
        _allowed_account(spec.account, queue.accounts, f"queue '{queue.name}'", policy)
    qos = _qos(spec, owner, queue, policy)
    check_priority(spec.priority)
    if queue.max_tasks is not None and spec.array is not None and spec.tasks > queue.max_tasks:
        raise SpecError(f"array: {spec.tasks} tasks; queue '{queue.name}' allows at most {queue.max_tasks}")
    if queue.max_extensions is not None and spec.extensions > queue.max_extensions:
        most = spec.nodes + queue.max_extensions
        if spec.array is not None:
            raise SpecError(
                f"extensions: {spec.extensions} tasks of the array; queue '{queue.name}' allows at most "
                f"{queue.max_extensions}"
            )
        raise SpecError(
            f"nodes: {spec.extensions} beside the {spec.nodes} of its base; queue '{queue.name}' allows at most "
            f"{queue.max_extensions}",
            hint=f"write {spec.nodes}..{most}" if most > spec.nodes else f"write {spec.nodes}",
        )
    quality = qos.name if qos is not None else ""
    if (owner, quality) != (spec.user, spec.qos):
        spec = replace(spec, user=owner, qos=quality)
    limits = limits_of(spec, policy, known)
    _check_size(spec, limits, policy)
    _check_licences(spec, policy)
    _check_gates(spec, policy)
    booking = _booking(spec, policy, now_ms)
    walltime = check_walltime(spec.walltime, _longest(queue, qos, limits, booking), queue.default_walltime)
    _check_times(spec, walltime, now_ms)
    if not spec.wait_for_change:
        never = never_by_policy(spec if walltime == spec.walltime else replace(spec, walltime=walltime), limits, policy)
        if never is not None:
            raise NeverStartsError.of(never)
    if_never = spec.on_dependency_failed
    if spec.dependencies and if_never is None:
        if_never = queue.on_dependency_failed
    if_lost = _if_lost(spec, queue)
    sandbox = _sandbox(spec, queue)
    movable = _movable(spec, queue)
    same = if_never is spec.on_dependency_failed and if_lost is spec.on_node_lost and sandbox == spec.sandbox
    if walltime == spec.walltime and same and movable is spec.movable:
        return spec
    return replace(
        spec, walltime=walltime, on_dependency_failed=if_never, on_node_lost=if_lost, sandbox=sandbox, movable=movable
    )


def check_amounts(spec: JobSpec, policy: Policy, *, now_ms: int) -> None:
    """What a job that was admitted asks for now, against the sizes, licences, gates, bookings and limits of its queue
    as it is, closed or not.

    Raises:
        SpecError, ConflictError: as `admitted`.
    """
    limits = limits_of(spec, policy)
    _check_size(spec, limits, policy)
    _check_licences(spec, policy)
    _check_gates(spec, policy)
    _booking(spec, policy, now_ms)
    if not spec.wait_for_change:
        never = never_by_policy(spec, limits, policy)
        if never is not None:
            raise NeverStartsError.of(never)


def with_defaults(spec: JobSpec, policy: Policy, known: LimitsByOwner | None = None) -> JobSpec:
    """The spec with what its queue gives to a job that says nothing; nothing is judged."""
    queue = policy.queues.get(spec.queue, Queue(name=spec.queue))
    spec = _with_default_request(replace(spec, qos=spec.qos or queue.default_qos), queue)
    if spec.walltime is None:
        longest = longest_walltime(spec, policy, known)
        spec = replace(spec, walltime=check_walltime(None, longest, queue.default_walltime))
    if spec.dependencies and spec.on_dependency_failed is None:
        spec = replace(spec, on_dependency_failed=queue.on_dependency_failed)
    if_lost, movable = _if_lost(spec, queue), _movable(spec, queue)
    if if_lost is spec.on_node_lost and movable is spec.movable:
        return spec
    return replace(spec, on_node_lost=if_lost, movable=movable)


def _with_default_request(spec: JobSpec, queue: Queue) -> JobSpec:
    """The spec with what its queue gives of resources that it does not name; of cpu, one core if nobody says more."""
    given: Mapping[str, int] = queue.default_request or {}
    if spec.groups:
        groups = tuple(replace(group, request=_completed(group.request, given)) for group in spec.groups)
        return replace(spec, groups=groups, request=groups[0].request)
    asked = _completed(spec.request, given)
    return spec if asked is spec.request else replace(spec, request=asked)


def _completed(request: Resources, given: Mapping[str, int]) -> Resources:
    asked = dict(request)
    if request.says_cpu is False:
        asked["cpu"] = given.get("cpu", DEFAULT_CPU_MILLI)
    elif request.says_cpu:
        asked.setdefault("cpu", 0)
    completed = Resources({**given, **asked})
    return request if completed == request else completed


def _if_lost(spec: JobSpec, queue: Queue) -> OnNodeLost | None:
    """What the job says, else its queue; a job of which nobody says anything waits."""
    if spec.on_node_lost is None and queue.on_node_lost is OnNodeLost.REQUEUE:
        return OnNodeLost.REQUEUE
    return spec.on_node_lost


def _movable(spec: JobSpec, queue: Queue) -> bool | None:
    """What the job says, else its queue. What people or other programs talk to stays where it is unless it says so;
    so does a base, whose extensions would be lost with it."""
    if spec.movable is None and queue.movable and not (spec.interactive or spec.service or spec.extensions):
        return True
    return spec.movable


def _sandbox(spec: JobSpec, queue: Queue) -> tuple[str, ...]:
    words = merge_sandboxes(spec.sandbox, check_sandbox(queue.sandbox), queue.name)
    if READ_ONLY in words and spec.workdir == "/":
        raise SpecError(f"workdir: / would undo {READ_ONLY} of queue '{queue.name}'", hint="name a directory below it")
    return words


def owner_of(spec: JobSpec) -> Owner:
    """Whose work an admitted spec is."""
    return Owner(spec.queue, spec.account, spec.user, spec.qos)


def limits_of(spec: JobSpec, policy: Policy, known: LimitsByOwner | None = None) -> list[Limit]:
    """The limits in whose scope it is. O(limits) for an owner that is not `known`."""
    if not policy.limits:
        return []
    owner = owner_of(spec)
    found = known.get(owner) if known is not None else None
    if found is None:
        found = [limit for limit in policy.limits.values() if ledger(limit, owner, policy.accounts) is not None]
        if known is not None:
            known[owner] = found
    return found


def check_priority(asked: int) -> int:
    """The priority itself.

    Raises:
        SpecError: farther from 0 than any job's may be.
    """
    if abs(asked) > MAX_PRIORITY:
        raise SpecError(f"priority: {asked} is out of range", hint=f"between -{MAX_PRIORITY} and {MAX_PRIORITY}")
    return asked


def check_signal(signal: LimitSignal | None, walltime: Duration | None) -> None:
    """Whether there is an instant at which the signal would be sent, with the walltime that holds in the end.

    Raises:
        SpecError: there is none: no walltime, or one that is not longer than `before`.
    """
    if signal is None:
        return
    if walltime is None:
        raise SpecError(
            f"signal: {signal.name} is sent {format_duration(signal.before)} before the walltime ends, and there is no "
            "walltime, neither the job's nor its queue's",
            hint="give the job a walltime (-t 2h), or leave the signal out",
        )
    if signal.before >= walltime:
        raise SpecError(
            f"signal: would be sent before the job starts: its walltime is {format_duration(walltime)}",
            hint="make `before` shorter than the walltime",
        )


# ── queue, account, QOS ───────────────────────────────────────────────────────────────────────────────────────────


def _queue(spec: JobSpec, policy: Policy) -> Queue:
    queue = policy.queues.get(spec.queue)
    if queue is None:
        raise SpecError(
            f"queue: '{spec.queue}' is not a queue{near(spec.queue, policy.queues)}",
            hint=_valid("queues", policy.queues),
        )
    if not queue.open:
        left = [name for name, other in policy.queues.items() if other.open]
        raise ConflictError(f"queue '{queue.name}' is closed: it accepts no new jobs", hint=_valid("queues", left))
    return queue


def _check_account(account: str, user: str, policy: Policy) -> None:
    if not account:
        return
    found: Account | None = None
    if policy.accounts:
        _allowed("account", account, policy.accounts, "this HAL")
        found = policy.accounts[account]
    if found is not None and found.closed and user not in found.users:
        raise SpecError(
            f"account '{account}' is closed to user '{user}'", hint=_valid("users", found.users) if found.users else ""
        )


def _qos(spec: JobSpec, user: str, queue: Queue, policy: Policy) -> Qos | None:
    name = spec.qos or queue.default_qos
    if not name:
        if queue.qos:
            raise SpecError(f"qos: queue '{queue.name}' requires one", hint=_valid("QOS", queue.qos))
        return None
    qos = policy.qos.get(name)
    if qos is None:
        raise SpecError(f"qos: '{name}' is not a QOS{near(name, policy.qos)}", hint=_valid("QOS", policy.qos))
    if queue.qos and name not in queue.qos:
        raise SpecError(f"qos: '{name}' may not be used in queue '{queue.name}'", hint=_valid("QOS", queue.qos))
    if qos.users:
        _allowed("user", user, qos.users, f"qos '{name}'")
    if qos.accounts:
        _allowed_account(spec.account, qos.accounts, f"qos '{name}'", policy)
    return qos


def _allowed_account(account: str, wanted: tuple[str, ...], where: str, policy: Policy) -> None:
    if not is_within(account, wanted, policy.accounts):
        _allowed("account", account, wanted, where)


def _allowed(field: str, value: str, names: Collection[str], where: str) -> None:
    if value in names:
        return
    if not value:
        raise SpecError(f"{field}: {where} requires one", hint=_valid(f"{field}s", names))
    raise SpecError(f"{field}: '{value}' is not known to {where}{near(value, names)}", hint=_valid(f"{field}s", names))


def _valid(what: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
    return f"valid {what}: {shown or 'none'}"


# ── how much ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_size(spec: JobSpec, limits: list[Limit], policy: Policy) -> None:
    for limit in limits:
        if limit.max_nodes is not None and spec.nodes > limit.max_nodes:
            raise SpecError(
                f"nodes: {spec.nodes} for one task; limit '{limit.name}' ({_where(limit, spec, policy)}) allows "
                f"{limit.max_nodes}",
                hint=f"ask for at most {limit.max_nodes}",
            )
        for name, most in (limit.max_job or Resources()).items():
            asked = total_request(spec).get(name, 0)
            if asked > most and spec.groups:
                raise SpecError(
                    f"groups: {format_amount(name, asked)} {name} in all; limit '{limit.name}' "
                    f"({_where(limit, spec, policy)}) allows {format_amount(name, most)} for one task",
                    hint=f"ask for at most {format_amount(name, most)} {name} in all groups together",
                )
            if asked > most:
                nodes = f" on {spec.nodes} nodes" if spec.nodes > 1 else ""
                raise SpecError(
                    f"request: {format_amount(name, asked)} {name}{nodes} for one task; limit '{limit.name}' "
                    f"({_where(limit, spec, policy)}) allows {format_amount(name, most)}",
                    hint=f"ask for at most {format_amount(name, most // spec.nodes)} {name} per node",
                )


def _where(limit: Limit, spec: JobSpec, policy: Policy) -> str:
    found = ledger(limit, owner_of(spec), policy.accounts)
    return "everybody" if found is None else ledger_text(limit, found)


def _check_licences(spec: JobSpec, policy: Policy) -> None:
    for name, asked in spec.licences.items():
        total = policy.licences.get(name)
        if total is None:
            raise SpecError(
                f"licences: '{name}' is not a licence{near(name, policy.licences)}",
                hint=_valid("licences", policy.licences),
            )
        if asked > total:
            raise SpecError(
                f"licences: {asked} {name} for one task; there are {total}", hint=f"ask for at most {total}"
            )


def _check_gates(spec: JobSpec, policy: Policy) -> None:
    for gate in spec.gates:
        rule = policy.gates.get(gate.name)
        if rule is None:
            raise SpecError(
                f"gates: '{gate.name}' is not a gate{near(gate.name, policy.gates)}",
                hint=_valid("gates", policy.gates),
            )
        if rule.users:
            _allowed("user", spec.user, rule.users, f"gate '{rule.name}'")
        if rule.accounts:
            _allowed_account(spec.account, rule.accounts, f"gate '{rule.name}'", policy)
        if gate.deadline > rule.max_deadline:
            raise SpecError(
                f"gates.{gate.name}: a deadline of {gate.deadline}; at most {rule.max_deadline} is allowed",
                hint="give a shorter one",
            )


_Longest = tuple[Duration, str] | None
"""A longest walltime, and who says so."""


def _longest(queue: Queue, qos: Qos | None, limits: list[Limit], booking: Booking | None) -> _Longest:
    bounds = [(queue.max_walltime, f"queue '{queue.name}'")]
    if qos is not None:
        bounds.append((qos.max_walltime, f"qos '{qos.name}'"))
    bounds.extend((limit.max_walltime, f"limit '{limit.name}'") for limit in limits)
    if booking is not None:
        bounds.append((booking.duration, f"booking '{booking.name}'"))
    return min(((most, who) for most, who in bounds if most is not None), key=lambda bound: bound[0], default=None)


def longest_walltime(spec: JobSpec, policy: Policy, known: LimitsByOwner | None = None) -> _Longest:
    """The longest walltime that a job may ask for where it is; None: any. What was removed sets no limit."""
    queue = policy.queues.get(spec.queue, Queue(name=spec.queue))
    limits = limits_of(spec, policy, known)
    return _longest(queue, policy.qos.get(spec.qos), limits, policy.bookings.get(spec.booking))


def check_walltime(asked: Duration | None, longest: _Longest, default: Duration | None) -> Duration | None:
    """The walltime of a job that asks for `asked`: else the queue's default, else the longest that is allowed.

    Raises:
        SpecError: longer than allowed.
    """
    if asked is None:
        if longest is None:
            return default
        return longest[0] if default is None else min(default, longest[0])
    if longest is not None and asked > longest[0]:
        raise SpecError(
            f"walltime: {format_duration(asked)} is longer than {longest[1]} allows",
            hint=f"at most {format_duration(longest[0])}",
        )
    return asked


# ── bookings and times ────────────────────────────────────────────────────────────────────────────────────────────


def _booking(spec: JobSpec, policy: Policy, now_ms: int) -> Booking | None:
    if not spec.booking:
        return None
    booking = policy.bookings.get(spec.booking)
    if booking is None:
        raise SpecError(
            f"booking: '{spec.booking}' is not a booking{near(spec.booking, policy.bookings)}",
            hint=_valid("bookings", policy.bookings),
        )
    if booking.maintenance:
        raise SpecError(f"booking '{booking.name}' is maintenance: nothing runs in it")
    if booking.users and spec.user in booking.users:
        pass
    elif booking.accounts:
        _allowed_account(spec.account, booking.accounts, f"booking '{booking.name}'", policy)
    else:
        _allowed("user", spec.user, booking.users, f"booking '{booking.name}'")
    if current_occurrence(booking, now_ms) is None:
        raise ConflictError(f"booking '{booking.name}' is over", hint="extend it with `hal booking set`")
    nodes = len(booking.nodes) or booking.count
    if nodes and spec.nodes > nodes:
        raise SpecError(
            f"nodes: {spec.nodes} for one task; booking '{booking.name}' holds {nodes}", hint=f"ask for at most {nodes}"
        )
    return booking


def _check_times(spec: JobSpec, walltime: Duration | None, now_ms: int) -> None:
    check_signal(spec.signal, walltime)
    if spec.deadline_ms and spec.deadline_ms <= max(now_ms, spec.begin_at_ms):
        when = "it begins" if spec.begin_at_ms > now_ms else "now"
        raise SpecError(
            f"deadline: {instant_text(spec.deadline_ms)} is before {when}", hint="give a later one, or none"
        )
