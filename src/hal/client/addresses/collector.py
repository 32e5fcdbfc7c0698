"""Where the collector of a HAL is reached: what is given, $HAL_COLLECTOR, its socket beside the controller's, or where
the controller says that it has announced itself.

A collector is known as its controller is: over TLS by the HAL's own authority, or the site's certificate; on a socket
by the user who serves it. The token that is shown to the controller is shown to nobody else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import Endpoint, read_endpoints
from hal.client.addresses.server_identity import is_loopback
from hal.core.model.errors import UnreachableError

COLLECTOR_VARIABLE: Final = "HAL_COLLECTOR"
UNIX: Final = "unix:"
SOCKET_NAME: Final = "observability.sock"
HINT: Final = "start it with: hal up --with observability"


def collector_address(
    controller: Address, url: str = "", announced: Callable[[], Sequence[str]] | None = None
) -> Address:
    """The address of the collector of that HAL; who asks is known to it as to the controller.

    Args:
        url: `https://host:port` or `unix:///path/of/observability.sock`; '': as the environment, the home or the
            controller says.
        announced: asks the controller where its collector has announced itself; None: it is not asked.
    Raises:
        SpecError: it is no URL.
        UnreachableError: there is none, as far as this machine and the controller know.
    """
    url = url or os.environ.get(COLLECTOR_VARIABLE, "")
    if url:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return replace(controller, home=None, endpoints=(), socket_path=parts.path)
        return _over_network(controller, read_endpoints(url))
    if controller.endpoints:
        return _announced(controller, announced() if announced is not None else ())
    path = Path(controller.path()).with_name(SOCKET_NAME)
    if not path.exists():
        raise UnreachableError("no collector runs beside this HAL", hint=HINT)
    return replace(controller, home=None, socket_path=str(path))


def _announced(controller: Address, addresses: Sequence[str]) -> Address:
    """One of these: over TLS, if there is one; else a socket of this machine, where the controller is on it."""
    if urls := [address for address in addresses if address.startswith("https://")]:
        return _over_network(controller, read_endpoints(",".join(urls)))
    if all(is_loopback(endpoint.host) for endpoint in controller.endpoints):
        for address in addresses:
            path = address.removeprefix(UNIX)
            if address.startswith(UNIX) and os.access(path, os.R_OK | os.W_OK):
                by_token = bool(controller.token)
                return replace(controller, home=None, endpoints=(), socket_path=path, by_token=by_token)
    if addresses:
        raise UnreachableError(
            f"the collector of {controller.named} serves its own machine alone",
            hint='let it serve others: [observability] listen = "0.0.0.0:7433" in hal.toml there',
        )
    raise UnreachableError(
        f"no collector has announced itself at {controller.named}",
        hint=f"{HINT}; or name it with --collector or ${COLLECTOR_VARIABLE}",
    )


def _over_network(controller: Address, endpoints: tuple[Endpoint, ...]) -> Address:
    """With the authority by which the controller is known: it alone shows the certificate of a fingerprint."""
    authority, fingerprint = controller.authority, controller.fingerprint
    if fingerprint and not authority and controller.endpoints and controller.endpoints[0].tls:
        authority, fingerprint = controller.believed(controller.endpoints[0]), ""
    return replace(
        controller,
        home=None,
        socket_path="",
        by_token=False,
        endpoints=endpoints,
        authority=authority,
        fingerprint=fingerprint,
    )
