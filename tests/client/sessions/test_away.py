"""Workers whose broker's machine does not answer give their slots back, for as long as it may come back."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.runtime.away_since import AwaySince
from hal.runtime.exchange import AWAY, MEMORY, PREFIX
from hal.runtime.session_certificates import over_network
from hal.runtime.session_file import new_session_file, private_directory, write_session_file
from tests.client.sessions.processes import WAIT_S

NO_MACHINE = "tcp:255.255.255.255:7"
"""The kernel refuses to connect to it."""


@pytest.mark.slow
def test_a_worker_takes_a_session_for_over_whose_brokers_machine_stays_away() -> None:
    """First it gives its slot back (75); once a second has passed since, it ends the job of the slots (0), and no file
    stays."""
    directory = private_directory()
    broker, others = over_network(new_session_file(directory), NO_MACHINE, time.time_ns() // 1_000_000)
    session = replace(others, dial=(NO_MACHINE,), away_s=1)
    write_session_file(directory / "session.json", session)
    argv = [sys.executable, "-m", "hal.daemons.worker", "--session", str(directory / "session.json")]
    noted = MEMORY / f"{PREFIX}{broker.id}{AWAY}"
    codes = []
    while not codes or (codes[-1] == 75 and len(codes) < 10):
        codes.append(subprocess.run(argv, stderr=subprocess.DEVNULL, timeout=3 * WAIT_S).returncode)
        assert noted.exists() == (codes[-1] == 75)
    assert (codes[0], codes[-1]) == (75, 0)
    shutil.rmtree(directory)


def test_it_counts_from_the_first_time_and_anew_when_one_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hal.runtime.away_since.MEMORY", tmp_path)
    now = [1_000.0]
    monkeypatch.setattr("hal.runtime.away_since.time.time", lambda: now[0] + time.time_ns() / 1e9)
    one, other = AwaySince("s", 10.0), AwaySince("s", 10.0)
    now[0] = 0.0
    assert not one.is_long()
    now[0] = 9.0
    assert not other.is_long()
    other.end()
    now[0] = 11.0
    assert not one.is_long()
    now[0] = 22.0
    assert one.is_long()
    assert not list(tmp_path.iterdir())
