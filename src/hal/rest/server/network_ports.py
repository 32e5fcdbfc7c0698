"""The port of the network of a daemon beside the controller: TLS with a certificate of this HAL's own authority.

The daemon runs on the controller's machine, as its user: it signs its certificate itself, into a file of its own.
Clients know it as they know the controller.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from hal.core.model import NotFoundError
from hal.rest.server.certificate import open_rest_certificate
from hal.rest.server.http_server import Ports
from hal.runtime.authority import has_authority, open_authority
from hal.runtime.interface import Runtime
from hal.runtime.machine import host_name
from hal.wire.address import format_address, parse_address

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
ANY_HOSTS: Final = ("0.0.0.0", "::")


async def open_tls_port(
    runtime: Runtime, listen: str, address: str, file: Path, site: tuple[Path, Path] | None, *, setting: str
) -> Ports:
    """Certify the daemon, and say where it listens.

    Args:
        listen: `HOST:PORT`.
        address: name under which other machines reach this one; '': its host name.
        file: gets certificate and key.
        site: files of the site's certificate chain and key; None: HAL's own alone.
        setting: where `listen` is written, for errors.
    Raises:
        NotFoundError: this HAL has no authority, for its controller serves nothing with TLS.
        DeniedError: a file cannot be read or used.
    """
    host, port = parse_address(listen, setting)
    directory = runtime.paths.authority
    if not has_authority(directory):
        raise NotFoundError(
            f"{setting}: this HAL has no certificate authority",
            hint="let the controller serve the network, too: [server] tcp with tls = true, or wire",
        )
    authority = await runtime.run_blocking(partial(open_authority, directory, runtime.now_ms()))
    names = [*LOOPBACK, *(name for name in (address or host_name(), host) if name and name not in ANY_HOSTS)]
    certificate = await open_rest_certificate(runtime, authority, names, site, file)
    return Ports(tcp=(host, port), tls=certificate.context, how_to_change=f"choose another one: {setting}")


def url_at(listen: str, address: str) -> str:
    """The URL at which other machines reach it."""
    host, port = parse_address(listen)
    return f"https://{format_address(address or (host_name() if host in ANY_HOSTS else host), port)}"
