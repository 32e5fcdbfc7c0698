"""A client of the collector of the HAL that a command talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.sync_client import Client


def collector_client(screen: Screen, url: str = "") -> Client:
    """Connects when first used.

    Args:
        url: of the collector; '': as the environment or the home says.
    Raises:
        UnreachableError: there is none; says how to start one.
    """
    from hal.client.addresses.collector import collector_address
    from hal.client.sync_client import Client

    return Client(collector_address(screen.address, url), reconnect_s=0.0)
