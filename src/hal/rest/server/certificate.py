"""The certificate that REST shows: of HAL's own authority, made again in time, and the site's where there is one."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from hal.core.model import DeniedError
from hal.runtime.authority import Authority
from hal.runtime.interface import Runtime
from hal.runtime.tls import RestContext

LOOK_EVERY_MS: Final = 3_600_000
"""The site's files are read again, and whether HAL's own certificate is due is looked at, this often at least."""


class RestCertificate:
    """Made by `open_rest_certificate`; one for as long as the process lives."""

    def __init__(
        self, runtime: Runtime, authority: Authority, hosts: Sequence[str], file: Path, tls: RestContext, due_ms: int
    ) -> None:
        self._runtime = runtime
        self._file = file
        self._authority = authority
        self._hosts = hosts
        self._tls = tls
        runtime.spawn_task(self._renew(due_ms), "renew-rest")

    @property
    def context(self) -> ssl.SSLContext:
        """For a listener."""
        return self._tls.context

    async def _renew(self, due_ms: int) -> None:
        while True:
            now_ms = self._runtime.now_ms()
            await self._runtime.sleep(max(1, min(LOOK_EVERY_MS, due_ms - now_ms)))
            now_ms = self._runtime.now_ms()
            try:
                if now_ms >= due_ms:
                    certify = partial(self._authority.certify_rest, self._hosts, now_ms, self._file)
                    due_ms = await self._runtime.run_blocking(certify)
                    self._runtime.log.info("the certificate of REST was renewed")
                self._tls.reload()
            except DeniedError as error:
                self._runtime.log.error("the certificate of REST was not read again", reason=str(error))
            except OSError as error:
                # A third of its time is left: the disk may have room again by then.
                self._runtime.log.error("the certificate of REST was not renewed", reason=str(error))
                due_ms = now_ms + LOOK_EVERY_MS


async def open_rest_certificate(
    runtime: Runtime,
    authority: Authority,
    hosts: Sequence[str],
    site: tuple[Path, Path] | None,
    file: Path | None = None,
) -> RestCertificate:
    """Certify REST of this controller or daemon, and read the site's certificate.

    Args:
        hosts: names and addresses of this machine.
        file: gets its own certificate and key; None: the controller's.
    Raises:
        DeniedError: a file cannot be read or used.
    """
    file = file or authority.rest_file
    due_ms = await runtime.run_blocking(partial(authority.certify_rest, hosts, runtime.now_ms(), file))
    tls = RestContext(file, site)
    return RestCertificate(runtime, authority, hosts, file, tls, due_ms)
