"""Nodes that lie: whatever one of them reports, the controller lives, commits go on, other nodes' work is untouched.

Every lie here is about a step that lives, since what is said of any other is passed over.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hal.core.engine.checks.invariants import check_invariants
from hal.core.model import StepId
from hal.daemons.controller.service.nodes.nodes import NodeAction, NodesBody
from hal.planes.tasks import Submitter, check_table
from hal.rest.audit import AuditLog
from hal.runtime.interface import UnixAddress
from hal.wire.agree import OUTPUTS, QUARANTINED
from hal.wire.bounds import MAX_EPOCH_AHEAD
from hal.wire.frames.agent_keeper import ReadLog, ReadOutputs
from hal.wire.frames.hello import Goodbye, Welcome
from tests.daemons.controller.nodes.lies import REPORTS, about
from tests.daemons.controller.nodes.lying_node import LyingNode, exit_of, raw
from tests.daemons.controller.running import Running, on_controller, running
from tests.examples import examples

SLEEP = {"command": ["sleep"]}
TRUE = {"command": ["exit", "0"]}


def node_of(hal: Running, name: str) -> LyingNode:
    return LyingNode(hal.runtime, UnixAddress(hal.runtime.paths.wire_socket()), name)


async def lying(hal: Running, name: str = "liar", **hello: Any) -> LyingNode:
    """A node that has joined, and will lie."""
    node = node_of(hal, name)
    assert isinstance(await node.dial(labels={"only": name}, **hello), Welcome)
    await hal.until(lambda: any(n.name == name and n.state == "up" for n in hal.api.nodes.all()))
    return node


async def with_step(hal: Running, name: str = "liar", **hello: Any) -> tuple[LyingNode, StepId]:
    """The same, and a step that runs there."""
    node = await lying(hal, name, **hello)
    await hal.submit(SLEEP | {"constraints": [f"only={name}"]})
    (step,) = await node.starts()
    node.say(raw(t="started", steps=[[step, 7, 1]]))
    return node, step


async def all_is_well(hal: Running) -> None:
    """An honest node takes a job and ends it; that is committed, and plane and engine are whole."""
    assert not hal.runtime.failed.done(), hal.runtime.failed.result()
    honest = next((agent for agent in hal.agents), None) or await hal.agent("honest")
    (job,) = await hal.submit(TRUE | {"constraints": [f"node={honest.name}"]})
    assert (await hal.ended(job))["state"] == "succeeded"
    assert not hal.runtime.failed.done(), hal.runtime.failed.result()
    assert hal.api.status.health().status == "ok"
    check_table(hal.api.jobs._parts.plane._table)
    check_invariants(hal.api.jobs._parts.engine.state)


def quarantined(hal: Running, name: str = "liar") -> bool:
    """Whether the node is closed because it lied."""
    return any(one.source == "quarantine" for one in hal.api.nodes.get(name).closures)


def lies_of(home: Path, *lies: Callable[[StepId], bytes]) -> None:
    """A node for each says it of a step that runs there; each is quarantined, and all is well elsewhere."""

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        for number, lie in enumerate(lies):
            name = f"liar{number}"
            node, step = await with_step(hal, name)
            node.say(lie(step))
            await hal.until(lambda name=name: quarantined(hal, name))  # type: ignore[misc]
            told = await node.ends()
            assert told is not None
            assert told.code in (QUARANTINED, "malformed-frame")
        await all_is_well(hal)

    on_controller(home, body)


def at_rank(step: StepId, rank: int) -> StepId:
    return StepId(step.job, step.task, step.attempt, rank)


def test_a_rank_below_0_ends_nothing_but_its_senders_connection(hal_home: Path) -> None:
    """(H2, attempts 77 and 78) With one node, rank -2 was an index that is none, in four kinds of frame."""
    lies_of(
        hal_home,
        lambda step: raw(t="exits", exits=[exit_of(at_rank(step, -1))]),
        lambda step: raw(t="exits", exits=[exit_of(at_rank(step, -2))]),
        lambda step: raw(t="refused", steps=[[at_rank(step, -2), "no-lease", "it is late"]]),
        lambda step: raw(t="started", steps=[[at_rank(step, -(2**63)), 7, 1]]),
        lambda step: raw(t="gates", gates=[[at_rank(step, -5), "epilog", "waiting", ""]]),
    )


def test_an_exit_code_or_a_signal_that_is_none_blocks_nobodys_commits(hal_home: Path) -> None:
    """(H2, attempt 79) 2^63 could not be stored, and was tried again for ever: every submission failed."""
    lies_of(
        hal_home,
        lambda step: raw(t="exits", exits=[exit_of(step, -1)]),
        lambda step: raw(t="exits", exits=[exit_of(step, 256)]),
        lambda step: raw(t="exits", exits=[exit_of(step, 2**63)]),
        lambda step: raw(t="exits", exits=[exit_of(step, 137, 65, cause="signalled")]),
        lambda step: raw(t="exits", exits=[exit_of(step, 137, 2**64 - 1, cause="signalled")]),
    )


def test_frames_without_measure_end_only_their_senders_connection(hal_home: Path) -> None:
    """(H2) A million items, a text of a megabyte, instants beyond all numbers, infinite load, bytes that are none."""
    broken = raw(t="refused", steps=[[[1, 0, 1, 0], "no-lease", "xx"]]).replace(b"xx", b"\xff\xfe")
    lies_of(
        hal_home,
        lambda step: raw(t="started", steps=[[step, 7, 1]] * 1_000_000),
        lambda step: raw(t="exits", exits=[exit_of(step, message="x" * 1_000_000)]),
        lambda step: raw(t="exits", exits=[exit_of(step, ended=2**63)]),
        lambda step: raw(t="heartbeat", stamp_boot_ms=1, load=float("inf")),
        lambda step: raw(t="heartbeat", stamp_boot_ms=-1, load=float("nan")),
        lambda step: raw(t="health", failing=[["disk", "full", 2**64 - 1]]),
        lambda step: raw(t="renew", request="x" * 100_000),
        lambda step: broken,
        lambda step: raw(t="exits-ack", steps=[step]),
    )


def test_a_hello_that_offers_what_cannot_be_is_refused(hal_home: Path) -> None:
    """(H2, attempt 80) The engine takes 0 to 2^60, and was what said no: the process ended."""

    async def body(hal: Running) -> None:
        for amount in (-5, -1, 2**60, 2**62, 2**63, 2**64 - 1):
            answer = await node_of(hal, "liar").dial(capacity={"cpu": amount})
            assert isinstance(answer, Goodbye)
            assert answer.code == "malformed-frame"
        for hello in (
            {"capacity": {"\x1b[1m": 1}},
            {"capacity": {"": 1}},
            {"capacity": {f"r{n}": 1 for n in range(65)}},
            {"labels": {f"l{n}": "" for n in range(20_000)}},
            {"notes": ["x"] * 100_000},
            {"held": [[[1, n, 1, 0], True, 7, 1] for n in range(70_000)]},
            {"epoch": MAX_EPOCH_AHEAD + 100},
            {"epoch": 2**64 - 1},
            {"name": "../../etc"},
        ):
            answer = await node_of(hal, "liar").dial(**hello)
            assert isinstance(answer, Goodbye), hello
        assert not [node for node in hal.api.nodes.all() if node.name == "liar"]
        await all_is_well(hal)

    on_controller(hal_home, body)


def test_texts_of_a_node_are_one_line_without_control_characters(hal_home: Path) -> None:
    """(M1c) Labels, notes, facts and reasons are shown to people."""

    async def body(hal: Running) -> None:
        esc = "\x1b]0;PWNED\x07\n\u202e"
        node = node_of(hal, "liar")
        facts = {"host": esc, "cpu": {"model": esc, "cores": -(2**63)}, "disks": [{"path": esc}] * 500}
        assert isinstance(
            await node.dial(labels={esc: esc}, notes=[esc] * 200, facts=facts, features=["health"]), Welcome
        )
        node.say(raw(t="health", failing=[[esc, esc, 2**53]]))
        await hal.until(lambda: bool(hal.api.nodes.all()) and bool(hal.api.nodes.all()[0].closures))
        view = hal.api.nodes.get("liar")
        closure = view.closures[0]
        assert closure.since_ms <= hal.runtime.now_ms()
        texts = [*view.labels, *view.labels.values(), *view.notes, view.reason, closure.reason, closure.source]
        texts += [view.facts.host, view.facts.cpu.model, view.facts.disks[0].path]  # type: ignore[union-attr]
        assert all(text.isprintable() for text in texts)
        assert (len(view.notes), len(view.facts.disks)) == (64, 64)  # type: ignore[union-attr]

    on_controller(hal_home, body)


def test_safety_a_node_cannot_say_by_its_label_that_it_is_another(hal_home: Path) -> None:
    """Jobs exclude nodes by it: who could leave it out would be given again what it has sent away."""

    async def story(hal: Running) -> None:
        node = node_of(hal, "liar")
        assert isinstance(await node.dial(labels={"hal.node": "honest"}), Welcome)
        await hal.until(lambda: any(one.name == "liar" for one in hal.api.nodes.all()))
        (shown,) = [one for one in hal.api.nodes.all() if one.name == "liar"]
        assert shown.labels["hal.node"] == "liar"

    on_controller(hal_home, story)


@pytest.mark.parametrize("rank", [-1, 0, 1])
def test_no_node_ends_the_step_of_another_in_a_gang(hal_home: Path, rank: int) -> None:
    """(H2, attempt 78) Rank -1 of a gang of two was counted as one more: its job succeeded, and a process ran on."""

    async def body(hal: Running) -> None:
        honest = await hal.agent("honest")
        node = await lying(hal)
        await hal.submit(SLEEP | {"nodes": 2, "request": {"cpu": 1}})
        (step,) = await node.starts()
        await honest.until(lambda a: bool(a.running))
        (theirs,) = honest.running
        node.say(raw(t="exits", exits=[exit_of(step), exit_of(at_rank(step, rank))]))
        await all_is_well(hal)
        job = await hal.http.get(f"/v1/jobs/{step.job}")
        assert job.json()["state"] in ("running", "allocated")
        assert theirs in honest.running

    on_controller(hal_home, body)


def test_a_quarantine_is_told_outlives_a_restart_and_is_lifted_by_a_person(hal_home: Path) -> None:
    """Its reason is in the node, in the audit log and in why a job waits; after `uncordon` the node works again."""

    async def lie(hal: Running) -> None:
        node, step = await with_step(hal)
        node.say(raw(t="exits", exits=[exit_of(step, 2**63)]))
        await hal.until(lambda: quarantined(hal))
        assert isinstance(await node_of(hal, "liar").dial(), Goodbye)  # not heard so soon

    async def mend(hal: Running) -> None:
        assert quarantined(hal)
        node = node_of(hal, "liar")
        assert isinstance(await node.dial(labels={"only": "liar"}), Welcome)
        await hal.until(lambda: hal.api.nodes.get("liar").state == "cordoned")
        (job,) = await hal.submit(TRUE | {"constraints": ["only=liar"]})
        why = await hal.http.get(f"/v1/jobs/{job}/why")
        assert "quarantine: " in why.text
        node.say(raw(t="goodbye"))
        await hal.api.nodes.control(NodeAction.UNCORDON, NodesBody(nodes=["liar"]), Submitter("ada"))
        again = node_of(hal, "liar")
        assert isinstance(await again.dial(labels={"only": "liar"}), Welcome)
        assert len(await again.starts(2)) == 2
        audit = AuditLog(hal.runtime.paths.log_file("audit"))
        (entry,) = [one for one in audit.page(limit=100) if one.method == "QUARANTINE"]
        assert (entry.user, entry.path) == ("node:liar", "/v1/nodes/liar")
        audit.close()

    on_controller(hal_home, lie)
    on_controller(hal_home, mend)


def test_a_node_that_goes_on_lying_grows_neither_log_nor_audit_nor_events(hal_home: Path) -> None:
    """(L8, attempt 84) Floods of what was not done, of failing checks and of hellos: lines and events are bounded."""

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        node, step = await with_step(hal)
        before = (await hal.http.get("/v1/events", params={"limit": 1_000})).json()["events"]
        failed = [[step, "x" * 500]] * 200
        for number in range(300):
            node.say(raw(t="done", command="signal", failed=failed))
            node.say(raw(t="gates", gates=[[step, "epilog", "failed", f"{number}"]]))
            node.say(raw(t="exits", exits=[exit_of(at_rank(step, 7))]))
        await hal.until(lambda: "epilog" in hal.api.nodes.get("liar").reason)
        await all_is_well(hal)
        for _ in range(60):
            await node_of(hal, "liar").dial(features=["health"])
        for number in range(500):
            node.say(raw(t="health", failing=[["disk", f"{number}", 1]]))
        await all_is_well(hal)
        text = hal.runtime.paths.log_file("controller").read_text()
        about_it = [line for line in text.splitlines() if '"node":"liar"' in line]
        assert len(about_it) < 60
        after = (await hal.http.get("/v1/events", params={"limit": 1_000})).json()["events"]
        assert len(after) - len(before) < 300

    on_controller(hal_home, body)


def test_the_output_of_another_step_is_not_taken_for_the_one_that_was_asked_for(hal_home: Path) -> None:
    """A chunk of another step, and one of more than was asked for: the reader is told, the node is quarantined."""

    async def body(hal: Running) -> None:
        for number, (other, size) in enumerate(((1, 1), (0, 1 << 21))):
            name = f"liar{number}"
            node, step = await with_step(hal, name)
            reading = asyncio.ensure_future(hal.http.get(f"/v1/jobs/{step.job}/logs"))
            while not isinstance(asked := await node._next(), ReadLog):
                pass
            chunk = {"t": "log-chunk", "request": asked.request, "step": at_rank(step, step.rank + other)}
            node.say(raw(**chunk, stream="stdout", offset=0, data=b"x" * size, size=size, ended=True))
            assert (await reading).status_code >= 500
            await hal.until(lambda name=name: quarantined(hal, name))  # type: ignore[misc]
        await all_is_well(hal)

    on_controller(hal_home, body)


@pytest.mark.parametrize("parts", [[], [[0, b"x", 1]] * 2, [[0, b"x" * (1 << 15), 1 << 15]]])
def test_outputs_of_many_tasks_are_no_more_than_was_asked_for(parts: list[Any], hal_home: Path) -> None:
    """None at all, one too many, one too long: the reader hears of an error, the node is quarantined."""

    async def body(hal: Running) -> None:
        node, step = await with_step(hal, "liar", features=[OUTPUTS])
        reading = asyncio.ensure_future(hal.http.get(f"/v1/jobs/{step.job}/outputs"))
        while not isinstance(asked := await node._next(), ReadOutputs):
            pass
        node.say(raw(t="output-parts", request=asked.request, parts=parts))
        assert b'"error":' in (await reading).content
        await hal.until(lambda: quarantined(hal, "liar"))

    on_controller(hal_home, body)


def test_an_answer_to_what_an_earlier_controller_asked_is_no_lie(hal_home: Path) -> None:
    """A keeper answers late, over the connection that there is then: `hal logs -f` while a controller is restarted."""

    async def asked_for_output(hal: Running, name: str) -> tuple[LyingNode, ReadLog, asyncio.Future[Any]]:
        node, step = await with_step(hal, name)
        reading = asyncio.ensure_future(hal.http.get(f"/v1/jobs/{step.job}/logs"))
        while not isinstance(asked := await node._next(), ReadLog):
            pass
        return node, asked, reading

    async def body() -> None:
        async with running(hal_home) as hal:
            _, earlier, unanswered = await asked_for_output(hal, "gone")
            unanswered.cancel()
        async with running(hal_home) as hal:
            node, asked, reading = await asked_for_output(hal, "liar")
            for one in (earlier, asked):
                chunk = {"t": "log-chunk", "request": one.request, "step": one.step}
                node.say(raw(**chunk, stream="stdout", offset=0, data=b"x", size=1, ended=True))
            assert (await reading).content == b"x"
            assert not quarantined(hal, "liar")

    asyncio.run(body())


class Living:
    """A controller that lives through all examples."""

    def __init__(self, runner: asyncio.Runner, hal: Running) -> None:
        self.runner = runner
        self.hal = hal
        self.names = (f"liar{number}" for number in itertools.count())

    async def hear(self, frames: list[dict[str, Any]]) -> None:
        """A new node runs a step and says these of it."""
        node, step = await with_step(self.hal, next(self.names))
        for frame in frames:
            node.say(raw(**about(step, frame)))
        await all_is_well(self.hal)
        node.leave()
        await self.hal.http.post("/v1/jobs/cancel", json={"ids": [str(step.job)]})


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        opened = running(tmp_path_factory.mktemp("lies") / "home")
        hal = runner.run(opened.__aenter__())
        runner.run(hal.agent("honest"))
        yield Living(runner, hal)
        runner.run(opened.__aexit__(None, None, None))


LIES = st.lists(REPORTS, min_size=1, max_size=3)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow])
@given(LIES)
def test_safety_whatever_is_said_of_a_live_step_harms_nobody_else(living: Living, frames: list[dict[str, Any]]) -> None:
    """(H2) Boundary integers in every field of every report about a step that lives."""
    living.runner.run(living.hear(frames))


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(LIES)
def test_safety_whatever_is_said_of_a_live_step_harms_nobody_else_many(
    living: Living, frames: list[dict[str, Any]]
) -> None:
    """As above, four times as many."""
    living.runner.run(living.hear(frames))
