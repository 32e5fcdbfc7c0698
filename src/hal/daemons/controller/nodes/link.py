"""One node as the controller knows it beside its row: its connection, and what waits for it."""

from __future__ import annotations

from collections import deque
from typing import Final

from hal.core.model import StepId
from hal.core.model.bundle import FILES_GATE
from hal.daemons.controller.nodes.budget import FAULTS_IN_A_MINUTE, FRAMES, FRAMES_PER_S, HELLOS, HELLOS_PER_S
from hal.daemons.controller.nodes.log_reads import LogReads
from hal.daemons.controller.nodes.stream_requests import StreamRequests
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
        self.faults: deque[int] = deque(maxlen=FAULTS_IN_A_MINUTE)
        """When HAL met faults of its own in what the node reported, the newest ones."""
        self.fault_ends = 0
        """How often in turn its connection ended for them."""
        self.muted_ms = 0
        """For these it is not heard before this, by the monotonic clock."""
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
        self.streams = StreamRequests(name)
        self.cpus: dict[StepId, str] = {}
        """By step: the CPUs on which it is bound, of those in the last frame of samples."""
        self.silence: Timer | None = None
        """Runs while there is no connection and that is not held against the node yet."""
        self.silent = False
        """Its silence was reported."""
        self.job_gates = False
        """Its agent asks the services of gates."""
        self.files = False
        """Its agent has a file service."""
        self.secrets = False
        """Its agent puts secrets where steps find them."""
        self.outputs = False
        """Its keeper answers one frame that asks for the outputs of many steps."""
        self.opens_streams = False
        """Its agent and keeper let clients reach steps."""
        self.lacks: frozenset[str] = frozenset()
        """What templates may ask for that its keeper is too old to know: of `STEP_FEATURES`."""
        self.opens_ranks = False
        """Its agent begins the ranks of a launch."""
        self.meets = False
        """Its agent meets clients at a relay, and has a certificate for streams in any case."""
        self.hears_planes = False
        """Its agent is told which planes are there."""
        self.elsewhere = False
        """Another kernel's boot than this process's: a loss of power here does not end its steps."""

    def no_gates(self, template: StepTemplate) -> str:
        """Why its agent cannot let steps of that template through their gates; '' if it can."""
        if template.gates and not self.job_gates:
            return "its agent is too old to ask for gates"
        if not self.files and any(gate.name == FILES_GATE for gate in template.gates):
            return "its agent is too old to ship files"
        return ""

    def take_refusals(self) -> list[Refusal]:
        """What never left this process certainly does not run: it may go elsewhere."""
        unsent, self.unsent = self.unsent, []
        return [Refusal(start.step, NOT_SENT, "its node is not heard") for _, start in unsent]
