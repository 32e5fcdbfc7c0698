"""The agent of one node: it relays between controller and keeper, and keeps no state that must not be lost.

Frames from the controller go to the keeper, reports of the keeper go to the controller, those of one turn of the loop
together. Whenever either connection is new, the agent asks the keeper again what it holds, so a new connection to a
controller always begins with that, followed by every unacknowledged exit. Both connections are retried for ever, with
back-off; a dead keeper is restarted. Runs on the real and on the virtual Runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from hal.core.model.errors import (
    ConflictError,
    HALError,
    OverloadedError,
    TimedOutError,
    UnreachableError,
    error_from_code,
)
from hal.core.model.facts import Facts, automatic_labels
from hal.core.model.node_config import NO_NODE_SECTION, NodeSection
from hal.daemons.agent.dialler import Backoff, Controllers
from hal.daemons.agent.gate_notes import GateNotes
from hal.daemons.agent.health import Condition, NodeChecks
from hal.daemons.agent.log_tails import LogTails
from hal.daemons.agent.node_gates import NodeGates
from hal.daemons.agent.output_tails import OutputPlaces, OutputTails
from hal.daemons.agent.secret_files import SecretFiles
from hal.daemons.agent.step_files import FilePlaces, StepFiles
from hal.daemons.agent.step_hostfiles import StepHostfiles
from hal.daemons.agent.step_probes import StepProbes
from hal.daemons.agent.step_secrets import StepSecrets
from hal.daemons.agent.step_service import StepService, StreamPlaces
from hal.daemons.agent.step_streams import StepStreams
from hal.daemons.agent.telemetry.node_telemetry import NodeTelemetry
from hal.daemons.agent.telemetry.sampler import Readers
from hal.runtime.authority import NodeIdentity
from hal.runtime.certificate_renewal import RenewalOverConnection
from hal.runtime.interface import Address, Connection, Lane, Process, Runtime, TcpAddress
from hal.runtime.line_budget import BudgetedLog
from hal.runtime.link_note import LinkNote
from hal.wire.agree import (
    CREDIT,
    FEATURES,
    FILES,
    GATES,
    HEALTH,
    JOB_GATES,
    NOT_LEADER,
    PLANES,
    RANKS,
    RELAYS,
    REMOVED,
    SECRETS,
    SERVICES,
    SPOKEN,
    STREAMS,
)
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.agent_keeper import (
    AGENT_KEEPER,
    Exits,
    Heartbeat,
    HeartbeatAck,
    Refusal,
    Refused,
    Start,
    Started,
    StepExit,
    StepFound,
    StepStarted,
)
from hal.wire.frames.controller_agent import Gates, Health, JobNodes, OpenStream, Planes, Readiness, Secrets
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import STOPPED, Goodbye, HeldStep, Hello, Welcome
from hal.wire.frames.joining import Joined
from hal.wire.roles import Role

ANSWER_MS: Final = 5_000
"""How long either end may take to answer a hello."""
MISSED_HEARTBEATS: Final = 5
"""An end that is silent for this many heartbeats is reconnected."""
MAX_ITEMS: Final = 1_000
"""Exits, starts or refusals in one frame."""
MAX_EARLY_FRAMES: Final = 10_000
"""Reports that wait for the controller's answer to a hello; further exits are repeated by the keeper."""
KEEPER_START_MS: Final = (200, 10_000)
"""First and longest delay before a dead keeper is restarted; it doubles with each restart that does not help."""


class NotLeaderError(HALError):
    """The controller is not the leader.

    Attributes:
        leader: `HOST:PORT` of the leader, or ''.
    """

    code = NOT_LEADER

    def __init__(self, leader: str) -> None:
        super().__init__(f"another controller leads{f', at {leader}' if leader else ''}")
        self.leader = leader


class AgentSettings(NamedTuple):
    """The settings of one agent."""

    node: str
    controller: Address
    keeper: Address
    keeper_argv: Sequence[str]
    """How to start the node's keeper."""
    facts: Callable[[], Facts] = Facts
    """Reads the node's hardware; it may block."""
    others: Sequence[Address] = ()
    """Further controllers; one of them leads."""
    identity: NodeIdentity | None = None
    """The identity that the node received when it joined; None if it connects to a Unix socket."""
    on_link: Callable[[LinkNote], None] = lambda note: None
    """Called when the connection to the controller is established or lost."""
    section: NodeSection = NO_NODE_SECTION
    condition: Callable[[], Condition] | None = None
    """Reads the machine's condition; it may block. None: no health checks."""
    gate_notes: GateNotes | None = None
    """Notes of steps at gates. None: neither prolog nor epilog, and no job that names gates."""
    host_files: SecretFiles | None = None
    """Where bases of elastic jobs find the names of their nodes. None: nowhere."""
    secret_files: SecretFiles | None = None
    """Where steps find their secrets. None: no job that names any."""
    streams: StreamPlaces | None = None
    """How streams to steps are served, and steps of services probed. None: they are not."""
    files: FilePlaces | None = None
    """Where the files of steps are. None: no job that ships files, or has some collected."""
    outputs: OutputPlaces | None = None
    """Where outputs of steps are read, for a collector. None: they are not."""
    logs: OutputPlaces | None = None
    """Where HAL's processes log. None: nothing of that is sent."""
    readers: Readers | None = None
    """Read what the node and its steps use, for a collector. None: nothing is measured."""


class Agent:
    """One node's agent; `run` serves until the runtime is asked to stop."""

    def __init__(self, runtime: Runtime, settings: AgentSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        """The log of what the keeper causes: a step of the same user can kill it, or impersonate the agent to it."""
        self._controllers_log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        """The log of what controllers cause."""
        self._keeper: Connection | None = None
        self._controller: Connection | None = None
        self._controller_host = ""
        """Where it was reached last."""
        """Set while reports may be sent to it."""
        self._welcome: asyncio.Future[Welcome] | None = None
        """Waits for the keeper's list of held steps."""
        self._early: list[Frame] | None = None
        """Reports that arrived after that list, before the controller's answer."""
        self._refusals: list[Refusal] = []
        self._started: list[StepStarted] = []
        self._exits: list[StepExit] = []
        self._flush_due = False
        self._says_health = False
        """Whether the connected controller supports health reports."""
        self._removed = False
        self._keeper_ended = False
        """Whether the keeper was asked to end, and has ended every step."""
        """A person removed this node: it joins again only when its agent is restarted."""
        self._checks: NodeChecks | None = None
        self._files = None if settings.files is None else StepFiles(runtime, settings.files)
        self._gates = self._gates_of(settings)
        self._secrets = (
            None if settings.secret_files is None else StepSecrets(runtime, settings.secret_files, self._to_controller)
        )
        self._hostfiles = (
            None if self._secrets is None else StepHostfiles(settings.host_files, self._secrets.accounts_of, self._log)
        )
        service = None if settings.streams is None else StepService(runtime, settings.streams)
        self._service = service
        self._streams = (
            None
            if service is None
            else StepStreams(runtime, service, self._to_controller, lambda: self._controller_host)
        )
        self._probes = None if service is None else StepProbes(runtime, service, self._to_controller)
        readers = settings.readers
        self._telemetry = None if readers is None else self._telemetry_of(settings, readers)
        self._tails = self._tails_of(settings)
        self._logs = self._logs_of(settings)
        self._hears_gates = False
        """Whether the connected controller supports reports of gates."""
        self._hears_services = False
        """Whether it supports those of services."""
        self._asked_ms = 0
        """When the newest heartbeat was sent, by the monotonic clock."""
        self._keeper_process: Process | None = None
        self._keeper_start_ms = 0
        self._keeper_delay_ms = KEEPER_START_MS[0]

    def _telemetry_of(self, settings: AgentSettings, readers: Readers) -> NodeTelemetry:
        identity = settings.identity
        return NodeTelemetry(
            self._runtime,
            settings.node,
            settings.section.telemetry,
            readers,
            None if identity is None else identity.credentials,
            local=not isinstance(settings.controller, TcpAddress),
        )

    def _tails_of(self, settings: AgentSettings) -> OutputTails | None:
        if self._telemetry is None or settings.outputs is None or not settings.section.telemetry.outputs:
            return None
        secrets = settings.secret_files
        return OutputTails(
            self._runtime,
            settings.outputs.directory,
            settings.outputs.note,
            self._telemetry.sender,
            (lambda _: ()) if secrets is None else secrets.values_of,
        )

    def _logs_of(self, settings: AgentSettings) -> LogTails | None:
        """Of a node that has joined: the logs of the controller's own home are read where they are."""
        if self._telemetry is None or settings.identity is None or settings.logs is None:
            return None
        places = settings.logs
        return LogTails(self._runtime, places.directory, settings.node, places.note, self._telemetry.sender)

    def _gates_of(self, settings: AgentSettings) -> NodeGates | None:
        notes = settings.gate_notes
        if notes is None:
            return None
        return NodeGates(self._runtime, settings.node, settings.section, notes, self._to_controller, self._files)

    async def run(self) -> int:
        """Serve until asked to stop; returns the exit code."""
        tasks = []
        if self._settings.condition is not None:
            self._checks = NodeChecks(
                self._runtime, self._settings.node, self._settings.section, self._settings.condition, self._tell_health
            )
            tasks.append(self._runtime.spawn_task(self._checks.run(), "checks"))
        if self._telemetry is not None:
            tasks.append(self._runtime.spawn_task(self._telemetry.run(), "telemetry"))
        if self._logs is not None:
            tasks.append(self._runtime.spawn_task(self._logs.run(), "logs"))
        if self._tails is not None:
            tasks.append(self._runtime.spawn_task(self._tails.run(), "outputs"))
        serving = self._runtime.spawn_task(self._serve(), "serve")
        stopping = asyncio.ensure_future(self._runtime.stopping.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        self._say_goodbye()
        for task in (serving, stopping, *tasks):
            task.cancel()
        for connection in (self._controller, self._keeper):
            if connection is not None:
                connection.close()
        return 0

    def _say_goodbye(self) -> None:
        """Let the controller know that this is no failure; without a word it would wait for heartbeats."""
        if self._controller is None or self._removed:
            return
        how = "with all its steps" if self._keeper_ended else "its agent alone: its steps run on"
        with contextlib.suppress(HALError):  # it is gone itself
            self._controller.send_nowait(Goodbye(code=STOPPED, reason=how))

    async def _serve(self) -> None:
        """Connect to the keeper first; while it is connected, to the controller."""
        backoff = Backoff(self._runtime.random())
        while not self._runtime.stopping.is_set():
            try:
                keeper = await self._runtime.connect(self._settings.keeper, conversation=AGENT_KEEPER)
                await keeper.send(self._hello())
                first = await keeper.receive(ANSWER_MS)
                welcome = _welcome_of(first, "the keeper")
            except HALError as error:
                await self._start_keeper(error)
                await self._runtime.sleep(backoff.next_ms())
                continue
            backoff.reset()
            self._keeper_delay_ms, self._keeper_start_ms = KEEPER_START_MS[0], 0
            self._log.info("the keeper is there", keeper=welcome.pid, held=len(welcome.held))
            self._keeper = keeper
            if self._gates is not None:
                await self._gates.attach_keeper(keeper, welcome.held, welcome.lease_ms)
            self._sweep(welcome.held)
            if self._telemetry is not None:
                self._telemetry.holds(welcome.held)
            if self._tails is not None:
                self._tails.holds(one.step for one in welcome.held if one.running)
            if self._probes is not None:
                self._probes.attach_keeper(welcome.held, keeper.send_nowait)
            reading = asyncio.ensure_future(self._read_keeper(keeper))
            speaking = asyncio.ensure_future(self._speak_to_controller(keeper))
            try:
                await asyncio.wait((reading, speaking), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._keeper = None
                if self._gates is not None:
                    self._gates.detach_keeper()
                if self._probes is not None:
                    self._probes.detach_keeper()
                for task in (reading, speaking):
                    task.cancel()
                keeper.abort()
            await asyncio.gather(reading, speaking, return_exceptions=True)
            for task in (reading, speaking):
                if not task.cancelled():
                    task.result()
            self._log.warning("the keeper is gone", reason=keeper.close_reason)

    # ── the keeper ────────────────────────────────────────────────────────────────────────────────────────────────

    def _hello(self) -> Hello:
        return Hello(
            role=Role.AGENT,
            versions=SPOKEN,
            features=FEATURES,
            name=self._settings.node,
            boot_id=self._runtime.boot_id,
            pid=self._runtime.pid,
        )

    async def _start_keeper(self, error: HALError) -> None:
        """Start the keeper if nobody answers at its socket; with increasing delays while this does not help."""
        now_ms = self._runtime.monotonic_ms()
        if not isinstance(error, UnreachableError):
            self._log.error("the keeper cannot be spoken to", error=str(error))
            return
        if not self._keeper_start_ms:
            self._keeper_start_ms = now_ms + self._keeper_delay_ms
        if now_ms < self._keeper_start_ms or (self._keeper_process is not None and self._keeper_process.running):
            return
        self._keeper_delay_ms = min(KEEPER_START_MS[1], 2 * self._keeper_delay_ms)
        self._keeper_start_ms = now_ms + self._keeper_delay_ms
        self._log.warning("starting the keeper", error=str(error))
        output = self._runtime.paths.output_file(f"keeper-{self._settings.node}")
        try:
            self._keeper_process = await self._runtime.start_process(self._settings.keeper_argv, output=output)
        except HALError as failure:
            self._log.error("the keeper cannot be started", error=str(failure))

    async def _read_keeper(self, keeper: Connection) -> None:
        """Forward the keeper's reports until its connection closes."""
        while (frame := await keeper.receive()) is not None:
            if isinstance(frame, Welcome):
                if self._welcome is not None and not self._welcome.done():
                    self._early = []
                    self._welcome.set_result(frame)
            elif isinstance(frame, Goodbye):
                self._log.info("the keeper says goodbye", code=frame.code, reason=frame.reason)
                if frame.code == "stopping":
                    self._keeper_ended = True
                    if self._secrets is not None:
                        self._secrets.sweep(())  # every step has ended, and those at gates will not begin
                    if self._hostfiles is not None:
                        self._hostfiles.sweep(())
                    self._runtime.stop("the keeper of this node was asked to end")
                return
            elif isinstance(frame, StepFound):
                if self._service is not None:
                    self._service.found(frame)
            else:
                if self._tails is not None:
                    self._tails.hear(frame)
                if isinstance(frame, Heartbeat):
                    self._asked_ms = self._runtime.monotonic_ms()
                else:
                    self._record_ends(frame)  # before its finalising gates: no process of it is left
                if self._telemetry is not None:
                    self._telemetry.hear(frame)
                told = frame if self._gates is None else self._gates.up(frame)
                if told is not None:
                    self._to_controller(told)
                if self._probes is not None:
                    self._probes.hear(frame)

    def _record_ends(self, frame: Frame) -> None:
        """Remove what steps had that have ended, or will not begin."""
        if self._secrets is not None:
            self._secrets.record_ends(frame)
        if self._hostfiles is not None:
            self._hostfiles.record_ends(frame)
        if self._files is not None:
            self._files.record_ends(frame)

    def _sweep(self, held: Sequence[HeldStep]) -> None:
        """Remove the secrets and directories of all steps but those that the keeper holds or that are at a gate."""
        waiting = () if self._gates is None else self._gates.steps
        if self._files is not None:
            collected = () if self._gates is None else self._gates.finalised_steps
            self._files.sweep({one.step for one in held} | set(waiting), collected)
        if self._secrets is not None and (removed := self._secrets.sweep({one.step for one in held} | set(waiting))):
            self._log.info("secrets of steps that are over were removed", steps=removed)
        if self._hostfiles is not None:
            self._hostfiles.sweep({one.step for one in held} | set(waiting))

    def _to_controller(self, frame: Frame) -> None:
        """Report to the controller; do nothing without a connection: everything important is repeated to the next
        one."""
        if isinstance(frame, Refused):
            self._record_ends(frame)
        if self._controller is not None:
            self._report(frame)
        elif self._early is not None and len(self._early) < MAX_EARLY_FRAMES:
            self._early.append(frame)

    def _report(self, frame: Frame) -> None:
        """Queue a report for the controller; those of one turn of the loop go in one frame of each kind."""
        match frame:
            case Exits():
                self._exits += frame.exits
            case Started():
                self._started += frame.steps
            case Refused():
                self._refusals += frame.steps
            case Gates() | Readiness():
                if self._hears_gates if isinstance(frame, Gates) else self._hears_services:
                    self._flush()  # such a report follows the report that the step has begun
                    self._send_up(frame)
                return
            case _:
                self._send_up(frame)
                return
        if not self._flush_due:
            self._flush_due = True
            self._runtime.call_later(0, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        for at in range(0, len(self._refusals), MAX_ITEMS):
            self._send_up(Refused(steps=tuple(self._refusals[at : at + MAX_ITEMS])))
        for at in range(0, len(self._started), MAX_ITEMS):
            self._send_up(Started(steps=tuple(self._started[at : at + MAX_ITEMS])))
        for at in range(0, len(self._exits), MAX_ITEMS):
            self._send_up(Exits(exits=tuple(self._exits[at : at + MAX_ITEMS])))
        self._forget_reports()

    def _forget_reports(self) -> None:
        self._refusals.clear()
        self._started.clear()
        self._exits.clear()

    def _tell_health(self, health: Health) -> None:
        """Send which checks fail; repeated after each hello."""
        if self._says_health:
            self._send_up(health)

    def _send_up(self, frame: Frame) -> None:
        controller = self._controller
        if controller is None:
            return
        try:
            controller.send_nowait(frame)
        except UnreachableError:
            self._controller = None
        except OverloadedError as error:
            # The controller does not read: disconnect; everything important is repeated on the next connection.
            self._controllers_log.warning("the controller does not read its frames", error=str(error))
            self._controller = None
            controller.abort()

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────────

    async def _speak_to_controller(self, keeper: Connection) -> None:
        """Connect, relay, and reconnect, as long as the keeper is connected."""
        settings = self._settings
        backoff = Backoff(self._runtime.random())
        controllers = Controllers([settings.controller, *settings.others])
        credentials = None if settings.identity is None else settings.identity.credentials
        told = ""
        while not keeper.closed:
            if self._removed:
                self._runtime.log.error(
                    "this node was removed and does not rejoin by itself; restart its agent to rejoin"
                )
                await self._runtime.stopping.wait()
                return
            controller: Connection | None = None
            address = controllers.address
            try:
                controller = await self._runtime.connect(address, credentials=credentials)
                self._controller_host = address.host if isinstance(address, TcpAddress) else "127.0.0.1"
                heartbeat_ms = await self._greet(controller, keeper)
                backoff.reset()
                told = ""
                self._controllers_log.info("the controller is there", controller=str(address))
                settings.on_link(LinkNote(True, str(address)))
                await self._relay(controller, keeper, heartbeat_ms)
                self._controllers_log.warning("the controller is gone", reason=controller.close_reason)
                settings.on_link(LinkNote(False, controller.close_reason))
            except NotLeaderError as error:
                self._controllers_log.info("another controller leads", told_by=str(address), leader=error.leader)
                controllers.not_leader(error.leader)
            except HALError as error:
                controllers.failed()
                if str(error) != told:
                    told = str(error)
                    self._controllers_log.warning("the controller cannot be spoken to", error=told)
                settings.on_link(LinkNote(False, told, refused=isinstance(error, ConflictError)))
            finally:
                self._controller = self._early = None
                self._forget_reports()
                if self._gates is not None:
                    self._gates.detach_controller()
                if controller is not None:
                    controller.abort()
            await self._runtime.sleep(backoff.next_ms())

    async def _greet(self, controller: Connection, keeper: Connection) -> int:
        """Send a hello with what the keeper holds now; returns the heartbeat interval that the controller requests."""
        self._early = None
        self._welcome = asyncio.get_running_loop().create_future()
        await keeper.send(self._hello())
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                holds = await self._welcome
        except TimeoutError:
            keeper.abort()
            raise TimedOutError(f"the keeper did not list its steps within {ANSWER_MS} ms") from None
        facts = await self._runtime.run_blocking(self._settings.facts, Lane.READER)
        labels = {**automatic_labels(self._settings.node, facts), **self._settings.section.labels, **holds.labels}
        features = set(holds.features) - {HEALTH, GATES, JOB_GATES} | ({HEALTH} if self._checks is not None else set())
        self._sweep(holds.held)
        if self._secrets is None or not self._secrets.available:
            features.discard(SECRETS)
        if self._streams is None:
            features -= {STREAMS, RANKS, SERVICES, RELAYS}
        features = features | {PLANES} if self._telemetry is not None else features - {PLANES}
        features = features | {FILES} if self._files is not None else features - {FILES}
        if self._gates is not None:
            self._gates.holds(holds.held)
            features |= {GATES, JOB_GATES}
            if self._gates.scripted:
                # A slot passes to another step only when the epilog of the step that had it has ended.
                features.discard(CREDIT)
        await controller.send(
            Hello(
                role=Role.AGENT,
                versions=SPOKEN,
                features=tuple(sorted(features)),
                name=self._settings.node,
                boot_id=holds.boot_id,
                pid=self._runtime.pid,
                epoch=holds.epoch,
                capacity=holds.capacity,
                labels=labels,
                facts=facts,
                notes=holds.notes,
                held=holds.held,
            )
        )
        welcome = _welcome_of(await controller.receive(ANSWER_MS), "the controller")
        self._controller = controller
        self._says_health = HEALTH in welcome.features
        self._hears_gates = GATES in welcome.features
        self._hears_services = SERVICES in welcome.features
        health = self._checks.health() if self._checks is not None else None
        if health is not None:
            self._tell_health(health)
        early: list[Frame] = self._early or []
        self._early = None
        for frame in early:
            self._report(frame)
        if self._gates is not None:
            self._gates.attach_controller(welcome.epoch)
        if self._probes is not None:
            self._probes.attach_controller()
        return welcome.heartbeat_ms

    async def _relay(self, controller: Connection, keeper: Connection, heartbeat_ms: int) -> None:
        """Relay until the controller's connection closes or it falls silent."""
        identity = self._settings.identity
        renewing = (
            None
            if identity is None
            else RenewalOverConnection(self._runtime, identity, controller, self._controllers_log)
        )
        beating = asyncio.ensure_future(self._beat(keeper, heartbeat_ms))
        try:
            while (frame := await controller.receive(MISSED_HEARTBEATS * heartbeat_ms)) is not None:
                if isinstance(frame, Goodbye):
                    self._controllers_log.warning("the controller says goodbye", code=frame.code, reason=frame.reason)
                    self._removed = frame.code == REMOVED
                    if frame.code == NOT_LEADER:
                        raise NotLeaderError(frame.reason)
                    return
                if isinstance(frame, HeartbeatAck) and self._checks is not None:
                    self._checks.compare_clocks(frame.now_ms, self._runtime.monotonic_ms() - self._asked_ms)
                if isinstance(frame, Joined):
                    if renewing is not None:
                        renewing.joined(frame)
                    continue
                if isinstance(frame, Secrets):
                    if self._secrets is not None:
                        self._secrets.take(frame)
                    continue
                if isinstance(frame, Planes):
                    if self._telemetry is not None:
                        self._telemetry.hear_planes(frame)
                    continue
                if isinstance(frame, OpenStream):
                    if self._streams is not None:
                        self._streams.open(frame, keeper.send_nowait)
                    continue
                begun: Frame | None = frame
                if isinstance(frame, Start) and self._tails is not None:
                    self._tails.begin(frame)
                if isinstance(frame, JobNodes):
                    begun = None if self._hostfiles is None else self._hostfiles.renew(frame)
                if isinstance(frame, Start) and self._secrets is not None:
                    begun = await self._secrets.deliver(frame)
                if isinstance(begun, Start) and self._hostfiles is not None:
                    begun = await self._hostfiles.put(begun)
                passed = begun if self._gates is None or begun is None else self._gates.down(begun)
                if passed is not None and AGENT_KEEPER.includes(passed):
                    await keeper.send(passed)
        finally:
            if renewing is not None:
                renewing.stop()
            beating.cancel()
            with suppress(asyncio.CancelledError, HALError):
                await beating

    async def _beat(self, keeper: Connection, heartbeat_ms: int) -> None:
        """Ask the keeper for its stamp; its answer is the heartbeat that goes to the controller."""
        while not keeper.closed:
            await keeper.send(Heartbeat(stamp_boot_ms=0))
            await self._runtime.sleep(heartbeat_ms)


def _welcome_of(frame: Frame | None, who: str) -> Welcome:
    """Return the welcome.

    Raises:
        UnreachableError: the connection closed instead.
        HALError: the other end sent a goodbye or an unexpected frame instead.
    """
    if isinstance(frame, Welcome):
        return frame
    if isinstance(frame, Goodbye) and frame.code == NOT_LEADER:
        raise NotLeaderError(frame.reason)
    if isinstance(frame, Goodbye):
        raise error_from_code(frame.code, f"{who} refused: {frame.reason}", frame.hint)
    if frame is None:
        raise UnreachableError(
            f"{who} closed the connection before it answered",
            hint="a refused certificate looks like this: has it expired, or is the clock wrong?",
        )
    raise MalformedFrameError(f"{who} answered a hello with a {type(frame).__name__} frame")
