"""Requests that a follower passes on: it names the caller, and proves itself by the secret whose hash is in the store.

Whoever may write to the store could pose as anybody anyway, so the follower is believed. The rights of the request's
token are checked again here: one that was revoked a moment ago is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from hal.core.model import OverloadedError
from hal.daemons.controller.access.step_credentials import StepCredentials, speaks_for_its_job
from hal.daemons.controller.access.tokens import Token, TokenBook, digest_of
from hal.rest.identity import HOME_TOKEN, Identity, UnauthorizedError

FOLLOWER: Final = b"hal-follower"
"""Header: the secret of the follower that passes the request on."""
ASKED_BY: Final = b"hal-asked-by"
"""Header: who asks, as base64 of JSON."""
ASK_AGAIN_MS: Final = 200
"""The store is asked for the controllers at most this often."""
RELY_MS: Final = 10_000
"""So long what it said is relied on."""

_DECODER: Final = msgspec.json.Decoder(Identity)


def headers_of(secret: str, identity: Identity) -> list[tuple[bytes, bytes]]:
    """What goes with a request that is passed on."""
    return [(FOLLOWER, secret.encode()), (ASKED_BY, base64.b64encode(msgspec.json.encode(identity)))]


class ForwardedIdentity:
    """Knows the followers."""

    def __init__(
        self,
        hashes: Callable[[], Awaitable[frozenset[str]]],
        *,
        book: TokenBook,
        used: Callable[[Token], None],
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        steps: StepCredentials,
    ) -> None:
        """
        Args:
            hashes: asks the store for the `secret_hash` of all controllers.
            used: called at every use of a token.
            steps: knows whose a step is, and whether it lives.
        """
        self._steps = steps
        self._hashes = hashes
        self._book = book
        self._used = used
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._known: frozenset[str] = frozenset()
        self._asked_ms: int | None = None

    async def identity(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Who asked the follower.

        Raises:
            UnauthorizedError: whoever passes it on is no follower, or the token is good no longer.
            OverloadedError: it may be one that is new, and the store was asked a moment ago.
            StoreError: which followers there are cannot be read now.
        """
        digest = digest_of(headers.get(FOLLOWER, b"").decode("latin-1"))
        if self._due(RELY_MS) or (digest not in self._known and self._due(ASK_AGAIN_MS)):
            self._asked_ms = self._monotonic_ms()
            self._known = await self._hashes()
        elif digest not in self._known:
            raise OverloadedError(
                "the controller that forwarded this request is not known yet", hint="try again in a second"
            )
        if digest not in self._known:
            raise UnauthorizedError("an unknown controller forwarded this request")
        try:
            identity = _DECODER.decode(base64.b64decode(headers.get(ASKED_BY, b""), validate=True))
        except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnauthorizedError(f"a follower does not identify the caller: {error}") from error
        if identity.step:
            step = self._steps.identity(identity.step, identity.peer)
            return speaks_for_its_job(step) if identity.only_job else step
        if identity.token and identity.token != HOME_TOKEN:
            token = self._book.get(identity.token)
            if token is None or not token.live(self._now_ms()):
                raise UnauthorizedError(f"token {identity.token} was revoked, or has expired")
            self._used(token)
        return identity

    def _due(self, after_ms: int) -> bool:
        return self._asked_ms is None or self._monotonic_ms() >= self._asked_ms + after_ms
