"""What people and programs reach a controller's process through: REST on its socket, leading or following.

The office (see `office`) knows only `Front`, so that it runs unchanged where there is no HTTP: on the virtual Runtime.
"""

from __future__ import annotations

import gc
import os
from typing import Final, Protocol

from hal.daemons.controller.api.follower import FollowerApp
from hal.daemons.controller.api.serving import RestServer
from hal.daemons.controller.config import Config, reached
from hal.daemons.controller.controller import ControllerApi
from hal.daemons.controller.following import Follower
from hal.runtime.home import Home
from hal.runtime.interface import Runtime

GC_THRESHOLD: Final = 50_000
"""Most of what lives is loaded once and stays: collect less often."""


class Serving(Protocol):
    """Something that answers people until it is stopped."""

    async def stop(self) -> None: ...


class Front(Protocol):
    """Of one process."""

    @property
    def rest(self) -> str:
        """Where followers reach this process when it leads; kept with the lease."""

    async def lead(self, api: ControllerApi) -> Serving:
        """Answer as the leader."""

    async def follow(self, follower: Follower) -> Serving:
        """Answer what a follower can, and pass the rest on."""


class RestFront:
    """REST on the socket of a HAL_HOME, and on the port that hal.toml names."""

    def __init__(self, runtime: Runtime, config: Config, home: Home) -> None:
        self._runtime = runtime
        self.secret = runtime.new_id() + runtime.new_id()
        """By which a leader knows this controller while it follows (see `presence`)."""
        self._config = config
        self._home = home

    @property
    def rest(self) -> str:
        """See `Front`: its socket, and its port."""
        port = reached(self._config.tcp, self._config.address)
        return f"unix:{self._home.api_socket()}" + (f" http://{port}" if port else "")

    async def lead(self, api: ControllerApi) -> Serving:
        """See `Front`."""
        rest = RestServer(api, self._runtime, self._config, owner_uid=os.geteuid())
        await rest.start(self._home.api_socket())
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        self._runtime.log.info("ready", socket=str(self._home.api_socket()))
        return rest

    async def follow(self, follower: Follower) -> Serving:
        """See `Front`."""
        app = FollowerApp(follower, self._runtime, self.secret)
        rest = RestServer(app, self._runtime, self._config, owner_uid=os.geteuid())
        await rest.start(self._home.api_socket())
        return rest
