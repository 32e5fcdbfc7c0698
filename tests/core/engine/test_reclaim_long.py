"""Long seeded runs of accounts that lend to each other: quotas hold at each instant, taking back ends, all jobs do."""

from __future__ import annotations

from collections import Counter

import pytest

from hal.core.engine.checks.digest import state_digest
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill
from hal.core.engine.events import JobsSubmitted, submit_rows
from hal.core.engine.views import running
from hal.core.kernels.structures.layout import RUN_CLAIM
from hal.core.model import Duration
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos, Reclaim
from hal.core.model.resources import Resources
from tests.core.engine.test_preempting_long import SECOND, World, long_run, most_taken

OWN = {"red": 8, "blue": 8, "grey": 4}
BORROWS = {"grey": 6}
TOGETHER = sum(OWN.values())
QOS = {
    "plain": Qos(name="plain", grace=Duration(4_000)),
    "idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND, grace=Duration(2_000)),
    "urgent": Qos(name="urgent", preempts=("idle",)),
}


class Lenders(World):
    """Three accounts of one cohort and one beside it, on 24 cpus; some work may be taken back by QOS too."""

    def policy(self) -> Policy:
        limits = {
            name: Limit(
                name=name, account=name, resources=Resources({"cpu": own}), cohort="colours", reclaim=Reclaim.PREEMPT,
                borrow=Resources({"cpu": BORROWS[name]}) if name in BORROWS else None,
            )
            for name, own in OWN.items()
        }  # fmt: skip
        self.account: dict[int, str] = {}
        self.cpus: dict[int, int] = {}
        return Policy(qos=QOS, limits=limits)

    def submit(self, job: int) -> None:
        account = self.random.choice(("red", "red", "blue", "grey", "green"))
        quality = self.random.choice(("plain", "plain", "idle", "urgent"))
        length = self.random.randint(5, 200) * SECOND
        cpu, gang = self.random.randint(1, 4), self.random.choice((1, 1, 1, 2))
        self.quality[job], self.length[job], self.left[job] = quality, length, length
        self.account[job], self.cpus[job] = account, cpu * gang
        rows = submit_rows(1)
        rows["job"], rows["submit_ms"] = job, self.now
        rows["walltime_ms"] = length + self.random.choice((0, 30 * SECOND))
        self.scheduler.feed(
            JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, gang),), (OwnerSpec("", account, "", quality),))
        )

    def use(self) -> Counter[str]:
        """What runs now, by account; suspended and leaving work too."""
        used: Counter[str] = Counter()
        for job in (*self.going, *self.suspended):
            used[self.account[job]] += self.cpus[job]
        return used

    def may_take(self, who: int, job: int) -> bool:
        by_qos = self.quality[who] == "urgent" and self.quality[job] == "idle"
        lender, borrower = self.account[who], self.account[job]
        if by_qos or lender not in OWN or borrower not in OWN:
            return by_qos
        used = self.use()
        for run in running(self.state):
            if int(run["state"]) == RUN_CLAIM:  # what is being cleared for somebody is his; `who` has its claim already
                used[self.account[int(run["job"])]] += self.cpus[int(run["job"])]
        return used[lender] <= OWN[lender] and used[borrower] > OWN[borrower]

    def judge(self) -> None:
        used = self.use()
        assert sum(used[name] for name in OWN) <= TOGETHER, f"{used} at {self.now}"
        for name, most in BORROWS.items():
            assert used[name] <= OWN[name] + most


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.TOP_K, Backfill.CONSERVATIVE])
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 23))])
def test_safety_reclaim_ends_and_no_quota_is_exceeded(seed: int, backfill: Backfill) -> None:
    """All jobs end; each is taken back no more often than its doubling protection allows; some are.

    What a QOS suspends and a lender requeues is suspended as often in each try: n tries allow n + (n - 1) + … times.
    """
    world = long_run(seed, backfill, 150, Lenders)
    assert world.taken, "nobody was taken back: the run shows nothing"
    for job, times in world.taken.items():
        most = most_taken(world, job)
        if world.quality[job] == "idle":
            most = most * (most + 1) // 2
        assert times <= most, f"job {job} was taken back {times} times"
    assert not [run for run in running(world.state) if run["state"] == RUN_CLAIM]


def test_a_seed_of_lenders_gives_the_same_run() -> None:
    """Byte for byte."""
    first, second = (long_run(9, Backfill.EASY, 60, Lenders) for _ in range(2))
    assert first.taken == second.taken
    assert state_digest(first.state) == state_digest(second.state)
