"""What an answer that is read as it comes looks like to its readers. The sync twin is generated from this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class AsyncStream(Protocol):
    """An open answer."""

    headers: Mapping[str, str]
    """Names in lower case."""

    async def read(self) -> bytes | None:
        """The next bytes as they come; None at the announced end.

        Raises:
            BrokenStreamError: the connection broke before that, or was silent for `STREAM_TIMEOUT_S`.
        """

    async def aclose(self) -> None:
        """Close it; closing twice does nothing."""
