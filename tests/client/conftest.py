"""A scripted controller on a Unix socket in a HAL_HOME of its own, and clients of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.client.addresses.address import Address
from hal.client.sync_client import Client
from hal.runtime.home import Home
from tests.client.scripted_server import Script, ScriptedServer

Serve = Callable[[Script], ScriptedServer]


@pytest.fixture
def serve(hal_home: Path) -> Iterator[Serve]:
    """Start a scripted controller where the API socket of this HAL_HOME is; stopped at the end."""
    started: list[ScriptedServer] = []

    def start(script: Script) -> ScriptedServer:
        home = Home(hal_home)
        home.create()
        path = home.api_socket()
        path.unlink(missing_ok=True)
        started.append(ScriptedServer(script, path=path))
        return started[-1]

    yield start
    for server in started:
        server.stop()
    sockets = Home(hal_home).known_socket_dir()
    if sockets is not None:
        shutil.rmtree(sockets)


@pytest.fixture
def client(hal_home: Path) -> Iterator[Client]:
    """A client of whatever is served there; gives a restarted controller 5 s."""
    with Client(Address(home=Home(hal_home)), reconnect_s=5.0) as made:
        yield made
