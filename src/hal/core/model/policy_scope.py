"""Scopes: the account tree seen from below, and the ledger of a limit that a job counts in.

Pure. O(depth of the account tree).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from hal.core.model.policy import EACH, Account, Limit

MAX_DEPTH = 32
"""Levels of the account tree."""

Ledger = tuple[str, str, str, str]
"""Queue, account, user, QOS: a name where the limit has one ledger for each, '' where it does not distinguish."""


class Owner(Struct, frozen=True):
    """The owner of work, and the queue it waits in."""

    queue: str
    account: str
    user: str
    qos: str


def lineage(account: str, accounts: Mapping[str, Account]) -> Iterator[str]:
    """Return the account and all its ancestors, itself first; nothing for ''. An undeclared one has no ancestors."""
    for _ in range(MAX_DEPTH):
        if not account:
            return
        yield account
        found = accounts.get(account)
        account = found.parent if found is not None else ""


def is_within(account: str, wanted: tuple[str, ...], accounts: Mapping[str, Account]) -> bool:
    """Whether the account is one of `wanted` or a descendant of one."""
    return any(name in wanted for name in lineage(account, accounts))


def ledger(limit: Limit, owner: Owner, accounts: Mapping[str, Account]) -> Ledger | None:
    """Return the ledger of the limit in which the owner's work counts; None if the work is outside the limit's
    scope.

    A named part of the scope must match (an account: itself or an ancestor); `*` makes one ledger for each name, and
    work without such a name (no account, no QOS) is outside.
    """
    account = ""
    if limit.account == EACH:
        account = owner.account
    elif limit.account and limit.account not in lineage(owner.account, accounts):
        return None
    parts = [_part(limit.queue, owner.queue), account, _part(limit.user, owner.user), _part(limit.qos, owner.qos)]
    if None in parts or (limit.account == EACH and not account):
        return None
    queue, _, user, qos = parts
    return (queue or "", account, user or "", qos or "")


def _part(scope: str, name: str) -> str | None:
    """Return '' if any name matches, the name if each has its own ledger, None if it does not match."""
    if scope == EACH:
        return name or None
    return "" if not scope or scope == name else None


def ledger_text(limit: Limit, found: Ledger) -> str:
    """Format the ledger for people: `user bob in queue short`."""
    queue, account, user, qos = found
    words = [
        f"user {user or limit.user}" if limit.user else "",
        f"account {account or limit.account}" if limit.account else "",
        f"queue {queue or limit.queue}" if limit.queue else "",
        f"qos {qos or limit.qos}" if limit.qos else "",
    ]
    said = [word for word in words if word]
    return f"{said[0]}{''.join(f', {word}' for word in said[1:])}" if said else "everybody"
