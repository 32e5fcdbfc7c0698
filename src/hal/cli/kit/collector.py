"""A client of the collector of the HAL that a command talks to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.sync_client import Client

NAME: Final = "observability"
"""Of the plane."""


def collector_client(screen: Screen, url: str = "") -> Client:
    """Connects when first used.

    Args:
        url: of the collector; '': as the environment, the home or the controller says.
    Raises:
        UnreachableError: there is none; says how to start one.
    """
    from hal.client.addresses.collector import collector_address
    from hal.client.rest import plane_calls
    from hal.client.sync_client import Client

    def announced() -> Sequence[str]:
        with Client(screen.address, reconnect_s=0.0) as client:
            return [one for plane in client.call(plane_calls.planes()) if plane.name == NAME for one in plane.rest]

    return Client(collector_address(screen.address, url, announced), reconnect_s=0.0)
