"""Rights that the policy delegates: of coordinators to the jobs of their accounts, of operators of a queue to those in
it.

Pure, O(depth of the account). Only a user as such has them: a step has not, nor a token that is narrowed to accounts
or queues. Which requests they reach is said by the rows of the table (`DELEGATED`) and by `DELEGATED_ACTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable

from hal.core.model import DeniedError
from hal.core.model.errors import shown
from hal.core.model.policy import Policy
from hal.core.model.policy_delegation import coordinated_by, operates
from hal.rest.identity import Identity, Visit


class Delegations:
    """As the policy in force says."""

    def __init__(self, policy: Callable[[], Policy]) -> None:
        self._policy = policy

    def cover(self, who: Identity, account: str, queue: str) -> bool:
        """Whether jobs of that account, or in that queue, are theirs to see and to control."""
        if not has_own_rights(who):
            return False
        policy = self._policy()
        return bool(account and coordinated_by(policy, who.user, account)) or operates(policy, who.user, queue)


def check_coordinates(visit: Visit, policy: Policy, account: str) -> None:
    """Who may limit users of that account, and set its secrets: its coordinators, and whoever may change the policy.

    Raises:
        DeniedError: not the caller.
    """
    if not visit.own_only or (has_own_rights(visit.identity) and coordinated_by(policy, visit.identity.user, account)):
        return
    raise DeniedError(
        f"{visit.identity.user} is no coordinator of account '{shown(account)}'",
        hint="`hal access show` lists your rights; admins name coordinators: hal account set NAME --coordinators USER",
    )


def check_operates(visit: Visit, policy: Policy, queue: str) -> None:
    """Who may open, drain and close that queue: its operators, and whoever may change the policy.

    Raises:
        DeniedError: not the caller.
    """
    if not visit.own_only or (has_own_rights(visit.identity) and operates(policy, visit.identity.user, queue)):
        return
    raise DeniedError(
        f"{visit.identity.user} is no operator of queue '{shown(queue)}'",
        hint="`hal access show` lists your rights; admins name operators: hal queue set NAME --operators USER",
    )


def has_own_rights(who: Identity) -> bool:
    """Whether a user as such asks, who has delegated rights; a step has not, nor a narrowed token."""
    return bool(who.user) and not who.step and not who.narrowed
