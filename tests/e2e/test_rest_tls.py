"""REST over TLS: HAL's own authority by its fingerprint, or the site's certificate; nothing less than TLS 1.3."""

from __future__ import annotations

import json
import socket
import ssl
import time
from pathlib import Path

import pytest

import hal
from hal.runtime.authority import open_authority
from tests.e2e.conftest import DEADLINE_S, LiveHal

pytestmark = pytest.mark.slow

SMALL = ("--cpus", "2", "--memory", "1GiB")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def spoken(port: int, version: ssl.TLSVersion) -> bool:
    """Whether a handshake in that version comes about."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    try:
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as plain, context.wrap_socket(plain):
            return True
    except (ssl.SSLError, ConnectionError):
        return False


def test_people_elsewhere_log_in_over_tls(own_hal: LiveHal, tmp_path: Path) -> None:
    """With the fingerprint that `hal status` tells; without it nobody is believed, and another one is refused. With a
    certificate of the site's, whoever believes its authority needs no fingerprint, and who has it is as before."""
    port = free_port()
    site = open_authority(tmp_path / "site", time.time_ns() // 1_000_000)
    site.certify_rest(["localhost"], time.time_ns() // 1_000_000)
    own_hal.home.create()
    own_hal.home.config.write_text(
        f'[server]\ntls = true\ntls_cert = "{site.rest_file}"\ntls_key = "{site.rest_file}"\n'
    )
    up = own_hal.run("up", *SMALL, "--tcp", port, check=True)
    report = json.loads(own_hal.run("status", "--json").out)
    url, fingerprint = f"https://127.0.0.1:{port}", report["fingerprint"]
    assert report["rest"] == url
    assert f"hal login {url} --fingerprint {fingerprint}" in up.out
    secret = own_hal.run("api-token", "create", "bob", check=True).out.strip()
    away = LiveHal(tmp_path / "away")
    away.environment.pop("HAL_HOME")
    away.environment |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}

    unknown = away.run("login", url, text=secret)
    assert (unknown.code, "--fingerprint sha256:" in unknown.err) == (4, True), unknown.err
    wrong = away.run("login", url, "--fingerprint", "sha256:" + 64 * "0", text=secret)
    assert (wrong.code, "belongs to another HAL" in wrong.err) == (4, True), wrong.err
    with pytest.raises(hal.SpecError, match=f"write {url}"):
        hal.connect(url=url.replace("https", "http"), token=secret)

    nobody = f"https://127.0.0.1:{free_port()}"
    known = away.run("login", f"{nobody},{url}", "--fingerprint", fingerprint, text=secret, check=True)
    assert "as bob (user)" in known.err
    assert nobody in known.err
    assert secret not in known.err
    assert away.run("run", "--", "echo", "hi").out == "hi\n"

    # With the site's authority among those of this machine nothing else need be said.
    believed = {"SSL_CERT_FILE": str(tmp_path / "site" / "authority.pem")}
    away.run("login", f"https://localhost:{port}", text=secret, check=True, **believed)
    assert away.run("whoami").code == 4

    with hal.connect(url=url, token=secret, fingerprint=fingerprint) as client:
        assert client.submit(["true"]).wait(DEADLINE_S).state == "succeeded"
    assert spoken(port, ssl.TLSVersion.TLSv1_3)
    assert not spoken(port, ssl.TLSVersion.TLSv1_2)
    logs = [file.read_text() for file in own_hal.home.log_dir.iterdir() if file.is_file()]
    assert not any(secret.rpartition("_")[2] in text for text in logs)
