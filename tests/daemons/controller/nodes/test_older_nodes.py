"""Nodes whose keeper is older than what a job asks for: the job is not run there as if it had not asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hal.wire.agree import FEATURES, STEP_FEATURES
from hal.wire.frames.agent_keeper import StepTemplate
from hal.wire.template_needs import NEEDS, unmet_need
from tests.daemons.controller.running import Running, on_controller

SCRIPT = "#!/bin/sh\ntrue\n"


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"script": SCRIPT, "arguments": ["7"]}, "arguments of scripts"),
        ({"script": SCRIPT, "dialect": "slurm"}, "variables of other schedulers"),
        ({"command": ["true"], "workdir": "/tmp", "stdout": "out"}, "files for input and output"),
        ({"command": ["sh"], "interactive": "pipes"}, "interactive jobs"),
        ({"command": ["true"], "service": True}, "services"),
        ({"command": ["true"], "extensions": 1, "on_resize": "WINCH"}, "files that name the nodes of a job"),
        ({"command": ["true"], "umask": "0027"}, "umasks of jobs"),
    ],
)
def test_a_job_leaves_a_node_that_would_drop_a_part_of_it(hal_home: Path, asked: dict[str, Any], what: str) -> None:
    """It says why, and runs on the next node that knows all of it."""

    async def body(hal: Running) -> None:
        old = await hal.agent("old", knows=())
        (job,) = await hal.submit(asked)
        plane: Any = hal.controller.planes.lead
        await hal.until(lambda: "old" in plane.job(int(job)).spec.exclude)
        reason = (await hal.http.get(f"/v1/jobs/{job}/why")).json()["message"]
        assert f"an older HAL runs on old (attempt 1): it does not know {what}; upgrade HAL there" in reason
        new = await hal.agent("new")
        await new.until(lambda one: one.started)
        assert old.started == []

    on_controller(hal_home, body)


def test_an_older_node_runs_what_asks_for_nothing_new(hal_home: Path) -> None:
    """A plain command."""

    async def body(hal: Running) -> None:
        old = await hal.agent("old", knows=())
        await hal.submit({"command": ["true"]})
        await old.until(lambda one: one.started)

    on_controller(hal_home, body)


def test_every_need_is_a_feature_that_this_keeper_names() -> None:
    """What is asked for and what is offered agree."""
    assert tuple(need.feature for need in NEEDS) == STEP_FEATURES
    assert set(STEP_FEATURES) <= set(FEATURES)


def test_a_command_with_words_is_no_script_with_arguments() -> None:
    """Both are in `command` of a template."""
    assert unmet_need(StepTemplate(command=("echo", "7")), ()) == ""
