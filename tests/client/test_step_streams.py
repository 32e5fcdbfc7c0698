"""Opening a stream to a step: what a node answers is believed only if it is a stream."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from hal.client.addresses.address import Address
from hal.client.step_streams import StreamDialler
from hal.client.transport.http import Connections
from hal.core.model import InternalError
from hal.runtime.home import Home
from hal.wire.step_streams import HEAD, MAX_MESSAGE_BYTES, OPENED
from tests.client.conftest import Serve
from tests.client.scripted_server import as_json


def test_a_node_that_answers_with_what_is_no_stream_is_one_clear_error(serve: Serve, hal_home: Path) -> None:
    """It announces a message that is longer than any may be."""
    path = str(hal_home / "s")
    where = {"step": "1.0.1.0", "node": "n1", "ticket": "t", "socket": path, "address": "", "fingerprint": ""}
    serve(lambda asked: as_json(where))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(HEAD.pack(OPENED, MAX_MESSAGE_BYTES + 1))
                accepted.recv(1)

        node = threading.Thread(target=answer)
        node.start()
        with pytest.raises(InternalError, match="what node n1 answers is no stream to a step"):
            StreamDialler(Connections(Address(home=Home(hal_home)))).open(1, kind="exec")
        node.join()
