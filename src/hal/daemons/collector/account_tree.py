"""Which accounts are below which, as the policy of the controller says now: an account's usage is that of all below it.

The answer is kept for a minute, and longer while the controller does not answer.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from hal.core.model import HALError, InternalError
from hal.runtime.interface import Runtime

KEPT_MS: Final = 60_000


class _Account(Struct):
    parent: str = ""


class _Policy(Struct):
    accounts: dict[str, _Account] = {}


class _Answer(Struct):
    policy: _Policy


_ANSWER: Final = Decoder(_Answer)


class Controller(Protocol):
    """Asks the controller, as an operator."""

    async def ask(self, method: str, path: str) -> bytes:
        """The body of its answer."""
        ...


class AccountTree:
    """Of one HAL."""

    def __init__(self, runtime: Runtime, controller: Controller) -> None:
        self._runtime, self._controller = runtime, controller
        self._parents: dict[str, str] | None = None
        """By account; None: not known yet."""
        self._read_ms = 0

    async def within(self, account: str) -> frozenset[str]:
        """The account, and all below it.

        Raises:
            HALError: the controller does not answer, and has not before.
        """
        parents = await self._read()
        found = {account}
        below = [name for name, parent in parents.items() if parent]
        for _ in below:
            more = {name for name in below if parents[name] in found} - found
            if not more:
                break
            found |= more
        return frozenset(found)

    async def _read(self) -> dict[str, str]:
        now_ms = self._runtime.monotonic_ms()
        if self._parents is not None and now_ms - self._read_ms < KEPT_MS:
            return self._parents
        try:
            answer = _ANSWER.decode(await self._controller.ask("GET", "/v1/policy"))
        except DecodeError:
            raise InternalError("the controller's policy is not understood") from None
        except HALError:
            if self._parents is None:
                raise
            return self._parents
        self._parents = {name: account.parent for name, account in answer.policy.accounts.items()}
        self._read_ms = now_ms
        return self._parents
