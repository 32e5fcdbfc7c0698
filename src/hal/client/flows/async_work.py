"""What waits for the disk, on a thread beside the loop of asyncio. The sync client does it where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def on_thread(do: Callable[[], T]) -> T:
    """Do it on a thread; returns or raises what it does. Whoever is cancelled meanwhile waits for its end: no file is
    written or closed behind their back."""
    doing = asyncio.ensure_future(asyncio.to_thread(do))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait((doing,))
        raise
