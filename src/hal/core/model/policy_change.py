"""Change a policy: typed operations on one entry each, and the differences between two policies.

Pure. `apply_operations` applies all operations or none; the result is checked as a whole, so an entry that another one
still names cannot be removed. The caller sets the version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from hal.core.model.codec import to_plain
from hal.core.model.errors import ConflictError, NotFoundError, SpecError, shown
from hal.core.model.policy import DEFAULT_QUEUE, FairShare, Policy, Weights
from hal.core.model.policy_check import check_policy, near, without_near
from hal.core.model.policy_text import TABLES, entry_from_plain

MAX_OPERATIONS: Final = 1_000
"""Operations in one change."""
MAX_NAMED: Final = 5
"""Entries that an error lists."""


class Kind(StrEnum):
    """The kind of entry that an operation changes."""

    QUEUE = "queue"
    ACCOUNT = "account"
    QOS = "qos"
    LIMIT = "limit"
    BOOKING = "booking"
    GATE = "gate"
    LICENCE = "licence"
    USER = "user"
    WEIGHTS = "weights"
    FAIRSHARE = "fairshare"


class Do(StrEnum):
    """What is done: ADD a new entry, PUT one whether it exists or not, SET some of its fields, DELETE it."""

    ADD = "add"
    PUT = "put"
    SET = "set"
    DELETE = "delete"


class Operation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change of one entry."""

    op: Do
    kind: Kind
    name: Annotated[str, Meta(description="of the entry; none for weights and fairshare")] = ""
    entry: Annotated[
        dict[str, Any],
        Meta(description="fields as in hal.toml; with `set`, null gives a field its default; a licence's is `total`"),
    ] = {}


class Difference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field that differs; `before` or `after` null: the entry does not exist."""

    entry: str
    """`queues.short`, `weights`"""
    field: str = ""
    """Empty: the whole entry was added or removed."""
    before: Any = None
    after: Any = None


TABLE: Final = {
    Kind.QUEUE: "queues",
    Kind.ACCOUNT: "accounts",
    Kind.QOS: "qos",
    Kind.LIMIT: "limits",
    Kind.BOOKING: "bookings",
    Kind.GATE: "gates",
}
"""The table of each kind of named entry."""
_SINGLE: Final[dict[Kind, type[Weights] | type[FairShare]]] = {Kind.WEIGHTS: Weights, Kind.FAIRSHARE: FairShare}


def apply_operations(policy: Policy, operations: Sequence[Operation]) -> Policy:
    """Return the policy after all operations, in order.

    Raises:
        NotFoundError: an entry to set or delete does not exist; names the nearest.
        ConflictError: an entry to add already exists.
        SpecError: malformed, or the parts no longer fit together.
    """
    if not operations:
        raise SpecError("operations: none are given")
    if len(operations) > MAX_OPERATIONS:
        raise SpecError(f"operations: {len(operations)}; at most {MAX_OPERATIONS} are allowed")
    made = policy
    for operation in operations:
        made = _done(made, operation, policy)
    try:
        return check_policy(made)
    except SpecError as error:
        if any(operation.op is not Do.DELETE for operation in operations):
            raise
        names = ", ".join(f"{operation.kind} '{operation.name}'" for operation in operations[:MAX_NAMED])
        more = f" and {len(operations) - MAX_NAMED} more" if len(operations) > MAX_NAMED else ""
        raise SpecError(
            f"{names}{more} cannot be removed: {without_near(error.message)}",
            hint="change what refers to it first, or remove both at once",
        ) from error


def _done(policy: Policy, operation: Operation, before: Policy) -> Policy:
    """Return the policy after one of several operations; `before` is the policy before all of them."""
    kind, name = operation.kind, operation.name
    if kind in _SINGLE:
        return _single(policy, operation)
    if not name:
        raise SpecError(f"operations: {operation.op} {kind} has no name", hint="give its `name`")
    if kind is Kind.LICENCE:
        return _licence(policy, operation, before)
    if kind is Kind.USER:
        return _user(policy, operation, before)
    table = TABLE[kind]
    entries: dict[str, Any] = dict(getattr(policy, table))
    _check_presence(operation, entries, getattr(before, table))
    at = f"{table}.{name}"
    if operation.op is Do.DELETE:
        if kind is Kind.QUEUE and name == DEFAULT_QUEUE:
            raise ConflictError("queue 'default' always exists", hint="`set` can reset its fields to their defaults")
        del entries[name]
    else:
        fields = dict(operation.entry)
        if operation.op is Do.SET:
            fields = _merged(entries[name], fields)
        fields.pop("name", None)
        entries[name] = replace(entry_from_plain(fields, TABLES[table], at), name=name)
    return replace(policy, **{table: entries})


def _merged(entry: Struct, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the given fields into the entry's plain fields; null removes one."""
    plain: dict[str, Any] = to_plain(entry)
    for field, value in fields.items():
        # A booking's instants may be given in two forms.
        plain.pop(f"{field}_ms", None)
        plain.pop(field, None)
        if value is not None:
            plain[field] = value
    return plain


def _single(policy: Policy, operation: Operation) -> Policy:
    kind = operation.kind
    if operation.name:
        raise SpecError(f"operations: {kind} take no name, got '{shown(operation.name)}'")
    if operation.op is Do.ADD:
        raise ConflictError(f"{kind} already exist", hint="`set` some of them, or `put` them all")
    made = _SINGLE[kind]
    fields = {} if operation.op is Do.DELETE else dict(operation.entry)
    if operation.op is Do.SET:
        fields = _merged(getattr(policy, kind.value), fields)
    return replace(policy, **{kind.value: entry_from_plain(fields, made, kind.value)})


def _licence(policy: Policy, operation: Operation, before: Policy) -> Policy:
    licences = dict(policy.licences)
    _check_presence(operation, licences, before.licences)
    if operation.op is Do.DELETE:
        del licences[operation.name]
    else:
        total = operation.entry.get("total")
        if set(operation.entry) != {"total"} or isinstance(total, bool) or not isinstance(total, int):
            raise SpecError(f"licences.{operation.name}: expected {{'total': N}}, got {shown(operation.entry)}")
        licences[operation.name] = total
    return replace(policy, licences=licences)


def _user(policy: Policy, operation: Operation, before: Policy) -> Policy:
    users = dict.fromkeys(policy.users)
    _check_presence(operation, users, dict.fromkeys(before.users))
    if operation.entry:
        raise SpecError(f"users.{operation.name}: a user has no fields", hint="its weight is given by its accounts")
    if operation.op is Do.DELETE:
        del users[operation.name]
    else:
        users[operation.name] = None
    return replace(policy, users=tuple(users))


def _check_presence(operation: Operation, entries: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check against `before`: the entries before the first operation, and those when one of them is refused."""
    kind, name = operation.kind, operation.name
    if operation.op is Do.ADD and name in entries:
        raise ConflictError(f"{kind} '{name}' already exists", hint="`set` changes some of its fields")
    if operation.op in (Do.SET, Do.DELETE) and name not in entries:
        if name in before:
            raise ConflictError(f"{kind} '{name}' is deleted by an earlier operation", hint="name it once")
        raise NotFoundError(f"there is no {kind} '{shown(name)}'{near(name, before)}", hint=known_text(kind, before))


def known_text(kind: Kind, entries: Mapping[str, Any]) -> str:
    """Format the known names: `declared: a, b and 3 more`."""
    names = sorted(entries)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"declared: {', '.join(names[:20])}{more}" if names else f"no {kind} is declared"


# ── differences ───────────────────────────────────────────────────────────────────────────────────────────────────


def differences(before: Policy, after: Policy) -> list[Difference]:
    """Return what differs, by entry and field; values as people write them, null for a default that is not shown."""
    out: list[Difference] = []
    for table in TABLES:
        out.extend(_of_table(table, getattr(before, table), getattr(after, table)))
    out.extend(_of_fields("licences", dict(before.licences), dict(after.licences)))
    users = (dict.fromkeys(before.users, True), dict.fromkeys(after.users, True))
    out.extend(_of_fields("users", *users))
    for single in _SINGLE:
        out.extend(_of_fields(single.value, *(to_plain(getattr(p, single.value)) for p in (before, after))))
    return out


def removals(different: Iterable[Difference]) -> list[str]:
    """What of these differences takes away something that somebody set: whole entries, licences, known users, and
    bounds of a limit; by name: `limits.each`, `limits.each.running`, `licences.matlab`."""
    found: list[str] = []
    for one in different:
        if one.after is not None:
            continue
        if not one.field:
            found.append(one.entry)
        elif one.entry in ("licences", "users") or (one.entry.startswith("limits.") and one.field in _BOUNDS):
            found.append(f"{one.entry}.{one.field}")
    return found


_BOUNDS: Final = frozenset({"running", "pending", "resources", "hours", "max_job", "max_nodes", "max_walltime"})
"""Fields without which a limit limits less."""


def _of_table(table: str, before: Mapping[str, Struct], after: Mapping[str, Struct]) -> Iterator[Difference]:
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        plain = [None if entry is None else to_plain(entry) for entry in (old, new)]
        for entry in plain:
            if entry is not None:
                entry.pop("name", None)
        if plain[0] is None or plain[1] is None:
            yield Difference(entry=f"{table}.{name}", before=plain[0], after=plain[1])
        else:
            yield from _of_fields(f"{table}.{name}", plain[0], plain[1])


def _of_fields(entry: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for field in [*before, *(field for field in after if field not in before)]:
        if before.get(field) != after.get(field):
            yield Difference(entry=entry, field=field, before=before.get(field), after=after.get(field))
