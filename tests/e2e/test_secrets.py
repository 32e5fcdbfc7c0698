"""Secrets on a real HAL: a job reads one, and nothing that HAL writes, runs or leaves behind contains it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.store.schema import metadata
from tests.e2e.conftest import Gate, LiveHal, until
from tests.e2e.test_documents import run_page
from tests.postgres_server import PostgresServer, database_of

TABLES = [table.name for table in metadata.sorted_tables]
READ = "sha256sum < $HAL_SECRETS_DIR/db"


def spellings(secret: bytes) -> list[bytes]:
    """The value, and what is certain of it in hexadecimal and in base64 at any offset."""
    found = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    for offset in range(3):
        # The first and last group of four also depend on what is beside it.
        found.append(b64encode(b"\0" * offset + secret)[4:-4])
    return found


def holders(secret: bytes, texts: Iterator[tuple[str, bytes]]) -> list[str]:
    """Where one of its spellings is."""
    wanted = spellings(secret)
    return [where for where, text in texts if any(one in text for one in wanted)]


def files_below(*roots: Path) -> Iterator[tuple[str, bytes]]:
    """Every regular file."""
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield str(path), path.read_bytes()


def processes_of(live: LiveHal) -> Iterator[tuple[str, bytes]]:
    """Arguments and variables of every process that knows this home."""
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            variables = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if str(live.root).encode() in arguments + variables:
            yield f"process {pid}", arguments + b"\0" + variables


def base_of(live: LiveHal) -> Path:
    """The directory in memory where the node's steps find secrets."""
    return Path((live.home.node("n1").secrets).read_text().strip())


def left_in(base: Path) -> list[str]:
    """What is in it, if it is there."""
    return os.listdir(base) if base.exists() else []


def kill(live: LiveHal, *processes: str) -> None:
    """End these at once, and wait until they are gone."""
    for name in processes:
        pid = int(json.loads(live.home.pid_file(name).read_text())["pid"])
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not _runs(pid), f"{name} ends")  # type: ignore[misc]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_secret_is_in_nothing_that_hal_wrote(
    own_hal: LiveHal, gate: Gate, tmp_path: Path, request: pytest.FixtureRequest, store: str
) -> None:
    """Used, replaced, its daemons killed, its key changed, backed up: only steps have seen it."""
    dumped: list[tuple[str, bytes]] = []
    server: PostgresServer | None = None
    if store == "postgresql":
        server = request.getfixturevalue("postgres")
        url = server.fresh()
        own_hal.root.mkdir(exist_ok=True)
        (own_hal.root / "hal.toml").write_text(f'[store]\nurl = "{url}"\n')
    secret = secrets.token_bytes(48)
    (tmp_path / "value").write_bytes(secret)
    own_hal.up("--cpus", "2", "--memory", "1GiB")
    own_hal.run("secret", "set", "db", "--from-file", tmp_path / "value", check=True)
    (tmp_path / "value").unlink()
    digest = hashlib.sha256(secret).hexdigest()
    assert digest in own_hal.run("run", "--secret", "db", "--", "sh", "-c", READ, check=True).out
    job = own_hal.run("submit", "--secret", "db", "--", *gate.command(READ), check=True).out.strip()
    gate.started()
    own_hal.run("secret", "rotate-key", check=True)
    own_hal.run("backup", tmp_path / "backup.sqlite", check=True)
    kill(own_hal, "agent-n1", "keeper-n1", "controller")
    base = base_of(own_hal)
    assert (base / f"{job}.0.1.0" / "db").read_bytes() == secret
    own_hal.up("--cpus", "2", "--memory", "1GiB")
    gate.open()
    own_hal.run("wait", job, check=True)
    assert digest in own_hal.run("logs", job, check=True).out
    if server is not None:
        with server.admin(database_of(url)) as connection:
            dumped = [(name, repr(connection.execute(f"SELECT * FROM {name}").fetchall()).encode()) for name in TABLES]
        assert any(b"secret/user/" in text for _, text in dumped)
    assert holders(secret, processes_of(own_hal)) == []
    assert holders(secret, files_below(own_hal.root, tmp_path)) == []
    assert holders(secret, iter(dumped)) == []
    until(lambda: not left_in(base), "its files are gone")


@pytest.mark.slow
def test_what_a_killed_node_left_is_removed_when_it_is_started_again(own_hal: LiveHal, gate: Gate) -> None:
    """Agent, keeper and every process of the step end at once; the next agent finds what is left."""
    own_hal.up("--cpus", "2", "--memory", "1GiB")
    own_hal.run("secret", "set", "db", text="hunter2", check=True)
    job = own_hal.run("submit", "--secret", "db", "--", *gate.command(), check=True).out.strip()
    gate.started()
    base = base_of(own_hal)
    left = base / f"{job}.0.1.0" / "db"
    kill(own_hal, "agent-n1", "keeper-n1")
    own_hal.run("cancel", job, check=True)
    assert left.read_bytes() == b"hunter2"
    own_hal.up("--cpus", "2", "--memory", "1GiB")
    until(lambda: not left_in(base), "its files are gone")


def test_the_example_of_secrets_works(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/secrets.md: set, used, replaced, removed, refused."""
    out = run_page("docs/secrets.md", shared_hal, tmp_path)
    assert "db-password of user" in out
    assert "\n13\n" in out
    assert "version 2" in out
    assert out.rstrip().endswith("refused: exit code 2")
