"""A TLS port for agents of other machines, its certificate made again in time: the leader's, and a follower's."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from hal.runtime.authority import Authority
from hal.runtime.interface import Listener, OnConnect, Runtime, TcpAddress
from hal.wire.address import format_address

LONGEST_SLEEP_MS: Final = 3_600_000
"""The clock may be set meanwhile: whether the certificate is due is looked at this often at least."""


class CertifiedPort:
    """Made by `open_port`."""

    def __init__(self, runtime: Runtime, authority: Authority, listener: Listener, due_ms: int) -> None:
        self._runtime = runtime
        self._authority = authority
        self._listener = listener
        self._renewing: asyncio.Task[None] = runtime.spawn_task(self._recertify(due_ms), "recertify")

    @property
    def address_text(self) -> str:
        """Where it listens, as `HOST:PORT`."""
        address = self._listener.address
        return format_address(*address) if isinstance(address, TcpAddress) else ""

    async def close(self) -> None:
        """Accept no more connections."""
        self._renewing.cancel()
        await self._listener.close()

    async def _recertify(self, due_ms: int) -> None:
        """The controller's own certificate, again at two thirds of its time."""
        while True:
            now_ms = self._runtime.now_ms()
            if now_ms < due_ms:
                await self._runtime.sleep(min(LONGEST_SLEEP_MS, due_ms - now_ms))
                continue
            certify = partial(self._authority.certify_controller, self._runtime.name, now_ms)
            try:
                due_ms = await self._runtime.run_blocking(certify)
            except OSError as error:
                # A third of its time is left: the disk may have room again by then.
                self._runtime.log.error("the controller's certificate was not renewed", reason=str(error))
                due_ms = now_ms + LONGEST_SLEEP_MS
                continue
            self._listener.reload_credentials()
            self._runtime.log.info("the controller's certificate was renewed")


async def open_port(
    runtime: Runtime, authority: Authority, address: tuple[str, int], on_connect: OnConnect
) -> CertifiedPort:
    """Certify this controller, and listen.

    Raises:
        ConflictError: that address cannot be listened on.
    """
    certify = partial(authority.certify_controller, runtime.name, runtime.now_ms())
    due_ms = await runtime.run_blocking(certify)
    listener = await runtime.listen(TcpAddress(*address), on_connect, authority.credentials)
    port = CertifiedPort(runtime, authority, listener, due_ms)
    runtime.log.info("listening for agents", address=str(listener.address))
    return port
