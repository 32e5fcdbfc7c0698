"""Limits, shares and priorities on a running controller: enforced, explained, kept over a restart."""

from __future__ import annotations

from pathlib import Path

from hal.daemons.controller.config import read_config
from tests.daemons.controller.api.test_policy_rest import SLEEP, change, put
from tests.daemons.controller.running import Running, on_controller


def test_a_limit_holds_and_is_explained(hal_home: Path) -> None:
    """Two of alice's five tasks run on a node that could take four; why names the limit, ledgers count it, and when it
    is raised the next two start."""

    async def body(hal: Running) -> None:
        await change(hal, put("limit", "few", user="*", running=2))
        agent = await hal.agent(cpu_milli=4_000)
        (job,) = await hal.submit({**SLEEP, "array": 5, "user": "alice"})
        await agent.until(lambda a: len(a.running) == 2)
        told = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
        assert (told["reason"], told["asked"], told["available"]) == ("limit", 1, 0)
        assert "user alice may use 2 tasks at once; 2 in use" in told["message"]
        (ledger,) = (await hal.http.get("/v1/ledgers")).json()["ledgers"]
        assert (ledger["scope"], ledger["used"], ledger["limit_amount"]) == ("user alice", 2, 2)
        await change(hal, put("limit", "few", user="*", running=4))
        await agent.until(lambda a: len(a.running) == 4)

    on_controller(hal_home, body)


def test_shares_and_priorities_are_told(hal_home: Path) -> None:
    """Alice runs; bob waits: the tree says who has had what, and his priority is the sum of its parts."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(cpu_milli=1_000)
        await hal.submit({**SLEEP, "user": "alice", "walltime": "1h"})
        await agent.until(lambda a: len(a.running) == 1)
        (waiting,) = await hal.submit({**SLEEP, "user": "bob", "priority": 3})
        shares = {row["user"]: row for row in (await hal.http.get("/v1/shares")).json()["shares"]}
        assert (shares["alice"]["used"], shares["bob"]["used"], shares[None]["used"]) == (1.0, 0.0, 1.0)
        assert shares["alice"]["factor"] < shares["bob"]["factor"] == 1.0
        parts = (await hal.http.get(f"/v1/jobs/{waiting}/priority")).json()
        assert (parts["discipline"], parts["priority"]) == ("priority", 3_000.0)
        named = ("age", "fairshare", "qos", "queue", "priority", "size", "deadline")
        assert abs(sum(parts[name] for name in named) - parts["total"]) < 1e-6
        assert (await hal.http.get("/v1/jobs/1/priority")).status_code == 409
        assert (await hal.http.get("/v1/jobs/99/priority")).status_code == 404

    on_controller(hal_home, body, read_config("[engine]\norder = 'priority'\n"))
