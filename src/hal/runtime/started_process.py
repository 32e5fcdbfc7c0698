"""A process that this one has started: wait for it without polling, signal it without mistaking another for it."""

from __future__ import annotations

import asyncio
import os
import subprocess

from hal.core.model.errors import TimedOutError
from hal.runtime.identity import ProcessIdentity, identify, kill


class StartedProcess:
    """A child, reaped when its pidfd reports that it has ended. Created inside the running loop."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._ended: asyncio.Future[int] = self._loop.create_future()
        try:
            self._identity = identify(child.pid)
        except ProcessLookupError:
            # Already a zombie: it is our child, so its pid cannot have been reused.
            self._identity = ProcessIdentity(child.pid, -1)
        self._pidfd = os.pidfd_open(child.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    def running(self) -> bool:
        return not self._ended.done() and self._child.poll() is None

    async def wait(self, timeout_ms: int | None = None) -> int:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await asyncio.shield(self._ended)
        except TimeoutError:
            raise TimedOutError(f"process {self._child.pid} still runs after {timeout_ms} ms") from None

    def kill(self, signal_number: int = 9) -> bool:
        return self.running and kill(self._identity, signal_number)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._ended.set_result(self._child.wait())
