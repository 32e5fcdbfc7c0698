"""Directories of sessions for large payloads: whose stay, and whose are removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hal.runtime import exchange
from hal.runtime.exchange import KEPT, LOCK, named, payload_of
from hal.runtime.payload_files import PayloadFiles


def made_by_a_dead_broker(parent: Path, session: str, *, kept: str = "") -> Path:
    code = (
        "import sys; from pathlib import Path; from hal.runtime import exchange\n"
        "exchange.MEMORY = Path(sys.argv[1])\n"
        "print(exchange.make_exchange(sys.argv[2], Path('/nowhere'), kept=sys.argv[3]))"
    )
    words = [sys.executable, "-c", code, str(parent), session, kept]
    path = Path(subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip())
    (path / "c1-w-1").write_bytes(b"payload")
    return path


def test_what_dead_brokers_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five brokers: one lives, two of durable sessions have died, the journal of one is gone, one is about to start,
    and one has died."""
    monkeypatch.setattr(exchange, "MEMORY", tmp_path)
    journal = tmp_path / "journal"
    journal.mkdir()
    living = exchange.make_exchange("living", tmp_path)
    durable = made_by_a_dead_broker(tmp_path, "durable", kept=str(journal))
    forgotten = made_by_a_dead_broker(tmp_path, "forgotten", kept=str(tmp_path / "gone"))
    dead = made_by_a_dead_broker(tmp_path, "dead")
    starting = tmp_path / "hal-session-starting"
    starting.mkdir(mode=0o700)
    exchange.make_exchange("next", tmp_path)
    assert not dead.exists()
    assert not forgotten.exists()
    assert all(path.is_dir() for path in (living, durable, starting))


def test_a_directory_that_others_can_open_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is none that a broker made."""
    monkeypatch.setattr(exchange, "MEMORY", tmp_path)
    strange = made_by_a_dead_broker(tmp_path, "strange")
    strange.chmod(0o755)
    exchange.make_exchange("next", tmp_path)
    assert (strange / "c1-w-1").exists()


@pytest.mark.parametrize(
    "name", [KEPT, "turn", LOCK, "c1", "cx-1", "c1-", "../c1-a-1", "c1-a/b", "c1-\N{SUPERSCRIPT TWO}"]
)
def test_files_of_the_session_itself_are_no_payloads(tmp_path: Path, name: str) -> None:
    """They are neither read nor written nor removed for a process of another machine."""
    files = PayloadFiles(tmp_path)
    (tmp_path / KEPT).write_text("journal")
    for call in (lambda: list(files.read(name, 10)), lambda: files.begin(name, 4), lambda: named(payload_of(name, 4))):
        with pytest.raises(OSError, match="not the name"):
            call()
    files.remove(name)
    assert [path.name for path in tmp_path.iterdir()] == [KEPT]


def test_a_payload_that_is_cut_names_no_file() -> None:
    """Nor does one whose name is no text."""
    for payload in (b"\1", payload_of("c1-a-1", 4)[:5], payload_of("", 4) + b"\xff"):
        with pytest.raises(OSError, match="not "):
            named(payload)
