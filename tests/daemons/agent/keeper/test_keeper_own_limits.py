"""Limits that a step gives to its helper: they end with the helper, and no later step has them. (M7, variants)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.wire.frames.agent_keeper import StepTemplate
from tests.daemons.agent.keeper.driving import Keeper

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home", helpers=1) as keeper:
        yield keeper


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["nofile=4", "fsize=100", "as=8000000"])
def test_a_step_that_lowers_its_helpers_limits_lowers_no_other_steps(keeper: Keeper, limit: str) -> None:
    """Every step after it failed with 126, as if that were its own fault; or had the limit, too."""
    keeper.shell(f"prlimit --pid $PPID --{limit}:{limit.partition('=')[2]}")
    keeper.acknowledge(ONE)
    script = "head -c 5000 /dev/zero; exec 3</dev/null 4</dev/null 5</dev/null && exit 3"
    assert keeper.run(shell(script), TWO).code == 3
    assert keeper.log(TWO).size == 5_000


def shell(script: str) -> StepTemplate:
    return StepTemplate(command=("sh", "-c", script))
