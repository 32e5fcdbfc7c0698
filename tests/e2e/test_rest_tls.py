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
from tests.e2e.conftest import DEADLINE_S, LiveHal, until

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


def test_the_collector_is_asked_from_another_machine_as_the_controller_is(own_hal: LiveHal, tmp_path: Path) -> None:
    """Bob has logged in with the fingerprint and a token; the controller says where its collector is. He sees what is
    his, an operator all, a wrong token nothing; and with another fingerprint nobody is believed."""
    port, listen = free_port(), free_port()
    own_hal.home.create()
    own_hal.home.config.write_text(f'[server]\ntls = true\n[observability]\nlisten = "127.0.0.1:{listen}"\n')
    own_hal.run("up", "--restart", *SMALL, "--tcp", port, "--with", "observability", check=True)
    url, fingerprint = f"https://127.0.0.1:{port}", json.loads(own_hal.run("status", "--json").out)["fingerprint"]
    tokens = {
        name: own_hal.run("api-token", "create", name, "--role", role, check=True).out.strip()
        for name, role in (("bob", "user"), ("olga", "operator"))
    }
    away = LiveHal(tmp_path / "away")
    away.environment.pop("HAL_HOME")
    away.environment |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    away.run("login", url, "--fingerprint", fingerprint, text=tokens["bob"], check=True)
    mine = away.run("run", "-q", "--", "echo", "tangerine", check=True, HAL_TOKEN=tokens["bob"])
    assert mine.out == "tangerine\n"
    own_hal.run("run", "-q", "-u", "ada", "--", "echo", "tangerine", check=True)

    def used(name: str, *words: str) -> set[str]:
        ran = away.run("usage", "--by", "user", "--json", *words, HAL_TOKEN=tokens[name])
        return {row["key"] for row in json.loads(ran.out)["rows"]} if ran.code == 0 else {ran.err}

    until(lambda: used("olga") == {"ada", "bob"}, "an operator sees all")
    assert used("bob") == {"bob"}
    there = f"https://localhost:{listen}"
    assert used("bob", "--collector", there) == {"bob"}
    until(lambda: len(found_lines(away, tokens["olga"])) == 2, "both outputs are found")
    assert [line["user"] for line in found_lines(away, tokens["bob"])] == ["bob"]
    assert "attempt" in away.run("trace", "1", check=True, HAL_TOKEN=tokens["bob"]).out
    assert "there is no job 2" in away.run("trace", "2", HAL_TOKEN=tokens["bob"]).err
    away.run("alerts", check=True, HAL_TOKEN=tokens["bob"])
    assert "observability: " in away.run("status", HAL_TOKEN=tokens["bob"]).out
    assert "operator" in away.run("alert", "test", HAL_TOKEN=tokens["bob"]).err
    refused = away.run("usage", HAL_TOKEN="hal_nobody", HAL_COLLECTOR=there)
    assert refused.code != 0
    away.environment |= {"HAL_URL": url, "XDG_CONFIG_HOME": str(tmp_path / "none"), "HAL_TOKEN": tokens["olga"]}
    assert away.run("usage", "--collector", there, HAL_FINGERPRINT="sha256:" + "0" * 64).code != 0
    assert away.run("usage", "--collector", there, HAL_FINGERPRINT=fingerprint).code == 0
    assert not spoken(listen, ssl.TLSVersion.TLSv1_2)
    (plane,) = json.loads(own_hal.run("status", "--json").out)["planes"]
    assert plane["warnings"] == []


def found_lines(live: LiveHal, token: str) -> list[dict[str, str]]:
    """Lines of jobs that a search finds."""
    ran = live.run("logs", "--search", "tangerine", "--component", "step", "--json", HAL_TOKEN=token)
    return json.loads(ran.out) if ran.code == 0 else []


def test_a_collector_whose_port_is_taken_serves_its_machine_and_says_so(own_hal: LiveHal) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        own_hal.home.create()
        own_hal.home.config.write_text(f'[server]\ntls = true\n[observability]\nlisten = "{where}"\n')
        own_hal.run("up", "--restart", *SMALL, "--tcp", free_port(), "--with", "observability", check=True)
        until(lambda: own_hal.run("usage").code == 0, "it answers on its machine")
        assert "its REST is not served on the network" in own_hal.run("status").out
