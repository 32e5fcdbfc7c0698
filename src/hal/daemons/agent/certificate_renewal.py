"""Renew a node's certificate over its live connection, after two thirds of its lifetime."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from hal.core.model.errors import HALError
from hal.runtime.authority import NodeIdentity, new_request
from hal.runtime.interface import Connection, Logger, Runtime
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.joining import Joined, Renew

LONGEST_SLEEP_MS: Final = 3_600_000
"""The clock may be set meanwhile, so the due time is checked at least this often."""
ANSWER_MS: Final = 60_000
"""Repeat the request if no answer has arrived for this long."""


class CertificateRenewal:
    """Renews the certificate while one connection lives."""

    def __init__(
        self, runtime: Runtime, identity: NodeIdentity, connection: Connection, log: Logger | BudgetedLog
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._identity = identity
        self._connection = connection
        self._answers: asyncio.Queue[Joined] = asyncio.Queue(1)
        self._task = runtime.spawn_task(self._run(), "renew the certificate")

    def joined(self, frame: Joined) -> None:
        """Handle the controller's answer."""
        if not self._answers.full():
            self._answers.put_nowait(frame)

    def stop(self) -> None:
        """Stop, because the connection is lost."""
        self._task.cancel()

    async def _run(self) -> None:
        runtime, identity = self._runtime, self._identity
        while not self._connection.closed:
            try:
                left_ms = await runtime.run_blocking(identity.renewal_ms) - runtime.now_ms()
                if left_ms > 0:
                    await runtime.sleep(min(left_ms, LONGEST_SLEEP_MS))
                    continue
                key, request = await runtime.run_blocking(new_request)
                await self._connection.send(Renew(request=request))
                async with asyncio.timeout(ANSWER_MS / 1000):
                    answer = await self._answers.get()
                keep = partial(identity.store_certificate, answer.certificate, key, answer.authority)
                await runtime.run_blocking(keep)
                self._log.info("the certificate was renewed", expires_ms=answer.expires_ms)
            except (HALError, OSError, TimeoutError) as error:
                self._log.warning("the certificate was not renewed", reason=str(error) or "no answer")
                await runtime.sleep(ANSWER_MS)
