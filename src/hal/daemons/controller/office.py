"""The office of the leader: one process takes it when it is vacant, follows while another holds it, and steps down."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from hal.daemons.controller.api.follower import FollowerApp
from hal.daemons.controller.api.serving import RestServer
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import Controller
from hal.daemons.controller.following import Follower
from hal.runtime.home import Home
from hal.runtime.interface import Runtime, UnixAddress
from hal.store import StaleEpoch, Store, StoreLed, StoreUnreachable

GC_THRESHOLD: Final = 50_000
"""Most of what lives is loaded once and stays: collect less often."""
DATABASE_AWAY_MS: Final = 1_000
"""Between two tries to take the office while the database does not answer."""


class Office:
    """Of one process."""

    def __init__(self, runtime: Runtime, config: Config, home: Home, ready: Callable[[], None]) -> None:
        self._runtime = runtime
        self._config = config
        self._home = home
        self._ready = ready
        self._wire = UnixAddress(home.wire_socket())

    async def hold(self) -> None:
        """Until the runtime is asked to stop.

        Raises:
            StoreError: the store cannot be opened or led.
            ConflictError: another process serves this home's sockets.
        """
        served = False
        while not self._runtime.stopping.is_set():
            controller = Controller(self._runtime, self._config, self._open)
            try:
                await controller.start(self._wire, rest=self._rest())
            except StoreLed as error:
                await controller.abandon()
                self._runtime.log.info("following", reason=error.message)
                await self._follow()
            except StoreUnreachable as error:
                await controller.abandon()
                if not served:
                    raise
                self._runtime.log.warning("nobody can lead", reason=str(error))
                await self._runtime.sleep(DATABASE_AWAY_MS)
            else:
                await self._lead(controller)
            served = True

    def _rest(self) -> str:
        """Where followers reach this one: its socket, and its port."""
        tcp = self._config.tcp
        return f"unix:{self._home.api_socket()}" + (f" http://{tcp[0]}:{tcp[1]}" if tcp else "")

    def _open(self) -> Store:
        return Store.open(self._config.store_url or self._home.database)

    async def _lead(self, controller: Controller) -> None:
        """Until it is asked to stop, or another has taken over."""
        running = asyncio.ensure_future(controller.run())
        rest = RestServer(controller.api, self._runtime, self._config, owner_uid=os.geteuid())
        await rest.start(self._home.api_socket())
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        self._runtime.log.info("ready", socket=str(self._home.api_socket()))
        self._ready()
        asked = asyncio.ensure_future(self._runtime.stopping.wait())
        await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        controller.stop()
        await rest.stop()
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
        """Until nobody leads, or it is asked to stop.

        Only the owner's own socket is served: what is passed on counts as the owner's at the leader.
        """
        follower = Follower(self._runtime, self._open)
        config = replace(self._config, tcp=None, access=replace(self._config.access, socket=""))
        token = self._home.token_text() if self._config.tcp else ""
        rest = RestServer(FollowerApp(follower, self._runtime, token), self._runtime, config, owner_uid=os.geteuid())
        await rest.start(self._home.api_socket())
        self._ready()
        try:
            await follower.wait(self._wire)
        finally:
            await rest.stop()
