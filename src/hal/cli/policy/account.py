"""`hal account`: the tree of accounts in the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy.entry_commands import noun
from hal.core.model.policy import Account
from hal.core.model.policy_change import Kind


def _row(entry: Account) -> Mapping[str, str]:
    return {
        "parent": entry.parent,
        "weight": f"{entry.weight:g}",
        "users": ",".join(f"{user}={weight:g}" for user, weight in entry.users.items()),
        "closed": "closed" if entry.closed else "",
        "description": entry.description,
    }


account = noun(
    Kind.ACCOUNT,
    Account,
    _row,
    text="Accounts form a tree of organisations and projects; each gets a share of what its parent gets.",
    examples="""
    hal account add science --weight 2
    hal account add physics --parent science --users alice=3
    hal account set physics --closed     # only the users that it names may use it
    """,
)
