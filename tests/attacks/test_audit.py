"""The audit log of a real HAL against whoever wants it to forget (M2, attempt 64)."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hal.cli.main import main
from tests.attacks.other_user import ALICE, as_user
from tests.attacks.test_terminals import free_port
from tests.e2e.conftest import LiveHal

SENT = 1_500
"""More than a user may send at once; those behind them are answered 429."""


def send(live: LiveHal, headers: Mapping[str, str], path: str, body: bytes) -> list[int]:
    """The statuses of many equal requests, one after the other on few connections."""
    with live.client() as client:
        url = urlsplit(client.health().rest.split()[-1])
    statuses = []
    connection = http.client.HTTPConnection(url.hostname or "", url.port or 0, timeout=60)
    for number in range(SENT):
        try:
            connection.request("POST", path.replace("*", str(number)), body, dict(headers))
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        except (http.client.HTTPException, OSError):  # strangers are hung up on
            connection.close()
    connection.close()
    return statuses


def taken(live: LiveHal) -> int:
    """Bytes of the whole log."""
    return sum(file.stat().st_size for file in (live.root / "log/audit").iterdir())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs/cancel", json.dumps({"ids": [f"{number}" + "x" * 195 for number in range(20)]}).encode()),
        ("/v1/jobs/*%1b%5b2J" + "y" * 2_000, b"{}"),
    ],
)
def test_a_user_cannot_flush_the_audit_log(own_hal: LiveHal, path: str, body: bytes) -> None:
    """(M2, attempt 64) What bob did is still told behind 1,500 requests of mallory's, which take little room."""
    (own_hal.root / "hal.toml").write_text("[audit]\nmax_bytes = 1048576\n")
    own_hal.up("--nodes", "1", "--cpus", "1", "--memory", "1GiB", "--tcp", str(free_port()))
    secrets = {user: own_hal.run("api-token", "create", user, check=True).out.strip() for user in ("bob", "mallory")}
    with own_hal.client() as client:
        url = client.health().rest.split()[-1]
    own_hal.run("run", "--detach", "--url", url, "--", "true", check=True, HAL_TOKEN=secrets["bob"])
    before = taken(own_hal)
    statuses = send(own_hal, {"Authorization": f"Bearer {secrets['mallory']}"}, path, body)
    assert all(status >= 400 or path == "/v1/jobs/cancel" for status in statuses)
    if min(statuses) >= 400:
        assert taken(own_hal) - before < 20_000
    stranger = send(own_hal, {"Authorization": "Bearer hal_x_y"}, path, body)
    assert set(stranger) <= {400, 401, 413, 429, 431}
    assert taken(own_hal) < 1 << 20
    found = own_hal.run("audit", "--user", "bob", check=True).out
    assert "POST /v1/jobs" in found
    assert "\x1b" not in own_hal.run("audit", "-n", "1000", check=True).out


def test_numbers_ascend_and_go_on_after_a_restart(own_hal: LiveHal) -> None:
    """Entries of several users, before and behind `hal down`: one order, nothing twice."""
    own_hal.up("--nodes", "0")
    own_hal.run("api-token", "create", "ada", check=True)
    own_hal.run("down", check=True)
    own_hal.up("--nodes", "0")
    own_hal.run("api-token", "create", "bob", check=True)
    entries = [json.loads(line) for line in own_hal.run("audit", "-o", "json", check=True).out.splitlines()]
    numbers = [entry["sequence"] for entry in entries]
    assert numbers == sorted(set(numbers))
    assert [entry["targets"][0].split()[-1] for entry in entries if entry["path"] == "/v1/api-tokens"] == ["ada", "bob"]


def test_an_old_copy_of_the_log_in_its_place_is_noticed_by_the_store(own_hal: LiveHal, tmp_path: Path) -> None:
    """Whoever may write HAL's files puts back the log of an hour ago, chain and all, while HAL is down: from the files
    alone it looks intact, and HAL goes on with it."""
    own_hal.up("--nodes", "0")
    own_hal.run("api-token", "create", "ada", check=True)
    own_hal.run("audit", "head", check=True)
    log = own_hal.root / "log/audit"
    shutil.copytree(log, tmp_path / "old")
    own_hal.run("api-token", "create", "mallory", "--role", "admin", check=True)
    second = own_hal.run("audit", "head", check=True).out.strip()
    own_hal.run("down", check=True)
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "old", log)
    assert own_hal.run("audit", "verify", log).code == 0
    own_hal.up("--nodes", "0")
    own_hal.run("api-token", "create", "bob", check=True)
    found = own_hal.run("audit", "verify")
    assert found.code == 1
    assert f"the head {second}" in found.out


def test_an_entry_that_is_taken_out_of_a_running_log_is_named(own_hal: LiveHal) -> None:
    """Mallory's token is erased from the log; later entries and a restart do not cover it."""
    own_hal.up("--nodes", "0")
    for user in ("ada", "mallory", "bob"):
        own_hal.run("api-token", "create", user, check=True)
    assert own_hal.run("audit", "verify").code == 0
    (file,) = (own_hal.root / "log/audit").glob("user-*")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if b"mallory" not in line))
    own_hal.run("down", check=True)
    own_hal.up("--nodes", "0")
    own_hal.run("api-token", "create", "eve", check=True)
    found = own_hal.run("audit", "verify")
    assert (found.code, found.out.splitlines()[0].split(": ", 1)[1]) == (
        1,
        f"removed: {file.name.rsplit('.', 2)[0]}: line 2 (entry 3)",
    )


def test_a_stranger_of_the_machine_learns_nothing_from_a_check_of_anothers_hal(
    own_hal: LiveHal, capfd: pytest.CaptureFixture[str]
) -> None:
    """Alice looks at root's HAL: what cannot be seen is said, exit code 4; a prepared token is not read."""
    own_hal.up("--nodes", "0", "--tcp", str(free_port()))
    (own_hal.root / "token").chmod(0o644)
    words = ["--home", str(own_hal.root), "security", "check"]
    assert main(words) == 1  # root finds it, and what the command imports is there for Alice
    capfd.readouterr()
    assert as_user(ALICE, lambda: main(words)) == 4
    out, _ = capfd.readouterr()
    assert "you may not look there" in out
    assert (own_hal.root / "token").read_text().strip() not in out
    assert "open to others" not in out
