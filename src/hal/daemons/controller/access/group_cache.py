"""Groups of users, asked beside the loop and kept for a while, so that a slow name service holds up nobody else.

An answer is kept for `KEEP_MS`, so a user who left a group keeps its role for so long at most; while the name service
does not answer, the last answer holds for up to `RELY_MS`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from hal.core.model import OverloadedError, UnreachableError, shown
from hal.runtime.interface import Lane, Runtime

KEEP_MS: Final = 60_000
RELY_MS: Final = 600_000
MAX_KEPT: Final = 10_000
"""Users; those asked about longest ago go first."""
MAX_ASKING: Final = 64
"""Users asked about at once."""
ANSWER_TIMEOUT_S: Final = 5.0
"""How long one request waits for the name service."""


class GroupCache:
    """Of one controller."""

    def __init__(self, runtime: Runtime, ask: Callable[[str], frozenset[str]]) -> None:
        """
        Args:
            ask: asks the name service, on a thread of its own; raises OSError where it does not answer.
        """
        self._runtime = runtime
        self._ask = ask
        self._known: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()
        """When it was asked, by the monotonic clock, and its answer; by user."""
        self._asking: dict[str, asyncio.Future[frozenset[str]]] = {}

    async def of(self, user: str) -> frozenset[str]:
        """Names of the user's groups.

        Raises:
            UnreachableError: the name service does not answer, and has not for a long time.
            OverloadedError: too many users are asked about.
        """
        now_ms = self._runtime.monotonic_ms()
        known = self._known.get(user)
        if known is not None and now_ms < known[0] + KEEP_MS:
            return known[1]
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await asyncio.shield(self._asked(user))
        except (TimeoutError, OSError, OverloadedError) as error:
            if known is not None and now_ms < known[0] + RELY_MS:
                return known[1]
            if isinstance(error, OverloadedError):
                raise
            raise UnreachableError(
                f"the groups of user '{shown(user)}' cannot be looked up: the name service does not answer",
                hint="try again in a minute; on the controller's machine: getent initgroups NAME",
            ) from None

    def _asked(self, user: str) -> asyncio.Future[frozenset[str]]:
        """The question about the user that is under way."""
        asking = self._asking.get(user)
        if asking is None:
            if len(self._asking) >= MAX_ASKING:
                raise OverloadedError(f"the groups of {MAX_ASKING} users are looked up", hint="try again in a second")
            asking = self._asking[user] = asyncio.ensure_future(self._answer(user))
            asking.add_done_callback(lambda done: self._settle(user, done))
        return asking

    def _settle(self, user: str, done: asyncio.Future[frozenset[str]]) -> None:
        del self._asking[user]
        if not done.cancelled():
            done.exception()  # whoever waited for it may have gone

    async def _answer(self, user: str) -> frozenset[str]:
        groups = await self._runtime.run_blocking(partial(self._ask, user), Lane.NAMES)
        self._known[user] = (self._runtime.monotonic_ms(), groups)
        self._known.move_to_end(user)
        while len(self._known) > MAX_KEPT:
            self._known.popitem(last=False)
        return groups
