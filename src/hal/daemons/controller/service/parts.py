"""What the API of the controller works with, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hal.daemons.controller.access.secrets import SecretBook
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.tokens import TokenBook
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.control_loop import ControlLoop
from hal.daemons.controller.cycle.engine import Engine
from hal.daemons.controller.cycle.flusher import Flusher
from hal.daemons.controller.cycle.policy_faults import PolicyFaults
from hal.daemons.controller.nodes.admission import NodeAdmission
from hal.daemons.controller.nodes.agents import Agents
from hal.daemons.controller.service.feed import Watchers
from hal.daemons.controller.service.reader_book import ReaderBook
from hal.daemons.controller.service.waiters import EndWaiters, JobWaiters, NodeWaiters
from hal.planes.tasks import Change, TaskPlane
from hal.runtime.interface import Runtime
from hal.runtime.step_users import Serving
from hal.store import ControllerRow


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
    loop: ControlLoop[Change]
    waiters: JobWaiters
    watchers: Watchers
    node_waiters: NodeWaiters
    ends: EndWaiters
    readers: ReaderBook
    faults: PolicyFaults
    access: AccessSection
    tokens: TokenBook
    secrets: SecretBook
    own_row: Callable[[], ControllerRow | None]
    """What this controller reports of itself where several share a store."""
    serving: Serving
    """Whose steps run, and as whom."""
    runs_as: str
    """User of this process; empty: not known."""
    rest: str
    """Where people reach this controller from elsewhere; '' where nowhere."""
