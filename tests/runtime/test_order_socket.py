"""The socket at which a script takes orders: one process serves it, whatever was left by those before."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hal.runtime.order_socket import OrderSocket


def test_a_second_process_is_refused_and_a_dead_ones_socket_is_taken_over(tmp_path: Path) -> None:
    """Whoever listens no more has left a path that leads nowhere."""
    path = str(tmp_path / "s")
    first = OrderSocket(path)
    with pytest.raises(FileExistsError, match="is served already"):
        OrderSocket(path)
    first.close()
    second = OrderSocket(path)
    assert second.served
    second.close()


def test_who_serves_no_more_removes_nothing_of_the_next(tmp_path: Path) -> None:
    """The path leads to another process by then."""
    path = tmp_path / "s"
    first = OrderSocket(str(path))
    path.unlink()
    second = OrderSocket(str(path))
    first.remove()
    assert path.exists()
    second.remove()
    assert not path.exists()
    first.close()
    second.close()


def test_an_order_of_the_same_user_is_taken(tmp_path: Path) -> None:
    """Nobody has come before."""
    served = OrderSocket(str(tmp_path / "s"))
    assert served.accept() is None
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(tmp_path / "s"))
        asking.sendall(b"order\n")
        accepted = served.accept()
        assert accepted is not None
        with accepted:
            assert accepted.recv(100) == b"order\n"
    served.close()
