"""Which accounts a user coordinates, as the controller says: they see what these used (docs/access.md).

Answers are kept for some seconds. While the controller does not answer nobody coordinates anything: what was delegated
is shown only to those who have it now.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct
from msgspec.json import Decoder

from hal.core.model import HALError
from hal.rest.identity import Identity
from hal.runtime.interface import Runtime

KEPT_MS: Final = 10_000
MOST_USERS: Final = 1_000
"""Whose answers are kept."""


class _Account(Struct):
    name: str
    coordinator_through: str = ""


class _Access(Struct):
    accounts: list[_Account] = []


_ACCESS: Final = Decoder(_Access)


class Controller(Protocol):
    """Asks the controller, as an operator."""

    async def ask(self, method: str, path: str, query: dict[str, str]) -> bytes:
        """The body of its answer."""
        ...


class DelegatedAccounts:
    """Of one HAL."""

    def __init__(self, runtime: Runtime, controller: Controller) -> None:
        self._runtime, self._controller = runtime, controller
        self._known: dict[str, tuple[int, frozenset[str]]] = {}

    async def of(self, identity: Identity) -> frozenset[str]:
        """Accounts that the caller coordinates. Steps, and tokens narrowed to accounts or queues, have none."""
        if identity.step or identity.narrowed or identity.only_job:
            return frozenset()
        now_ms = self._runtime.monotonic_ms()
        known = self._known.get(identity.user)
        if known is not None and now_ms - known[0] < KEPT_MS:
            return known[1]
        try:
            found = _ACCESS.decode(await self._controller.ask("GET", "/v1/access", {"user": identity.user}))
        except HALError as error:
            self._runtime.log.warning("who coordinates which account is not known", reason=error.message)
            return frozenset()
        if len(self._known) >= MOST_USERS:
            self._known.clear()
        accounts = frozenset(one.name for one in found.accounts if one.coordinator_through)
        self._known[identity.user] = (now_ms, accounts)
        return accounts
