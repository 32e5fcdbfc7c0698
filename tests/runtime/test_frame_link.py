"""Dialling a socket whose queue is full."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from hal.core.model.errors import UnreachableError
from hal.runtime.frame_link import dial
from hal.wire.frames.sessions import SESSIONS


@pytest.fixture
def crowded(tmp_path: Path) -> socket.socket:
    """A listener that accepts nobody yet, and whose queue has no place left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "s"))
    listener.listen(0)
    first = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    first.connect(str(tmp_path / "s"))
    first.detach()
    return listener


def test_who_dials_waits_for_a_place_in_the_queue(crowded: socket.socket, tmp_path: Path) -> None:
    """Many workers of a session begin at once."""
    dialled: list[object] = []
    dialling = threading.Thread(target=lambda: dialled.append(dial(tmp_path / "s", SESSIONS, 30.0)))
    dialling.start()
    dialling.join(0.1)
    accepted = [crowded.accept(), crowded.accept()]
    dialling.join()
    assert len(dialled) == len(accepted) - 1


def test_who_dials_does_not_wait_for_ever(crowded: socket.socket, tmp_path: Path) -> None:
    """Nobody accepts."""
    with pytest.raises(UnreachableError, match="nobody serves"):
        dial(tmp_path / "s", SESSIONS, 0.05)
    crowded.close()
