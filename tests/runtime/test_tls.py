"""Frames over TLS 1.3: each end knows the other by its certificate, and strangers get nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hal.core.model.errors import ConflictError, DeniedError, SpecError, UnreachableError
from hal.runtime.authority import new_request, open_authority
from hal.runtime.interface import Connection, Credentials, Listener, TcpAddress
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.tls import RestContext
from hal.runtime.tls_listener import TlsListener
from hal.wire.bounds import MAX_TEXT
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.joining import ReadAuthority
from hal.wire.peer import CertifiedName
from hal.wire.roles import Role
from hal.wire.strangers import MAX_STRANGERS
from tests.runtime.certified import DAY_MS, Certified, now_ms
from tests.runtime.real_runtime import log_text, run_real

HERE = TcpAddress("127.0.0.1", 0)
YEAR_MS = 365 * DAY_MS


async def tell_name(connection: Connection) -> None:
    """Says who is there; echoes afterwards."""
    who = connection.certified
    await connection.send(Goodbye(reason="nobody" if who is None else f"{who.role} {who.name} {who.serial}"))
    while (frame := await connection.receive()) is not None:
        await connection.send(frame)


def served(tmp_path: Path, use: Callable[[RealRuntime, TcpAddress], Awaitable[None]], credentials: Credentials) -> None:
    """Run `use` beside a listener that tells names."""

    async def main(runtime: RealRuntime) -> None:
        await use(runtime, address_of(await runtime.listen(HERE, tell_name, credentials)))

    run_real(tmp_path, main)


def address_of(listener: Listener) -> TcpAddress:
    assert isinstance(listener.address, TcpAddress)
    return listener.address


@pytest.fixture
def hal(tmp_path: Path) -> Certified:
    return Certified(tmp_path)


def test_both_ends_know_each_other_by_certificate(tmp_path: Path, hal: Certified) -> None:
    """Role, name and serial number; the kernel has no word in it."""
    node = hal.node("n1")

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        connection = await runtime.connect(address, credentials=node.credentials)
        assert isinstance(connection.certified, CertifiedName)
        assert (connection.certified.role, connection.certified.name) == ("controller", "controller")
        assert connection.peer is None
        told = await connection.receive()
        assert isinstance(told, Goodbye)
        assert told.reason.startswith("agent n1 ")

    served(tmp_path, use, hal.controller)


def test_many_frames_cross_in_order(tmp_path: Path, hal: Certified) -> None:
    """Larger than any buffer on the way."""
    node = hal.node("n1")

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        connection = await runtime.connect(address, credentials=node.credentials)
        await connection.receive()
        frames = [Goodbye(code=str(number), reason="x" * MAX_TEXT) for number in range(150)]

        async def send() -> None:
            for frame in frames:
                await connection.send(frame)

        sending = asyncio.ensure_future(send())
        assert [await connection.receive() for _ in frames] == frames
        await sending

    served(tmp_path, use, hal.controller)


def test_one_without_a_certificate_is_nobody(tmp_path: Path, hal: Certified) -> None:
    """It is served, so that it may join, and known by no name."""

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        for credentials in (Credentials(), Credentials(hal.controller.authority)):
            connection = await runtime.connect(address, credentials=credentials)
            assert await connection.receive() == Goodbye(reason="nobody")
            connection.close()

    served(tmp_path, use, hal.controller)


def test_a_certificate_of_another_authority_is_cut_off(tmp_path: Path, hal: Certified) -> None:
    """By the listener when a node shows it, by the node when a listener does."""
    foreign = Certified(tmp_path, "foreign").node("n1")

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        with pytest.raises(DeniedError, match="not a controller of this HAL"):
            await runtime.connect(address, credentials=foreign.credentials)
        believing = Credentials(hal.controller.authority, foreign.credentials.certificate)
        assert await got_nothing(runtime, address, believing)

    served(tmp_path, use, hal.controller)
    assert "TLS handshake failed" in log_text(tmp_path)


async def got_nothing(runtime: RealRuntime, address: TcpAddress, credentials: Credentials) -> bool:
    """TLS 1.3 lets the dialler believe that it is connected before the listener has looked at its certificate."""
    try:
        connection = await runtime.connect(address, credentials=credentials)
    except UnreachableError:
        return True
    return await connection.receive() is None


def test_a_node_cannot_pass_for_a_controller(tmp_path: Path, hal: Certified) -> None:
    """Its certificate is of the right authority, but not for serving."""
    node = hal.node("n1")

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        with pytest.raises(DeniedError, match="not a controller of this HAL"):
            await runtime.connect(address, credentials=node.credentials)

    served(tmp_path, use, Credentials(hal.controller.authority, node.credentials.certificate))


@pytest.mark.parametrize(("ahead_ms", "words"), [(YEAR_MS, "not valid yet"), (-YEAR_MS, "no longer valid")])
def test_a_wrong_clock_is_named(tmp_path: Path, hal: Certified, ahead_ms: int, words: str) -> None:
    """Where the controller's clock is a year away, whoever dials is told to look at the clocks."""
    hal.authority.certify_controller("controller", now_ms() + ahead_ms)

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        with pytest.raises(DeniedError, match=f"{words} by this machine's clock") as raised:
            await runtime.connect(address, credentials=Credentials(hal.controller.authority))
        assert "clocks" in raised.value.hint

    served(tmp_path, use, hal.controller)


def test_an_expired_certificate_is_cut_off(tmp_path: Path, hal: Certified) -> None:
    """By the listener."""
    late = hal.node("n1", ago_ms=30 * DAY_MS)

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        assert await got_nothing(runtime, address, late.credentials)

    served(tmp_path, use, hal.controller)


def test_older_tls_and_plain_bytes_get_nothing(tmp_path: Path, hal: Certified) -> None:
    """TLS 1.2 and HTTP are cut off; that is one line in the log for the host, and no fault."""

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError):
            await asyncio.open_connection(*address, ssl=old)
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5_000):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(said)
            answer = await read_all(reader)
            assert len(answer) < 100  # an alert of TLS at most
            writer.close()

    served(tmp_path, use, hal.controller)
    assert log_text(tmp_path).count("TLS handshake failed") == 1


async def read_all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_strangers_are_few_and_make_room_for_nodes(tmp_path: Path, hal: Certified) -> None:
    """More connections than are granted, all silent: a node still gets through, and they are never more."""
    node = hal.node("n1")

    async def main(runtime: RealRuntime) -> None:
        listener = await runtime.listen(HERE, tell_name, hal.controller)
        assert isinstance(listener, TlsListener)
        silent = [socket.create_connection(listener.address) for _ in range(MAX_STRANGERS + 20)]
        connection = await runtime.connect(listener.address, timeout_ms=30_000, credentials=node.credentials)
        told = await connection.receive()
        assert isinstance(told, Goodbye)
        assert told.reason.startswith("agent n1")
        assert listener.strangers <= MAX_STRANGERS
        for sock in silent:
            sock.close()
        while listener.strangers:
            await runtime.sleep(1)

    run_real(tmp_path, main)


def test_one_that_joins_too_slowly_is_closed(tmp_path: Path, hal: Certified, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a certificate a connection lives only so long, whatever it sends; with one it stays."""
    monkeypatch.setattr("hal.runtime.tls_listener.STRANGER_MS", 200)
    node = hal.node("n1")

    async def use(runtime: RealRuntime, address: TcpAddress) -> None:
        known = await runtime.connect(address, credentials=node.credentials)
        await known.receive()
        stranger = await runtime.connect(address, credentials=Credentials())
        stranger.send_nowait(ReadAuthority())
        while await stranger.receive() is not None:
            pass
        known.send_nowait(ReadAuthority())
        assert await known.receive() == ReadAuthority()

    served(tmp_path, use, hal.controller)


def test_renewed_credentials_are_shown_to_the_next(tmp_path: Path, hal: Certified) -> None:
    """And who is connected already stays."""
    node = hal.node("n1")

    async def main(runtime: RealRuntime) -> None:
        listener = await runtime.listen(HERE, tell_name, hal.controller)
        before = await runtime.connect(address_of(listener), credentials=node.credentials)
        hal.authority.certify_controller("controller", now_ms())
        listener.reload_credentials()
        after = await runtime.connect(address_of(listener), credentials=node.credentials)
        assert before.certified is not None
        assert after.certified is not None
        assert before.certified.serial != after.certified.serial
        assert not before.closed

    run_real(tmp_path, main)


def test_dialling_says_what_is_wrong(tmp_path: Path, hal: Certified) -> None:
    """A port nobody serves, one that speaks something else, and a taken one."""

    async def main(runtime: RealRuntime) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ConflictError, match="cannot be bound"):
                await runtime.listen(TcpAddress("127.0.0.1", port), tell_name, hal.controller)
        with pytest.raises(UnreachableError, match="nobody serves"):
            await runtime.connect(TcpAddress("127.0.0.1", port), credentials=hal.controller)

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        plain = await asyncio.start_server(greet, "127.0.0.1", 0)
        with pytest.raises(UnreachableError, match="does not use HAL's TLS"):
            await runtime.connect(TcpAddress(*plain.sockets[0].getsockname()), credentials=hal.controller)
        plain.close()

    run_real(tmp_path, main)


def test_keys_are_for_their_owner_only(tmp_path: Path, hal: Certified) -> None:
    """Every file of authority and node has mode 0600, every directory 0700."""
    hal.node("n1")
    found = [path for path in (tmp_path / "hal").rglob("*") if path.parts[-1] != "nodes"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}


def test_the_authority_is_made_once_and_damage_is_named(tmp_path: Path, hal: Certified) -> None:
    """A second start has the same; a key that does not belong to it stops the start."""
    directory = tmp_path / "hal" / "authority"
    assert open_authority(directory, now_ms()).fingerprint == hal.authority.fingerprint
    other = Certified(tmp_path, "other")
    assert other.controller.authority is not None
    (directory / "authority.pem").write_text(other.controller.authority.read_text())
    with pytest.raises(DeniedError, match="do not belong together"):
        open_authority(directory, now_ms())


@pytest.mark.parametrize("request_text", ["", "no request", "-----BEGIN CERTIFICATE REQUEST-----\n", "x" * 20_000])
def test_only_a_request_is_certified(hal: Certified, request_text: str) -> None:
    """Anything else is a SpecError."""
    with pytest.raises(SpecError, match="certificate signing request"):
        hal.authority.certify(request_text, Role.AGENT, "n1", now_ms(), DAY_MS)


def test_a_request_whose_signature_is_wrong_is_not_certified(hal: Certified) -> None:
    """It must prove that it has the key."""
    _, request = new_request()
    body = request.splitlines()
    flipped = body[-2][:-6] + ("AAAA" if body[-2][-6:-2] != "AAAA" else "BBBB") + body[-2][-2:]
    with pytest.raises(SpecError):
        hal.authority.certify("\n".join([*body[:-2], flipped, body[-1], ""]), Role.AGENT, "n1", now_ms(), DAY_MS)


def test_rest_shows_its_own_certificate_or_the_sites_by_the_name_that_is_asked_for(tmp_path: Path) -> None:
    """Both are read again without a restart; a file that cannot be used leaves what was."""
    own, site = open_authority(tmp_path / "own", now_ms()), open_authority(tmp_path / "site", now_ms())
    for one in (own, site):
        one.certify_rest(["localhost", "127.0.0.1"], now_ms())
    both = RestContext(own.rest_file, (site.rest_file, site.rest_file))

    def shown(name: str) -> str:
        """Which authority has signed what is shown to whoever asks for that name."""
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for one in (own, site):
            asking.load_verify_locations(cadata=one.pem)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = asking.wrap_bio(back, there, server_hostname=name)
        server = both.context.wrap_bio(there, back, server_side=True)
        for side in (client, server, client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        assert client.version() == "TLSv1.3"
        return client.getpeercert()["serialNumber"]  # type: ignore[index, return-value]

    first = [shown("controller.hal"), shown("localhost")]
    assert first[0] != first[1]
    for one in (own, site):
        one.certify_rest(["localhost"], now_ms())
    both.reload()
    second = [shown("controller.hal"), shown("localhost")]
    assert not set(first) & set(second)
    site.rest_file.write_text("nonsense")
    with pytest.raises(DeniedError, match=r"rest\.pem cannot be used"):
        both.reload()
    assert [shown("controller.hal"), shown("localhost")] == second


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    """Names both files; a terminal that asks would hold the controller up."""
    own = open_authority(tmp_path, now_ms())
    own.certify_rest(["localhost"], now_ms())
    wanted = serialization.BestAvailableEncryption(b"secret")
    key = ec.generate_private_key(ec.SECP256R1())
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, wanted))
    with pytest.raises(DeniedError, match=r"rest\.pem with the key .*locked\.pem cannot be used") as refused:
        RestContext(own.rest_file, (own.rest_file, locked))
    assert "the key without a password" in refused.value.hint
