"""Which credential goes to which address: nothing is sent to whom it is not for (H6, M4, attempts 13, 26, 27, 30)."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.client.address_lookup import find_address
from hal.client.addresses import server_identity
from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import Endpoint, read_endpoints
from hal.client.addresses.login import Login, keep_login
from hal.client.async_client import AsyncClient
from hal.client.sync_client import Client
from hal.core.model import DeniedError, HALError, UnreachableError
from hal.runtime.home import Home
from tests.client.scripted_server import Asked, Reply, ScriptedServer, as_json

SECRET = "5ec4e7" * 8


class Sink:
    """Listens, and keeps whatever arrives."""

    def __init__(self, host: str, port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port = int(self._socket.getsockname()[1])
        self.got = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(1 << 16):
                    self.got += data
                    if b"\r\n\r\n" in self.got:
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def home(hal_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a token, whose controller serves no port yet; nothing was logged in at."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("HAL_URL", "HAL_TOKEN", "HAL_FINGERPRINT", "HAL_PLAIN"):
        monkeypatch.delenv(name, raising=False)
    made = Home(hal_home)
    made.create()
    made.token.write_text(SECRET + "\n")
    made.token.chmod(0o600)
    return made


@pytest.fixture
def sink() -> Iterator[Callable[..., Sink]]:
    """Make one; all are closed at the end."""
    made: list[Sink] = []

    def make(host: str = "127.0.0.2", port: int = 0) -> Sink:
        made.append(Sink(host, port))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(address: Address) -> str:
    """What comes of one question, by both clients: 'answered', or the errors' codes."""
    results = []
    with Client(address, reconnect_s=0.0) as client:
        try:
            client.queues()
            results.append("answered")
        except HALError as error:
            results.append(error.code)

    async def body() -> None:
        async with AsyncClient(address, reconnect_s=0.0) as client:
            try:
                await client.queues()
                results.append("answered")
            except HALError as error:
                results.append(error.code)

    asyncio.run(body())
    assert len(set(results)) == 1, results
    return results[0]


@pytest.mark.parametrize(
    "written",
    ["http://127.0.0.2:{}", "HTTP://127.0.0.2:{}/", "http://[::1]:{}", "http://127.2:{}", "http://localhost:{}"],
)
def test_the_homes_token_goes_to_the_port_that_its_hal_serves_and_nowhere_else(
    home: Home, sink: Callable[..., Sink], written: str
) -> None:
    """(H6, attempt 27) A foreign address of this machine, another port of it: asked without any token."""
    there = sink("::1" if "::1" in written else "127.0.0.1" if "localhost" in written else "127.0.0.2")
    home.tcp_file.write_text(f"127.0.0.1:{there.port + (1 if 'localhost' in written else 0)}\n")
    ask(find_address(url=written.format(there.port)))
    assert there.got
    assert SECRET.encode() not in there.got


def test_the_homes_token_goes_where_its_hal_listens(home: Home) -> None:
    """Written as it serves, or as localhost; not when one of several URLs is foreign; nor to another port."""
    home.tcp_file.write_text("127.0.0.1:4250\n")
    assert find_address(url="http://127.0.0.1:4250").token == SECRET
    assert find_address(url="http://localhost").token == SECRET
    for foreign in ("http://127.0.0.1,http://192.0.2.1", "http://127.0.0.1.example", "http://127.0.0.1:4251"):
        assert find_address(url=foreign).token == ""
    home.tcp_file.write_text("0.0.0.0:4250\n")
    assert find_address(url="http://127.0.0.1:4250").token == SECRET
    assert find_address(url="http://192.0.2.1:4250").token == ""


def test_over_tls_the_homes_token_is_for_its_own_authority(home: Home) -> None:
    """Another fingerprint, or the authorities of this machine: no token of the home."""
    from hal.client.addresses.trust import fingerprint_of
    from hal.runtime.authority import open_authority

    home.tcp_file.write_text("0.0.0.0:4250\n")
    assert find_address(url="https://head:4250").token == ""
    open_authority(home.authority, 1_700_000_000_000)
    own = fingerprint_of((home.authority / "authority.pem").read_text())
    assert find_address(url="https://head:4250").token == SECRET
    assert find_address(url="https://head:4250", fingerprint=own).token == SECRET
    assert find_address(url="https://head:4250", fingerprint="sha256:" + "0" * 64).token == ""


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "fe80::1%lo"])
def test_nothing_is_sent_to_another_machine_in_plain_text(host: str) -> None:
    """(H6, L9) Refused before anything is dialled, with what to write instead; `plain` is what a person says."""
    address = Address(endpoints=(Endpoint(host, 4250),), token=SECRET)
    assert ask(address) == "denied"
    with Client(address, reconnect_s=0.0) as client, pytest.raises(DeniedError) as caught:
        client.submit("true")
    assert "https://" in caught.value.hint


def test_a_name_of_this_machine_is_what_it_is_resolved_to(
    monkeypatch: pytest.MonkeyPatch, sink: Callable[..., Sink]
) -> None:
    """Connected to, and looked at then."""
    there = sink("127.0.0.2")
    named = socket.getaddrinfo("127.0.0.2", there.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: named)
    assert ask(Address(endpoints=(Endpoint("head.example", there.port),), token=SECRET)) == "answered"


@pytest.mark.parametrize(("value", "plain"), [("1", True), ("0", False), ("", False)])
def test_plain_is_said_by_argument_variable_or_login(
    monkeypatch: pytest.MonkeyPatch, home: Home, value: str, plain: bool
) -> None:
    """And goes with the login that it was said for only."""
    monkeypatch.setenv("HAL_PLAIN", value)
    assert find_address(url="http://192.0.2.1").plain is plain
    assert find_address(url="http://192.0.2.1", plain=True).plain
    keep_login(Login(url="http://192.0.2.3:4250", token="t", plain=True))
    assert find_address(url="http://192.0.2.3:4250").plain
    assert find_address(url="http://192.0.2.4:4250").plain is plain


def test_redirects_and_proxies_get_nothing(monkeypatch: pytest.MonkeyPatch, sink: Callable[..., Sink]) -> None:
    """A server that answers 307 elsewhere, and a proxy in the environment."""
    foreign = sink("127.0.0.2")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.2:{foreign.port}")

    def away(asked: Asked) -> Reply:
        return Reply(b"", 307, {"Location": f"http://127.0.0.2:{foreign.port}{asked.path}"})

    for script in (away, lambda asked: as_json({"queues": []})):
        server = ScriptedServer(script)
        ask(Address(endpoints=(Endpoint("127.0.0.1", server.port),), token=SECRET))
        assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
        server.stop()
    assert foreign.got == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
def test_the_kernel_says_who_serves_a_port(host: str) -> None:
    """Accepted or not yet, on one address or on all, IPv4 over a socket of IPv6, too."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::") as server:
        port = server.getsockname()[1]
        for reached in ("::1",) if host == "::1" else ("127.0.0.1", "::1") if host == "::" else ("127.0.0.1",):
            with socket.create_connection((reached, port)) as connection:
                assert server_identity.server_uid(connection) == os.geteuid()
                accepted, _ = server.accept()
                with accepted:
                    assert server_identity.server_uid(connection) == os.geteuid()


def test_who_was_found_at_login_is_kept(home: Home) -> None:
    """With URL and token, and given to addresses of that URL only."""
    keep_login(Login(url="http://127.0.0.1:4250", token="t", served_by=61_001))
    assert find_address(url="http://127.0.0.1:4250").served_by == 61_001
    assert find_address(url="http://127.0.0.1:4251").served_by is None
    keep_login(Login(url="unix:///run/hal/api.sock", served_by=61_001))
    assert find_address(url="unix:///run/hal/api.sock").served_by == 61_001
    assert find_address(url="unix:///tmp/api.sock").served_by is None


def test_a_token_that_is_given_with_a_socket_is_shown_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a login is not: there the kernel says who this is."""
    keep_login(Login(url="http://127.0.0.1:4250", token="t"))
    alone = find_address(url="unix:///run/hal/api.sock")
    assert (alone.token, alone.by_token) == ("", False)
    given = find_address(url="unix:///run/hal/api.sock", token="given")
    assert (given.token, given.by_token) == ("given", True)
    monkeypatch.setenv("HAL_TOKEN", "named")
    assert find_address(url="unix:///run/hal/api.sock").token == "named"


def test_nobody_there_is_still_told_as_nobody_there() -> None:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = Address(endpoints=read_endpoints(f"http://127.0.0.1:{port}"))
    with Client(address, reconnect_s=0.0) as client, pytest.raises(UnreachableError, match="no HAL answers"):
        client.version()
