"""A session whose processes reach its broker over TLS: what travels, and who is refused."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hal.client.session import SessionLost, open_session
from hal.core.model.errors import DeniedError, SpecError, UnreachableError
from hal.runtime.memory_file import in_memory
from hal.runtime.remote_exchange import RemoteExchange
from hal.runtime.session_certificates import over_network
from hal.runtime.session_exchange import connect_for_payloads
from hal.runtime.session_file import SessionFile, new_session_file, parse_address, read_session_file, write_session_file
from hal.wire.codec import encode
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import AskFile, FilePiece, FileStored, OpenSession
from hal.wire.roles import Role
from hal.wire.strangers import MAX_STRANGERS
from tests.client.sessions.processes import WAIT_S, Processes, free_port, now_ms, processes

DIAL_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes(network=True) as started:
        yield started


def place(running: Processes) -> tuple[str, int]:
    found = parse_address(running.session.dialled[0])
    assert not isinstance(found, Path)
    return found


def stranger(running: Processes, certificate: str = "") -> ssl.SSLSocket:
    """A connection of somebody who believes whoever answers, and shows this certificate or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        with in_memory(certificate) as path:
            context.load_cert_chain(path)
    return context.wrap_socket(socket.create_connection(place(running), DIAL_S))


def answer_to(sock: socket.socket, said: bytes) -> bytes:
    """All that comes until the other end closes."""
    data = b""
    try:
        sock.sendall(said)
        while piece := sock.recv(65_536):
            data += piece
    except OSError:
        pass
    finally:
        sock.close()
    return data


def hello(session: SessionFile) -> bytes:
    return encode(OpenSession(versions=(1, 1), role=Role.CLIENT, session=session.id, token=session.token))


def test_tasks_and_results_travel_over_tls(running: Processes) -> None:
    assert running.session.dialled[0].startswith("tcp:")
    with running.open() as session:
        assert list(session.map(abs, range(-20_000, 0))) == list(range(20_000, 0, -1))
        assert session.submit(len, b"x" * 1_000_000).result() == 1_000_000
        shared = session.put(np.arange(10_000))
        assert session.submit(np.sum, shared).result() == 49_995_000


def test_threads_share_one_connection(running: Processes) -> None:
    """Each sends while another one reads: no byte is lost or in the wrong place."""
    found: dict[int, list[Any]] = {}
    sizes = [size % 50_000 for size in range(0, 1_000_000, 997)]

    with running.open() as session:

        def work(number: int) -> None:
            futures = [session.submit(bytes.upper, b"%d-" % number + b"x" * size) for size in sizes]
            found[number] = [future.result() for future in futures]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(4):
        assert found[number] == [b"%d-" % number + b"X" * size for size in sizes]


def test_a_stranger_without_a_certificate_is_refused(running: Processes) -> None:
    """Whatever it says, and even if it knows the token."""
    with socket.create_connection(place(running), DIAL_S) as plain:
        assert len(answer_to(plain, hello(running.session))) < 100  # an alert of TLS at most
    assert b"without a certificate" in answer_to(stranger(running), hello(running.session))


def test_a_certificate_of_another_session_is_refused(running: Processes) -> None:
    _, other = over_network(running.session, "tcp:127.0.0.1:1", now_ms())
    assert answer_to(stranger(running, other.certificate), hello(running.session)) == b""
    forged = replace(running.session, certificate=other.certificate)
    with pytest.raises(UnreachableError):
        open_session(forged)


def test_the_certificate_without_the_token_is_not_enough(running: Processes) -> None:
    with pytest.raises(DeniedError, match="token"):
        open_session(replace(running.session, token="0" * 64))


def test_a_client_believes_no_other_broker(running: Processes) -> None:
    """Neither that of another session, nor a process of its own session that is not the broker."""
    _, other = over_network(running.session, "tcp:127.0.0.1:1", now_ms())
    with pytest.raises(DeniedError, match="not the broker of this session"):
        open_session(replace(other, dial=running.session.dial))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with in_memory(running.session.certificate) as path:
        context.load_cert_chain(path)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def stand_in() -> None:
            with server.accept()[0] as accepted, pytest.raises(OSError):
                context.wrap_socket(accepted, server_side=True).recv(1)

        thread = threading.Thread(target=stand_in)
        thread.start()
        with pytest.raises(DeniedError, match="not the broker of this session"):
            open_session(replace(running.session, dial=(f"tcp:127.0.0.1:{server.getsockname()[1]}",)))
        thread.join()


def test_silent_strangers_keep_nobody_away(running: Processes) -> None:
    """More of them than are let in at once."""
    silent = [socket.create_connection(place(running), DIAL_S) for _ in range(MAX_STRANGERS + 20)]
    try:
        with running.open() as session:
            assert session.submit(pow, 2, 10).result() == 1_024
    finally:
        for sock in silent:
            sock.close()


def test_there_is_no_plain_tcp(tmp_path: Path) -> None:
    """A file with an address of TCP and no certificate is refused, by the broker and by who dials."""
    file = tmp_path / "session.json"
    write_session_file(file, replace(new_session_file(tmp_path), listen=(f"tcp:127.0.0.1:{free_port()}",)))
    for daemon in ("broker", "worker"):
        words = [sys.executable, "-m", f"hal.daemons.{daemon}", "--session", str(file)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S)
        assert (ran.returncode, "certificate" in ran.stderr) == (2, True), ran.stderr
    with pytest.raises(SpecError, match="certificate"):
        open_session(read_session_file(file))


@pytest.mark.parametrize("text", ["tcp:", "tcp:host", "tcp:host:port", "tcp:host:0", "tcp::80", "host:80"])
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_address(text)


def test_the_key_of_the_broker_is_in_its_file_alone(running: Processes) -> None:
    broker = read_session_file(running.broker_file)
    assert broker.certificate != running.session.certificate
    assert broker.authority == running.session.authority
    assert "PRIVATE" not in broker.authority


def test_workers_come_back_after_their_connection_broke(running: Processes) -> None:
    """Killed, they are replaced by their own process, which dials again."""
    with running.open() as session:
        pids = set(session.map(lambda _: os.getpid(), range(200)))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert not pids & set(session.map(lambda _: os.getpid(), range(200)))


def test_losing_the_broker_loses_the_session() -> None:
    with processes(1, network=True) as started:
        session = started.open()
        future = session.submit(time.sleep, 60)
        started.broker.kill()
        with pytest.raises(SessionLost):
            future.result(WAIT_S)


LARGE = 5_000_001


def remote(running: Processes, writer: str) -> RemoteExchange:
    """As a process of another machine would have it."""
    return RemoteExchange(running.session.id, writer, partial(connect_for_payloads, running.session))


def at_broker(running: Processes) -> list[str]:
    return sorted(file.name for file in Path(f"/dev/shm/hal-session-{running.session.id}").glob("c*"))


def test_large_payloads_go_to_other_machines_in_pieces(running: Processes) -> None:
    """There and back, in several parts; what nobody needs any more is gone."""
    one, other = remote(running, "one"), remote(running, "other")
    data = os.urandom(LARGE)
    payload = one.write([data[:3], memoryview(data)[3:2_000_000], data[2_000_000:]], 77)
    assert at_broker(running) == ["c77-one-1"]
    assert bytes(other.read(payload)) == data
    assert bytes(other.read(payload, last=True)) == data
    with pytest.raises(OSError, match="No such file"):
        other.read(payload)
    assert bytes(other.read(one.write([data], 77), last=True)) == data  # the connection goes on
    one.close()
    other.close()


def test_a_value_for_many_tasks_is_sent_to_each_machine_once(running: Processes) -> None:
    """What was sent stays until it is forgotten, and the directory until all have left."""
    one, other = remote(running, "one"), remote(running, "other")
    data = os.urandom(LARGE)
    payload = one.write([data], 78)
    assert bytes(one.read_shared(payload)) == data
    other._connect = None  # type: ignore[assignment]  # it needs no connection
    assert bytes(other.read_shared(payload)) == data
    here = Path(f"/dev/shm/hal-session-{running.session.id}n")
    assert (here / "c78-one-1").stat().st_size == LARGE
    other.forget(payload)
    assert not (here / "c78-one-1").exists()
    other.close()
    assert here.exists()
    one.remove(payload)
    one.close()
    assert not here.exists()


@pytest.mark.parametrize("name", ["../c1-a-1", "broker.lock", "c1/a"])
def test_no_other_file_is_asked_for(running: Processes, name: str) -> None:
    link = connect_for_payloads(running.session)
    link.send(AskFile(name=name))
    assert all(isinstance(frame, Goodbye) for frame in link.receive())
    link.close()


def test_a_payload_that_is_not_what_was_announced_is_refused(running: Processes) -> None:
    """And nothing of it stays."""
    link = connect_for_payloads(running.session)
    link.send(FilePiece(name="c79-x-1", size=4, data=b"12345", more=True))
    assert all(isinstance(frame, Goodbye) for frame in link.receive())
    link.close()
    link = connect_for_payloads(running.session)
    link.send(FilePiece(name="c79-x-1", size=1 << 52, data=b"1"))
    (answer,) = link.receive()
    assert isinstance(answer, FileStored)
    assert "more than half of what is free" in answer.error
    link.close()
    assert at_broker(running) == []
