"""Where webhooks may lead: by name, and by the address that the name has as the connection is made."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hal.core.model import DeniedError, UnreachableError
from hal.runtime import webhook
from hal.runtime.webhook import is_allowed, is_public, post
from tests.daemons.controller.notices.servers import WebServer, served
from tests.runtime.site_certificates import Site


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::a00:1", "2002:7f00:1::", "2001:0:7f00:1::", "fec0::1",
    ],
)  # fmt: skip
def test_addresses_of_this_machine_and_of_private_networks_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14"])
def test_addresses_of_the_internet_are(address: str) -> None:
    assert is_public(address)


def test_hosts_are_allowed_by_name_and_by_domain() -> None:
    allowed = ("hooks.example.org", "*.lab.example")
    hosts = (
        "hooks.example.org",
        "HOOKS.example.org.",
        "a.b.lab.example",
        "lab.example",
        "evillab.example",
        "example.org",
    )
    assert [is_allowed(host, allowed) for host in hosts] == [True, True, True, False, False, False]
    assert is_allowed("anything.example", ("*",))
    assert not is_allowed("anything.example", ())


def test_a_host_that_only_fits_a_pattern_must_have_a_public_address() -> None:
    """localhost is allowed by `*`, and its address is not."""
    with pytest.raises(DeniedError, match="no public address"):
        post("http://localhost:9/x", b"{}", ("*",))


def test_an_address_in_digits_is_looked_at_like_any_other() -> None:
    for url in ("http://127.0.0.1:9/", "http://[::1]:9/", "http://2130706433:9/", "http://0x7f.1:9/"):
        with pytest.raises((DeniedError, UnreachableError)):
            post(url, b"{}", ("*",))


@contextmanager
def answering(answer: bytes, *, then_wait: bool = False) -> Iterator[int]:
    """A server on loopback that answers one request so; its port."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            made, _ = server.accept()
            with made:
                made.recv(65_536)
                made.sendall(answer)
                if then_wait:
                    over.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def test_an_answer_that_is_not_http_is_no_success() -> None:
    with answering(b"SSH-2.0-OpenSSH\r\n") as port, pytest.raises(UnreachableError, match="not HTTP"):
        post(f"http://127.0.0.1:{port}/", b"{}", ("127.0.0.1",))


def test_a_server_that_says_a_little_and_waits_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "DEADLINE_S", 0.2)
    with answering(b"HTTP", then_wait=True) as port, pytest.raises(UnreachableError):
        post(f"http://127.0.0.1:{port}/", b"{}", ("127.0.0.1",))


def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    """What answers in the clear to https is not believed either."""
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port, pytest.raises(UnreachableError):
        post(f"https://127.0.0.1:{port}/", b"{}", ("127.0.0.1",))


def test_a_webhook_over_tls_is_taken_by_a_server_that_the_site_certifies(tmp_path: Path) -> None:
    """Of two servers of the same name, the one that another authority certifies is told nothing."""
    site, other = Site(tmp_path), Site(tmp_path, "other")
    good, bad = WebServer(site.server("localhost")), WebServer(other.server("localhost"))
    with served(good, bad):
        post(good.url, b'{"job": 7}', ("localhost",), authorities=str(site.authority))
        with pytest.raises(UnreachableError, match="certificate verify failed"):
            post(bad.url, b'{"job": 7}', ("localhost",), authorities=str(site.authority))
    assert (good.bodies, bad.bodies) == ([{"job": 7}], [])
