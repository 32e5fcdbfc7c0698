"""Nodes that lie: whatever one of them reports, the controller lives, commits go on, other nodes' work is untouched.

Every lie here is about a step that lives, since what is said of any other is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.core.model import StepId
from hal.runtime.interface import UnixAddress
from hal.wire.frames import Goodbye, Welcome
from tests.daemons.controller.lying_node import LyingNode, exit_of, raw
from tests.daemons.controller.running import Running, on_controller

SLEEP = {"command": ["sleep"]}
HERE = ["hal-test-node=liar"]

BOUNDARIES = (-(2**63), -(2**53) - 1, -6, -1, 0, 2**31, 2**53, 2**53 + 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
"""Integers at which something is wont to break."""


async def lying(hal: Running, name: str = "liar", **hello: Any) -> LyingNode:
    """A node that has joined, and will lie."""
    node = LyingNode(hal.runtime, UnixAddress(hal.runtime.paths.wire_socket()), name)
    assert isinstance(await node.dial(labels={"hal-test-node": name}, **hello), Welcome)
    await hal.until(lambda: any(n.name == name and n.state == "up" for n in hal.api.nodes()))
    return node


async def all_is_well(hal: Running) -> None:
    """An honest node takes a job and ends it; that is committed."""
    assert not hal.runtime.failed.done(), hal.runtime.failed.result()
    honest = next((agent for agent in hal.agents), None) or await hal.agent("honest")
    (job,) = await hal.submit({"command": ["exit", "0"], "constraints": [f"node={honest.name}"]})
    assert (await hal.ended(job))["state"] == "succeeded"
    assert not hal.runtime.failed.done(), hal.runtime.failed.result()
    assert hal.api.health().status == "ok"


def quarantined(hal: Running, name: str = "liar") -> bool:
    """Whether the node is closed because it lied."""
    view = hal.api.node(name)
    return any(one.source == "quarantine" for one in view.closures)


def on_a_live_step(home: Path, lie: Callable[[LyingNode, StepId], bytes]) -> None:
    """A step runs at a node that then says this; whatever it is, all is well elsewhere."""

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        node = await lying(hal)
        await hal.submit(SLEEP | {"constraints": HERE})
        (step,) = await node.starts()
        node.say(raw(t="started", steps=[[step, 7, 1]]))
        node.say(lie(node, step))
        await hal.until(lambda: quarantined(hal))
        await node.ends()
        await all_is_well(hal)

    on_controller(home, body)


def reports(step: StepId) -> dict[str, bytes]:
    """One report of each kind about a step."""
    return {
        "exits": raw(t="exits", exits=[exit_of(step)]),
        "refused": raw(t="refused", steps=[[step, "no-lease", "it is late"]]),
        "started": raw(t="started", steps=[[step, 7, 1]]),
        "gates": raw(t="gates", gates=[[step, "prolog", "failed", "x"], [step, "epilog", "waiting", ""]]),
    }


@pytest.mark.parametrize("kind", ["exits", "refused", "started", "gates"])
@pytest.mark.parametrize("rank", [-1, -2, -5, -(2**63)])
def test_a_rank_below_0_ends_nothing_but_its_senders_connection(hal_home: Path, kind: str, rank: int) -> None:
    """(H2, attempts 77 and 78) With one node, rank -2 was an index that is none."""
    on_a_live_step(hal_home, lambda node, step: reports(StepId(step.job, step.task, step.attempt, rank))[kind])


@pytest.mark.parametrize("code", [-1, 256, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1])
def test_an_exit_code_that_is_none_blocks_nobodys_commits(hal_home: Path, code: int) -> None:
    """(H2, attempt 79) 2^63 could not be stored, and was tried again for ever."""
    on_a_live_step(hal_home, lambda node, step: raw(t="exits", exits=[exit_of(step, code)]))


@pytest.mark.parametrize("number", [-1, 65, 2**63, 2**64 - 1])
def test_a_signal_that_is_none_blocks_nobodys_commits(hal_home: Path, number: int) -> None:
    """(H2, attempt 79)"""
    on_a_live_step(hal_home, lambda node, step: raw(t="exits", exits=[exit_of(step, 137, number, cause="signalled")]))


@pytest.mark.parametrize("amount", [-5, -1, 2**60, 2**62, 2**63, 2**64 - 1])
def test_a_capacity_that_is_none_is_refused(hal_home: Path, amount: int) -> None:
    """(H2, attempt 80) The engine takes 0 to 2^60, and was what said no: the process ended."""

    async def body(hal: Running) -> None:
        node = LyingNode(hal.runtime, UnixAddress(hal.runtime.paths.wire_socket()), "liar")
        answer = await node.dial(capacity={"cpu": amount})
        assert isinstance(answer, Goodbye)
        assert answer.code == "malformed-frame"
        await all_is_well(hal)

    on_controller(hal_home, body)


@pytest.mark.parametrize("rank", [-1, -2, 0, 1, 2])
def test_no_node_ends_the_step_of_another_in_a_gang(hal_home: Path, rank: int) -> None:
    """(H2, attempt 78) Rank -1 of a gang of two was the other's: its job succeeded, and its process ran on."""

    async def body(hal: Running) -> None:
        honest = await hal.agent("honest")
        node = await lying(hal)
        await hal.submit(SLEEP | {"nodes": 2, "request": {"cpu": 1}})
        (step,) = await node.starts()
        await honest.until(lambda a: bool(a.running))
        (theirs,) = honest.running
        if rank != step.rank:
            not_mine = StepId(step.job, step.task, step.attempt, rank)
            node.say(raw(t="exits", exits=[exit_of(not_mine), exit_of(not_mine)]))
            node.say(raw(t="exits", exits=[exit_of(step)]))
        await all_is_well(hal)
        job = await hal.http.get(f"/v1/jobs/{step.job}")
        assert job.json()["state"] == "running"
        assert theirs in honest.running

    on_controller(hal_home, body)
