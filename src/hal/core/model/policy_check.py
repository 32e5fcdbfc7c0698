"""Check that the parts of a policy fit together: names, references, ranges, trees without cycles, no overlapping
bookings.

Pure. Every mistake is one `SpecError` that names the entry, its field, its value, and the nearest valid name.
O(entries), and pairs of bookings that name the same node.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from msgspec.structs import replace

from hal.core.model.advice import check_kind
from hal.core.model.array import MAX_TASKS
from hal.core.model.devices import BESIDE_GPUS
from hal.core.model.errors import SpecError, shown
from hal.core.model.gate import LONGEST_DEADLINE_MS, SHORTEST_DEADLINE_MS, SITE_GATES, is_gate_name
from hal.core.model.job import MAX_EXTENSIONS, MAX_NODES, MAX_PRIORITY, check_constraints, is_licence, is_name
from hal.core.model.occurrences import DAY_MS, PERIOD_MS, first_overlap
from hal.core.model.policy import (
    COMPACTNESS,
    DEFAULT_QUEUE,
    EACH,
    QUEUE_PLACEMENTS,
    Account,
    Booking,
    FairShare,
    GateRule,
    Limit,
    Policy,
    Qos,
    Queue,
    Reclaim,
    Repeat,
    Weights,
    preempting_entries,
)
from hal.core.model.policy_hours import UTC_ZONE, check_zone, parse_hours
from hal.core.model.policy_scope import MAX_DEPTH
from hal.core.model.resources import MAX_RESOURCES
from hal.core.model.sandbox import check_sandbox
from hal.core.model.units import MAX_AMOUNT, Duration, format_duration, resource_name

MAX_QUEUES: Final = 1_000
MAX_QOS: Final = 1_000
MAX_STANDINGS: Final = 512
MAX_ACCOUNTS: Final = 100_000
MAX_USERS: Final = 100_000
MAX_LIMITS: Final = 10_000
MAX_BOOKINGS: Final = 1_000
MAX_LICENCES: Final = 1_000
MAX_GATES: Final = 1_000
MAX_GPU_RESERVES: Final = 8
"""Different amounts of cores, or of memory, that queues leave for each GPU."""
MAX_ZONES: Final = 64
"""Time zones of the hours of all queues."""
MAX_DELEGATES: Final = 1_000
"""Coordinators of an account, or operators of a queue."""
MAX_DELEGATED: Final = 5_000
"""Limits that coordinators have set: half of all that there may be."""
MAX_DESCRIPTION: Final = 1_000
MAX_WEIGHT: Final = 1e12
"""Largest absolute value of a priority weight."""
MAX_CHARGE: Final = 1e9
MAX_PREFERENCES: Final = 16
"""Kinds of advice that one queue weighs."""
MAX_PREFERENCE: Final = 1e6
"""Largest absolute value of what a unit of advice adds to the score of a node."""
MAX_GRACE_MS: Final = DAY_MS
MAX_BOOKING_MS: Final = 366 * DAY_MS
MAX_INSTANT_MS: Final = 253_402_300_799_000
"""The end of the year 9999, the last that calendars print."""

_NAME_HINT: Final = "letters, digits and _ . : @ / + -, at most 128"

E = TypeVar("E", Queue, Account, Qos, Limit, Booking, GateRule)


def zones_of(policy: Policy) -> set[str]:
    """The zones in which its hours are, without UTC."""
    return {queue.zone for queue in policy.queues.values() if queue.hours} - {UTC_ZONE}


def check_policy(policy: Policy) -> Policy:
    """Return the policy with each entry carrying its own name and the queue `default` present, if its parts fit
    together.

    Raises:
        SpecError: names the entry and field, and what to write instead.
    """
    queues = dict(policy.queues)
    queues.setdefault(DEFAULT_QUEUE, Queue())
    policy = replace(
        policy,
        queues=_named("queues", queues, MAX_QUEUES),
        accounts=_named("accounts", policy.accounts, MAX_ACCOUNTS),
        qos=_named("qos", policy.qos, MAX_QOS),
        limits=_named("limits", policy.limits, MAX_LIMITS),
        bookings=_named("bookings", policy.bookings, MAX_BOOKINGS),
        gates=_named("gates", policy.gates, MAX_GATES),
    )
    if len(zones_of(policy)) > MAX_ZONES:
        raise SpecError(f"queues: hours in {len(zones_of(policy))} time zones; at most {MAX_ZONES} are allowed")
    _check_users(policy.users)
    _each("accounts", policy.accounts, lambda entry, at: _check_account(entry, at, policy))
    _check_tree(policy.accounts)
    _each("qos", policy.qos, lambda entry, at: _check_qos(entry, at, policy))
    _check_preemption(policy.qos, "qos", "a QOS")
    _each("queues", policy.queues, lambda entry, at: _check_queue(entry, at, policy))
    _check_preemption(policy.queues, "queues", "a queue")
    _check_reserves(policy.queues)
    _check_standings(policy)
    _each("limits", policy.limits, lambda entry, at: _check_limit(entry, at, policy))
    _check_licences(policy.licences)
    _each("bookings", policy.bookings, lambda entry, at: _check_booking(entry, at, policy))
    _check_meetings(policy.bookings)
    _each("gates", policy.gates, lambda entry, at: _check_gate(entry, at, policy))
    _check_weights(policy.weights, "weights")
    _check_fairshare(policy.fairshare)
    return policy


# ── names and references ──────────────────────────────────────────────────────────────────────────────────────────


def _named(table: str, entries: Mapping[str, E], most: int) -> dict[str, E]:
    """Return the entries with their own names filled in."""
    if len(entries) > most:
        raise SpecError(f"{table}: {len(entries)} entries; at most {most} are allowed")
    out: dict[str, E] = {}
    for name, entry in entries.items():
        if not is_name(name):
            raise SpecError(f"{table}: '{shown(name)}' is not a name", hint=_NAME_HINT)
        if entry.name not in ("", name, DEFAULT_QUEUE if isinstance(entry, Queue) else name):
            raise SpecError(f"{table}.{name}.name: is '{shown(entry.name)}'", hint="leave it out")
        out[name] = entry if entry.name == name else replace(entry, name=name)
        if len(entry.description if not isinstance(entry, Limit) else "") > MAX_DESCRIPTION:
            raise SpecError(f"{table}.{name}.description: longer than {MAX_DESCRIPTION} characters")
    return out


def _each(table: str, entries: Mapping[str, E], check: Callable[[E, str], None]) -> None:
    for name, entry in entries.items():
        check(entry, f"{table}.{name}")


_NEAR: Final = "; did you mean "


def near(value: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'short'?`, or nothing if no name is similar."""
    found = difflib.get_close_matches(value, list(names), n=1, cutoff=0.6)
    return f"{_NEAR}'{found[0]}'?" if found else ""


def without_near(message: str) -> str:
    """Remove from a check's message what `near` appended: a removed entry is not a misspelling."""
    return message.partition(_NEAR)[0]


def _refers(at: str, kind: str, names: Iterable[str], known: Collection[str], *, own: str = "") -> None:
    """Check references; `own`: the name of the entry itself if it is of that kind, so that it is not suggested."""
    for name in names:
        if name not in known:
            others = sorted(set(known) - {own})
            declared = ", ".join(others[:20]) or "none"
            raise SpecError(
                f"{at}: '{shown(name)}' is not {_A[kind]}{near(name, others)}", hint=f"declared: {declared}"
            )


_A: Final = {"queue": "a queue", "account": "an account", "user": "a user", "qos": "a QOS", "licence": "a licence"}


def _refers_accounts(at: str, names: Iterable[str], policy: Policy) -> None:
    """Check account names; while no account is declared, any name is valid."""
    if policy.accounts:
        _refers(at, "account", names, policy.accounts)
    _are_names(at, names)


def _refers_users(at: str, names: Iterable[str], policy: Policy) -> None:
    if policy.users:
        _refers(at, "user", names, policy.users)
    _are_names(at, names)


def _are_names(at: str, names: Iterable[str]) -> None:
    for name in names:
        if not is_name(name):
            raise SpecError(f"{at}: '{shown(name)}' is not a name", hint=_NAME_HINT)


def _positive(at: str, value: Duration | None) -> None:
    if value is not None and value <= 0:
        raise SpecError(f"{at}: must be longer than 0", hint="give a time like 30m, or leave it out")


# ── accounts and users ────────────────────────────────────────────────────────────────────────────────────────────


def _check_users(users: tuple[str, ...]) -> None:
    if len(users) > MAX_USERS:
        raise SpecError(f"users: {len(users)} names; at most {MAX_USERS} are allowed")
    _are_names("users", users)


def _check_account(account: Account, at: str, policy: Policy) -> None:
    if account.parent:
        _refers(f"{at}.parent", "account", [account.parent], policy.accounts, own=account.name)
    _number(f"{at}.weight", account.weight, 0, 1e9)
    if len(account.users) > MAX_USERS:
        raise SpecError(f"{at}.users: {len(account.users)} names; at most {MAX_USERS} are allowed")
    _refers_users(f"{at}.users", account.users, policy)
    for user, weight in account.users.items():
        _number(f"{at}.users.{user}", weight, 0, 1e9)
    _check_delegates(f"{at}.coordinators", account.coordinators, policy)


def _check_delegates(at: str, names: tuple[str, ...], policy: Policy) -> None:
    if len(names) > MAX_DELEGATES:
        raise SpecError(f"{at}: {len(names)} names; at most {MAX_DELEGATES} are allowed")
    _refers_users(at, names, policy)


def _check_tree(accounts: Mapping[str, Account]) -> None:
    """Check that no account is its own ancestor, and none is deeper than `MAX_DEPTH`."""
    depth: dict[str, int] = {"": 0}
    for start in accounts:
        path: list[str] = []
        at = start
        while at not in depth:
            if at in path:
                circle = " > ".join([*path[path.index(at) :], at])
                raise SpecError(f"accounts.{at}.parent: the account is its own ancestor: {circle}")
            path.append(at)
            at = accounts[at].parent
        for name in reversed(path):
            depth[name] = depth[accounts[name].parent] + 1
            if depth[name] > MAX_DEPTH:
                raise SpecError(f"accounts.{name}.parent: deeper than {MAX_DEPTH} levels")


# ── QOS ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_qos(qos: Qos, at: str, policy: Policy) -> None:
    _number(f"{at}.priority", qos.priority, -MAX_PRIORITY, MAX_PRIORITY)
    _number(f"{at}.usage_factor", qos.usage_factor, 0, 1_000)
    _refers(f"{at}.preempts", "qos", qos.preempts, policy.qos, own=qos.name)
    if qos.grace > MAX_GRACE_MS:
        raise SpecError(f"{at}.grace: {qos.grace} is too long", hint=f"at most {format_duration(MAX_GRACE_MS)}")
    _positive(f"{at}.max_walltime", qos.max_walltime)
    _refers_accounts(f"{at}.accounts", qos.accounts, policy)
    _refers_users(f"{at}.users", qos.users, policy)


def _check_standings(policy: Policy) -> None:
    """Bound the table that says who may preempt whom, which has an entry for each pair of a queue and a QOS that
    take part in preemption."""
    queues, qualities = len(preempting_entries(policy.queues)), len(preempting_entries(policy.qos))
    if (1 + queues) * (1 + qualities) > MAX_STANDINGS:
        raise SpecError(
            f"queues, qos: {queues} queues and {qualities} QOS take part in preemption; together they may make "
            f"{MAX_STANDINGS} pairs",
            hint="let fewer of them have `preempts`, `preempt_mode`, or be named by others",
        )


def _check_preemption(table: Mapping[str, Qos] | Mapping[str, Queue], kind: str, a_kind: str) -> None:
    """Check that nobody can preempt its own kind through others, which would never come to rest."""
    done: set[str] = set()
    for start in table:
        path: list[str] = []
        ahead: list[list[str]] = [[start]]
        while ahead:
            if not ahead[-1]:
                ahead.pop()
                if path:
                    done.add(path.pop())
                continue
            at = ahead[-1].pop()
            if at in path:
                circle = " > ".join([*path[path.index(at) :], at])
                raise SpecError(
                    f"{kind}.{at}.preempts: {a_kind} may not preempt itself: {circle}", hint="remove one of these"
                )
            if at not in done:
                path.append(at)
                ahead.append(list(table[at].preempts))


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_reserve(names: Iterable[str], at: str) -> None:
    """
    Raises:
        SpecError: something else than cores and memory is reserved for GPUs.
    """
    wrong = [name for name in names if name not in BESIDE_GPUS]
    if wrong:
        raise SpecError(f"{at}: {wrong[0]} cannot be reserved for GPUs", hint=f"name {' or '.join(BESIDE_GPUS)}")


def _check_reserves(queues: Mapping[str, Queue]) -> None:
    """Each amount is one of each node."""
    for name in BESIDE_GPUS:
        amounts = {queue.gpu_reserve.get(name, 0) for queue in queues.values() if queue.gpu_reserve is not None}
        if len(amounts) > MAX_GPU_RESERVES:
            raise SpecError(
                f"queues: {len(amounts)} different amounts of {name} in gpu_reserve",
                hint=f"at most {MAX_GPU_RESERVES}: let queues reserve the same",
            )


def _check_preferences(queue: Queue, at: str) -> None:
    if queue.placement and queue.placement not in QUEUE_PLACEMENTS:
        raise SpecError(
            f"{at}.placement: '{shown(queue.placement)}' is none of {', '.join(QUEUE_PLACEMENTS)}",
            hint="any other is one of all queues: `placement` under [engine] of hal.toml",
        )
    if len(queue.preferences) > MAX_PREFERENCES:
        raise SpecError(f"{at}.preferences: {len(queue.preferences)} kinds; at most {MAX_PREFERENCES} are allowed")
    for kind, weight in queue.preferences.items():
        _number(f"{at}.preferences.{shown(kind)}", weight, -MAX_PREFERENCE, MAX_PREFERENCE)
        if kind == COMPACTNESS and weight not in (0, 1):
            raise SpecError(f"{at}.preferences.{COMPACTNESS}: {weight:g} is neither 0 nor 1", hint="0: gangs by score")
        check_kind(kind)


def _check_queue(queue: Queue, at: str, policy: Policy) -> None:
    _number(f"{at}.priority", queue.priority, -MAX_PRIORITY, MAX_PRIORITY)
    if queue.weights is not None:
        _check_weights(queue.weights, f"{at}.weights")
    check_sandbox(queue.sandbox, f"{at}.sandbox")
    _positive(f"{at}.default_walltime", queue.default_walltime)
    _positive(f"{at}.max_walltime", queue.max_walltime)
    if queue.default_walltime and queue.max_walltime and queue.default_walltime > queue.max_walltime:
        raise SpecError(
            f"{at}: `default_walltime` {queue.default_walltime} is longer than `max_walltime` {queue.max_walltime}"
        )
    if queue.max_tasks is not None:
        _number(f"{at}.max_tasks", queue.max_tasks, 1, MAX_TASKS)
    if queue.max_extensions is not None:
        _number(f"{at}.max_extensions", queue.max_extensions, 0, MAX_EXTENSIONS)
    _check_preferences(queue, at)
    _refers(f"{at}.preempts", "queue", queue.preempts, policy.queues, own=queue.name)
    if queue.grace > MAX_GRACE_MS:
        raise SpecError(f"{at}.grace: {queue.grace} is too long", hint=f"at most {format_duration(MAX_GRACE_MS)}")
    _refers(f"{at}.qos", "qos", queue.qos, policy.qos)
    if queue.default_qos:
        _refers(f"{at}.default_qos", "qos", [queue.default_qos], policy.qos)
        if queue.qos and queue.default_qos not in queue.qos:
            raise SpecError(
                f"{at}.default_qos: '{queue.default_qos}' may not be used in it", hint=f"add it to {at}.qos"
            )
    _refers_accounts(f"{at}.accounts", queue.accounts, policy)
    _refers_users(f"{at}.users", queue.users, policy)
    check_constraints(queue.nodes, f"{at}.nodes")
    check_reserve(queue.gpu_reserve or (), f"{at}.gpu_reserve")
    parse_hours(queue.hours, field=f"{at}.hours")
    check_zone(queue.zone, f"{at}.zone")
    _check_delegates(f"{at}.operators", queue.operators, policy)


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────

_BOUNDS: Final = ("running", "pending", "resources", "hours", "max_job", "max_nodes", "max_walltime")


def _check_limit(limit: Limit, at: str, policy: Policy) -> None:
    if limit.queue not in ("", EACH):
        _refers(f"{at}.queue", "queue", [limit.queue], policy.queues)
    if limit.qos not in ("", EACH):
        _refers(f"{at}.qos", "qos", [limit.qos], policy.qos)
    if limit.account not in ("", EACH):
        _refers_accounts(f"{at}.account", [limit.account], policy)
    if limit.user not in ("", EACH):
        _refers_users(f"{at}.user", [limit.user], policy)
    if all(getattr(limit, name) is None for name in _BOUNDS):
        raise SpecError(f"{at}: has no limit", hint=f"give one of `{'`, `'.join(_BOUNDS)}`")
    for name in ("running", "pending"):
        if getattr(limit, name) is not None:
            _number(f"{at}.{name}", getattr(limit, name), 0, MAX_AMOUNT)
    if limit.max_nodes is not None:
        _number(f"{at}.max_nodes", limit.max_nodes, 1, MAX_NODES)
    _positive(f"{at}.max_walltime", limit.max_walltime)
    if limit.period <= 0:
        raise SpecError(f"{at}.period: must be longer than 0")
    if limit.cohort:
        _are_names(f"{at}.cohort", [limit.cohort])
        if limit.resources is None:
            raise SpecError(f"{at}.cohort: has no `resources` to share", hint="give `resources`, or no `cohort`")
    elif limit.reclaim is not Reclaim.WAIT:
        raise SpecError(f"{at}.reclaim: has no `cohort`", hint="name the `cohort` whose limits share their quota")
    elif limit.borrow is not None:
        raise SpecError(f"{at}.borrow: has no `cohort`", hint="name the `cohort` whose limits share their quota")
    if limit.delegated and (limit.account in ("", EACH) or not limit.user or limit.queue or limit.qos or limit.cohort):
        raise SpecError(
            f"{at}.delegated: a coordinator limits users of an account",
            hint="give `account` and `user`, and neither `queue`, `qos` nor `cohort`; or leave `delegated` out",
        )


# ── gates ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_gate(gate: GateRule, at: str, policy: Policy) -> None:
    if not is_gate_name(gate.name):
        raise SpecError(
            f"{at}: is not the name of a gate",
            hint=f"small letters, digits and . _ -, at most 63; not {' or '.join(sorted(SITE_GATES))}",
        )
    if not SHORTEST_DEADLINE_MS <= gate.max_deadline <= LONGEST_DEADLINE_MS:
        raise SpecError(f"{at}.max_deadline: {gate.max_deadline} is out of range", hint="between 10ms and 1d")
    _refers_accounts(f"{at}.accounts", gate.accounts, policy)
    _refers_users(f"{at}.users", gate.users, policy)


# ── licences and bookings ─────────────────────────────────────────────────────────────────────────────────────────


def _check_licences(licences: Mapping[str, int]) -> None:
    if len(licences) > MAX_LICENCES:
        raise SpecError(f"licences: {len(licences)} names; at most {MAX_LICENCES} are allowed")
    for name, amount in licences.items():
        if not is_licence(name):
            raise SpecError(f"licences: '{shown(name)}' is not a licence name", hint="letters, digits and _ . / -")
        _number(f"licences.{name}", amount, 0, MAX_AMOUNT)


def _check_booking(booking: Booking, at: str, policy: Policy) -> None:
    _number(f"{at}.start_ms", booking.start_ms, 0, MAX_INSTANT_MS)
    _positive(f"{at}.duration", booking.duration)
    longest = PERIOD_MS[booking.repeat] or MAX_BOOKING_MS
    if booking.duration > longest:
        every = f"repeats every {format_duration(longest)}" if booking.repeat is not Repeat.ONCE else "is too long"
        raise SpecError(f"{at}.duration: {booking.duration}; it {every}", hint=f"at most {format_duration(longest)}")
    if booking.until_ms:
        if booking.repeat is Repeat.ONCE:
            raise SpecError(f"{at}.until_ms: it does not repeat", hint="give `repeat`, daily or weekly, too")
        if booking.until_ms < booking.start_ms:
            until, start = instant_text(booking.until_ms), instant_text(booking.start_ms)
            raise SpecError(f"{at}.until_ms: {until} is before it begins, {start}", hint="give a later instant")
        _number(f"{at}.until_ms", booking.until_ms, booking.start_ms, MAX_INSTANT_MS)
    _check_booked(booking, at, policy)
    if booking.maintenance and (booking.accounts or booking.users):
        raise SpecError(f"{at}: maintenance has no users", hint="leave out `accounts` and `users`, or `maintenance`")
    if not (booking.maintenance or booking.accounts or booking.users):
        raise SpecError(f"{at}: nobody may use it", hint="name `accounts` or `users`, or set `maintenance = true`")
    _refers_accounts(f"{at}.accounts", booking.accounts, policy)
    _refers_users(f"{at}.users", booking.users, policy)


def _check_booked(booking: Booking, at: str, policy: Policy) -> None:
    if booking.nodes and booking.count:
        raise SpecError(f"{at}: both `nodes` and `count` are given", hint="name the nodes, or give a count")
    if not (booking.nodes or booking.count or booking.licences):
        raise SpecError(f"{at}: reserves nothing", hint="give `nodes`, a `count` of nodes, or `licences`")
    _are_names(f"{at}.nodes", booking.nodes)
    if len(set(booking.nodes)) < len(booking.nodes):
        raise SpecError(f"{at}.nodes: a node is named twice")
    _number(f"{at}.nodes", len(booking.nodes), 0, MAX_NODES)
    _number(f"{at}.count", booking.count, 0, MAX_NODES)
    check_constraints(booking.constraints, f"{at}.constraints")
    if booking.constraints and not booking.count:
        raise SpecError(f"{at}.constraints: apply to a `count` of nodes", hint="leave them out beside `nodes`")
    _refers(f"{at}.licences", "licence", booking.licences, policy.licences)
    for name, amount in booking.licences.items():
        _number(f"{at}.licences.{name}", amount, 1, policy.licences[name])


def _check_meetings(bookings: Mapping[str, Booking]) -> None:
    """Check that no two bookings reserve the same named node at once, unless one of them may overlap or is
    maintenance."""
    of_node: dict[str, list[Booking]] = {}
    tried: set[tuple[str, str]] = set()
    for booking in bookings.values():
        if booking.overlap or booking.maintenance:
            continue
        for node in booking.nodes:
            for other in of_node.setdefault(node, []):
                if (other.name, booking.name) not in tried:
                    tried.add((other.name, booking.name))
                    _check_meeting(other, booking, node)
            of_node[node].append(booking)


def _check_meeting(a: Booking, b: Booking, node: str) -> None:
    found = first_overlap(a, b)
    if found is None:
        return
    at_ms = max(found[0].start_ms, found[1].start_ms)
    raise SpecError(
        f"bookings.{b.name}: would hold node {node} together with booking '{a.name}' at {instant_text(at_ms)}",
        hint="move or shorten one of them, or set `overlap = true`",
    )


def instant_text(at_ms: int) -> str:
    """Format an instant: `2026-12-24 18:00 UTC`."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_weights(weights: Weights, at: str) -> None:
    for name in Weights.__struct_fields__:
        _number(f"{at}.{name}", getattr(weights, name), 0 if name == "age" else -MAX_WEIGHT, MAX_WEIGHT)


def _check_fairshare(fairshare: FairShare) -> None:
    if fairshare.half_life <= 0:
        raise SpecError("fairshare.half_life: must be longer than 0")
    if len(fairshare.charge) > MAX_RESOURCES:
        raise SpecError(f"fairshare.charge: {len(fairshare.charge)} resources; at most {MAX_RESOURCES} are allowed")
    for name, charge in fairshare.charge.items():
        if resource_name(name) != name:
            raise SpecError(f"fairshare.charge: '{shown(name)}' must be written '{resource_name(name)}'")
        _number(f"fairshare.charge.{name}", charge, 0, MAX_CHARGE)


def _number(at: str, value: float, low: float, high: float) -> None:
    if not math.isfinite(value) or not low <= value <= high:
        raise SpecError(f"{at}: {value} is out of range", hint=f"between {_plain(low)} and {_plain(high)}")


def _plain(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) and not value.is_integer() else str(int(value))
