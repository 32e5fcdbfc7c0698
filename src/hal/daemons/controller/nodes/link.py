"""One node as the controller knows it beside its row: its connection, and what waits for it."""

from __future__ import annotations

from typing import Final

from hal.daemons.controller.nodes.budget import FRAMES, FRAMES_PER_S, HELLOS, HELLOS_PER_S
from hal.daemons.controller.nodes.log_reads import LogReads
from hal.planes.tasks import Arrival
from hal.runtime.interface import Connection, Runtime, Timer
from hal.runtime.line_budget import Bucket, BudgetedLog
from hal.wire.frames.agent_keeper import Refusal, StepStart, StepTemplate

NOT_SENT: Final = "unreachable"
"""Code of the refusal of a start that never left the controller."""


class Link:
    """One node's connection, and what waits for it."""

    def __init__(self, name: str, runtime: Runtime) -> None:
        self.name = name
        self.log = BudgetedLog(runtime.log.bind(node=name), runtime.monotonic_ms)
        self.hellos = Bucket(runtime.monotonic_ms, HELLOS, HELLOS_PER_S)
        self.frames = Bucket(runtime.monotonic_ms, FRAMES, FRAMES_PER_S)
        self.lies = 0
        """Since it was last open to work."""
        self.barred_ms = 0
        """It is not heard before this, by the monotonic clock."""
        self.connection: Connection | None = None
        self.stamp_boot_ms = 0
        """Newest stamp acknowledged on this connection; 0 before the first."""
        self.last_heard_ms = 0
        self.unsent: list[tuple[StepTemplate, StepStart]] = []
        """Starts that wait for a stamp or a connection."""
        self.arrival: Arrival | None = None
        """The node's hello on this connection, until the group that records it is delivered. No start leaves before: of
        groups that were staged earlier and are delivered later, it may start what the arrival made lost."""
        self.logs = LogReads(name)
        self.silence: Timer | None = None
        """Runs while there is no connection and that is not held against the node yet."""
        self.silent = False
        """Its silence was reported."""
        self.job_gates = False
        """Its agent asks the services of gates."""
        self.secrets = False
        """Its agent puts secrets where steps find them."""
        self.elsewhere = False
        """Another kernel's boot than this process's: a loss of power here does not end its steps."""

    def take_refusals(self) -> list[Refusal]:
        """What never left this process certainly does not run: it may go elsewhere."""
        unsent, self.unsent = self.unsent, []
        return [Refusal(start.step, NOT_SENT, "its node is not heard") for _, start in unsent]
