"""Certificates of brokers, workers, clients and services, of a real controller over real TLS: asked for, used, renewed,
revoked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hal.core.model import DeniedError, UnreachableError
from hal.runtime import authority, role_certificate
from hal.runtime.authority import Identity, new_request, open_authority
from hal.runtime.interface import ByteStream, Credentials, TcpAddress
from hal.runtime.joining import join_any, refused_by_any, renew_any
from hal.runtime.role_certificate import RoleCertificate
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.joining import JOINING, Renew
from hal.wire.join_token import read_join_token
from hal.wire.roles import Role
from tests.daemons.controller.access.people import person
from tests.daemons.controller.nodes.test_joining import address_of, run, token_of
from tests.daemons.controller.running import Running


async def given(hal: Running, root: Path, role: Role, name: str) -> Identity:
    """A process of that role with its certificate."""
    identity = Identity(root / f"{role}-{name}")
    token = read_join_token(await token_of(hal, role=role, name=name))
    await join_any(hal.runtime, identity, name, token, [address_of(hal)], role)
    return identity


def test_a_worker_reaches_a_service_with_the_certificates_that_they_asked_for(tmp_path: Path) -> None:
    """Bytes go there and back; each sees the other's name."""

    async def play(hal: Running) -> None:
        cache, worker = [await given(hal, tmp_path, role, "x1") for role in (Role.SERVICE, Role.WORKER)]
        seen: list[str] = []

        async def serve(stream: ByteStream) -> None:
            assert stream.certified is not None
            seen.append(f"{stream.certified.role} {stream.certified.name}")
            await stream.write(await stream.read())
            stream.end()

        listener = await hal.runtime.serve(TcpAddress("127.0.0.1", 0), serve, cache.credentials, role=Role.SERVICE)
        stream = await hal.runtime.dial(listener.address, credentials=worker.credentials, role=Role.SERVICE)
        await stream.write(b"hello")
        stream.end()
        assert await stream.read() == b"hello"
        assert (stream.certified and stream.certified.name, seen) == ("x1", ["worker x1"])
        stream.close()
        await listener.close()

    run(tmp_path, play)


def test_a_token_of_one_role_makes_nobody_of_another(tmp_path: Path) -> None:
    """Neither a node nor a service; and it is not used up by it."""

    async def play(hal: Running) -> None:
        token = read_join_token(await token_of(hal, role="worker"))
        for role in (Role.AGENT, Role.SERVICE):
            identity = Identity(tmp_path / role)
            with pytest.raises(DeniedError, match=f"is for the role worker, not {role}"):
                await join_any(hal.runtime, identity, "x1", token, [address_of(hal)], role)
            assert not identity.joined
        await join_any(hal.runtime, Identity(tmp_path / "w"), "x1", token, [address_of(hal)], Role.WORKER)
        (listed,) = (await hal.http.get("/v1/tokens")).json()["tokens"]
        assert (listed["role"], listed["state"], listed["used_by"]) == ("worker", "used", "x1")

    run(tmp_path, play)


def test_a_certificate_is_renewed_until_it_is_revoked(tmp_path: Path) -> None:
    """Each renewal gives another one; the list shows them; afterwards the reason is said."""

    async def play(hal: Running) -> None:
        identity = await given(hal, tmp_path, Role.SERVICE, "cache-1")
        first = identity.certified()
        await renew_any(hal.runtime, identity, [address_of(hal)])
        second = identity.certified()
        assert (second.role, second.name, second.serial != first.serial) == ("service", "cache-1", True)
        listed = (await hal.http.get("/v1/certificates", params={"role": "service"})).json()["certificates"]
        assert {one["serial"] for one in listed} == {first.serial, second.serial}
        revoked = await hal.http.post("/v1/certificates/revoke", json={"role": "service", "name": "cache-1"})
        assert {one["serial"] for one in revoked.json()["certificates"]} == {first.serial, second.serial}
        with pytest.raises(DeniedError, match="the certificate of service 'cache-1' was revoked"):
            await renew_any(hal.runtime, identity, [address_of(hal)])
        again = await hal.http.post("/v1/certificates/revoke", json={"role": "service", "name": "cache-1"})
        assert (again.status_code, again.json()["hint"]) == (404, "`hal certificate list` shows all")

    run(tmp_path, play)


def test_only_admins_make_tokens_of_any_role_and_see_certificates(tmp_path: Path) -> None:
    """A user does neither, and revokes nothing; certificates of nodes are revoked as the node's."""

    async def play(hal: Running) -> None:
        body = {"role": "service", "name": "x"}
        async with person(hal, "alice") as alice:
            asked = [
                await alice.post("/v1/tokens", json=body),
                await alice.get("/v1/certificates"),
                await alice.post("/v1/certificates/revoke", json=body),
            ]
        assert [answer.status_code for answer in asked] == [403, 403, 403]
        node = await hal.http.post("/v1/certificates/revoke", json={"role": "agent", "name": "n1"})
        assert (node.status_code, node.json()["hint"]) == (400, "hal node revoke n1")
        both = await hal.http.post("/v1/tokens", json={"role": "service", "node": "x"})
        assert (both.status_code, "`name` for the others" in both.text) == (400, True)

    run(tmp_path, play)


def test_who_was_given_no_certificate_renews_none(tmp_path: Path) -> None:
    """Neither without one, nor with one that the controller does not know, although its authority signed it."""

    async def play(hal: Running) -> None:
        authority = open_authority(hal.runtime.paths.authority, hal.runtime.now_ms())
        connection = await hal.runtime.connect(
            address_of(hal), credentials=Credentials(authority.credentials.authority), conversation=JOINING
        )
        key, request = new_request()
        await connection.send(Renew(request=request))
        answer = await connection.receive(30_000)
        assert isinstance(answer, Goodbye)
        assert "without a certificate there is nothing to renew" in answer.reason
        unknown = Identity(tmp_path / "unknown")
        (tmp_path / "unknown").mkdir(mode=0o700)
        signed = authority.certify(request, Role.SERVICE, "cache-1", hal.runtime.now_ms(), 60_000)
        unknown.store_certificate(signed.certificate, key, authority.pem)
        with pytest.raises(DeniedError, match="was not issued by this HAL's controller"):
            await renew_any(hal.runtime, unknown, [address_of(hal)])

    run(tmp_path, play)


async def echo(stream: ByteStream) -> None:
    while block := await stream.read():
        await stream.write(block)


def test_who_was_revoked_is_disconnected_and_refused_by_its_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service asks about its peers again and again; another worker's stream goes on."""
    monkeypatch.setattr(role_certificate, "CHECK_EVERY_MS", 20)

    async def play(hal: Running) -> None:
        cache, bad, good = [
            await given(hal, tmp_path, role, name)
            for role, name in ((Role.SERVICE, "c"), (Role.WORKER, "bad"), (Role.WORKER, "good"))
        ]
        held = RoleCertificate(hal.runtime, cache, [address_of(hal)])

        async def serve(stream: ByteStream) -> None:
            held.watch(stream)
            await echo(stream)

        listener = await hal.runtime.serve(TcpAddress("127.0.0.1", 0), serve, cache.credentials, role=Role.SERVICE)
        streams = []
        for worker in (bad, good):
            stream = await hal.runtime.dial(listener.address, credentials=worker.credentials, role=Role.SERVICE)
            await stream.write(b"hello")
            assert await stream.read(timeout_ms=30_000) == b"hello"
            streams.append(stream)
        await hal.http.post("/v1/certificates/revoke", json={"role": "worker", "name": "bad"})
        with pytest.raises(UnreachableError):
            await streams[0].read(timeout_ms=30_000)
        again = await hal.runtime.dial(listener.address, credentials=bad.credentials, role=Role.SERVICE)
        with pytest.raises(DeniedError, match="worker 'bad' is not valid any more"):
            await again.read(timeout_ms=30_000)
        await streams[1].write(b"still")
        assert await streams[1].read(timeout_ms=30_000) == b"still"
        streams[1].close()
        held.stop()
        await listener.close()

    run(tmp_path, play)


def test_a_process_renews_its_own_certificate_and_serves_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each is due at once."""
    monkeypatch.setattr(authority, "RENEW_AT", (0, 1))

    async def play(hal: Running) -> None:
        cache, worker = [await given(hal, tmp_path, role, "x1") for role in (Role.SERVICE, Role.WORKER)]
        first = cache.certified().serial
        listener = await hal.runtime.serve(TcpAddress("127.0.0.1", 0), echo, cache.credentials, role=Role.SERVICE)
        held = RoleCertificate(hal.runtime, cache, [address_of(hal)])
        held.serve_with(listener)
        async with asyncio.timeout(30):
            shown = first
            while shown == first:
                stream = await hal.runtime.dial(listener.address, credentials=worker.credentials, role=Role.SERVICE)
                assert stream.certified is not None
                shown = stream.certified.serial
                stream.close()
        held.stop()
        await listener.close()

    run(tmp_path, play)


def test_certificates_are_checked_by_whoever_has_a_good_one(tmp_path: Path) -> None:
    """The answer names those that are not; who was revoked itself learns nothing."""

    async def play(hal: Running) -> None:
        cache, gone = [await given(hal, tmp_path, Role.SERVICE, name) for name in ("c", "gone")]
        serials = [one.certified().serial for one in (cache, gone)]
        await hal.http.post("/v1/certificates/revoke", json={"role": "service", "name": "gone"})
        refused = await refused_by_any(hal.runtime, cache, [*serials, "77"], [address_of(hal)])
        assert refused == {serials[1], "77"}
        with pytest.raises(DeniedError, match="service 'gone' was revoked"):
            await refused_by_any(hal.runtime, gone, serials, [address_of(hal)])

    run(tmp_path, play)
