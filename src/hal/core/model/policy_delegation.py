"""What a policy delegates: accounts to their coordinators, queues to their operators; and the limits that coordinators
set.

Pure. Such a limit is an entry of the policy like any other. All limits hold at once, so it can only narrow what the
account's other limits allow.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Protocol

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from hal.core.model.errors import ConflictError, NotFoundError, SpecError, shown
from hal.core.model.job import is_name
from hal.core.model.policy import EACH, Limit, Policy
from hal.core.model.policy_change import Do, Kind, Operation, apply_operations, known_text
from hal.core.model.policy_check import MAX_DELEGATED, near
from hal.core.model.policy_scope import lineage

EACH_USER: Final = "each-user"
"""In the name of a limit for each user of an account."""


class QueueState(StrEnum):
    """What a queue does with jobs."""

    OPEN = "open"
    """Accepts and starts them."""
    DRAINED = "drained"
    """Accepts none; those in it start and run."""
    CLOSED = "closed"
    """Accepts and starts none; those that run continue."""


class UserLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a user of an account may use: fields as of a limit in hal.toml."""

    account: str
    user: str
    """`*`: each user of the account."""
    running: Any = UNSET
    pending: Any = UNSET
    resources: Any = UNSET
    hours: Any = UNSET
    period: Any = UNSET
    max_job: Any = UNSET
    max_nodes: Any = UNSET
    max_walltime: Any = UNSET


def coordinated_by(policy: Policy, user: str, account: str) -> str:
    """The account that makes the user a coordinator of `account`: itself or one above it; '': none does. O(depth)"""
    for name in lineage(account, policy.accounts):
        declared = policy.accounts.get(name)
        if declared is not None and user in declared.coordinators:
            return name
    return ""


def operates(policy: Policy, user: str, queue: str) -> bool:
    """Whether the user is an operator of that queue."""
    declared = policy.queues.get(queue)
    return declared is not None and user in declared.operators


def with_queue_state(policy: Policy, queue: str, state: QueueState) -> Policy:
    """The policy with that queue opened, drained or closed.

    Raises:
        NotFoundError: there is no such queue.
    """
    if queue not in policy.queues:
        raise NotFoundError(
            f"there is no queue '{shown(queue)}'{near(queue, policy.queues)}",
            hint=known_text(Kind.QUEUE, policy.queues),
        )
    fields = {"open": state is QueueState.OPEN, "starts": state is not QueueState.CLOSED}
    return apply_operations(policy, [Operation(op=Do.SET, kind=Kind.QUEUE, name=queue, entry=fields)])


def name_of(account: str, user: str) -> str:
    """How the limit of that user of that account is named.

    Raises:
        SpecError: such a name is none.
    """
    name = f"{account}/{EACH_USER if user == EACH else user}"
    if not is_name(name):
        raise SpecError(
            f"'{shown(name)}' cannot name a limit", hint="letters, digits and _ . : @ / + -, at most 128; user: *"
        )
    return name


def with_user_limit(policy: Policy, limit: UserLimit) -> Policy:
    """The policy with that limit in place of the one that a coordinator had set before.

    Raises:
        ConflictError: an administrator has an entry of that name, or there are too many.
        SpecError: it limits nothing, or a value makes no sense.
    """
    name = name_of(limit.account, limit.user)
    _check_delegated(policy, limit.account, limit.user)
    count = sum(entry.delegated for entry in policy.limits.values())
    if name not in policy.limits and count >= MAX_DELEGATED:
        raise ConflictError(f"coordinators have set {count} limits", hint="remove those that are not needed")
    entry = {
        field: value
        for field in UserLimit.__struct_fields__
        if not isinstance(value := getattr(limit, field), UnsetType) and value is not None
    }
    return apply_operations(
        policy, [Operation(op=Do.PUT, kind=Kind.LIMIT, name=name, entry={**entry, "delegated": True})]
    )


def without_user_limit(policy: Policy, account: str, user: str) -> Policy:
    """The policy without the limit that a coordinator had set.

    Raises:
        NotFoundError: there is none.
        ConflictError: an administrator has set it.
    """
    name = name_of(account, user)
    if _check_delegated(policy, account, user) is None:
        raise NotFoundError(f"no coordinator has limited '{shown(user)}' of account '{shown(account)}'")
    return apply_operations(policy, [Operation(op=Do.DELETE, kind=Kind.LIMIT, name=name)])


def _check_delegated(policy: Policy, account: str, user: str) -> Limit | None:
    known = policy.limits.get(name_of(account, user))
    if known is not None and (not known.delegated or (known.account, known.user) != (account, user)):
        raise ConflictError(f"limit '{known.name}' is not a coordinator's", hint="ask an administrator to rename it")
    return known


def keep_delegated(declared: Policy, before: Policy) -> Policy:
    """What is declared, with the limits that coordinators have set, as far as their accounts and users are declared."""
    kept = {
        name: limit
        for name, limit in before.limits.items()
        if limit.delegated
        and name not in declared.limits
        and limit.account in declared.accounts
        and (limit.user == EACH or not declared.users or limit.user in declared.users)
    }
    return replace(declared, limits={**declared.limits, **kept}) if kept else declared


class _State(Protocol):
    @property
    def open(self) -> bool: ...

    @property
    def starts(self) -> bool: ...


def state_of(queue: _State) -> str:
    """`open`, `drained`, `closed`; `held`: accepts jobs and starts none, as an administrator can set it."""
    if queue.open:
        return QueueState.OPEN.value if queue.starts else "held"
    return QueueState.DRAINED.value if queue.starts else QueueState.CLOSED.value
