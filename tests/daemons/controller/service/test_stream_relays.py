"""Which streams are relayed by the controller's host."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.core.model import ConflictError
from hal.daemons.controller.config_sections import RelayMode
from hal.daemons.controller.service.stream_relays import StreamRelays
from hal.runtime.interface import Runtime
from hal.runtime.started_service import StartedService
from hal.runtime.virtual_world import VirtualWorld

SERVICE = StartedService(name="the relay", socket=Path("/s"), argv=["relay"], output=None)


@pytest.mark.parametrize("relays", [StreamRelays(None), StreamRelays(SERVICE, RelayMode.NEVER)])
def test_a_controller_without_a_relay_says_so(relays: StreamRelays) -> None:
    """Since nobody could come from elsewhere, or since its site does not want one."""
    world, refused = VirtualWorld(seed=1), []

    async def main(runtime: Runtime) -> None:
        with pytest.raises(ConflictError, match="streams are not relayed by this HAL"):
            await relays.arrange(runtime, "m" * 64, "ann")
        refused.append(True)

    world.start(world.host("h"), "controller", main)
    world.run_for(1_000)
    assert refused
