"""Why somebody may do what they may: each right with the rule that gives it, where they may submit, which limits hold.

Reads settings, tokens and the policy as they are; changes nothing. O(accounts + queues + limits), on the readers'
thread: the policy is one frozen value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from msgspec import Struct

from hal.core.model.codec import to_plain
from hal.core.model.policy import Account, Limit, Policy, Queue
from hal.core.model.policy_delegation import coordinated_by, state_of
from hal.core.model.policy_scope import is_within
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.tokens import Token
from hal.rest.rights import Role

MAX_SHOWN: Final = 1_000
"""Queues, accounts, limits and tokens that one answer lists, of each."""
ROOT: Final = "root"
_BY_GROUP: Final = ((Role.ADMIN, "admins"), (Role.OPERATOR, "operators"), (Role.USER, "users"))
_SCOPES: Final = ("queue", "account", "user", "qos")


class Grant(Struct, frozen=True, kw_only=True):
    """A right, and why somebody has it."""

    right: str
    """`role admin`, `coordinator of physics`, `operator of queue short`."""
    source: str
    """`owner`, `root`, `configuration`, `token`, `delegation`."""
    rule: str
    """Where that is said, so that it can be changed."""
    applies: str
    """To which requests."""


class QueueAccess(Struct, frozen=True, kw_only=True):
    """Whether somebody may submit to a queue."""

    name: str
    may_submit: bool
    why: str
    operator: bool


class AccountAccess(Struct, frozen=True, kw_only=True):
    """Whether somebody may submit for an account."""

    name: str
    may_submit: bool
    why: str
    coordinator_through: str
    """The account that makes them a coordinator of this one; empty: they are not."""


class LimitAccess(Struct, frozen=True, kw_only=True):
    """A limit that holds for jobs of somebody."""

    name: str
    scope: dict[str, str]
    bounds: dict[str, Any]
    """As in hal.toml."""
    set_by: str
    """`administrator` or `coordinator`."""


class AccessView(Struct, frozen=True, kw_only=True):
    """Everything that says what somebody may do."""

    user: str
    role: Role | None
    """On this machine; null: none, only what a token says."""
    grants: list[Grant]
    queues: list[QueueAccess]
    accounts: list[AccountAccess]
    limits: list[LimitAccess]
    more: int
    """Queues, accounts and limits that are not listed, because there are too many."""


def explain(
    user: str,
    *,
    owner: str,
    settings: AccessSection,
    groups: Collection[str] = (),
    tokens: Iterable[Token],
    policy: Policy,
    now_ms: int,
) -> AccessView:
    """
    Args:
        owner: who started this HAL.
        groups: of the user on this machine.
        tokens: all that there are.
    """
    role, grants = _roles(user, owner, settings, groups)
    grants += [_of_token(token) for token in tokens if token.user == user and token.live(now_ms)][:MAX_SHOWN]
    queues = [_queue(user, queue) for queue in policy.queues.values()]
    accounts = [_account(user, account, policy) for account in policy.accounts.values()]
    grants += [
        Grant(
            right=f"operator of queue {one.name}",
            source="delegation",
            rule=f"policy: queues.{one.name}.operators",
            applies="open, drain and close it; see, hold, release and cancel the jobs in it",
        )
        for one in queues
        if one.operator
    ][:MAX_SHOWN]
    grants += [
        Grant(
            right=f"coordinator of {one.name}",
            source="delegation",
            rule=f"policy: accounts.{one.name}.coordinators",
            applies="limit its users; see, hold, release and cancel its jobs; also of accounts below it",
        )
        for one in accounts
        if one.coordinator_through == one.name
    ][:MAX_SHOWN]
    limits = [_limit(limit) for limit in policy.limits.values() if _may_apply(limit, user, policy)]
    more = sum(max(len(part) - MAX_SHOWN, 0) for part in (queues, accounts, limits))
    return AccessView(
        user=user,
        role=role,
        grants=grants,
        queues=queues[:MAX_SHOWN],
        accounts=accounts[:MAX_SHOWN],
        limits=limits[:MAX_SHOWN],
        more=more,
    )


def _roles(user: str, owner: str, settings: AccessSection, groups: Collection[str]) -> tuple[Role | None, list[Grant]]:
    grants: list[Grant] = []
    if user in (owner, ROOT):
        grants.append(
            Grant(
                right=f"role {Role.ADMIN}",
                source="owner" if user == owner else "root",
                rule="started this HAL" if user == owner else "root of the controller's machine",
                applies="requests over a Unix socket of this machine, and with HAL_HOME/token",
            )
        )
    of_groups = (
        (role, True, f"groups.{field} names {group}")
        for role, field in _BY_GROUP
        for group in getattr(settings.groups, field)
        if group in groups
    )
    rules = (
        (Role.ADMIN, user in settings.admins, "admins"),
        (Role.OPERATOR, user in settings.operators, "operators"),
        (Role.USER, user in settings.users, "users"),
        (Role.USER, user not in settings.users and settings.role_of("") is not None, 'users: "*"'),
        *of_groups,
    )
    for role, named, rule in rules:
        if named and settings.socket:
            applies = f"requests over {settings.socket} of this machine"
            grants.append(
                Grant(right=f"role {role}", source="configuration", rule=f"hal.toml: access.{rule}", applies=applies)
            )
    if any(grant.source in ("owner", "root") for grant in grants):
        return Role.ADMIN, grants
    return settings.role_of(user, groups) if settings.socket else None, grants


def _of_token(token: Token) -> Grant:
    scope = [f"account {name}" for name in token.scope.accounts] + [f"queue {name}" for name in token.scope.queues]
    narrowed = f", narrowed to {', '.join(scope)}" if scope else ""
    reads = ", reading only" if token.scope.read_only else ""
    return Grant(
        right=f"role {token.role}",
        source="token",
        rule=f"API token {token.id}, created by {token.created_by or 'nobody known'}",
        applies=f"requests that show it{narrowed}{reads}",
    )


def _queue(user: str, queue: Queue) -> QueueAccess:
    operator = user in queue.operators
    if not queue.open:
        return QueueAccess(name=queue.name, may_submit=False, why=f"it is {state_of(queue)}", operator=operator)
    if queue.users and user not in queue.users:
        why = f"queues.{queue.name}.users does not name {user}"
        return QueueAccess(name=queue.name, may_submit=False, why=why, operator=operator)
    why = f"named by queues.{queue.name}.users" if queue.users else "open to all users"
    if queue.accounts:
        why += f"; for accounts {', '.join(queue.accounts[:20])} and those below them only"
    return QueueAccess(name=queue.name, may_submit=True, why=why, operator=operator)


def _account(user: str, account: Account, policy: Policy) -> AccountAccess:
    allowed = not account.closed or user in account.users
    why = (
        "open to all users"
        if not account.closed
        else f"accounts.{account.name}.users " + ("names them" if allowed else "does not name them")
    )
    through = coordinated_by(policy, user, account.name)
    return AccountAccess(name=account.name, may_submit=allowed, why=why, coordinator_through=through)


def _may_apply(limit: Limit, user: str, policy: Policy) -> bool:
    """Whether jobs of that user can be within its scope: in a queue and of an account that they may use."""
    if limit.user not in ("", "*", user):
        return False
    account = policy.accounts.get(limit.account)
    return account is None or any(
        not below.closed or user in below.users
        for below in policy.accounts.values()
        if is_within(below.name, (account.name,), policy.accounts)
    )


def _limit(limit: Limit) -> LimitAccess:
    plain = to_plain(limit)
    scope = {name: plain.pop(name) for name in _SCOPES if plain.get(name)}
    delegated = plain.pop("delegated", False)
    plain.pop("name", None)
    return LimitAccess(
        name=limit.name, scope=scope, bounds=plain, set_by="coordinator" if delegated else "administrator"
    )
