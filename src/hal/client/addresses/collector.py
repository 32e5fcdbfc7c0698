"""Where the collector of a HAL is reached: what is given, $HAL_COLLECTOR, or its socket beside the controller's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import read_endpoints
from hal.core.model.errors import UnreachableError

COLLECTOR_VARIABLE: Final = "HAL_COLLECTOR"
SOCKET_NAME: Final = "observability.sock"
HINT: Final = "start it with: hal up --with observability"


def collector_address(controller: Address, url: str = "") -> Address:
    """The address of the collector of that HAL; who asks is known to it as to the controller.

    Args:
        url: `https://host:port` or `unix:///path/of/observability.sock`; '': as the environment or the home says.
    Raises:
        SpecError: it is no URL.
        UnreachableError: there is none, as far as this machine knows.
    """
    url = url or os.environ.get(COLLECTOR_VARIABLE, "")
    if url:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return replace(controller, home=None, endpoints=(), socket_path=parts.path)
        return replace(controller, home=None, socket_path="", endpoints=read_endpoints(url))
    if controller.endpoints:
        raise UnreachableError(
            f"it is not known where the collector of {controller.named} is",
            hint=f"name it with --collector or ${COLLECTOR_VARIABLE}",
        )
    path = Path(controller.path()).with_name(SOCKET_NAME)
    if not path.exists():
        raise UnreachableError("no collector runs beside this HAL", hint=HINT)
    return replace(controller, home=None, socket_path=str(path))
