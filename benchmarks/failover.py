"""The leader is killed with 50,000 jobs pending: how long until the follower has started the next step.

Two controllers, each a process with a home of its own, on one private PostgreSQL; an agent without processes waits at
the follower's socket, as one that was sent on does. From SIGKILL to the start frame's arrival.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _private_hal import say
from tests.daemons.controller.following.test_failover import pair
from tests.postgres_server import PostgresServer

PENDING = 50_000
BATCH = 2_000
ROUNDS = 3
TARGET_S = 6


async def once(url: str, root: Path) -> float:
    """Seconds of one failover."""
    async with pair(root, url) as both:
        waiting = {"jobs": [{"command": ["exit", "0"]}] * BATCH}
        for _ in range(PENDING // BATCH):
            assert (await both.first.ask("POST", "/v1/jobs", json=waiting)).status_code == 201
        begin = time.perf_counter()
        both.first.kill()
        agent = await both.agent(both.second)
        await agent.until(lambda one: bool(one.started), 60.0)
        taken = time.perf_counter() - begin
        await agent.leave()
        return taken


def main() -> int:
    server = PostgresServer()
    try:
        found = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="h", dir="/tmp") as root:
                found.append(asyncio.run(once(server.fresh(), Path(root))))
    finally:
        server.remove()
    say("failover-50000-pending", statistics.median(found), "s", TARGET_S, higher=False, worst=round(max(found), 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
