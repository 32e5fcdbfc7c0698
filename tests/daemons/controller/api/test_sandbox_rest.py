"""Sandboxes over REST where no node can make one: a job that needs one is refused, or says why it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.daemons.controller.config import read_config
from tests.daemons.controller.running import Running, on_controller

QUEUES = """
[queues.default]
[queues.safe]
sandbox = true
"""


@pytest.mark.parametrize("asked", [{"queue": "safe"}, {"sandbox": ["own-proc"]}], ids=["by its queue", "by itself"])
def test_a_sandbox_that_no_node_can_make_is_refused_and_explained(hal_home: Path, asked: dict[str, object]) -> None:
    """Both name what to install."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        job = {"command": ["exit", "0"], **asked}
        refused = await hal.http.post("/v1/jobs", json=job)
        assert (refused.status_code, "bubblewrap" in refused.json()["hint"]) == (400, True)
        (kept,) = await hal.submit({**job, "wait_for_change": True})
        why = (await hal.http.get(f"/v1/jobs/{kept}/why")).json()
        assert (why["never"], "apt-get install bubblewrap" in why["helps"][0]) == (True, True)

    on_controller(hal_home, body, read_config(QUEUES))
