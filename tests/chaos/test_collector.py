"""The collector killed, stopped, its disk full, its database locked, flooded by one sender: jobs, heartbeats and logs
on the node are as without it; what is lost is counted; it catches up. Real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from hal.cli.local import processes
from hal.runtime.telemetry_sender import MAX_QUEUED_BYTES
from hal.wire.agree import SPOKEN
from hal.wire.codec import encode
from hal.wire.frames.hello import Hello
from hal.wire.frames.telemetry import LogLine, LogLines, Severity
from hal.wire.roles import Role
from tests.e2e.conftest import LiveHal, own_hal, until

__all__ = ["own_hal"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = '[node.telemetry]\nevery = "1s"\n'
SMALL = ("--cpus", "2", "--memory", "1GiB")


class Socket(HTTPConnection):
    """HTTP to the collector's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("hal", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


class Collected:
    """A HAL with a collector."""

    def __init__(self, live: LiveHal) -> None:
        self.live = live
        self.plane = processes.Plane(live.home, "observability")

    def up(self) -> Collected:
        self.live.home.create()
        self.live.home.config.write_text(SETTINGS)
        self.live.up("--restart", *SMALL, "--with", "observability")
        until(lambda: self.values() > 0, "samples arrive")
        return self

    @property
    def sockets(self) -> Path:
        found = self.live.home.known_socket_dir()
        assert found is not None
        return found

    @property
    def pid(self) -> int:
        found = self.plane.identity
        assert found is not None
        return found.pid

    def get(self, path: str) -> Any:
        """The collector's answer; None while it does not answer."""
        with suppress(OSError), closing(Socket(self.sockets / "observability.sock")) as connection:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        return None

    def part(self, name: str) -> dict[str, Any]:
        """What the collector says of a part; {} while it does not answer."""
        found = self.get("/v1/health") or {}
        values: dict[str, Any] = found.get("parts", {}).get(name, {})
        return values

    def values(self) -> int:
        """How many values it has received since it began."""
        return int(self.part("telemetry").get("values", {}).get("values_received", 0))

    def newest_age_ms(self) -> int:
        """How old what it knows of the node is."""
        found = self.get("/v1/nodes/latest") or {"age_ms": []}
        return min(found["age_ms"], default=1 << 60)

    def works(self) -> None:
        """A job runs to its end, its output is on the node, and the node is up."""
        ran = self.live.run("run", "--", "echo", "through", check=True)
        assert ran.out == "through\n"
        with self.live.client() as client:
            assert [str(node.state) for node in client.nodes()] == ["up"]

    def agent_rss_bytes(self) -> int:
        found = processes.agent(self.live.home, "n1").identity
        assert found is not None
        return rss_bytes_of(found.pid)

    def rss_bytes(self) -> int:
        """Of the collector."""
        return rss_bytes_of(self.pid)


def rss_bytes_of(pid: int) -> int:
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) << 10


@pytest.fixture
def collected(own_hal: LiveHal) -> Collected:
    return Collected(own_hal).up()


def test_killed_it_is_started_again_and_goes_on_with_what_it_had(collected: Collected) -> None:
    """History before its death is there after it, but for the last minute at most."""
    before = collected.pid
    with collected.live.client() as client:
        assert [one.name for one in client.planes()] == ["observability"]
    since = collected.get("/v1/series?node=n1&name=hal_node_cpus")["series"][0]["at_ms"][0]
    # A block is written about once a minute: wait for the first.
    database = collected.live.root / "observability" / "samples.sqlite"

    def written() -> bool:
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT 1 FROM block").fetchone())
        return False

    until(written, "a block was written")
    os.kill(before, signal.SIGKILL)
    collected.works()
    until(lambda: collected.values() > 0 and collected.pid != before, "samples arrive at the next one")
    series = collected.get("/v1/series?node=n1&name=hal_node_cpus")["series"]
    assert series[0]["at_ms"][0] == since
    collected.works()


def test_stopped_it_holds_up_nothing_and_catches_up(collected: Collected) -> None:
    """SIGSTOP: its sockets stay open and nobody reads. What the agent keeps is bounded; nothing of these minutes is
    lost while it has room."""
    rss_bytes = collected.agent_rss_bytes()
    os.kill(collected.pid, signal.SIGSTOP)
    try:
        for _ in range(5):
            collected.works()
        assert collected.agent_rss_bytes() - rss_bytes < 4 * MAX_QUEUED_BYTES
    finally:
        os.kill(collected.pid, signal.SIGCONT)
    until(lambda: collected.newest_age_ms() < 5_000, "it hears the node again")
    assert collected.part("telemetry")["values"]["values_dropped_by_senders"] == 0
    collected.works()


def test_while_its_database_is_locked_it_goes_on_and_says_so(collected: Collected) -> None:
    """Another process has locked samples.sqlite: health says that the part does not work, until it is let go."""
    path = collected.live.root / "observability" / "samples.sqlite"
    until(path.exists, "the database is there")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN EXCLUSIVE")
        until(lambda: collected.part("samples").get("works") is False, "the part says that it does not work")
        collected.works()
        assert collected.newest_age_ms() < 30_000
        other.execute("ROLLBACK")
    until(lambda: collected.part("samples").get("works") is True, "the part works again")
    assert collected.part("samples")["values"]["dropped_blocks"] == 0


@pytest.fixture
def small_disk(own_hal: LiveHal) -> Iterator[Path]:
    """A file system of 16 MiB for what the collector keeps."""
    place = own_hal.root / "observability"
    place.mkdir(mode=0o700, parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", place], capture_output=True)
    if made.returncode:
        pytest.skip("file systems cannot be mounted here: root only")
    yield place
    own_hal.run("down", "--kill")
    subprocess.run(["umount", "-l", place], check=True)


def test_while_its_disk_is_full_it_goes_on_and_says_so(small_disk: Path, collected: Collected) -> None:
    """Nothing can be written: newest values are answered all the same; with room again the part works."""
    fill = small_disk / "fill"
    with fill.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4_096))
    until(lambda: collected.part("samples").get("works") is False, "the part says that it does not work")
    collected.works()
    assert collected.newest_age_ms() < 30_000
    fill.unlink()
    until(lambda: collected.part("samples").get("works") is True, "the part works again")
    collected.works()


def test_one_that_floods_is_limited_and_the_node_is_heard_all_the_same(collected: Collected) -> None:
    """A sender writes as much as the socket takes: the collector stops reading it, and takes 2,000 lines a second."""
    frame = LogLines(batch=0, lines=tuple(LogLine(1, Severity.INFO, "noise", "x" * 200) for _ in range(2_000)))
    with closing(socket.socket(socket.AF_UNIX)) as flood:
        flood.connect(str(collected.sockets / "observability-wire.sock"))
        flood.sendall(encode(Hello(role=Role.AGENT, versions=SPOKEN, name="loud", boot_id="b", pid=1)))
        flood.setblocking(False)
        number = 0
        rest = memoryview(b"")

        def limited() -> bool:
            nonlocal number, rest
            with suppress(BlockingIOError):
                while True:
                    if not rest:
                        number += 1
                        rest = memoryview(encode(LogLines(batch=number, lines=frame.lines)))
                    rest = rest[flood.send(rest) :]
            return int(collected.part("telemetry").get("values", {}).get("senders_held_seconds", 0)) > 3

        until(limited, "it is limited")
        collected.works()
        until(lambda: limited() and collected.newest_age_ms() < 3_000, "the node is heard")
        before = collected.values()
        until(lambda: limited() and collected.values() > before, "samples of the node arrive")
    found = collected.part("telemetry")["values"]
    assert found["values_dropped_by_senders"] == 0
    assert collected.part("logs")["values"]["dropped_lines"] == 0
    assert collected.rss_bytes() < 512 << 20
