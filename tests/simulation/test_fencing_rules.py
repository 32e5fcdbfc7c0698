"""Rules of fencing, broken one by one: the simulation of a cluster must notice each within a bounded number of seeds.

A rule is broken by a subclass of what holds it, put in its place for one run of seeds; everything else is real. A
simulation that stopped looking, or faults that stopped biting, would fail here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Final

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import core
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.controller import agents, controller
from hal.daemons.controller.agents import Agents
from hal.daemons.controller.node_leases import NodeLeases
from hal.planes.tasks import Orders, attempts, nodes
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.table import JobTable
from hal.store.operations import StepEnd
from tests.simulation.cluster_faults import CONGESTION, HEAD_POWER, STALLS, Fault
from tests.simulation.test_cluster import one_run

MOST_SEEDS: Final = 60
"""Within so many the simulation notices."""
AIMED_SEEDS: Final = 25
"""Of faults that are aimed at a rule."""


class FromReceipt(Lease):
    """The lease runs from when its acknowledgement came, however long that was on its way."""

    def renewed(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> None:
        super().renewed(self.stamp(now), lease_ms, now)


class NeverLapses(Lease):
    """What runs under a lease that is over goes on."""

    def lapsed(self, now: Instant) -> bool:
        return False


class AnyStamp(FromReceipt):
    """A start is carried out, and is a lease, however old its stamp is."""

    def refusal(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> str:
        return ""


class CountsOn(NodeLeases):
    """Who comes to lead takes the silence of nodes under its predecessor for silence under itself."""

    def take_office(self, nodes: Iterable[str], longest_ms: int) -> None:
        super().take_office((), longest_ms)
        for node in nodes:
            self._since_ms[node] = self._runtime.monotonic_ms() - self.lost_after_ms
            self._wait(node, 0)


class GivesAwayAtOnce(NodeLeases):
    """Tasks are given away as soon as a node is unreachable, while its lease may hold."""

    def _look(self, node: str) -> None:
        self.lost_after_ms = 3 * self.times.heartbeat_ms
        super()._look(node)

    def _wait(self, node: str, ms: int) -> None:
        super()._wait(node, min(ms, 3 * self.times.heartbeat_ms))


class BeforeTheFlush(Agents):
    """Nodes of other hosts are told of a commit that a loss of power can still take back."""

    def deliver(self, orders: dict[str, Orders]) -> None:
        super().deliver(orders)
        super().deliver_elsewhere(orders)

    def deliver_elsewhere(self, orders: dict[str, Orders]) -> None:
        """They know already."""


def any_attempt(table: JobTable, node: str, step: StepId) -> tuple[LiveJob, Attempt] | None:
    """A report about an attempt of the task that is over is taken for one about its present attempt."""
    job = table.jobs.get(step.job)
    attempt = job.active.get(step.task) if job else None
    if job is None or attempt is None or step.rank >= len(attempt.nodes):
        return None
    return None if any(end.rank == step.rank for end in attempt.steps) else (job, attempt)


def whole_gang(table: JobTable, job: LiveJob, attempt: Attempt, node: str, message: str, now_ms: int) -> None:
    """One lost node ends the attempt of a gang, without waiting for its steps on other nodes."""
    for rank, _ in enumerate(attempt.nodes):
        current = job.active.get(attempt.task)
        if current is not None and all(end.rank != rank for end in current.steps):
            end = StepEnd(rank, attempts.LOST_CAUSE, 0, 0, now_ms, message)
            attempts._step_ended(table, job, current, end, now_ms, f"node:{node}")


RULES: Final[Sequence[tuple[str, ModuleType, str, Any]]] = (
    ("a lease that lapses ends guarded steps", core, "Lease", NeverLapses),
    ("who comes to lead counts anew", agents, "NodeLeases", CountsOn),
    ("tasks are given away after T", agents, "NodeLeases", GivesAwayAtOnce),
    ("exits of attempts that were given away change nothing", attempts, "_active", any_attempt),
    ("a gang runs again when all of it has ended", nodes, "lost", whole_gang),
)


@pytest.mark.slow
def test_a_lease_that_runs_from_the_receipt_of_its_acknowledgement_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements that take ever longer, then none: the node goes on for that much longer than T counts with."""
    noticed(monkeypatch, core, "Lease", FromReceipt, CONGESTION)


@pytest.mark.slow
def test_a_start_that_is_carried_out_without_a_current_lease_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents stand still with starts in hand until those were given away."""
    noticed(monkeypatch, core, "Lease", AnyStamp, STALLS)


@pytest.mark.slow
def test_a_start_that_leaves_before_its_commit_is_flushed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's host loses power, and the next one gives the task out again."""
    noticed(monkeypatch, controller, "Agents", BeforeTheFlush, HEAD_POWER)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [CONGESTION, STALLS, HEAD_POWER], ids=["congestion", "stalls", "power"])
def test_with_all_rules_in_force_the_same_faults_find_nothing(kinds: Sequence[Fault]) -> None:
    """So it is the rule that was broken, and not the fault, that was noticed."""
    for seed in range(AIMED_SEEDS):
        aimed(seed, kinds)


def aimed(seed: int, kinds: Sequence[Fault]) -> None:
    if kinds is CONGESTION:
        one_run(seed, 1, kinds, long=True)
    else:
        one_run(seed, 3, kinds)


def noticed(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, broken: Any, kinds: Sequence[Fault]
) -> None:
    """Break the rule, and see what faults that are aimed at it find."""
    monkeypatch.setattr(module, name, broken)
    for seed in range(AIMED_SEEDS):
        try:
            aimed(seed, kinds)
        except AssertionError:
            return
    pytest.fail(f"{AIMED_SEEDS} seeds passed although the rule was broken")


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name", "broken"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_broken_rule_is_noticed(module: ModuleType, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within `MOST_SEEDS` something ran twice at once, or was told to have ended otherwise than it did."""
    monkeypatch.setattr(module, name, broken)
    for seed in range(MOST_SEEDS):
        try:
            one_run(seed)
        except AssertionError:
            return
    pytest.fail(f"{MOST_SEEDS} seeds passed although the rule was broken")
