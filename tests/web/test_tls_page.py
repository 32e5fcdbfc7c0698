"""The page over TLS, with a certificate of the site: Chromium signs in and changes something; nothing goes in plain."""

from __future__ import annotations

import shutil
import ssl
import tempfile
from collections.abc import Iterator
from http.client import BadStatusLine, HTTPConnection, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import expect

import hal
from hal.cli.local.web import sign_in_link
from hal.runtime.home import Home
from tests.runtime.site_certificates import Site as Authority
from tests.web.browser import Visitor, chromium, command, free_port, need_chromium

pytestmark = pytest.mark.slow


class Served(NamedTuple):
    """A page for other machines."""

    home: Path
    port: int
    authority: Path

    @property
    def origin(self) -> str:
        return f"https://localhost:{self.port}"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """It listens on all addresses, with a certificate for `localhost`."""
    home, port = Path(tempfile.mkdtemp(prefix="hal-w-")), free_port()
    site = Authority(home)
    site.server("localhost")
    pair = home / "site-localhost.pem"
    (home / "hal.toml").write_text(
        f'[web]\nlisten = "0.0.0.0:{port}"\ntls_cert = "{pair}"\ntls_key = "{pair}"\nhosts = ["localhost"]\n'
    )
    try:
        command(home, "up", "--with", "web")
        yield Served(home, port, site.authority)
    finally:
        command(home, "down", "--kill")
        shutil.rmtree(home, ignore_errors=True)


def test_a_browser_signs_in_and_holds_a_job_over_tls(served: Served) -> None:
    """The link says https; the cookie is for TLS alone; what changes something comes from an origin with https."""
    need_chromium()
    link = sign_in_link(Home(served.home))
    assert link.startswith("https://")
    with hal.connect(home=served.home) as client, chromium() as browser:
        job = client.submit({"command": ["x"], "begin_at_ms": 4_000_000_000_000})
        visitor = Visitor(browser, served.origin, ignore_https_errors=True)
        visitor.sign_in(f"{served.origin}/sign-in#{link.split('#')[1]}")
        (cookie,) = visitor.context.cookies()
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        expect(visitor.page.locator(".nav .pulse:not(.off)")).to_be_visible()
        visitor.go(f"/jobs/{job.id}")
        visitor.page.get_by_role("button", name="Hold").click()
        visitor.page.get_by_role("dialog").get_by_role("button", name="Hold").click()
        expect(visitor.page.locator(".head .state")).to_have_text("held")
        assert job.refresh().held
        visitor.context.close()
        assert (visitor.elsewhere, visitor.errors) == ([], [])


def test_the_certificate_is_the_sites_and_nothing_older_is_spoken(served: Served) -> None:
    """Who knows the authority connects by TLS 1.3; by 1.2, without it, or in plain nobody gets an answer."""
    trusting = ssl.create_default_context(cafile=str(served.authority))
    connection = HTTPSConnection("localhost", served.port, context=trusting)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.status, connection.sock.version()) == (200, "TLSv1.3")
    connection.close()
    old = ssl.create_default_context(cafile=str(served.authority))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for context in (old, ssl.create_default_context()):
        with pytest.raises(ssl.SSLError):
            HTTPSConnection("localhost", served.port, context=context).request("GET", "/")
    plain = HTTPConnection("localhost", served.port)
    plain.request("GET", "/")
    with pytest.raises((BadStatusLine, RemoteDisconnected, ConnectionResetError)):
        plain.getresponse()
