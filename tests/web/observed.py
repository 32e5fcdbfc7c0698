"""A HAL with a collector before simulated nodes that are measured: alerts fire, attempts have ended and cost money."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.web.browser import Site, site
from tests.web.simulated_cluster import work

OBSERVED: Final = """
[observability.alerts]
every = "1s"
node_down = "0s"
commit = "1ms"
[observability.prices]
currency = "EUR"
core_hour = 0.02
gib_hour = 0.002
gpu_hour = 1.2

[bookings.course]
start = "2026-11-23T09:00"
duration = "2h"
repeat = "daily"
nodes = ["n0001", "n0002", "n0003"]
accounts = ["physics"]
description = "Parallel programming, third year"
[bookings.upgrade]
start = "2026-11-26T06:00"
duration = "9h"
nodes = ["gpu0120", "gpu0121", "gpu0122"]
maintenance = true
description = "New firmware of the switches"
[bookings.paper]
start = "2026-11-27T12:00"
duration = "30h"
count = 8
users = ["maria"]

[queues.default]
[queues.gpu]
[queues.short]
"""
USERS: Final = ("maria", "jonas", "amira", "wei", "olu")
SIMULATED: Final = re.compile(r"(n|gpu)\d{4}")
QUEUES: Final = ("default", "default", "gpu", "short")


def users_work(jobs: int, seed: int = 5) -> list[dict[str, Any]]:
    """Like `work`, of several users and queues."""
    chance = random.Random(seed)
    return [spec | {"user": chance.choice(USERS), "queue": chance.choice(QUEUES)} for spec in work(jobs, seed=seed)]


@contextmanager
def observed_site(*, nodes: int, jobs: int, port: int, config: str = "") -> Iterator[Site]:
    """One whose nodes finish their first steps within seconds."""
    home = Path(tempfile.mkdtemp(prefix="hal-o-"))
    try:
        with site(
            home,
            nodes=nodes,
            jobs=0,
            port=port,
            config=OBSERVED + config,
            collector=True,
            measured=True,
            lasts_s=(2.0, 240.0),
            away=2,
        ) as made:
            for node in made.client.nodes():
                if not SIMULATED.fullmatch(node.name):  # this machine's own, which has no accounts of these users
                    made.client.cordon(node.name, reason="no work of simulated users here")
            specs = users_work(jobs)
            for at in range(0, len(specs), 1_000):
                made.client.submit(specs[at : at + 1_000])
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def wait_until(check: Any, what: str, limit_s: float = 120.0) -> None:
    """Ask again until it is so."""
    deadline = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
