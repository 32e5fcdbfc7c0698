"""Reading ahead: the next piece is read while whoever asked for the last one works with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def read_ahead(reads: Iterable[Callable[[], Awaitable[T]]]) -> AsyncGenerator[T, None]:
    """What these calls give, in order. Each begins before what the one before has given is handed on: two results are
    in memory at once. The call that is under way when the iterator is closed is cancelled.
    """
    calls = iter(reads)
    coming = _begun(next(calls, None))
    try:
        while coming is not None:
            found = await coming
            coming = _begun(next(calls, None))
            yield found
    finally:
        if coming is not None:
            coming.cancel()


def _begun(call: Callable[[], Awaitable[T]] | None) -> asyncio.Future[T] | None:
    return None if call is None else asyncio.ensure_future(call())
