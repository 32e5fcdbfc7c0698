"""Gauges that take a file or the database to read: the size of the store, ends of certificates, free disk.

They are read beside the loop, at most once in `LOOK_EVERY_MS`, after a scrape has found them old: a scrape never waits
for them, and shows what the one before has brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from hal.core.model import HALError
from hal.daemons.controller.config import Config, serves_tls
from hal.daemons.controller.metrics import declared
from hal.daemons.controller.metrics.book import MetricsBook
from hal.runtime.authority import authority_file
from hal.runtime.certificate_expiry import read_expiry_s
from hal.runtime.disk_space import free_part
from hal.runtime.interface import Lane, Runtime
from hal.runtime.metrics.registry import replace_all
from hal.store import Store

LOOK_EVERY_MS: Final = 60_000


class SlowFacts:
    """Of one process, leading or following."""

    def __init__(self, runtime: Runtime, config: Config, book: MetricsBook, store: Callable[[], Store | None]) -> None:
        """
        Args:
            store: the one whose size is shown; None: it is not shown.
        """
        self._runtime = runtime
        self._book = book
        self._store = store
        self._files = _certificates(runtime, config)
        self._looked_ms = -LOOK_EVERY_MS
        self._looking: asyncio.Task[None] | None = None

    def look_if_old(self) -> None:
        """Have them read again where that was too long ago."""
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._looked_ms >= LOOK_EVERY_MS and (self._looking is None or self._looking.done()):
            self._looked_ms = now_ms
            self._looking = self._runtime.spawn_task(self._look(), "slow-metrics")

    async def looked(self) -> None:
        """Wait until what is being read was read."""
        if self._looking is not None:
            await asyncio.wait((self._looking,))

    async def _look(self) -> None:
        numbers = self._book.registry.numbers
        ends = await self._runtime.run_blocking(partial(_ends, self._files), Lane.READER)
        replace_all(numbers(declared.CERTIFICATE), (((name,), end) for name, end in ends.items()))
        part = await self._runtime.run_blocking(partial(free_part, self._runtime.paths.root), Lane.READER)
        if part is not None:
            numbers(declared.HOME_FREE).of().set(part)
        store = self._store()
        if store is None:
            return
        try:
            size = await self._runtime.run_blocking(store.size_bytes, Lane.READER)
        except HALError as error:
            self._runtime.log.warning("the size of the store could not be read", reason=str(error))
        else:
            numbers(declared.STORE_SIZE).of().set(float(size))


def _certificates(runtime: Runtime, config: Config) -> Mapping[str, Path]:
    """Files of the certificates that this controller uses."""
    directory = runtime.paths.authority
    files: dict[str, Path] = {}
    if config.wire is not None or serves_tls(config):
        files["authority"] = authority_file(directory)
    if config.wire is not None:
        files["wire"] = directory / "controller.pem"
    if serves_tls(config):
        files["rest"] = directory / "rest.pem"
        if config.site_certificate is not None:
            files["site"] = config.site_certificate[0]
    return files


def _ends(files: Mapping[str, Path]) -> dict[str, float]:
    found = {name: read_expiry_s(path) for name, path in files.items()}
    return {name: end for name, end in found.items() if end is not None}
