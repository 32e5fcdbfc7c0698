"""Who leads: a process takes the leadership when it is vacant, follows while another has it, and steps down.

Runs on any Runtime: people reach it through a `Front`, which is REST in production and less in simulations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import Controller
from hal.daemons.controller.cycle.committer import OpenStore
from hal.daemons.controller.following.follower import Follower, WirePort
from hal.daemons.controller.following.presence import Presence
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.runtime.authority import Authority
from hal.runtime.interface import Address, Runtime
from hal.runtime.started_service import StartedService
from hal.store import CommitUnknown, StaleEpoch, StoreBusy, StoreLed, StoreUnreachable

DATABASE_AWAY_MS: Final = 1_000
"""Between two tries to take the leadership while the database does not answer."""
PASSING: Final = (StoreUnreachable, StoreBusy, CommitUnknown, StaleEpoch)
"""Why the leadership could not be taken now, and may be later: nobody knows who has it now, or another does."""


class Serving(Protocol):
    """Something that answers people until it is stopped."""

    async def stop(self) -> None: ...


class Front(Protocol):
    """What people and programs reach one process through, leading or following."""

    @property
    def rest(self) -> str:
        """Where followers reach this process when it leads; kept with the lease."""

    async def lead(self, api: ControllerApi) -> Serving:
        """Answer as the leader."""

    async def follow(self, follower: Follower) -> Serving:
        """Answer what a follower can, and pass the rest on."""


class LeaderElector:
    """Of one process."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        wire: Address,
        open_store: OpenStore,
        front: Front,
        ready: Callable[[], None] = lambda: None,
        *,
        presence: Presence | None = None,
        authority: Callable[[], Authority | None] = lambda: None,
        remark: Callable[[], str] = str,
        relay: StartedService | None = None,
        metrics: MetricsBook | None = None,
    ) -> None:
        """
        Args:
            wire: where agents of this machine dial this process.
            ready: called when it answers people, each time that it begins to lead or to follow.
            presence: this controller's row in a store that several share.
            authority: gives that of this HAL, once the store says that it is the right one; blocking.
            remark: what people should know of this process; '' for nothing.
            relay, metrics: as for `Controller`.
        """
        self._relay = relay
        self._metrics = metrics or MetricsBook()
        self._runtime = runtime
        self._config = config
        self._wire = wire
        self._open = open_store
        self._front = front
        self._ready = ready
        self._presence = presence
        self._find_authority = authority
        self._remark = remark
        self._authority: Authority | None = None
        self._authority_found = False

    async def run(self) -> None:
        """Until the runtime is asked to stop.

        Raises:
            StoreError: the store cannot be opened or led.
            ConflictError: another process serves this home's sockets.
            SpecError: controllers of the same store have another authority.
        """
        served = False
        while not self._runtime.stopping.is_set():
            controller = Controller(
                self._runtime, self._config, self._open, self._presence, self._remark, self._relay, self._metrics
            )
            try:
                if not self._authority_found:
                    self._authority = await self._runtime.run_blocking(self._find_authority)
                    self._authority_found = True
                await controller.start(self._wire, rest=self._front.rest)
            except StoreLed as error:
                await controller.abandon()
                self._runtime.log.info("following", reason=error.message)
                await self._follow()
            except PASSING as error:
                await controller.abandon()
                if not served:
                    raise
                self._runtime.log.warning("nobody can lead", reason=str(error))
                await self._runtime.sleep(DATABASE_AWAY_MS)
            else:
                await self._lead(controller)
            served = True

    async def _lead(self, controller: Controller) -> None:
        """Lead until asked to stop, or until another has taken over."""
        running = asyncio.ensure_future(controller.run())
        front = await self._front.lead(controller.api)
        self._ready()
        asked = asyncio.ensure_future(self._runtime.stopping.wait())
        await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        controller.stop()
        await front.stop()
        try:
            await running
        except StaleEpoch as error:
            if not self._config.store_url:
                raise
            self._runtime.log.warning("stepping down", reason=error.message)
            await controller.abandon()
        else:
            await controller.close()

    async def _follow(self) -> None:
        """Follow until nobody leads, or until asked to stop."""
        port = self._config.wire
        wire = WirePort(self._authority, port) if self._authority is not None and port is not None else None
        follower = Follower(self._runtime, self._open, self._presence, wire)
        front: Serving | None = None
        try:
            await follower.look()
            await follower.serve(self._wire)  # before REST says that it follows: whoever comes then finds its ports
            front = await self._front.follow(follower)
            self._ready()
            await follower.wait()
        finally:
            await follower.close()
            if front is not None:
                await front.stop()
