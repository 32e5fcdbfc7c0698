"""Renew a certificate after two thirds of its lifetime: of a node over its live connection, of any other process by
asking a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from hal.core.model.errors import HALError
from hal.runtime.authority import Identity
from hal.runtime.interface import Connection, Logger, Runtime
from hal.runtime.joining import exchange_certificate
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.joining import Joined, Renew

LONGEST_SLEEP_MS: Final = 3_600_000
"""The clock may be set meanwhile, so the due time is checked at least this often."""
ANSWER_MS: Final = 60_000
"""Repeat the request if no answer has arrived for this long."""


class CertificateRenewal:
    """Renews a certificate whenever it is due, until it is stopped."""

    def __init__(
        self, runtime: Runtime, identity: Identity, renew: Callable[[], Awaitable[None]], log: Logger | BudgetedLog
    ) -> None:
        """Args:
        renew: gets the next certificate and stores it; what it raises is logged, and it is called again later.
        """
        self._runtime = runtime
        self._log = log
        self._identity = identity
        self._renew = renew
        self._task = runtime.spawn_task(self._run(), "renew the certificate")

    def stop(self) -> None:
        """Stop for good."""
        self._task.cancel()

    async def _run(self) -> None:
        runtime, identity = self._runtime, self._identity
        while True:
            try:
                left_ms = await runtime.run_blocking(identity.renewal_ms) - runtime.now_ms()
                if left_ms > 0:
                    await runtime.sleep(min(left_ms, LONGEST_SLEEP_MS))
                    continue
                await self._renew()
                next_ms = await runtime.run_blocking(identity.renewal_ms)
                self._log.info("the certificate was renewed", renewal_ms=next_ms)
            except (HALError, OSError, TimeoutError) as error:
                self._log.warning("the certificate was not renewed", reason=str(error) or "no answer")
                await runtime.sleep(ANSWER_MS)


class RenewalOverConnection:
    """Renews a node's certificate while one connection to the controller lives."""

    def __init__(self, runtime: Runtime, identity: Identity, connection: Connection, log: Logger | BudgetedLog) -> None:
        self._runtime = runtime
        self._identity = identity
        self._connection = connection
        self._answers: asyncio.Queue[Joined] = asyncio.Queue(1)
        self._renewal = CertificateRenewal(runtime, identity, self._renew, log)

    def joined(self, frame: Joined) -> None:
        """Handle the controller's answer."""
        if not self._answers.full():
            self._answers.put_nowait(frame)

    def stop(self) -> None:
        """Stop, because the connection is lost."""
        self._renewal.stop()

    async def _renew(self) -> None:
        await exchange_certificate(self._runtime, self._identity, self._ask)

    async def _ask(self, request: str) -> Joined:
        await self._connection.send(Renew(request=request))
        async with asyncio.timeout(ANSWER_MS / 1000):
            return await self._answers.get()
