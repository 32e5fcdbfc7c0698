"""Bundles over REST, on a running controller: whose they are, what is sent, what may be named, what goes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from hal.core.model import StepId
from hal.core.model.bundle import Entry, EntryKind, Manifest, Segment, encode_manifest
from hal.daemons.controller.config import read_config
from hal.runtime.interface import UnixAddress
from hal.wire.agree import FILES, JOB_GATES
from hal.wire.frames.conversation import Frame
from hal.wire.frames.files import BundleManifest, BundleSegment, OpenFiles, ReadBundle, ReadSegments
from hal.wire.frames.hello import Goodbye
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

CONTENT = b"print('hello')\n"
OTHER = b"print('other')\n"
CAPABLE = (FILES, JOB_GATES)


def manifest_of(*contents: bytes) -> bytes:
    entries = tuple(Entry(f"{at}.py", EntryKind.FILE, len(data)) for at, data in enumerate(contents))
    segments = tuple(Segment(hashlib.sha256(data).hexdigest(), len(data)) for data in contents)
    return encode_manifest(Manifest(entries=entries, segments=segments))


def name_of(*contents: bytes) -> str:
    return f"sha256:{hashlib.sha256(manifest_of(*contents)).hexdigest()}"


async def offer(http: httpx.AsyncClient, *contents: bytes) -> dict[str, Any]:
    answer = await http.post("/v1/bundles", content=manifest_of(*contents))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def send(http: httpx.AsyncClient, *contents: bytes) -> httpx.Response:
    body = b"".join(len(data).to_bytes(4, "little") + data for data in contents)
    return await http.post("/v1/bundles/segments", content=body)


async def ship(http: httpx.AsyncClient, *contents: bytes) -> str:
    """All of it."""
    await send(http, *contents)
    found = await offer(http, *contents)
    assert found["missing"] == []
    return str(found["id"])


async def submit(http: httpx.AsyncClient, name: str, **fields: Any) -> httpx.Response:
    return await http.post("/v1/jobs", json={"jobs": [{"command": ["true"], "ship": name, **fields}]})


def test_what_was_not_sent_is_missing_and_what_was_sent_is_not(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        assert (await offer(hal.http, CONTENT, OTHER))["missing"] == [0, 1]
        await send(hal.http, CONTENT)
        assert (await offer(hal.http, CONTENT, OTHER))["missing"] == [1]
        await send(hal.http, OTHER)
        found = await offer(hal.http, CONTENT, OTHER)
        assert (found["missing"], found["id"]) == ([], name_of(CONTENT, OTHER))
        assert (await submit(hal.http, found["id"])).status_code == 201

    on_controller(hal_home, body)


def test_a_bundle_is_not_complete_before_all_of_it_was_sent(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        await send(hal.http, CONTENT)
        await offer(hal.http, CONTENT, OTHER)
        answer = await submit(hal.http, name_of(CONTENT, OTHER))
        assert (answer.status_code, answer.json()["code"]) == (404, "bundle-missing")

    on_controller(hal_home, body)


def test_neither_a_name_nor_a_digest_is_a_key_to_what_others_have_sent(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann, person(hal, "bob") as bob:
            name = await ship(ann, CONTENT)
            refused = await submit(bob, name)
            unknown = await submit(bob, name_of(b"never sent"))
            assert refused.status_code == unknown.status_code == 404
            assert refused.json()["detail"].replace(name, "") == unknown.json()["detail"].replace(
                name_of(b"never sent"), ""
            )
            assert (await offer(bob, CONTENT))["missing"] == [0]
            assert (await bob.get("/v1/bundles")).json()["bundles"] == []
            assert (await submit(ann, name)).status_code == 201

    on_controller(hal_home, body, read_config("[access]\nrun_as_owner = true\n"))


def test_nobody_submits_with_files_in_anothers_name(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        name = await ship(hal.http, CONTENT)
        answer = await submit(hal.http, name, user="bob")
        assert answer.status_code == 403

    on_controller(hal_home, body)


@pytest.mark.parametrize(
    "body", [b"x", b"\0\0\0\0", b"\xff\xff\xff\xff", (2 << 20).to_bytes(4, "little") + b"x" * (2 << 20)]
)
def test_what_are_no_segments_is_refused(hal_home: Path, body: bytes) -> None:
    async def act(hal: Running) -> None:
        assert (await hal.http.post("/v1/bundles/segments", content=body)).status_code == 400

    on_controller(hal_home, act)


def test_a_directory_that_is_too_large_is_refused(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        answer = await hal.http.post("/v1/bundles", content=manifest_of(CONTENT, OTHER))
        assert answer.status_code == 400
        assert "2 files and directories; at most 1 are shipped" in answer.json()["detail"]

    on_controller(hal_home, body, read_config("[files]\nship_files = 1\n"))


def test_bundles_survive_the_controller(hal_home: Path) -> None:
    async def before(hal: Running) -> None:
        await ship(hal.http, CONTENT)

    async def after(hal: Running) -> None:
        assert (await submit(hal.http, name_of(CONTENT))).status_code == 201

    on_controller(hal_home, before)
    on_controller(hal_home, after)


def test_what_live_jobs_need_does_not_go(hal_home: Path) -> None:
    """The user's space holds one of them; the controller's clock is set far ahead of the last use."""

    async def body(hal: Running) -> None:
        wanted = await ship(hal.http, CONTENT)
        await submit(hal.http, wanted)
        hal.runtime.now_ms = lambda: later_ms  # type: ignore[method-assign]
        await send(hal.http, OTHER)
        answer = await hal.http.post("/v1/bundles", content=manifest_of(OTHER))
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert "files.user_bundles" in answer.json()["detail"]
        await hal.http.post("/v1/jobs/cancel", json={"ids": ["1"]})
        assert (await offer(hal.http, OTHER))["missing"] == []
        assert (await submit(hal.http, wanted)).status_code == 404

    later_ms = 4_000_000_000_000
    on_controller(hal_home, body, read_config(f'[files]\nuser_bundles = "{len(CONTENT) + 1}B"\n'))


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def asked(hal: Running, node: str, *frames: Frame) -> Frame | None:
    """What the file service of a node is answered to the last of these."""
    connection = await hal.runtime.connect(UnixAddress(hal.runtime.paths.wire_socket()))
    await connection.send(OpenFiles(versions=(1, 1), node=node))
    answer: Frame | None = None
    for frame in frames:
        await connection.send(frame)
        answer = await connection.receive(10_000)
    connection.close()
    return answer


def test_a_node_reads_what_its_step_needs(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", features=CAPABLE)
        name = await ship(hal.http, CONTENT)
        await hal.submit({"command": ["sleep"], "ship": name})
        await agent.until(lambda one: one.started)
        step, digest = StepId(1, 0, 1, 0), hashlib.sha256(CONTENT).hexdigest()
        read = await asked(hal, "n1", ReadBundle(step=step))
        assert read == BundleManifest(data=manifest_of(CONTENT))
        segment = await asked(hal, "n1", ReadBundle(step=step), ReadSegments(digests=(digest,)))
        assert segment == BundleSegment(data=CONTENT)

    on_controller(hal_home, body)


def test_a_node_reads_nothing_of_steps_that_are_elsewhere(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", features=CAPABLE)
        await hal.agent("n2", features=CAPABLE, cpu_milli=100)
        name, other = await ship(hal.http, CONTENT), await ship(hal.http, OTHER)
        await hal.submit({"command": ["sleep"], "ship": name}, {"command": ["sleep"], "ship": other, "hold": True})
        await agent.until(lambda one: one.started)
        step, digest = StepId(1, 0, 1, 0), hashlib.sha256(OTHER).hexdigest()
        for node, frames in {
            "n2": (ReadBundle(step=step),),
            "n1": (ReadBundle(step=StepId(2, 0, 1, 0)),),
            "n1 ": (ReadBundle(step=StepId(1, 0, 2, 0)),),
            "n1  ": (ReadBundle(step=step), ReadSegments(digests=(digest,))),
        }.items():
            answer = await asked(hal, node.strip(), *frames)
            assert isinstance(answer, Goodbye), answer
            assert answer.code == "denied"

    on_controller(hal_home, body)


def test_a_node_whose_agent_is_too_old_does_not_get_the_step(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        await hal.agent("old", features=(JOB_GATES,))
        (job,) = await hal.submit({"command": ["sleep"], "ship": await ship(hal.http, CONTENT)})
        await hal.until(lambda: "old" in hal.controller.planes.lead.job(int(job)).spec.exclude)  # type: ignore[attr-defined]
        agent = await hal.agent("new", features=CAPABLE)
        await agent.until(lambda one: one.started)
        assert agent.templates[0].gates[0].name == "hal.files"

    on_controller(hal_home, body)
