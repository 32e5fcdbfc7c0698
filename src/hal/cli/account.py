"""`hal account`: the tree of accounts of the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.policy_nouns import noun
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
    text="Accounts: the tree of organisations and projects, and their shares.",
    examples="""
    hal account add science --weight 2
    hal account add physics --parent science --users alice=3
    hal account set physics --closed     # only the users named may use it
    """,
)
