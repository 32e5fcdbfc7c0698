"""`hal forward` on a real HAL: ports of running steps, reached from outside."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hal.cli.kit import exit_codes
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from tests.e2e.conftest import DEADLINE_S, LiveHal, until

SERVER = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, port=int(__import__('sys').argv[1]), bind='{}')"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def served(live: LiveHal, directory: Path, bind: str = "127.0.0.1", **options: object) -> Iterator[tuple[str, int]]:
    """A job that serves a directory, and its port."""
    port = free_port()
    with live.client() as client:
        made = client.submit(
            [sys.executable, "-c", SERVER.format(bind), str(port)],
            workdir=str(directory),
            **options,  # type: ignore[arg-type]
        )
        until(lambda: made.refresh().state == "running", "it did not run")
        try:
            yield made.id, port
        finally:
            client.cancel(made.id)


@contextmanager
def forwarded(live: LiveHal, job: str, port: int | str) -> Iterator[int]:
    """The port here."""
    process = live.start("forward", job, f"0:{port}")
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("127.0.0.1:"), process.communicate()
        yield int(line.partition(":")[2].split()[0])
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == exit_codes.OK, err


def fetch(port: int, path: str) -> bytes:
    """What an HTTP server answers, once it does."""
    found: list[bytes] = []

    def answered() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            found.append(connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            return False  # it does not serve yet
        finally:
            connection.close()
        return True

    until(answered, "nothing answered")
    return found[0]


def test_a_server_inside_a_job_is_reached(shared_hal: LiveHal, tmp_path: Path) -> None:
    """Byte for byte, and by several connections one after the other."""
    data = bytes(range(256)) * 40_000
    (tmp_path / "data").write_bytes(data)
    with served(shared_hal, tmp_path) as (job, port), forwarded(shared_hal, job, port) as here:
        assert [fetch(here, "/data") == data, fetch(here, "/data") == data] == [True, True]


@pytest.mark.slow
@pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
def test_a_server_without_network_is_reached(shared_hal: LiveHal, tmp_path: Path) -> None:
    """The connection is made inside the step's own network."""
    (tmp_path / "data").write_text("inside")
    inside = served(shared_hal, tmp_path, "0.0.0.0", sandbox="no-network")
    with inside as (job, port), forwarded(shared_hal, job, port) as here:
        assert fetch(here, "/data") == b"inside"


@pytest.mark.slow
def test_a_port_that_nothing_serves_is_no_end_of_the_forwarding(shared_hal: LiveHal, tmp_path: Path) -> None:
    """A connection is closed; a later one works, once something serves the port."""
    with served(shared_hal, tmp_path) as (job, _), forwarded(shared_hal, job, free_port()) as here:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as sock:
                assert sock.recv(1) == b""


@pytest.mark.slow
def test_a_job_that_is_not_running_is_refused(shared_hal: LiveHal) -> None:
    with shared_hal.client() as client:
        made = client.submit(["true"], hold=True)
        ran = shared_hal.run("forward", made.id, "1234")
        made.cancel()
        assert (ran.code, "is not running: it is held" in ran.err) == (exit_codes.CONFLICT, True), ran.err


def test_both_directions_end_by_themselves(shared_hal: LiveHal, tmp_path: Path) -> None:
    """A server that answers only when its client has sent everything."""
    port = free_port()
    script = (
        "import socket,sys; c,_=socket.create_server(('127.0.0.1',int(sys.argv[1]))).accept(); n=0\n"
        "while d:=c.recv(65536): n+=len(d)\n"
        "c.sendall(str(n).encode()); c.close()"
    )
    with shared_hal.client() as client:
        made = client.submit([sys.executable, "-c", script, str(port)])
        listening = ["grep", "-q", f":{port:04X} 00000000:0000 0A", "/proc/net/tcp"]
        until(lambda: subprocess.run(listening, check=False).returncode == 0, "it does not listen")
        until(lambda: made.refresh().state == "running", "its start was not reported")
        with forwarded(shared_hal, made.id, port) as here:
            with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as sock:
                sock.sendall(bytes(3_000_000))
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(64) == b"3000000"
            made.wait(DEADLINE_S)
