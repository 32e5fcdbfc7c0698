"""Steps that run as their users, under one real keeper of root: short tasks of one user, of ten users at once, and what
their helpers take.

The users are system accounts that every Debian has (`min_uid = 1`). Each figure is compared with the same work for
root, whose steps the keeper's own helpers run: in turn, so that both see the same machine.
"""

from __future__ import annotations

import os
import pwd
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from hal.core.model import StepId
from hal.runtime import step_users
from hal.wire.frames.agent_keeper import Exits, ExitsAck, Start, StepStart, StepTemplate
from keeper import BURST, LONE, Driver, rss_mib, say

USERS: Final = 10
RUNS: Final = 5
TRUE: Final = StepTemplate(command=("/bin/true",), env={"PATH": os.environ["PATH"]})
CANNOT: Final = 77


def run_together(driver: Driver, count: int, users: list[str]) -> float:
    """Steps a second when all users' jobs of so many steps are started at once."""
    templates = tuple(replace(TRUE, user=user) for user in users)
    steps = []
    for position in range(len(users)):
        driver.job += 1
        steps += [
            StepStart(StepId(driver.job, task, 1, 0), position, "token", ("n1",), task, count, 0)
            for task in range(count)
        ]
    begun = time.perf_counter()
    driver.send(Start(epoch=1, stamp_boot_ms=driver.stamp, templates=templates, steps=tuple(steps)))
    left = len(steps)
    while left:
        exits = driver.next(Exits).exits
        left -= len(exits)
        assert all(one.code == 0 for one in exits), exits[0]
        driver.send(ExitsAck(steps=tuple(one.step for one in exits)))
    return len(steps) / (time.perf_counter() - begun)


def helpers_mib(uids: set[int]) -> tuple[int, float]:
    """How many helpers of these users there are, and what they and their recorders take, with their parts of what is
    shared."""
    count, kib = 0, 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if not any(word.endswith((b"/keeper/helper.py", b"/keeper/recorder.py")) for word in words):
                continue
            if not any(pwd.getpwuid(uid).pw_name.encode() in words for uid in uids):
                continue
            count += any(word.endswith(b"/keeper/helper.py") for word in words)
            kib += int((entry / "smaps_rollup").read_text().split("Pss:")[1].split()[0])
        except OSError:
            continue
    return count, kib / 1024


def main() -> int:
    if os.geteuid() != 0:
        print("needs root", file=sys.stderr)
        return CANNOT
    os.environ.pop(step_users.VARIABLE, None)
    users = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid][:USERS]
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        (home / "hal.toml").write_text("[node]\nmin_uid = 1\n")
        driver = Driver(home)
        one = replace(TRUE, user=users[0])
        root = replace(TRUE, user="root")
        try:
            for template in (root, one):
                driver.run(100, template)
            run_together(driver, 10, users)
            rates: dict[str, list[float]] = {"root": [], "one": [], "ten": []}
            for _ in range(RUNS):
                rates["root"].append(BURST / driver.run(BURST, root))
                rates["one"].append(BURST / driver.run(BURST, one))
                rates["ten"].append(run_together(driver, BURST // USERS, users))
            lone = {
                name: [1000 * driver.run(1, template) for _ in range(LONE)]
                for name, template in (("root", root), ("one", one))
            }
            medians = {name: statistics.median(runs) for name, runs in rates.items()}
            for name, label in (("root", "users-burst-root"), ("one", "users-burst-one"), ("ten", "users-burst-ten")):
                say(label, medians[name], "steps/s", runs=[round(rate) for rate in rates[name]])
            say("users-one-to-root", medians["one"] / medians["root"], "ratio", target=0.9)
            say("users-ten-to-one", medians["ten"] / medians["one"], "ratio", target=0.8)
            say("users-lone-step-root-p50", statistics.median(lone["root"]), "ms", better="lower")
            say("users-lone-step-one-p50", statistics.median(lone["one"]), "ms", target=4, better="lower")
            count, mib = helpers_mib({pwd.getpwnam(user).pw_uid for user in users})
            say("users-helpers", count, "helpers", note="of ten users, after the bursts")
            say(
                "users-helper-memory",
                mib / max(1, count),
                "MiB",
                target=16,
                better="lower",
                note="with its recorder, PSS",
            )
            say("users-keeper-rss-after", rss_mib(driver.keeper.pid), "MiB", target=30, better="lower")
        finally:
            driver.home.drop_passage()
            driver.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
