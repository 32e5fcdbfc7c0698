"""Steps that are not left half done: what was begun is brought to its end before a cancellation goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(step: Coroutine[Any, Any, T]) -> T:
    """Run a step to its end, also if the caller is cancelled meanwhile: then the cancellation goes on behind it.

    For a call on a thread, which goes on whoever is cancelled, together with what must be noted of its outcome. Only
    for steps that end by themselves. What a step raises after a cancellation is lost.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # once is enough
        if not task.cancelled():
            task.exception()
        raise
