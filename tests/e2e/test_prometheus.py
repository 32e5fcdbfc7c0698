"""Debian's Prometheus scrapes a real HAL as docs/monitoring.md says, over TLS with a token, and takes native
histograms."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LiveHal, until
from tests.e2e.test_documents import run_page

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="Prometheus is not installed"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(config: Path, *flags: str) -> Iterator[str]:
    """A server with that file; its URL."""
    port = free_port()
    command = [
        str(PROMETHEUS),
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={config.parent / 'data'}",
        *flags,
    ]
    with (
        (config.parent / "prometheus.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def ask(url: str, expression: str) -> list[dict[str, Any]]:
    """The result of an expression now; nothing while the server is not ready."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def value(url: str, expression: str) -> float:
    """Of the only series; 0 while there is none."""
    found = ask(url, expression)
    return float(found[0]["value"][1]) if found else 0.0


def test_prometheus_scrapes_hal_as_the_page_says(own_hal: LiveHal, tmp_path: Path) -> None:
    """Counters and gauges arrive; a histogram is a native one, of which quantiles are asked without buckets."""
    own_hal.root.mkdir(exist_ok=True)
    (own_hal.root / "hal.toml").write_text("[server]\ntls = true\n")
    port = free_port()
    own_hal.up("--tcp", str(port))
    own_hal.run("run", "--array", "20", "--", "true", check=True)
    run_page("docs/monitoring.md", own_hal, tmp_path, INTERVAL="200ms", CONTROLLER=f"127.0.0.1:{port}")
    with prometheus(tmp_path / "prometheus.yml", "--enable-feature=native-histograms") as url:
        until(lambda: value(url, "up") == 1, "Prometheus has scraped HAL")
        until(lambda: value(url, "hal_store_size_bytes") > 0, "the size of the store was read")
        assert value(url, 'hal_attempts_ended_total{result="succeeded"}') == 20
        assert value(url, 'hal_resource_capacity{resource="cpu"}') >= 1
        assert value(url, 'hal_certificate_expiry_timestamp_seconds{certificate="rest"} - time()') > 86_400
        until(lambda: value(url, "histogram_count(hal_submit_to_start_seconds)") == 20, "a native histogram has come")
        assert 0 < value(url, "histogram_quantile(0.9, hal_submit_to_start_seconds)") < 600
        assert not ask(url, "hal_submit_to_start_seconds_bucket")


def test_a_server_without_native_histograms_gets_classic_ones(own_hal: LiveHal, tmp_path: Path) -> None:
    """From the same counts: buckets at powers of two. Without TLS, on loopback."""
    port = free_port()
    own_hal.up("--tcp", str(port))
    own_hal.run("run", "--array", "20", "--", "true", check=True)
    run_page("docs/monitoring.md", own_hal, tmp_path, INTERVAL="200ms", CONTROLLER=f"127.0.0.1:{port}")
    config = tmp_path / "prometheus.yml"
    lines = [line for line in config.read_text().splitlines() if "tls_config" not in line and "ca_file" not in line]
    config.write_text("\n".join(lines).replace("https", "http"))
    with prometheus(config) as url:
        until(lambda: value(url, 'hal_submit_to_start_seconds_bucket{le="+Inf"}') == 20, "classic buckets have come")
        assert value(url, 'hal_submit_to_start_seconds_bucket{le="1048576"}') == 20


def test_what_the_command_prints_is_without_fault(own_hal: LiveHal) -> None:
    """By promtool, which also judges style."""
    own_hal.up()
    own_hal.run("run", "--", "true", check=True)
    printed = own_hal.run("metrics", check=True).out
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=printed, capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
