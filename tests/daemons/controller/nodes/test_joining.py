"""Joining a real controller over real TLS: tokens by REST, certificates, who may say hello, renewal, revocation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hal.core.model.errors import ConflictError, DeniedError, HALError
from hal.daemons.controller.config import Config
from hal.runtime.authority import NodeIdentity, new_request, open_authority
from hal.runtime.interface import Connection, Credentials, TcpAddress
from hal.runtime.joining import join_any
from hal.wire.address import parse_address
from hal.wire.agree import SPOKEN
from hal.wire.frames.agent_keeper import Heartbeat, HeartbeatAck
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.frames.joining import Join, Joined, Renew
from hal.wire.join_token import read_join_token
from hal.wire.roles import Role
from tests.daemons.controller.running import Running, running

LISTENING = Config(wire=("127.0.0.1", 0), node_certificate_ms=90 * 86_400_000)


async def token_of(hal: Running, **body: Any) -> str:
    """A fresh join token's text."""
    answer = await hal.http.post("/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    text: str = answer.json()["token"]
    return text


def address_of(hal: Running) -> TcpAddress:
    return TcpAddress(*parse_address(hal.api.status.health().wire))


async def joined(hal: Running, root: Path, name: str = "far", **body: str) -> NodeIdentity:
    """A node that has joined with a fresh token; what it keeps."""
    identity = NodeIdentity(root / name / "identity")
    await join_any(hal.runtime, identity, name, read_join_token(await token_of(hal, **body)), [address_of(hal)])
    return identity


async def greeted(hal: Running, credentials: Credentials, name: str) -> tuple[Connection, Frame | None]:
    """A connection that has said hello as `name`, and the answer."""
    connection = await hal.runtime.connect(address_of(hal), credentials=credentials)
    hello = Hello(role=Role.AGENT, versions=SPOKEN, name=name, boot_id="b1", capacity={"cpu": 1_000})
    try:
        await connection.send(hello)
        return connection, await connection.receive(30_000)
    except HALError:
        return connection, None


def test_a_machine_joins_and_speaks_as_its_node(tmp_path: Path) -> None:
    """With the token once; then with its certificate, as often as it dials, and heartbeats are answered."""

    async def play(hal: Running) -> None:
        identity = await joined(hal, tmp_path)
        for _ in range(2):
            connection, answer = await greeted(hal, identity.credentials, "far")
            assert isinstance(answer, Welcome)
            await connection.send(Heartbeat(stamp_boot_ms=7))
            assert isinstance(await connection.receive(30_000), HeartbeatAck)
        await hal.until(lambda: [node.name for node in hal.api.nodes.all()] == ["far"])
        listed = (await hal.http.get("/v1/tokens")).json()["tokens"]
        assert [(one["state"], one["used_by"]) for one in listed] == [("used", "far")]
        assert "secret" not in str(listed)

    run(tmp_path, play)


def test_machines_join_with_one_token_and_get_its_labels(tmp_path: Path) -> None:
    """Two of any number; their agents say no label. The list counts them, and a revoked token lets no third one in."""

    async def play(hal: Running) -> None:
        token = await token_of(hal, uses=0, labels={"pool": "spot"}, expires_in="7d")
        for name in ("r1", "r2"):
            identity = await join_with(hal, tmp_path, token, name)
            assert isinstance((await greeted(hal, identity.credentials, name))[1], Welcome)
        await hal.until(lambda: len(hal.api.nodes.all()) == 2)
        assert [node.labels["pool"] for node in hal.api.nodes.all()] == ["spot", "spot"]
        (listed,) = (await hal.http.get("/v1/tokens")).json()["tokens"]
        assert (listed["state"], listed["uses"], listed["used"], listed["used_by"]) == ("open", 0, 2, "r2")
        await hal.http.post(f"/v1/tokens/{listed['id']}/revoke")
        with pytest.raises(DeniedError, match="is revoked"):
            await join_with(hal, tmp_path, token, "r3")

    run(tmp_path, play)


def test_a_node_speaks_as_no_other(tmp_path: Path) -> None:
    """Neither as one that is known nor as one that is not; and nobody without a certificate speaks at all."""

    async def play(hal: Running) -> None:
        identity = await joined(hal, tmp_path)
        await hal.agent("n1")
        for name in ("n1", "another"):
            assert_denied((await greeted(hal, identity.credentials, name))[1], "is not valid for")
        for nobody in (Credentials(), Credentials(identity.credentials.authority)):
            assert_denied((await greeted(hal, nobody, "far"))[1], "without a certificate")

    run(tmp_path, play)


@pytest.mark.parametrize("role", [Role.BROKER, Role.WORKER, Role.CLIENT, Role.SERVICE])
def test_a_certificate_of_another_role_does_not_speak_as_a_node(tmp_path: Path, role: Role) -> None:
    """Although the same authority signed it, for the name of a node, and the controller renews such ones."""

    async def play(hal: Running) -> None:
        await joined(hal, tmp_path)
        now_ms = hal.runtime.now_ms()
        authority = open_authority(hal.runtime.paths.authority, now_ms)
        key, request = new_request()
        file = tmp_path / "other.pem"
        file.write_text(authority.certify(request, role, "far", now_ms, 60_000).certificate + key)
        _, answer = await greeted(hal, Credentials(authority.credentials.authority, file), "far")
        assert_denied(answer, f"a certificate of {role} 'far' is not valid for node 'far'")

    run(tmp_path, play)


def assert_denied(answer: Frame | None, words: str) -> None:
    assert isinstance(answer, Goodbye), answer
    assert answer.code == "denied"
    assert words in answer.reason


def test_a_token_that_is_no_good_is_refused_in_words(tmp_path: Path) -> None:
    """Used, revoked, of another HAL, for another node; and nothing is kept of a join that failed."""

    async def play(hal: Running) -> None:
        used = await token_of(hal)
        await join_with(hal, tmp_path, used, "n1")
        with pytest.raises(DeniedError, match="used already, by node 'n1'"):
            await join_with(hal, tmp_path, used, "n2")
        revoked = await token_of(hal)
        answer = await hal.http.post(f"/v1/tokens/{read_join_token(revoked).id}/revoke")
        assert answer.json()["state"] == "revoked"
        with pytest.raises(DeniedError, match="is revoked"):
            await join_with(hal, tmp_path, revoked, "n2")
        foreign = read_join_token(used)._replace(fingerprint="A" * 43).text
        with pytest.raises(DeniedError, match="another HAL than the join token"):
            await join_with(hal, tmp_path, foreign, "n2")
        with pytest.raises(DeniedError, match="is for node 'n3', not 'n2'"):
            await join_with(hal, tmp_path, await token_of(hal, node="n3"), "n2")
        with pytest.raises(DeniedError, match="there is a node 'n1' already") as raised:
            await join_with(hal, tmp_path, await token_of(hal), "n1")
        assert "hal token create --node n1" in raised.value.hint
        assert not NodeIdentity(tmp_path / "n2" / "identity").joined

    run(tmp_path, play)


async def join_with(hal: Running, root: Path, token: str, name: str) -> NodeIdentity:
    identity = NodeIdentity(root / name / "identity")
    await join_any(hal.runtime, identity, name, read_join_token(token), [address_of(hal)])
    return identity


def test_two_machines_with_one_token_are_one_node(tmp_path: Path) -> None:
    """Both at once: exactly one is let in."""

    async def play(hal: Running) -> None:
        token = await token_of(hal)
        tries = [join_with(hal, tmp_path, token, name) for name in ("n1", "n2", "n3")]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(one).__name__ for one in results) == ["DeniedError", "DeniedError", "NodeIdentity"]

    run(tmp_path, play)


def test_a_revoked_node_is_cut_off_and_refused_until_it_joins_anew(tmp_path: Path) -> None:
    """Its live connection is closed with a reason; a token that names it lets it in again."""

    async def play(hal: Running) -> None:
        identity = await joined(hal, tmp_path)
        connection, answer = await greeted(hal, identity.credentials, "far")
        assert isinstance(answer, Welcome)
        await hal.until(lambda: [node.name for node in hal.api.nodes.all()] == ["far"])
        assert (await hal.http.post("/v1/nodes/far/revoke")).status_code == 200
        last = [frame async for frame in frames_of(connection)]
        assert_denied(last[-1], "was revoked")
        assert_denied((await greeted(hal, identity.credentials, "far"))[1], "was revoked")
        assert (await hal.http.post("/v1/nodes/far/revoke")).status_code == 404
        again = await joined(hal, tmp_path, node="far")
        assert isinstance((await greeted(hal, again.credentials, "far"))[1], Welcome)

    run(tmp_path, play)


def test_no_machine_joins_as_a_node_of_the_controllers_machine(tmp_path: Path) -> None:
    """Neither is a token for it made, nor does one help that was made before the node was known."""

    async def play(hal: Running) -> None:
        early = read_join_token(await token_of(hal, node="n1"))
        await hal.agent("n1")
        answer = await hal.http.post("/v1/tokens", json={"node": "n1"})
        assert answer.status_code == 409
        assert "'n1' has not joined" in answer.json()["detail"]
        with pytest.raises(ConflictError, match="'n1' has not joined"):
            await join_any(hal.runtime, NodeIdentity(tmp_path / "n1"), "n1", early, [address_of(hal)])
        assert isinstance(await joined(hal, tmp_path), NodeIdentity)

    run(tmp_path, play)


def test_a_removed_node_has_to_join_anew(tmp_path: Path) -> None:
    """Its certificate is refused, and its name is free again."""

    async def play(hal: Running) -> None:
        identity = await joined(hal, tmp_path)
        connection, _ = await greeted(hal, identity.credentials, "far")
        await hal.until(lambda: [node.name for node in hal.api.nodes.all()] == ["far"])
        for action in ("cordon", "remove"):
            answer = await hal.http.post(f"/v1/nodes/{action}", json={"nodes": ["far"]})
            assert answer.json()["results"][0]["ok"], answer.text
        last = [frame async for frame in frames_of(connection)]
        assert isinstance(last[-1], Goodbye)
        assert_denied((await greeted(hal, identity.credentials, "far"))[1], "was revoked")
        again = await joined(hal, tmp_path)
        assert isinstance((await greeted(hal, again.credentials, "far"))[1], Welcome)

    run(tmp_path, play)


async def frames_of(connection: Connection) -> Any:
    while (frame := await connection.receive(30_000)) is not None:
        yield frame


def test_certificates_are_renewed_over_the_live_connection(tmp_path: Path) -> None:
    """The next and the former both speak."""

    async def play(hal: Running) -> None:
        identity = await joined(hal, tmp_path)
        former = tmp_path / "former.pem"
        assert identity.credentials.certificate is not None
        former.write_text(identity.credentials.certificate.read_text())
        connection, _ = await greeted(hal, identity.credentials, "far")
        key, request = new_request()
        await connection.send(Renew(request=request))
        (answer,) = [frame async for frame in until_joined(connection)]
        identity.store_certificate(answer.certificate, key, answer.authority)
        for file in (former, identity.credentials.certificate):
            credentials = Credentials(identity.credentials.authority, file)
            assert isinstance((await greeted(hal, credentials, "far"))[1], Welcome)

    run(tmp_path, play)


async def until_joined(connection: Connection) -> Any:
    async for frame in frames_of(connection):
        if isinstance(frame, Joined):
            yield frame
            return


def test_membership_outlives_the_controller(tmp_path: Path) -> None:
    """Another process with the same store and authority knows the node, the used token and the revoked one."""
    kept: list[NodeIdentity] = []

    async def first(hal: Running) -> None:
        kept.append(await joined(hal, tmp_path, "n1"))
        kept.append(await joined(hal, tmp_path, "n2"))
        await greeted(hal, kept[1].credentials, "n2")
        await hal.until(lambda: any(node.name == "n2" for node in hal.api.nodes.all()))
        assert (await hal.http.post("/v1/nodes/n2/revoke")).status_code == 200

    async def second(hal: Running) -> None:
        assert isinstance((await greeted(hal, kept[0].credentials, "n1"))[1], Welcome)
        assert_denied((await greeted(hal, kept[1].credentials, "n2"))[1], "was revoked")
        assert [token.used_by for token in hal.api.join_tokens.all().tokens] == ["n1", "n2"]

    run(tmp_path, first)
    run(tmp_path, second)


def test_without_a_port_there_are_no_tokens(tmp_path: Path) -> None:
    """The error says how to start it."""

    async def play(hal: Running) -> None:
        answer = await hal.http.post("/v1/tokens", json={})
        assert answer.status_code == 409
        assert "wire" in answer.json()["hint"]

    run(tmp_path, play, Config())


def test_a_token_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """400, and none is made."""

    async def play(hal: Running) -> None:
        for body in ({"expires_in": "8d"}, {"expires_in": "-1s"}, {"node": "a/b"}, {"time": "1h"}):
            assert (await hal.http.post("/v1/tokens", json=body)).status_code == 400
        assert (await hal.http.post("/v1/tokens")).status_code == 400  # (L8) the document requires a body
        assert hal.api.join_tokens.all().tokens == []

    run(tmp_path, play)


def test_a_bad_request_for_a_certificate_leaves_the_token_good(tmp_path: Path) -> None:
    """Nothing was committed."""

    async def play(hal: Running) -> None:
        token = await token_of(hal)
        connection = await hal.runtime.connect(address_of(hal), credentials=Credentials())
        bad = Join(versions=SPOKEN, name="n1", token=read_join_token(token).proof, request="nonsense")
        await connection.send(bad)
        answer = await connection.receive(30_000)
        assert isinstance(answer, Goodbye)
        assert answer.code == "invalid-spec"
        await join_with(hal, tmp_path, token, "n1")

    run(tmp_path, play)


def run(tmp_path: Path, play: Callable[[Running], Awaitable[None]], config: Config = LISTENING) -> None:
    """A controller that listens for agents, and what happens to it."""

    async def live() -> None:
        async with running(tmp_path / "home", config) as hal:
            await play(hal)

    asyncio.run(live())
