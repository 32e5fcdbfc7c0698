"""Attacks on a real HAL: each test plays a hostile stranger, user, job or node and checks what must hold. Root only.

Run by `make test-attacks` and `make test-all`. Where a test needs another user of the machine it uses `as_user`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.sync_client import Client
from tests.attacks.stream_site import Site, stream_site
from tests.e2e.conftest import LiveHal, new_home
from tests.e2e.conftest import own_hal as own_hal
from tests.e2e.conftest import shared_hal as shared_hal

_HERE = f"{Path(__file__).parent}{os.sep}"
TIMEOUT_S = 300
"""Of each test; what is waited for has deadlines of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them; skip them where they cannot run."""
    for item in items:
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.attack)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root, to act as other users"))


@pytest.fixture(scope="module")
def hal() -> Iterator[LiveHal]:
    """One honest node; who attacks it, one after the other, leaves it as it was."""
    live = LiveHal(new_home())
    try:
        yield live.up("--cpus", "4", "--memory", "1GiB")
    finally:
        live.remove()


@pytest.fixture
def client(hal: LiveHal) -> Iterator[Client]:
    """A client of its owner's."""
    with hal.client() as made:
        yield made


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A HAL of root with jobs of a user's, for what enters steps."""
    with stream_site() as made:
        yield made
