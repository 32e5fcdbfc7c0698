"""What coordinators and operators of queues change in the policy: limits of users, states of queues.

Each is a version of the policy like an administrator's. Whoever may is checked against the policy that it changes.
"""

from __future__ import annotations

from typing import Final

from hal.core.model import OverloadedError
from hal.core.model.policy import Policy
from hal.core.model.policy_delegation import (
    QueueState,
    UserLimit,
    with_queue_state,
    with_user_limit,
    without_user_limit,
)
from hal.daemons.controller.access.delegation import check_coordinates, check_operates
from hal.daemons.controller.service.parts import Parts
from hal.daemons.controller.service.policy.policies import Asked, Policies
from hal.daemons.controller.service.policy.views import PolicyChanged
from hal.planes.tasks import Submitter
from hal.rest.identity import Visit

CHANGES_A_DAY: Final = 100
"""Of each coordinator and operator of a queue: each is a version of the policy, of which only so many are kept."""
DAY_MS: Final = 86_400_000
MAX_COUNTED: Final = 10_000
"""Users who are counted; beyond, the one who has changed nothing for longest is forgotten."""


class Delegated:
    """Change it."""

    def __init__(self, parts: Parts, policies: Policies) -> None:
        self._parts = parts
        self._policies = policies
        self._changes: dict[str, tuple[int, int]] = {}
        """By user: the day, and changes on it."""

    async def set_queue_state(
        self, visit: Visit, queue: str, state: QueueState, note: str, by: Submitter
    ) -> PolicyChanged:
        """Open, drain or close a queue.

        Raises:
            DeniedError: not theirs.
            NotFoundError: there is none.
            OverloadedError: too many changes today.
        """

        def change(policy: Policy) -> Policy:
            check_operates(visit, policy, queue)
            return with_queue_state(policy, queue, state)

        return await self._change(visit, Asked(change=change, note=note), by)

    async def limit_user(self, visit: Visit, limit: UserLimit, note: str, by: Submitter) -> PolicyChanged:
        """Limit a user of an account.

        Raises:
            DeniedError: not theirs.
            SpecError: a value makes no sense.
            ConflictError: an administrator has such a limit.
            OverloadedError: too many changes today.
        """

        def change(policy: Policy) -> Policy:
            check_coordinates(visit, policy, limit.account)
            return with_user_limit(policy, limit)

        return await self._change(visit, Asked(change=change, note=note), by)

    async def unlimit_user(self, visit: Visit, account: str, user: str, note: str, by: Submitter) -> PolicyChanged:
        """Remove such a limit.

        Raises:
            DeniedError: not theirs.
            NotFoundError: there is none.
            OverloadedError: too many changes today.
        """

        def change(policy: Policy) -> Policy:
            check_coordinates(visit, policy, account)
            return without_user_limit(policy, account, user)

        return await self._change(visit, Asked(change=change, note=note), by)

    async def _change(self, visit: Visit, asked: Asked, by: Submitter) -> PolicyChanged:
        asked.change(self._parts.plane.policy)  # refused before it counts
        if visit.own_only:
            self._count(visit.identity.user)
        return await self._policies.change(asked, by)

    def _count(self, user: str) -> None:
        today = self._parts.clock.now_ms() // DAY_MS
        day, count = self._changes.pop(user, (today, 0))
        count = count + 1 if day == today else 1
        self._changes[user] = (today, min(count, CHANGES_A_DAY))
        if len(self._changes) > MAX_COUNTED:
            del self._changes[next(iter(self._changes))]
        if count > CHANGES_A_DAY:
            raise OverloadedError(
                f"{user} has changed the policy {CHANGES_A_DAY} times today", hint="ask an administrator"
            )
