"""A long-running request ends with its token: when that expires or is revoked, or its step ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from hal.rest.callers import Callers
from hal.rest.identity import Identity
from hal.runtime.interface import Runtime, Timer

LOOK_EVERY_MS: Final = 2_000
"""At least so often it is looked whether a step still runs; expiry and revocation are known at once."""


async def until_lapsed(
    runtime: Runtime, callers: Callers, identity: Identity, work: Callable[[], Awaitable[None]]
) -> bool:
    """Do the work of one request in this task, for as long as its token is valid; False: it was cut short.

    Args:
        identity: who asks, with a token.
    """
    task = asyncio.current_task()
    assert task is not None
    lapsed = False
    timer: Timer

    def look() -> None:
        nonlocal lapsed
        if not lapsed and not callers.still_opens(identity):
            lapsed = True
            task.cancel()

    def look_again() -> None:
        nonlocal timer
        look()
        timer = runtime.call_later(_next_ms(runtime, identity), look_again)

    timer = runtime.call_later(_next_ms(runtime, identity), look_again)
    with callers.watching(identity, look):
        try:
            await work()
        except asyncio.CancelledError:
            if not lapsed:
                raise
            task.uncancel()
        finally:
            timer.cancel()
    return not lapsed


def _next_ms(runtime: Runtime, identity: Identity) -> int:
    if identity.expires_ms is None:
        return LOOK_EVERY_MS
    return max(1, min(LOOK_EVERY_MS, identity.expires_ms - runtime.now_ms()))
