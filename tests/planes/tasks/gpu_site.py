"""Tasks plane, real engine and store as the control loop drives them, with nodes that have GPUs; time is the test's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hal.core.engine.config import EngineConfig
from hal.core.engine.events import NodesChanged, StartsRefused
from hal.core.model import StepId, spec_from_plain
from hal.core.model.declared_gpus import GpuSection, SliceSection, declared_gpus
from hal.core.model.facts import Facts
from hal.core.model.gpu_slices import offered_gpus
from hal.core.model.policy import Policy
from hal.core.model.topology.tree import Topology
from hal.daemons.controller.cycle.engine import Engine
from hal.planes.tasks import Arrival, Change, Submitter, TaskPlane, check_table
from hal.planes.tasks.live.attempt import Attempt
from hal.store import Group, MemoryDatabase, Store
from hal.wire.frames.agent_keeper import ExitCause, StepDevice, StepExit, Usage

BY = Submitter("alice", "trace")


class GpuSite:
    """Submit, turn, end, restart; every node has two link islands of `island` GPUs, and `sliced` GPUs in MIG mode, each
    of two slices 1g.10gb and one 3g.40gb."""

    def __init__(
        self,
        nodes: int = 1,
        island: int = 2,
        config: EngineConfig | None = None,
        *,
        sliced: int = 0,
        policy: Policy | None = None,
        topology: Topology | None = None,
    ) -> None:
        self.topology = topology
        self.disk = MemoryDatabase()
        self.now_ms, self.commits = 1_000, 0
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.island = island
        self.sliced = sliced
        self.policy = policy or Policy()
        self.config = config or EngineConfig()
        self.started: dict[tuple[int, int, int], tuple[StepDevice, ...]] = {}
        """What steps were told of their GPUs, by job, task and rank: the latest."""
        self.restart()
        for name in self.names:
            self.join(name)
        self.turn()

    def restart(self) -> None:
        """Another controller begins, from the rows."""
        self.store = Store.open(self.disk)
        self.epoch = self.store.take_leadership("test", self.now_ms)
        self.engine = Engine(self.config)
        self.plane = TaskPlane(self.policy, self.engine, self.config, topology=self.topology)
        self.engine.begin(self.plane.load(self.store.load(in_columns=True)), self.now_ms)

    def join(self, name: str, gpus: int | None = None) -> None:
        """A node dials; `gpus`: with the first so many of its GPUs."""
        sections = [GpuSection(uuid=f"{name}-{at}", island=f"i{at // self.island}") for at in range(2 * self.island)]
        types = ("1g.10gb", "1g.10gb", "3g.40gb")
        in_mig_mode = [
            GpuSection(
                uuid=f"{name}-s{gpu}",
                slices=tuple(SliceSection(type=one, uuid=f"MIG-{name}-{gpu}-{at}") for at, one in enumerate(types)),
                files=(f"/dev/nvidia{gpu}",),
            )
            for gpu in range(self.sliced)
        ]
        found = declared_gpus((*sections[:gpus], *in_mig_mode))
        facts = Facts(gpus=found, bound_gpus=tuple(range(len(found))))
        capacity = {"cpu": 64_000, **offered_gpus(found)}
        self.plane.record_arrival(Arrival(name=name, capacity=capacity, boot_id="b", facts=facts), self.now_ms)

    def feed(self) -> bool:
        """Whether that may let more start at once, see `ControlLoop`."""
        events = self.plane.take_engine_events()
        self.engine.feed(events)
        return any(isinstance(event, NodesChanged | StartsRefused) for event in events)

    def turn(self, *, fails: bool = False) -> Change:
        """As the control loop: feed, decide, carry out, commit; `fails`: the commit does."""
        self.feed()
        more = True
        while more:
            more = self.engine.step(self.now_ms).more
            for plan in self.engine.take_plans():
                self.plane.carry_out(plan, self.engine.row_name, self.epoch, self.now_ms, credit=False)
            more = self.feed() or more
        change = self.plane.seal(self.now_ms)
        if fails:
            self.plane.undo()
            self.engine.begin(self.plane.engine_events(), self.now_ms)
        else:
            self.commits += 1
            if not change.empty:
                self.store.commit(
                    Group(f"{self.epoch}-{self.commits}", self.now_ms, change.operations), epoch=self.epoch
                )
            self.plane.keep()
            for orders in change.orders.values():
                for start in orders.starts:
                    self.started[(start.step.job, start.step.task, start.step.rank)] = start.devices
        check_table(self.plane._table)
        return change

    def submit(self, **plain: Any) -> int:
        """One job, staged."""
        made = self.plane.submit([spec_from_plain({"command": ["true"], "retries": 0, **plain})], BY, self.now_ms)
        return made[0].id

    def change_policy(self, policy: Policy, *, fails: bool = False) -> None:
        """Another one holds, also after a restart; `fails`: its commit does."""
        self.plane.change_policy(policy, BY, self.now_ms)
        self.turn(fails=fails)
        self.policy = self.plane.policy

    def end(self, job: int, task: int = 0) -> None:
        """Its attempt exits, staged."""
        attempt = self.running()[(job, task)]
        for rank, node in enumerate(attempt.nodes):
            step = StepId(job, task, attempt.attempt, rank)
            report = StepExit(step, ExitCause.EXITED, 0, 0, self.now_ms, self.now_ms, Usage(1, 1, 1, 0, 0, 0), "")
            self.plane.record_exits(node, [report], self.now_ms)

    def running(self) -> dict[tuple[int, int], Attempt]:
        """By job and task."""
        jobs = self.plane._table.jobs.objects()
        return {(job.id, task): attempt for job in jobs for task, attempt in job.active.items()}

    def pending(self) -> Sequence[int]:
        """Jobs that wait."""
        jobs = sorted(self.plane._table.jobs.items())
        return [number for number, job in jobs if job.counts.pending]
