"""What people and programs reach a controller's process through: REST on its socket, leading or following."""

from __future__ import annotations

import gc
import os
import ssl
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.daemons.controller.api.follower.follower_app import FollowerApp
from hal.daemons.controller.api.rest_server import RestServer
from hal.daemons.controller.config import ANY_HOST, Config, rest_url, serves_tls
from hal.daemons.controller.elector import Serving
from hal.daemons.controller.following.follower import Follower
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.metrics.slow_facts import SlowFacts
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.server.certificate import RestCertificate, open_rest_certificate
from hal.runtime.authority import has_authority, open_authority
from hal.runtime.home import Home
from hal.runtime.interface import Runtime

GC_THRESHOLD: Final = (10_000, 5, 1_000)
"""Most of what lives is loaded once and stays: all of it is looked through rarely, for that takes as long as a hundred
turns of the loop, and what is new in portions of some milliseconds."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""Names that are every machine's own."""


class RestFront:
    """REST on the socket of a HAL_HOME, and on the port that hal.toml names."""

    def __init__(self, runtime: Runtime, config: Config, home: Home, metrics: MetricsBook) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self.secret = runtime.new_id() + runtime.new_id()
        """By which a leader knows this controller while it follows (see `presence`)."""
        self._config = config
        self._home = home
        self._certificate: RestCertificate | None = None

    @property
    def rest(self) -> str:
        """See `elector.Front`: its socket, and its port."""
        return f"unix:{self._home.api_socket()} {rest_url(self._config)}".strip()

    async def lead(self, api: ControllerApi) -> Serving:
        """See `elector.Front`."""
        if self._certificate is None and serves_tls(self._config):
            await self._certify()
        rest = RestServer(api, self._runtime, self._config, owner_uid=os.geteuid(), tls=self._tls)
        await rest.start(self._home.api_socket())
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        self._runtime.log.info("ready", socket=str(self._home.api_socket()))
        return rest

    async def follow(self, follower: Follower) -> Serving:
        """See `elector.Front`."""
        config = self._config
        if self._certificate is None and serves_tls(config):
            if has_authority(self._home.authority):
                await self._certify()
            else:
                config = replace(config, tcp=None)  # which authority it is to have, the database cannot say yet
        slow_facts = SlowFacts(self._runtime, config, self._metrics, lambda: None)
        app = FollowerApp(follower, self._runtime, self.secret, rest_url(config), self._metrics, slow_facts)
        rest = RestServer(app, self._runtime, config, owner_uid=os.geteuid(), tls=self._tls)
        await rest.start(self._home.api_socket())
        return rest

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._certificate.context if self._certificate is not None else None

    async def _certify(self) -> None:
        """Once for as long as this process lives."""
        runtime, config = self._runtime, self._config
        opened = partial(open_authority, self._home.authority, runtime.now_ms())
        authority = await runtime.run_blocking(opened)
        hosts = [*LOOPBACK, *(host for host in (config.address, config.tcp[0] if config.tcp else "") if host)]
        named = [host for host in hosts if host not in ANY_HOST]
        self._certificate = await open_rest_certificate(runtime, authority, named, config.site_certificate)
