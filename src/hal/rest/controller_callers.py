"""The callers of a daemon that is not the controller: the owner over its private socket, everybody else by their token.

The controller says who a token is (see `token_cache`). A step acts as its job's submitter, also over the socket of the
account that it shares with the owner: it shows its token, and what a step runs without one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from hal.core.model import DeniedError, UnreachableError
from hal.rest.callers import LocalPeer, bearer, origin
from hal.rest.controller_client import ControllerClient
from hal.rest.identity import Identity, UnauthorizedError
from hal.rest.rights import Role
from hal.rest.token_cache import TokenCache
from hal.runtime.interface import Runtime

ROOT_UID: Final = 0
FIRST_RETRY_MS: Final = 100
LAST_RETRY_MS: Final = 5_000
"""Between attempts to learn from the controller which HAL this is; the first ones come sooner."""


class ControllerCallers:
    """See `hal.rest.callers.Callers`. Opened by `open_callers`."""

    def __init__(self, runtime: Runtime, client: ControllerClient, *, owner_uid: int, instance: str) -> None:
        """
        Args:
            instance: names the HAL.
        """
        self._tokens = TokenCache(runtime, client.who)
        self._owner_uid = owner_uid
        self.instance = instance

    async def identify(self, state: Mapping[str, Any], headers: Mapping[bytes, bytes], client: Any) -> Identity:
        """See `Callers`.

        Raises:
            UnauthorizedError: no token where one is needed, or one that opens nothing.
            DeniedError: another user of this machine, without a token.
            UnreachableError: the controller does not say at present who the token is.
        """
        peer: LocalPeer | None = state.get("peer")
        where, token = origin(state, client), bearer(headers)
        if token:
            return await self._tokens.identity(token, where)
        if peer is None:
            raise UnauthorizedError("a bearer token is needed", hint="admins make one with `hal api-token create`")
        if peer.attempt:
            raise UnauthorizedError(
                "a step shows its token here", hint="send the variable HAL_STEP_TOKEN as `Authorization: Bearer …`"
            )
        if peer.uid not in (ROOT_UID, self._owner_uid):
            raise DeniedError(f"user '{peer.user}' shows no token", hint="ask an admin for one")
        return Identity(user=peer.user, role=Role.ADMIN, peer=where, inside=True)

    def stranger(self, state: Mapping[str, Any], client: Any) -> Identity:
        """See `Callers`."""
        return Identity(user="", role=Role.USER, peer=origin(state, client))

    def is_relay(self, headers: Mapping[bytes, bytes]) -> bool:
        """See `Callers`: nobody passes requests on."""
        return False

    def still_opens(self, identity: Identity) -> bool:
        """See `Callers`."""
        return not identity.token or self._tokens.still_opens(identity)

    def watching(self, identity: Identity, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """See `Callers`."""
        return self._tokens.watching(identity, changed)


async def open_callers(runtime: Runtime, client: ControllerClient, *, owner_uid: int) -> ControllerCallers:
    """Wait until the controller has said which HAL this is: before, no step could be told from the owner.

    Args:
        owner_uid: of this process, who is an admin over its private socket.
    """
    wait_ms, said = FIRST_RETRY_MS, False
    while True:
        try:
            who = await client.who("")
        except (UnreachableError, UnauthorizedError) as error:
            if not said:
                runtime.log.warning("waiting for the controller", reason=str(error))
                said = True
        else:
            if who.instance:
                return ControllerCallers(runtime, client, owner_uid=owner_uid, instance=who.instance)
        await runtime.sleep(wait_ms)
        wait_ms = min(2 * wait_ms, LAST_RETRY_MS)
