"""What a process with the certificate of a role (a service, a broker, a worker) keeps true while it runs: its own
certificate is renewed in time, and no peer stays whose certificate was revoked.

A certificate lives for a day, and TLS knows nothing of revocation. So the controller is asked: about a certificate that
was not seen before at once, while its owner is served; about those of open connections again every `CHECK_EVERY_MS`.
While no controller answers, what it said last counts: planes outlive it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from hal.core.model.errors import DeniedError, HALError
from hal.runtime.authority import Identity
from hal.runtime.certificate_renewal import CertificateRenewal
from hal.runtime.interface import Listener, Runtime, TcpAddress
from hal.runtime.joining import refused_by_any, renew_any
from hal.wire.frames.joining import MAX_SERIALS
from hal.wire.peer import CertifiedName

CHECK_EVERY_MS: Final = 60_000
"""A revoked certificate opens nothing more after this."""
RETRY_MS: Final = 5_000
"""Pause after a check that failed."""
MAX_REFUSED: Final = 10_000
"""Refused certificates that are remembered; another one is asked about again."""


class CertifiedPeer(Protocol):
    """A connection or a stream, at either end."""

    @property
    def certified(self) -> CertifiedName | None: ...

    @property
    def closed(self) -> bool: ...

    def abort(self) -> None: ...


class _Known:
    """A certificate of a peer."""

    __slots__ = ("asked_ms", "peers")

    def __init__(self) -> None:
        self.asked_ms: int | None = None
        """By the monotonic clock; None: never."""
        self.peers: list[CertifiedPeer] = []
        """Those that have shown it; some may have closed."""


class RoleCertificate:
    """The certificate of this process, and those of its peers."""

    def __init__(self, runtime: Runtime, identity: Identity, controllers: Sequence[TcpAddress]) -> None:
        self._runtime = runtime
        self._identity = identity
        self._controllers = tuple(controllers)
        self._listeners: list[Listener] = []
        self._known: dict[str, _Known] = {}
        """By serial number; as many as have open connections, and those that have closed since the last check."""
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._new = asyncio.Event()
        self._failing = False
        """The last check failed, which was logged."""
        self._renewal = CertificateRenewal(runtime, identity, self._renew, runtime.log)
        self._checking = runtime.spawn_task(self._check_always(), "check certificates of peers")

    def serve_with(self, listener: Listener) -> None:
        """Let this listener show the next certificate, too."""
        self._listeners.append(listener)

    def watch(self, peer: CertifiedPeer) -> None:
        """End this connection when its other end's certificate is not good any more; on a Unix socket there is none.

        Raises:
            DeniedError: it is known not to be good.
        """
        certified = peer.certified
        if certified is None:
            return
        if certified.serial in self._refused:
            raise DeniedError(f"the certificate of {certified.role} '{certified.name}' is not valid any more")
        known = self._known.setdefault(certified.serial, _Known())
        known.peers = [one for one in known.peers if not one.closed] + [peer]
        if known.asked_ms is None:
            self._new.set()

    def stop(self) -> None:
        """Neither renew nor check any more."""
        self._renewal.stop()
        self._checking.cancel()

    async def _renew(self) -> None:
        await renew_any(self._runtime, self._identity, self._controllers)
        for listener in self._listeners:
            listener.reload_credentials()

    async def _check_always(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._wait_ms() / 1000):
                    await self._new.wait()
            except TimeoutError:
                pass
            self._new.clear()
            try:
                await self._check()
                self._failing = False
            except (HALError, OSError, TimeoutError) as error:
                if not self._failing:
                    reason = str(error) or "no answer"
                    self._runtime.log.warning("the certificates of peers were not checked", reason=reason)
                self._failing = True
                await self._runtime.sleep(RETRY_MS)
                self._new.set()

    def _wait_ms(self) -> int:
        now_ms = self._runtime.monotonic_ms()
        return min((max(0, _due_ms(one) - now_ms) for one in self._known.values()), default=CHECK_EVERY_MS)

    async def _check(self) -> None:
        """Ask about all that are due.

        Raises:
            HALError, OSError: no controller answered, or this process's own certificate is not good.
        """
        now_ms = self._runtime.monotonic_ms()
        for serial, known in list(self._known.items()):
            known.peers = [one for one in known.peers if not one.closed]
            if not known.peers and known.asked_ms is not None:
                del self._known[serial]
        due = [serial for serial, known in self._known.items() if _due_ms(known) <= now_ms]
        for at in range(0, len(due), MAX_SERIALS):
            asked = due[at : at + MAX_SERIALS]
            refused = await refused_by_any(self._runtime, self._identity, asked, self._controllers)
            for serial in asked:
                if serial in refused:
                    self._refuse(serial)
                elif serial in self._known:
                    self._known[serial].asked_ms = now_ms

    def _refuse(self, serial: str) -> None:
        self._refused[serial] = None
        while len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)
        known = self._known.pop(serial, None)
        for peer in known.peers if known is not None else ():
            if peer.certified is not None and not peer.closed:
                self._runtime.log.warning(
                    "a peer was disconnected: its certificate is not valid any more",
                    role=peer.certified.role,
                    name=peer.certified.name,
                )
            peer.abort()


def _due_ms(known: _Known) -> int:
    return 0 if known.asked_ms is None else known.asked_ms + CHECK_EVERY_MS
