"""What the keeper makes of lies on its own socket: boundary integers about live steps, epochs that nobody has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import StepId
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.ports import EpochSeen
from hal.wire.bounds import MAX_EPOCH_AHEAD
from hal.wire.codec import FrameDecoder
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.agent_keeper import AGENT_KEEPER, HeartbeatAck, Resume, StepTemplate, Stop, StopReason
from hal.wire.frames.hello import Goodbye, Hello
from hal.wire.roles import Role
from tests.daemons.agent.keeper.driving import Keeper
from tests.daemons.agent.keeper.in_memory import Bench, MemoryJournal
from tests.daemons.controller.nodes.lies import COMMANDS, about
from tests.daemons.controller.nodes.lying_node import raw
from tests.examples import examples

LIVE, NEXT = StepId(1, 0, 1, 0), StepId(9, 0, 1, 0)


def told(bench: Bench, frame: dict[str, Any]) -> None:
    """As it comes off the wire, if it is a frame at all."""
    try:
        frames = FrameDecoder(AGENT_KEEPER).feed(raw(**about(LIVE, frame)))
    except MalformedFrameError:
        return
    for one in frames:
        bench.send(one)


@settings(max_examples=examples(150))
@given(st.lists(COMMANDS, min_size=1, max_size=4))
def test_safety_no_command_about_a_live_step_breaks_the_keeper(frames: list[dict[str, Any]]) -> None:
    """(H2) Afterwards it still takes a start of its leader, and its journal can be read."""
    bench = Bench()
    bench.attach()
    bench.start(LIVE)
    bench.spawn(LIVE)
    for frame in frames:
        told(bench, frame)
    bench.attach()
    epoch = bench.core.epoch
    assert epoch <= 1 + MAX_EPOCH_AHEAD * len(frames)
    bench.start(NEXT, epoch=epoch)
    assert NEXT in bench.spawner.launched
    again = Bench(MemoryJournal(), boot_id="boot")
    again.journal.records = bench.journal.load()
    again.core.recover(again.now)


@pytest.mark.parametrize("ahead", [1, 2**20, 2**53 - MAX_EPOCH_AHEAD - 2])
def test_an_epoch_that_nobody_can_have_is_not_believed(ahead: int) -> None:
    """(H2, attempt 86) It would shut out every leader for good: neither kept in mind nor in the journal."""
    bench = Bench()
    bench.attach()
    bench.start(LIVE, epoch=7)
    bad = 7 + MAX_EPOCH_AHEAD + ahead
    for frame in (
        Hello(role=Role.AGENT, versions=(1, 1), epoch=bad),
        HeartbeatAck(stamp_boot_ms=bench.stamp, epoch=bad),
        Resume(epoch=bad, steps=(LIVE,)),
        Stop(epoch=bad, steps=(LIVE,), reason=StopReason.CANCELLED),
    ):
        answers = bench.send(frame)
        assert any(isinstance(one, Goodbye) and "implausible" in one.reason for one in answers)
    assert bench.core.epoch == 7
    assert [one.epoch for one in bench.journal.records if isinstance(one, EpochSeen)][-1] == 7
    bench.start(NEXT, epoch=7 + MAX_EPOCH_AHEAD)
    assert NEXT in bench.spawner.launched


def test_a_keeper_outlives_what_is_said_on_its_socket(hal_home: Path) -> None:
    """(H2, attempts 85 and 86) Epochs and integers of 64 bits over the real socket: it goes on under its own leader."""
    sleep = StepTemplate(command=("sleep", "60"))
    with Keeper(hal_home) as keeper:
        keeper.launch(sleep, LIVE)
        keeper.running(LIVE)
        for value in (2**64 - 1, 2**63, 2**53, 2**31, -1, -(2**63)):
            for frame in (
                {"t": "heartbeat-ack", "stamp_boot_ms": 1, "epoch": value},
                {"t": "stop", "epoch": value, "steps": [[1, 0, 1, 0]], "reason": "cancelled"},
                {"t": "resize", "epoch": 1, "steps": [[2, 0, 1, 0]], "walltime_ms": value, "cpu_milli": value},
                {"t": "exits-ack", "steps": [[1, 0, 1, value]]},
                {"t": "hello", "role": "agent", "versions": [1, 1], "epoch": value},
            ):
                keeper.connect()
                keeper.hand_out_connection().sendall(raw(**frame))
        keeper.connect()
        keeper.launch(sleep, NEXT)
        keeper.running(NEXT)
        assert LIVE not in keeper.exits
        journal = FileJournal(keeper.home.node("n1").journal / "keeper.log")
        assert max(one.epoch for one in journal.load() if isinstance(one, EpochSeen)) == keeper.epoch
        journal.close()
