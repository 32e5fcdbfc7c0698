"""What the API of the controller works with, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hal.core.model.topology.tree import Topology
from hal.daemons.controller.access.secrets import SecretBook
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.tokens import TokenBook
from hal.daemons.controller.config_sections import NotificationsSection
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.control_loop import ControlLoop
from hal.daemons.controller.cycle.engine import Engine
from hal.daemons.controller.cycle.flusher import Flusher
from hal.daemons.controller.cycle.plane_group import PlanePort
from hal.daemons.controller.cycle.policy_faults import PolicyFaults
from hal.daemons.controller.files.bundles import Bundles
from hal.daemons.controller.files.collected import Collected
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.nodes.admission import NodeAdmission
from hal.daemons.controller.nodes.agents import Agents
from hal.daemons.controller.service.feed import Watchers
from hal.daemons.controller.service.reader_book import ReaderBook
from hal.daemons.controller.service.stream_relays import StreamRelays
from hal.daemons.controller.service.waiters import EndWaiters, JobWaiters, NodeWaiters
from hal.daemons.controller.startup.policy_start import PolicyFile
from hal.planes.interface import Work
from hal.planes.periodic import PeriodicPlane
from hal.planes.tasks import Change, TaskPlane
from hal.runtime.interface import Runtime
from hal.runtime.step_users import Serving
from hal.store import ControllerRow

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Parts:
    """The parts of one controller."""

    runtime: Runtime
    clock: Clock
    plane: TaskPlane
    engine: Engine
    committer: Committer
    flusher: Flusher
    agents: Agents
    node_admission: NodeAdmission
    periodic: PlanePort[PeriodicPlane]
    loop: ControlLoop[Change]
    metrics: MetricsBook
    """Those of this process."""
    waiters: JobWaiters
    watchers: Watchers
    node_waiters: NodeWaiters
    ends: EndWaiters
    readers: ReaderBook
    faults: PolicyFaults
    access: AccessSection
    tokens: TokenBook
    secrets: SecretBook
    bundles: Bundles
    collected: Collected
    notifications: NotificationsSection
    """What the site sends of jobs that notify somebody."""
    own_row: Callable[[], ControllerRow | None]
    """What this controller reports of itself where several share a store."""
    serving: Serving
    """Whose steps run, and as whom."""
    relays: StreamRelays
    runs_as: str
    """User of this process; empty: not known."""
    reached: str
    """Name under which other machines reach this one, as `server.address` says; '' if it does not."""
    rest: str
    """Where people reach this controller from elsewhere; '' where nowhere."""
    policy_file: PolicyFile
    """hal.toml, where it was changed and is not in force."""
    topology: Topology | None
    """Where nodes are; None: none is declared."""
    remark: Callable[[], str]
    """What people should know of this process; '' for nothing."""

    async def sliced(self, work: Work[T]) -> T:
        """Do work, other requests having their turn between two slices."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: Any = end.value
                return found  # type: ignore[no-any-return]
            await self.runtime.sleep(0)
