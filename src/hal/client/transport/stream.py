"""What an answer that is read as it comes looks like to its readers.

Generated from async_stream.py by tools/sync_client.py: edit that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Stream(Protocol):
    """An open answer."""

    headers: Mapping[str, str]
    """Names in lower case."""

    def read(self) -> bytes | None:
        """The next bytes as they come; None at the announced end.

        Raises:
            BrokenStreamError: the connection broke before that, or was silent for `STREAM_TIMEOUT_S`.
        """

    def close(self) -> None:
        """Close it; closing twice does nothing."""
