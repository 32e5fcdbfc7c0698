"""What the API of the controller works with, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.tokens import TokenBook
from hal.daemons.controller.agents import Agents
from hal.daemons.controller.clock import Clock
from hal.daemons.controller.committing import Committer
from hal.daemons.controller.deciding import Engine
from hal.daemons.controller.flushing import Flusher
from hal.daemons.controller.loop import ControlLoop
from hal.daemons.controller.node_door import NodeDoor
from hal.daemons.controller.node_waiters import NodeWaiters
from hal.daemons.controller.policy_faults import PolicyFaults
from hal.daemons.controller.presence import Presence
from hal.daemons.controller.watching import Waiters, Watchers
from hal.planes.tasks import TaskPlane
from hal.runtime.interface import Runtime


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
    node_door: NodeDoor
    loop: ControlLoop
    waiters: Waiters
    watchers: Watchers
    node_waiters: NodeWaiters
    faults: PolicyFaults
    access: AccessSection
    tokens: TokenBook
    presence: Presence | None
    """What is told of this controller where several share a store."""
    steps_of: str
    """The only user whose jobs are taken; empty: anybody's."""
    runs_as: str
    """As whom steps run on this machine; empty: not known."""
    rest: str
    """Where people reach this controller from elsewhere; '' where nowhere."""
