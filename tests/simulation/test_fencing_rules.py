"""Rules of fencing, broken one by one: the simulation of a cluster must notice each within a bounded number of seeds.

A rule is broken by a subclass of what holds it, put in its place for one run of seeds; everything else is real. A
simulation that stopped looking, or faults that stopped biting, would fail here. That a keeper refuses what a former
leader asks for is not among them: whatever comes that late has an old stamp too, or was buried by a stop. The keeper's
own tests break that one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection

from hal.core.lifecycle import GateDecision, GateVerdict
from hal.core.model import StepId
from hal.core.model.gate import GatePhase
from hal.daemons.agent import agent, node_gates
from hal.daemons.agent.gate_services import GateServices, Subject
from hal.daemons.agent.keeper import core
from hal.daemons.agent.keeper.guarded_steps import GuardedSteps
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.step import HeldStep
from hal.daemons.agent.node_gates import NodeGates
from hal.daemons.controller import controller
from hal.daemons.controller.cycle import committer
from hal.daemons.controller.cycle.leader_lease import Lease as LeaderLease
from hal.daemons.controller.nodes import agents
from hal.daemons.controller.nodes.agents import Agents
from hal.daemons.controller.nodes.leases import NodeLeases
from hal.planes.tasks import Orders
from hal.planes.tasks.attempts import ends, reconciliation, reports
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.table import JobTable
from hal.runtime.virtual_network import Conditions
from hal.store import leadership
from hal.store.operations import StepEnd
from hal.wire.frames.agent_keeper import Start, TemplateGate
from tests.simulation.cluster_faults import CONGESTION, HEAD_POWER, NEARLY_LOST, ORPHANS, PARTED, STALLS, Fault
from tests.simulation.leader_faults import APART, COMMITTING
from tests.simulation.test_cluster import FAULTS, LOSSY, one_run

MOST_SEEDS: Final = 60
"""Within so many the simulation notices."""
SEEDS_IN_FORCE: Final = 8
"""Of each kind, with nothing broken."""


class FromReceipt(Lease):
    """The lease runs from when its acknowledgement came, however long that was on its way."""

    def renew(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> None:
        super().renew(self.stamp(now), lease_ms, now)


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

    def count_from_election(self, nodes: Iterable[str], longest_ms: int) -> None:
        super().count_from_election((), longest_ms)
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


class KeepsUnsent(Agents):
    """A start that waits for its node's stamp leaves with the next one, although its attempt was given away."""

    def deliver(self, orders: dict[str, Orders]) -> None:
        super().deliver({node: dataclasses.replace(due, lost=[]) for node, due in orders.items()})

    def deliver_elsewhere(self, orders: dict[str, Orders]) -> None:
        super().deliver_elsewhere({node: dataclasses.replace(due, lost=[]) for node, due in orders.items()})


class SendsAtOnce(Agents):
    """A node that arrives is sent what groups start there that were staged before it arrived."""

    def deliver(self, orders: dict[str, Orders]) -> None:
        for node in orders:
            self._link(node).arrival = None
        super().deliver(orders)

    def deliver_elsewhere(self, orders: dict[str, Orders]) -> None:
        for node in orders:
            self._link(node).arrival = None
        super().deliver_elsewhere(orders)


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
            end = StepEnd(rank, ends.LOST_CAUSE, 0, 0, now_ms, message)
            reports._end_step(table, job, current, end, now_ms, f"node:{node}")


class Adopts(GuardedSteps):
    """Guarded steps that a dead keeper left behind go on under the next one."""

    def recover(self, missing: Sequence[HeldStep], now: Instant) -> None:
        """They are taken for any others."""


class FreshAtAnyTime(NodeGates):
    """A start that was to wait for its prolog is taken for one that has just been sent."""

    def _started(self, frame: Start) -> Start | None:
        stamp = self._lease.stamp_boot_ms or frame.stamp_boot_ms
        return super()._started(replace(frame, stamp_boot_ms=stamp, epoch=max(self._lease.epoch, frame.epoch)))


class AsksNobody(GateServices):
    """Steps begin, and are over, whatever the gates of their jobs would say."""

    async def enter(
        self,
        subject: Subject,
        phase: GatePhase,
        gates: Sequence[TemplateGate],
        unsatisfied: Callable[[], Awaitable[None]],
    ) -> GateVerdict:
        return GateVerdict(GateDecision.GO)


class ActsOn(LeaderLease):
    """Who leads acts until it is told that another does."""

    @property
    def holds(self) -> bool:
        return self._over is None


def any_epoch(connection: Connection, epoch: int) -> None:
    """What a former leader commits is written."""


class Aim(NamedTuple):
    """Runs in which a rule is needed."""

    faults: int = FAULTS
    kinds: Sequence[Fault] | None = None
    long: bool = False
    gangs: bool = False
    crowded: bool = False
    controllers: int | None = None
    conditions: Conditions = LOSSY
    scripts: bool = False
    gates: bool = False

    def run(self, seed: int) -> None:
        """One of them."""
        one_run(seed, **self._asdict())


SLOW_DISKS: Final = Conditions(blocking_us=(3_000, 80_000), again_chance=LOSSY.again_chance)
EVEN_DISKS: Final = Conditions(blocking_us=(10_000, 40_000), stall_chance=0.0)
"""A group takes long, and never longer than a node waits for an acknowledgement."""
MIXED: Final = Aim()
AIMS: Final = {
    "mixed": MIXED,
    "congested": Aim(1, CONGESTION, long=True),
    "more, with prologs": Aim(5, scripts=True),
    "with gates": Aim(gates=True),
    "stalled": Aim(3, STALLS),
    "stalled before a prolog": Aim(3, STALLS, long=True, scripts=True),
    "nearly lost": Aim(1, NEARLY_LOST, long=True, crowded=True, conditions=EVEN_DISKS),
    "parted": Aim(1, PARTED, long=True),
    "gangs parted": Aim(1, PARTED, long=True, gangs=True),
    "without power": Aim(4, HEAD_POWER, conditions=SLOW_DISKS),
    "orphaned": Aim(1, ORPHANS, long=True),
    "committing": Aim(2, COMMITTING, controllers=3),
    "apart": Aim(1, APART, long=True, controllers=3),
}


class Rule(NamedTuple):
    """What holds, what holds it, and what takes its place."""

    says: str
    module: ModuleType
    name: str
    broken: Any
    aim: str
    seed: int
    """That notices: looked at first."""


RULES: Final[Sequence[Rule]] = (
    Rule("a lease that lapses ends guarded steps", core, "Lease", NeverLapses, "parted", 0),
    Rule("a lease counts from the stamp", core, "Lease", FromReceipt, "congested", 0),
    Rule("a start needs a current lease", core, "Lease", AnyStamp, "stalled", 1),
    Rule("a start waits under its own stamp", agent, "NodeGates", FreshAtAnyTime, "stalled before a prolog", 18),
    Rule("a step waits for its gates", node_gates, "GateServices", AsksNobody, "with gates", 0),
    Rule("a keeper ends what its predecessor guarded", core, "GuardedSteps", Adopts, "orphaned", 0),
    Rule("who comes to lead counts anew", agents, "NodeLeases", CountsOn, "mixed", 2),
    Rule("tasks are given away after T", agents, "NodeLeases", GivesAwayAtOnce, "parted", 1),
    Rule("orders to other hosts follow the flush", controller, "Agents", BeforeTheFlush, "without power", 10),
    Rule("what is given away leaves no more", controller, "Agents", KeepsUnsent, "nearly lost", 10),
    Rule(
        "a node that arrives is sent what is ordered after that",
        controller,
        "Agents",
        SendsAtOnce,
        "more, with prologs",
        368,
    ),
    Rule("a leader acts while its lease holds", committer, "Lease", ActsOn, "apart", 0),
    Rule("commits of older epochs are refused", leadership, "check_epoch", any_epoch, "committing", 0),
    Rule("exits of attempts that were given away change nothing", reports, "active_attempt", any_attempt, "mixed", 1),
    Rule("a gang runs again when all of it has ended", reconciliation, "record_loss", whole_gang, "gangs parted", 3),
)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=[rule.says for rule in RULES])
def test_a_broken_rule_is_noticed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something ran twice at once, was told to have ended otherwise than it did, or is stuck."""
    monkeypatch.setattr(rule.module, rule.name, rule.broken)
    for seed in (rule.seed, *range(MOST_SEEDS)):
        try:
            AIMS[rule.aim].run(seed)
        except AssertionError:
            return
    pytest.fail(f"{MOST_SEEDS} seeds passed although the rule was broken")


@pytest.mark.slow
@pytest.mark.parametrize("aim", AIMS)
def test_with_all_rules_in_force_the_same_faults_find_nothing(aim: str) -> None:
    """So it is the rule that was broken, and not the fault, that was noticed."""
    for seed in {*(rule.seed for rule in RULES if rule.aim == aim), *range(SEEDS_IN_FORCE)}:
        AIMS[aim].run(seed)
