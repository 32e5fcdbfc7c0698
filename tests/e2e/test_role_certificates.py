"""Certificates of services by the commands that operators type, with a real `hal up --wire`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.e2e.conftest import LiveHal

pytestmark = pytest.mark.slow


def test_a_service_asks_for_its_certificate_renews_it_and_loses_it(own_hal: LiveHal, tmp_path: Path) -> None:
    """What docs/cluster.md shows: a token of the role, the request elsewhere, the list, the renewal, the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        wire = f"127.0.0.1:{probe.getsockname()[1]}"
    own_hal.up("--nodes", "0", "--wire", wire)
    who = ("--role", "service", "--name", "cache-1")
    made = own_hal.run("token", "create", *who, check=True)
    assert "hal certificate request DIRECTORY --role service --join - --controller" in made.err
    away = LiveHal(tmp_path / "away")
    place = tmp_path / "cache"
    ask = ("certificate", "request", place, *who, "--join", "-", "--controller", wire)
    given = json.loads(away.run(*ask, "--json", text=made.out, check=True).out)
    assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == {
        "authority.pem": 0o600, "certificate.pem": 0o600
    }  # fmt: skip
    again = away.run(*ask, text=made.out)
    assert (again.code, "has a certificate of service 'cache-1'" in again.err) == (6, True), again.err
    renew = ("certificate", "renew", place, "--controller", wire)
    early = away.run(*renew, "--json", check=True)
    assert (json.loads(early.out)["serial"], "it is due for renewal at" in early.err) == (given["serial"], True)
    assert json.loads(away.run(*renew, "--now", "--json", check=True).out)["serial"] != given["serial"]
    listed = own_hal.run("certificate", "list", "--role", "service", check=True).out
    assert listed.count("cache-1") == 2
    assert own_hal.run("certificate", "revoke", "service", "cache-1", check=True).out.count("revoked") == 2
    refused = away.run(*renew, "--now")
    assert (refused.code, "the certificate of service 'cache-1' was revoked" in refused.err) == (4, True), refused.err
