"""The audit log of a real HAL against whoever wants it to forget (M2, attempt 64)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

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
