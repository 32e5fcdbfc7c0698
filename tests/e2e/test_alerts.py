"""Alerts on a real HAL with a collector: a node is lost; mail, webhook and Alertmanager say so; it returns."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hal.client.rest import plane_calls
from hal.core.model.config_sections import read_own
from hal.core.model.observability_config import OBSERVABILITY
from tests.daemons.controller.notices.servers import MailServer, WebServer, served
from tests.e2e.conftest import LiveHal, until
from tests.e2e.test_documents import blocks, run_page

ALERTMANAGER = shutil.which("prometheus-alertmanager")
pytestmark = pytest.mark.slow
SETTINGS = """
[observability.alerts]
cluster = "test"
every = "1s"
wait = "0s"
interval = "0s"
node_down = "1s"
smtp = "127.0.0.1:{mail}"
smtp_security = "none"
sender = "hal@example.org"

[[observability.alerts.routes]]
name = "mail"
kind = "mail"
to = ["ops@example.org"]

[[observability.alerts.routes]]
name = "hook"
kind = "webhook"
url_file = "{url_file}"
token_file = "{token_file}"
"""
MANAGER = """
[[observability.alerts.routes]]
name = "manager"
kind = "alertmanager"
url = "http://127.0.0.1:{port}"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def alertmanager(directory: Path) -> Iterator[int]:
    """Debian's, on a port of its own."""
    port = free_port()
    config = directory / "alertmanager.yml"
    config.write_text("route:\n  receiver: nobody\nreceivers:\n  - name: nobody\n")
    words = [
        str(ALERTMANAGER), f"--config.file={config}", f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: managed(port) is not None, "the Alertmanager did not answer")
        yield port
    finally:
        process.kill()
        process.wait()


def managed(port: int) -> list[dict[str, Any]] | None:
    """The alerts that an Alertmanager has; None: it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/alerts", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found
    except OSError:
        return None


def listed(hal: LiveHal) -> dict[str, dict[str, Any]]:
    """`hal alerts --all`, by rule."""
    ran = hal.run("alerts", "--all", "-o", "json")
    return {one["rule"]: one for one in json.loads(ran.out)["alerts"]} if ran.code == 0 else {}


def process_of(hal: LiveHal, name: str) -> int:
    return int(json.loads((hal.home.run_dir / f"{name}.pid").read_text())["pid"])


@pytest.mark.skipif(ALERTMANAGER is None, reason="Alertmanager is not installed")
@pytest.mark.timeout(300)
def test_a_lost_node_is_told_everywhere_and_so_is_its_return(own_hal: LiveHal, tmp_path: Path) -> None:
    mail, web = MailServer(), WebServer()
    with served(mail, web), alertmanager(tmp_path) as port:
        own_hal.root.mkdir(exist_ok=True)
        (tmp_path / "url").write_text(f"{web.url}\n")
        (tmp_path / "token").write_text("hush-hush\n")
        settings = SETTINGS.format(mail=mail.port, url_file=tmp_path / "url", token_file=tmp_path / "token")
        (own_hal.root / "hal.toml").write_text(settings + MANAGER.format(port=port))
        own_hal.up("--restart", "--nodes", "2", "--cpus", "1", "--memory", "1GiB", "--with", "observability")

        os.kill(process_of(own_hal, "agent-n2"), signal.SIGSTOP)
        until(lambda: any(one["Subject"].startswith("[HAL] firing: ") for one in mail.mails), "no mail came")
        until(lambda: any(one["state"] == "firing" for one in web.bodies), "no webhook came")
        until(lambda: any(one["labels"]["alertname"] == "NodesDown" for one in managed(port) or []), "not managed")
        (alert,) = [one for one in managed(port) or [] if one["labels"]["alertname"] == "NodesDown"]
        assert (alert["labels"]["hal"], alert["annotations"]["detail"]) == ("test", "n2")
        assert (alert["status"]["state"], alert["labels"]["severity"]) == ("active", "critical")
        assert "n2" in mail.mails[0].get_content()
        assert mail.recipients[0] == "ops@example.org"
        assert "Authorization: Bearer hush-hush" in web.heads[0]
        assert listed(own_hal)["NodesDown"]["state"] == "firing"

        os.kill(process_of(own_hal, "agent-n2"), signal.SIGCONT)
        until(lambda: any(one["Subject"].startswith("[HAL] resolved: ") for one in mail.mails), "no end was mailed")
        until(lambda: web.bodies[-1]["state"] == "resolved", "no end was posted")
        until(lambda: not [one for one in managed(port) or [] if one["labels"]["alertname"] == "NodesDown"], "managed")
        assert listed(own_hal)["NodesDown"]["state"] == "resolved"

        logs = b"".join(path.read_bytes() for path in (own_hal.root / "log").rglob("*") if path.is_file())
        assert b"hush" not in logs


@pytest.mark.timeout(300)
def test_silences_outlive_the_collector(own_hal: LiveHal, tmp_path: Path) -> None:
    """What is silenced is listed and told to nobody, also after the collector was killed, until it is ended."""
    mail, web = MailServer(), WebServer()
    with served(mail, web):
        own_hal.root.mkdir(exist_ok=True)
        (tmp_path / "url").write_text(web.url)
        (tmp_path / "token").write_text("hush")
        settings = SETTINGS.format(mail=mail.port, url_file=tmp_path / "url", token_file=tmp_path / "token")
        (own_hal.root / "hal.toml").write_text(settings)
        own_hal.up("--restart", "--nodes", "2", "--cpus", "1", "--memory", "1GiB", "--with", "observability")
        assert "taken" in own_hal.run("alert", "test", "hook", check=True).out
        assert own_hal.run("alert", "test", "nobody").code == 3
        made = own_hal.run("alert", "silence", "rule=Nodes*", "--for", "1h", "-m", "switch", check=True)
        assert made.out.startswith("silence 1 until ")

        os.kill(process_of(own_hal, "agent-n2"), signal.SIGSTOP)
        until(lambda: listed(own_hal).get("NodesDown", {}).get("state") == "firing", "it did not fire")
        assert listed(own_hal)["NodesDown"]["silence"] == 1

        nice = {
            name: os.getpriority(os.PRIO_PROCESS, process_of(own_hal, name)) for name in ("observability", "controller")
        }
        assert nice["observability"] > nice["controller"]  # it gives way to what it watches
        os.kill(process_of(own_hal, "observability"), signal.SIGKILL)
        until(lambda: listed(own_hal).get("NodesDown", {}).get("silence") == 1, "the silence is gone")
        assert [one["rule"] for one in web.bodies] == ["Test"]

        own_hal.run("alert", "unsilence", "1", check=True)
        until(lambda: web.bodies[-1]["rule"] == "NodesDown", "it was not told")
        assert "yes" not in own_hal.run("alert", "silences", check=True).out
        assert "rule=Nodes*" in own_hal.run("alert", "silences", check=True).out
        assert "NodesDown" in own_hal.run("alert", "rules", check=True).out
        assert own_hal.run("alert", "silence", "nonsense", "--for", "1h").code == 2
        os.kill(process_of(own_hal, "agent-n2"), signal.SIGCONT)


@pytest.mark.timeout(300)
def test_the_commands_of_the_page_about_alerts_work(own_hal: LiveHal, tmp_path: Path) -> None:
    """docs/alerts.md; its rules are what Prometheus takes."""
    own_hal.up("--restart", "--name", "n1", "--cpus", "1", "--memory", "1GiB", "--with", "observability")
    out = run_page("docs/alerts.md", own_hal, tmp_path)
    assert "switch" in out
    assert (tmp_path / "hal-rules.yml").read_text().startswith("groups:")


def test_the_settings_of_the_page_about_alerts_are_taken() -> None:
    (text,) = blocks("docs/alerts.md", "toml")
    section = read_own(text, OBSERVABILITY, "hal.toml").alerts
    assert [route.kind for route in section.routes] == ["mail", "slack", "webhook", "alertmanager"]


@pytest.mark.timeout(300)
def test_a_user_reads_alerts_and_silences_nothing(own_hal: LiveHal) -> None:
    own_hal.up("--restart", "--name", "n1", "--cpus", "1", "--memory", "1GiB", "--with", "observability")
    secret = (
        own_hal.run("api-token", "create", "viewer", "--role", "user", "-q", check=True).out.strip().splitlines()[-1]
    )
    sock = own_hal.home.api_socket().with_name("observability.sock")
    url = f"unix://{sock}"

    def asked(*words: str) -> tuple[int, str]:
        ran = subprocess.run(
            own_hal.command(*words, "--collector", url), capture_output=True, text=True, check=False,
            env={**own_hal.environment, "HAL_URL": f"unix://{own_hal.home.api_socket()}", "HAL_TOKEN": secret},
        )  # fmt: skip
        return ran.returncode, ran.stdout + ran.stderr

    code, text = asked("alerts", "-o", "json")
    assert (code, json.loads(text)["routes"]) == (0, [])
    code, text = asked("alert", "silence", "rule=*", "--for", "1h")
    assert (code, "operator" in text) == (4, True), text


def test_a_plane_that_is_a_process_of_its_own_and_dies_is_an_alert(own_hal: LiveHal) -> None:
    """A program announces itself for a second at a time, then no more; that which says that it goes is none."""
    own_hal.home.config.write_text('[observability.alerts]\nevery = "1s"\n')
    own_hal.up("--restart", "--name", "n1", "--cpus", "1", "--memory", "1GiB", "--with", "observability")
    with own_hal.client() as client:
        client.call(plane_calls.announce("prices", wire=["h:1"], expires_in=1))
        client.call(plane_calls.announce("gone", wire=["h:2"], expires_in=60))
        client.call(plane_calls.withdraw("gone"))
    until(lambda: "PlaneDead" in listed(own_hal), "it is an alert")
    assert listed(own_hal)["PlaneDead"]["labels"] == {"plane": "prices"}
    with own_hal.client() as client:
        client.call(plane_calls.announce("prices", wire=["h:1"], expires_in=60))
    until(lambda: "PlaneDead" not in listed(own_hal), "it was only pending, and is over")
