"""Replays under a whole policy: how near delivered shares are to targets, and how many jobs of a real log a second.

`policy-shares-1-2-5`: three accounts with work without end, jobs of a hundredth of the half-life, ten half-lives.
`policy-replay-sdsc`: SDSC-SP2 as a pool of 128 with 200 made-up accounts, shares and a limit for each user, admission
included, kernels loaded and the log parsed before. The log is looked for in $HAL_SHARED/traces/swf, else in
`shared/traces/swf` beside the repository; without it only the first is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from hal.core.engine.config import EngineConfig
from hal.core.model.policy_text import policy_from_plain
from hal.daemons.twin.account_figures import by_account
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.policy_replay import load_site_kernels, replay_under
from hal.daemons.twin.population import Population, assign_accounts, in_queue, of_log, parse_assignment
from hal.daemons.twin.site_admission import Site
from hal.daemons.twin.swf import Workload, read_log, usable_jobs

ROOT: Final = Path(__file__).resolve().parent.parent
SDSC: Final = "SDSC-SP2-1998-4.2-cln.swf.gz"
RUNS: Final = 3
HALF_LIFE_S: Final = 1_000
HALF_LIVES: Final = 10


def site(**tables: Any) -> Site:
    """A site of this policy."""
    return Site(label="site", engine=EngineConfig(order="priority", policy=policy_from_plain(tables)))


def shares() -> None:
    """The largest distance of a delivered share from its target, in percent of everything."""
    weights = {"one": 1.0, "two": 2.0, "five": 5.0}
    here = site(
        accounts={name: {"weight": weight} for name, weight in weights.items()},
        fairshare={"half_life": f"{HALF_LIFE_S}s"},
    )
    jobs, run_s = 12_000, HALF_LIFE_S // 100
    ones, number = np.ones(jobs, np.int64), np.arange(1, jobs + 1)
    load = Workload(number, 0 * ones, run_s * ones, run_s * ones, ones, -ones, {})
    people = Population(("default",), tuple(weights), ("u",), 0 * ones, number % 3, 0 * ones)
    run = replay_under(load, Machine.pool(4), people, here, until_s=HALF_LIVES * HALF_LIFE_S)
    parties = by_account(run)
    off = max(abs((party.delivered or 0.0) - party.target) for party in parties)
    told = ", ".join(f"{party.name} {party.delivered:.2%} of {party.target:.2%}" for party in parties)
    say("policy-shares-1-2-5", round(100 * off, 3), "% off", 2.0, "lower", told)


def speed(path: Path) -> None:
    """Jobs of the log replayed a second."""
    log = read_log(path)
    load = usable_jobs(log, 128)
    here = site(limits={"each": {"user": "*", "running": 50, "resources": {"cpu": 128}}})
    people = in_queue(of_log(load, {}, {}), "default")
    people = assign_accounts(load, people, parse_assignment("200", here.policy), seed=1)
    load_site_kernels(here)
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        run = replay_under(load, Machine.pool(128), people, here, origin_s=log.unix_start_s)
        taken.append(time.perf_counter() - began)
        assert run.started.all()
    value = round(load.jobs / statistics.median(taken))
    say("policy-replay-sdsc", value, "jobs/s", None, "higher", f"{load.jobs:,} jobs, 200 accounts; median of {RUNS}")


def say(bench: str, value: float, unit: str, target: float | None, better: str, note: str) -> None:
    """One JSON line."""
    line = {"bench": bench, "value": value, "unit": unit, "better": better, "note": note}
    line |= {"load": round(os.getloadavg()[0], 2)} | ({} if target is None else {"target": target})
    print(json.dumps(line), flush=True)


def main() -> None:
    load_site_kernels(site())
    shares()
    log = Path(os.environ.get("HAL_SHARED") or ROOT.parent / "shared") / "traces" / "swf" / SDSC
    if log.is_file():
        speed(log)


if __name__ == "__main__":
    main()
