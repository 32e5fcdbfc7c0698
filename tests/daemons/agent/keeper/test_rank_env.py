"""What a step is told of where its ranks meet, and what the keeper of the first node makes sure of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hal.core.model import StepId
from hal.daemons.agent.keeper.environment import rank_env
from hal.wire.frames.agent_keeper import Refused, Start, StepStart, StepTemplate
from tests.daemons.agent.keeper.in_memory import Bench

FIRST = StepStart(
    StepId(7, 0, 1, 0), 0, "t", ("w1", "w2"), 0, 1, 0, addresses=("10.0.0.1", "10.0.0.2"), master_port=18_003
)
SECOND = replace(FIRST, step=StepId(7, 0, 1, 1))
MEETING = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "18003"}


def test_each_step_of_a_gang_is_a_rank() -> None:
    numbers = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert rank_env(SECOND, StepTemplate(ranks=True)) == MEETING | numbers


def test_a_command_that_launches_its_ranks_is_none_itself() -> None:
    """It runs on the first node alone; the ranks get their numbers from `hal launch`."""
    assert rank_env(FIRST, StepTemplate()) == MEETING


def test_what_a_job_sets_stays() -> None:
    found = rank_env(SECOND, StepTemplate(ranks=True, env={"MASTER_PORT": "29500", "RANK": "9"}))
    assert (found.keys() & {"MASTER_PORT", "RANK"}, found["MASTER_ADDR"]) == (set(), "10.0.0.1")


def test_ranks_of_one_node_meet_at_its_loopback_device() -> None:
    start = replace(FIRST, nodes=("w1",), addresses=())
    assert rank_env(start, StepTemplate()) == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "18003"}


def test_a_step_without_such_a_port_is_told_nothing() -> None:
    assert rank_env(replace(FIRST, master_port=0), StepTemplate(ranks=True)) == {}


@pytest.mark.parametrize(("start", "refused"), [(FIRST, True), (SECOND, False)])
def test_the_first_node_refuses_a_start_at_whose_port_somebody_listens(start: StepStart, refused: bool) -> None:
    """The attempt is tried again with another port; on the other nodes nobody will listen."""
    bench = Bench()
    bench.core._is_port_free = lambda port: port != 18_003
    bench.attach()
    frames = bench.send(
        Start(epoch=1, stamp_boot_ms=bench.stamp, templates=(StepTemplate(command=("true",)),), steps=(start,))
    )
    texts = [one.message for frame in frames if isinstance(frame, Refused) for one in frame.steps]
    assert texts == (["another program uses port 18003, where its ranks meet"] if refused else [])
