"""A service on a Unix socket of this host: started when it is first asked, and it ends by itself when it is idle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from hal.core.model.errors import UnreachableError
from hal.runtime.interface import Runtime

START_TRIES: Final = 100
START_PAUSE_MS: Final = 10
"""A service that was started is asked again so often, if it does not say otherwise, with this pause."""
ANSWER_MS: Final = 5_000
"""How long it may take to answer, if whoever asks does not say."""
MAX_ANSWER_BYTES: Final = 1 << 16


class StartedService(Struct, frozen=True, kw_only=True):
    """Where it is, and how it is started."""

    name: str
    """For people."""
    socket: Path
    argv: Sequence[str]
    output: Path | None
    """Where it writes what goes wrong."""
    start_tries: int = START_TRIES

    async def ask(self, runtime: Runtime, line: bytes, timeout_ms: int = ANSWER_MS) -> bytes:
        """Send a line, return its answer.

        Args:
            timeout_ms: how long it may take to answer.
        Raises:
            UnreachableError: it does not answer.
            TimedOutError, DeniedError: as `Runtime.ask_service`.
        """
        for tries in range(self.start_tries):
            try:
                return await runtime.ask_service(self.socket, line, timeout_ms=timeout_ms, most=MAX_ANSWER_BYTES)
            except UnreachableError:
                if not tries:
                    await runtime.start_process(self.argv, output=self.output)
                await runtime.sleep(START_PAUSE_MS)
        raise UnreachableError(f"{self.name} does not answer", hint="see its log")
