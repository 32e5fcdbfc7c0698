"""Connections for payloads, in the simulation: as many as there may be processes, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.planes.sessions import serving
from hal.planes.sessions.serving import BrokerService, SessionTerms
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.payload_files import PayloadFiles
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import SESSIONS, OpenSession, SessionOpened
from hal.wire.roles import Role

TOKEN = "5e" * 32


def test_connections_for_payloads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two may be open: a third is refused, until one is closed."""
    monkeypatch.setattr(serving, "MAX_FILE_CONNECTIONS", 2)
    answers: list[object] = []

    async def broker(runtime: Runtime) -> None:
        service = BrokerService(runtime, SessionTerms("s", TOKEN, files=PayloadFiles(tmp_path)))
        await runtime.listen(UnixAddress(runtime.paths.wire_socket()), service.serve, conversation=SESSIONS)
        await runtime.stopping.wait()

    async def opened(runtime: Runtime) -> Connection:
        connection = await runtime.connect(UnixAddress(runtime.paths.wire_socket()), conversation=SESSIONS)
        await connection.send(OpenSession(versions=SPOKEN, role=Role.CLIENT, session="s", token=TOKEN, files=True))
        answers.append(type(await connection.receive()))
        return connection

    async def clients(runtime: Runtime) -> None:
        await runtime.sleep(1_000)
        first = await opened(runtime)
        await opened(runtime)
        await opened(runtime)
        first.close()
        await runtime.sleep(1_000)
        await opened(runtime)

    with VirtualWorld(1) as world:
        host = world.host("n1")

        async def drive() -> None:
            world.start(host, "broker", broker)
            await world.start(host, "clients", clients).wait()

        world.run(drive())
    assert answers == [SessionOpened, SessionOpened, Goodbye, SessionOpened]
