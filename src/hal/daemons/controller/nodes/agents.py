"""The connections of agents: who is there, what they report, what they are sent.

A node has at most one connection; a newer one replaces it. Starts wait until the node's keeper has stamped a heartbeat
(a start carries the newest stamp that was acknowledged); stops and acknowledgements go out at once, or never: a node
that returns is compared with the database anyway.

A node that reports what cannot be true (a frame outside the wire's bounds, a report that is refused as false) has lied:
the report is dropped, its connection ends, it is closed to new work until a person has looked (`quarantine`), and the
more often it lies, the longer it waits before it is heard again. A report that meets a fault of HAL's own is dropped,
too, and its node is not blamed; where that happens often, its connection ends, and it waits a little (`faulted`). See
`budget` for what a node may cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from hal.core.lifecycle.outcome import GATE_ELSEWHERE, NODE_TOO_OLD
from hal.core.model import (
    ConflictError,
    DeniedError,
    HALError,
    OverloadedError,
    SpecError,
    StepId,
    StoreError,
    TimedOutError,
    UnreachableError,
    format_amount,
    format_duration,
    one_line,
)
from hal.core.model.facts import CORES_LABEL, NODE_LABEL, bound_facts
from hal.core.model.lease_times import LeaseTimes
from hal.core.model.units import resource_name
from hal.daemons.controller.access.secrets import SecretBook
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.flusher import Flusher
from hal.daemons.controller.cycle.inbox import Inbox
from hal.daemons.controller.nodes.admission import NodeAdmission
from hal.daemons.controller.nodes.budget import (
    BARRED_FIRST_MS,
    BARRED_LONGEST_MS,
    CHARS_A_WEIGHT,
    COSTS,
    FAULTS_IN_A_MINUTE,
    FAULTS_MS,
    FAULTS_OF_LEASE,
    FRAMES_A_TURN,
    MAX_KEY,
    MAX_LABEL,
    MAX_NODES,
    MAX_NOTE,
    MAX_NOTES,
    MAX_RESOURCE_NAMES,
    RAISES,
    RAISES_PER_S,
    WAIT_MS,
)
from hal.daemons.controller.nodes.forgetting import Forgetting
from hal.daemons.controller.nodes.leases import NodeLeases
from hal.daemons.controller.nodes.link import Link
from hal.daemons.controller.nodes.order_frames import (
    StartLease,
    ack_frames,
    other_frames,
    resize_frames,
    start_frames,
)
from hal.daemons.controller.nodes.request_numbers import RequestNumbers
from hal.daemons.controller.nodes.start_secrets import StartSecrets, Unsent, Values, secret_frames
from hal.planes.tasks import Arrival, Orders, TaskPlane
from hal.runtime.home import check_node_name
from hal.runtime.interface import Connection, Runtime
from hal.runtime.line_budget import Bucket
from hal.wire.agree import (
    CREDIT,
    FILES,
    FORGET,
    HEALTH,
    HOSTFILES,
    JOB_GATES,
    OUTPUTS,
    PLANES,
    QUARANTINED,
    RANKS,
    RELAYS,
    REMOVED,
    SECRETS,
    STEP_FEATURES,
    STREAMS,
    agree,
)
from hal.wire.bounds import MAX_COUNT
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.agent_keeper import (
    Done,
    Exits,
    Forget,
    Forgotten,
    Heartbeat,
    HeartbeatAck,
    LogChunk,
    OutputPart,
    OutputParts,
    ReadLog,
    ReadOutputs,
    Refusal,
    Refused,
    Samples,
    Started,
    Stream,
)
from hal.wire.frames.controller_agent import (
    ControllerAgentFrame,
    Gates,
    Health,
    OpenStream,
    Planes,
    Readiness,
    StreamOpened,
)
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import STOPPED, Goodbye, Hello, Welcome
from hal.wire.frames.joining import CheckCertificates, Join, ReadAuthority, Renew
from hal.wire.roles import Role
from hal.wire.template_needs import unmet_need

MISSED_HEARTBEATS = 3
"""A node that misses so many is unreachable."""
HELLO = "hello"
"""What a node reports first."""
MUTED = "HAL met faults of its own in what it reported"
STARTED_LATER_MS = 20
"""How long the report of a start may wait for company."""


class Agents:
    """All of them."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        plane: TaskPlane,
        committer: Committer,
        flusher: Flusher,
        inbox: Callable[[], Inbox],
        node_admission: NodeAdmission,
        times: LeaseTimes,
        secrets: SecretBook,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._plane = plane
        self._committer = committer
        self._inbox = inbox
        self._node_admission = node_admission
        self._secrets = StartSecrets(secrets, plane)
        self._links: dict[str, Link] = {}
        self._numbers = RequestNumbers(committer)
        self._raises = Bucket(runtime.monotonic_ms, RAISES, RAISES_PER_S)
        self._planes = Planes(settled=False)
        """What agents are told of planes."""
        self._resources: set[str] = set()
        """Names of what nodes have offered so far."""
        self.on_lie: Callable[[str, str], None] = lambda node, reason: None
        """Called once for each node that lied, with how it did."""
        self._silence_ms = times.heartbeat_ms * MISSED_HEARTBEATS
        self.forgetting = Forgetting(runtime, plane, committer, flusher, inbox, self._numbers, self._send_forget)
        self.leases = NodeLeases(runtime, times, self._lease_over)

    @property
    def connected_count(self) -> int:
        """How many nodes have their agent on the line. O(nodes)."""
        return sum(link.connection is not None for link in self._links.values())

    def connected(self, node: str) -> bool:
        """Whether the node's agent is on the line."""
        link = self._links.get(node)
        return link is not None and link.connection is not None

    def last_heard_ms(self, node: str) -> int:
        """When a frame of it came last; 0 since this controller started."""
        link = self._links.get(node)
        return link.last_heard_ms if link else 0

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, orders: dict[str, Orders]) -> None:
        """Send to nodes of this host what a commit has made true: starts, stops, new walltimes."""
        for node, due in orders.items():
            link = self._link(node)
            if not link.elsewhere:
                self._send_orders(link, due)

    def deliver_elsewhere(self, orders: dict[str, Orders]) -> None:
        """Send it to nodes of other hosts: these run on if this host loses power, so it must have been flushed."""
        for node, due in orders.items():
            link = self._links.get(node)
            if link is not None and link.elsewhere:
                self._send_orders(link, due)

    def any_elsewhere(self, orders: dict[str, Orders]) -> bool:
        """Whether some of it waits for the flush."""
        return any(node in self._links and self._links[node].elsewhere for node in orders)

    def _send_orders(self, link: Link, due: Orders) -> None:
        if due.arrival is not None and due.arrival is link.arrival:
            # What earlier groups ordered is ordered again by this one, where the comparison found that it still holds.
            link.arrival = None
            link.unsent.clear()
        link.unsent.extend((due.templates[start.template], start) for start in due.starts)
        if due.lost:
            lost = frozenset(due.lost)
            link.unsent = [one for one in link.unsent if one[1].step not in lost]
        if link.silent and link.connection is None:
            self._report_silence(link, "its agent is not heard")
        self._send_starts(link)
        for frame in other_frames(due, self._committer.epoch):
            self._send(link, frame)
        if due.resized and HOSTFILES not in link.lacks:
            for told in resize_frames(due.resized, self._committer.epoch):
                self._send(link, told)

    def acknowledge(self, orders: dict[str, Orders]) -> None:
        """Acknowledge to keepers the exits that they may forget: those that a power failure cannot take back."""
        for node, due in orders.items():
            link = self._links.get(node)
            if link is not None:
                for frame in ack_frames(due):
                    self._send(link, frame)

    def _send_starts(self, link: Link) -> None:
        if not link.unsent or link.connection is None or not link.stamp_boot_ms or link.arrival is not None:
            return
        unsent, link.unsent = link.unsent, []
        if not (link.job_gates and link.files):
            refusals = [
                Refusal(start.step, GATE_ELSEWHERE, why)
                for template, start in unsent
                if (why := link.no_gates(template))
            ]
            if refusals:
                work = partial(self._plane.record_refusals, link.name, refusals)
                self._inbox().report_nowait(link.name, "refused", work)
            unsent = [(template, start) for template, start in unsent if not link.no_gates(template)]
        if link.lacks:
            unsent = self._refuse_newer(link, unsent)
        templates = {start.template: template for template, start in unsent}
        values: Values = {}
        if any(template.secrets for template in templates.values()):
            refusal = self._secrets.refusal_of_node(link.connection, capable=link.secrets)
            unsent, refused, values = self._secrets.values_for(unsent, refusal)
            if refused:
                work = partial(self._plane.record_refusals, link.name, refused)
                self._inbox().report_nowait(link.name, "refused", work)
        starts = [start for _, start in unsent]
        lease = StartLease(self._committer.epoch, link.stamp_boot_ms, self.leases.times.node_ms)
        for frame in start_frames(templates, starts, lease):
            for sent in secret_frames(frame, values) if values else ():
                self._send(link, sent)
            self._send(link, frame)

    def _refuse_newer(self, link: Link, unsent: Sequence[Unsent]) -> list[Unsent]:
        """Refuse the starts of which an older keeper would drop a part; returns the others."""
        known = frozenset(STEP_FEATURES) - link.lacks
        needs = {start.template: unmet_need(template, known) for template, start in unsent}
        refusals = [
            Refusal(
                start.step,
                NODE_TOO_OLD,
                f"it does not know {what}; upgrade HAL there, then: hal update {start.step.job} --exclude none",
            )
            for _, start in unsent
            if (what := needs[start.template])
        ]
        if refusals:
            self._inbox().report_nowait(link.name, "refused", partial(self._plane.record_refusals, link.name, refusals))
        return [one for one in unsent if not needs[one[1].template]]

    def _send(self, link: Link, frame: ControllerAgentFrame) -> bool:
        if link.connection is None:
            return False
        if not self._committer.lease.holds:
            # Another may lead by now: nothing is said. The agent dials again, and is sent what holds then.
            link.connection.abort()
            return False
        try:
            link.connection.send_nowait(frame)
        except HALError as error:
            # Its agent dials again and is sent then what it missed here.
            link.log.warning("a node could not be notified", reason=str(error))
            link.connection.abort()
            return False
        return True

    def _send_forget(self, node: str, frame: Forget) -> bool:
        link = self._links.get(node)
        return link is not None and self._send(link, frame)

    def tell_planes(self, planes: Planes) -> None:
        """Tell all agents, and those that dial from now on, which planes are there."""
        self._planes = planes
        for link in self._links.values():
            if link.hears_planes:
                self._send(link, planes)

    def forget(self, node: str) -> None:
        """The node was removed: its agent is notified, and does not dial again by itself."""
        link = self._links.pop(node, None)
        if link is None:
            return
        self._inbox().forget(node)
        self.forgetting.remove(node)
        if link.silence is not None:
            link.silence.cancel()
        link.silent = True  # nothing is reported of it any more
        if link.connection is not None:
            goodbye = Goodbye(code=REMOVED, reason="this node was removed; start its agent again to let it join again")
            if self._send(link, goodbye):
                link.connection.close()

    async def goodbye(self, reason: str) -> None:
        """Inform all agents that the controller stops."""
        self.forgetting.close()
        for link in self._links.values():
            if link.connection is not None and self._send(link, Goodbye(reason=reason)):
                link.connection.close()

    def drop_all(self) -> None:
        """End all connections without a word: another controller leads, and agents look for it."""
        self.forgetting.close()
        for link in self._links.values():
            if link.connection is not None:
                link.connection.abort()

    # ── one connection ────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, connection: Connection, hello: Frame | None) -> None:
        """Serve an accepted connection, from hello, its first frame, to its end."""
        if hello is None:
            self._no_hello(connection)
            return
        if isinstance(hello, ReadAuthority | Join | Renew | CheckCertificates):
            await self._node_admission.serve_stranger(connection, hello)
            return
        if not isinstance(hello, Hello) or hello.role is not Role.AGENT:
            raise MalformedFrameError("the first frame must be the hello of an agent")
        version, features = agree(hello)
        check_node_name(hello.name)
        self._node_admission.check(connection, hello.name)
        self._node_admission.check_same(connection, hello.name, hello.facts, hello.boot_id)
        self._check_hello(hello)
        if hello.epoch > self._committer.epoch:
            await self._committer.raise_epoch(hello.epoch, self._clock.now_ms())
        link = self._attach(hello.name, connection)
        link.elsewhere = hello.boot_id != self._runtime.boot_id
        link.job_gates = JOB_GATES in features
        link.secrets = SECRETS in features
        link.files = FILES in features
        link.outputs = OUTPUTS in features
        link.opens_streams = STREAMS in features
        link.lacks = frozenset(STEP_FEATURES) - set(features)
        link.opens_ranks = RANKS in features
        link.meets = RELAYS in features
        link.hears_planes = PLANES in features
        link.log.info("a node dialled", boot_id=hello.boot_id, held=len(hello.held))
        await connection.send(
            Welcome(
                role=Role.CONTROLLER,
                version=version,
                features=features,
                epoch=self._committer.epoch,
                heartbeat_ms=self.leases.times.heartbeat_ms,
                lease_ms=self.leases.times.node_ms,
                boot_id=self._runtime.boot_id,
                pid=self._runtime.pid,
            )
        )
        if link.hears_planes and link.connection is connection:
            self._send(link, self._planes)
        labels = {one_line(key, MAX_KEY): one_line(text, MAX_LABEL) for key, text in hello.labels.items() if key}
        labels[NODE_LABEL] = hello.name  # whatever it says: jobs exclude nodes by it
        labels[CORES_LABEL] = format_amount("cpu", hello.capacity.get("cpu", 0))  # jobs for whole nodes choose by it
        facts = bound_facts(hello.facts)
        address, remark = self._node_admission.address_of(connection, hello.name, facts)
        notes = (*hello.notes[: MAX_NOTES - 1], remark) if remark else hello.notes
        arrival = Arrival(
            name=hello.name,
            capacity=hello.capacity,
            labels=labels | self._node_admission.labels_of(connection),
            boot_id=hello.boot_id,
            notes=tuple(one_line(note, MAX_NOTE) for note in notes[:MAX_NOTES]),
            held=hello.held,
            facts=replace(facts, address=address),
            credit=CREDIT in features,
            checked=HEALTH in features,
        )
        if link.connection is connection:
            link.arrival = arrival
        joined = partial(self._joined, link, connection, arrival)
        await self._inbox().report(link.name, HELLO, joined, weight=1 + len(hello.held))
        if FORGET in features and link.connection is connection:
            self.forgetting.attach(link.name)
        try:
            await self._listen(link, connection)
        except MalformedFrameError as error:
            self.lied(link.name, str(error))
        finally:
            if self._links.get(link.name) is link:
                self._detach(link, connection)

    def _joined(self, link: Link, connection: Connection, arrival: Arrival, now_ms: int) -> None:
        if link.connection is connection:
            self._plane.record_arrival(arrival, now_ms)

    async def _listen(self, link: Link, connection: Connection) -> None:
        looked_at = 0
        while True:
            looked_at += 1
            if looked_at % FRAMES_A_TURN == 0:
                await self._runtime.sleep(0)
            try:
                frame = await connection.receive(timeout_ms=self._silence_ms)
            except TimedOutError:
                self._fell_silent(link)
                continue
            if frame is None and connection.fault:
                raise MalformedFrameError(connection.fault)
            if frame is None or link.connection is not connection:
                return
            cost = COSTS.get(type(frame))
            while cost is not None and not link.frames.take(cost):
                link.log.warning("a node exceeds its rate and is slowed down", frame=type(frame).__name__)
                await self._runtime.sleep(WAIT_MS)
            link.last_heard_ms = self._clock.now_ms()
            if link.silent:
                link.silent = False
                await self._inbox().report(link.name, "it is heard", partial(self._plane.record_return, link.name))
            if isinstance(frame, Goodbye):
                link.log.info("a node says goodbye", code=frame.code, reason=frame.reason)
                if frame.code == STOPPED:
                    reason = f"stopped in good order, {one_line(frame.reason, MAX_NOTE)}"
                    self._report_silence(link, reason, stopped=True)
                return
            await self._handle_frame(link, frame)

    async def _handle_frame(self, link: Link, frame: Frame) -> None:
        inbox, node, plane = self._inbox(), link.name, self._plane
        match frame:
            case Heartbeat():
                self._renew_lease(link, frame.stamp_boot_ms)
            case Started():
                # Most short steps end before this is due, and their exit says it too: one commit less.
                steps = frame.steps
                await inbox.report_items(node, "started", plane.record_starts, steps, weight=len(steps), lazy=True)
                self._runtime.call_later(STARTED_LATER_MS, inbox.wake_for_lazy)
            case Exits():
                weight = _weight(len(frame.exits), (one.message for one in frame.exits))
                await inbox.report_items(node, "exits", plane.record_exits, frame.exits, weight=weight)
            case Refused():
                link.log.warning("a node refused starts", steps=len(frame.steps), first=str(frame.steps[:1]))
                weight = _weight(len(frame.steps), (one.message for one in frame.steps))
                await inbox.report_items(node, "refused", plane.record_refusals, frame.steps, weight=weight)
            case LogChunk() | OutputParts():
                link.logs.answered(frame)
            case StreamOpened():
                link.streams.answered(frame)
            case Done():
                if frame.failed:
                    step, reason = frame.failed[0]
                    first = f"{step}: {reason}"
                    link.log.warning("not done", what=frame.command, steps=len(frame.failed), first=first)
            case Health():
                health = partial(plane.record_checks, node, frame.failing)
                await inbox.report(node, "health", health, weight=_weight(1, (one.reason for one in frame.failing)))
            case Gates():
                weight = _weight(len(frame.gates), (one.reason for one in frame.gates))
                await inbox.report_items(node, "gates", plane.record_gates, frame.gates, weight=weight)
            case Readiness():
                weight = _weight(len(frame.steps), (one.reason for one in frame.steps))
                await inbox.report_items(node, "readiness", plane.record_readiness, frame.steps, weight=weight)
            case Forgotten():
                self.forgetting.answered(node, frame)
            case Samples():
                link.cpus = {sample.step: sample.cpus for sample in frame.samples if sample.cpus}
            case Renew():
                await self._renew(link, frame)
            case _:
                raise MalformedFrameError(f"an agent does not send {type(frame).__name__}")

    async def _renew(self, link: Link, frame: Renew) -> None:
        connection = link.connection
        if connection is None:
            return
        try:
            await self._node_admission.renew(connection, link.name, frame)
            link.log.info("the certificate of a node was renewed")
        except StoreError as error:
            # It asks again, and its present certificate has a third of its time left.
            link.log.warning("a certificate could not be renewed", reason=str(error))

    def cpus_of(self, node: str, job: int, task: int, attempt: int, rank: int) -> str:
        """The CPUs on which a step is bound, as its node last said: ranges; '' if all, or not known."""
        link = self._links.get(node)
        return "" if link is None else link.cpus.get(StepId(job, task, attempt, rank), "")

    def dismiss(self, node: str, code: str, reason: str) -> None:
        """Close the node's connection, with the reason."""
        link = self._links.get(node)
        if link is not None and link.connection is not None:
            self._send(link, Goodbye(code=code, reason=reason))
            link.connection.close()

    # ── lies ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_hello(self, hello: Hello) -> None:
        """Whether that node may be heard now, and can be what it says.

        Raises:
            OverloadedError: not now.
            DeniedError: it cannot be taken in.
            SpecError: what it offers has no name.
        """
        link = self._links.get(hello.name)
        if link is not None:
            if not self._plane.is_quarantined(hello.name):
                link.lies = link.barred_ms = 0
            left_ms = link.barred_ms - self._runtime.monotonic_ms()
            muted = link.muted_ms > self._runtime.monotonic_ms()
            if left_ms > 0 or muted or not link.hellos.take():
                why = "it sent what cannot be true" if left_ms > 0 else MUTED if muted else "it dials too often"
                raise OverloadedError(f"node '{hello.name}' is refused for now: {why}", hint="it dials again by itself")
        elif len(self._links) >= MAX_NODES or len(self._plane.nodes) >= MAX_NODES:
            raise DeniedError(f"{MAX_NODES} nodes are known already", hint="`hal node remove` those that are gone")
        if hello.epoch > self._committer.epoch and self._plane.is_quarantined(hello.name):
            raise DeniedError(
                f"node '{hello.name}' is in quarantine, and claims epoch {hello.epoch}, which is not accepted",
                hint=f"if that epoch is right: hal node resume {hello.name}",
            )
        if hello.epoch > self._committer.epoch and not self._raises.take():
            raise OverloadedError(
                f"node '{hello.name}' has seen epoch {hello.epoch}; that of this store, {self._committer.epoch}, was "
                "raised too often recently",
                hint="find the node that claims a false epoch: the controller's log names those that dialled",
            )
        for name in hello.capacity:
            if resource_name(name) != name:
                raise SpecError(f"capacity: '{one_line(name, MAX_KEY)}' is not a resource name")
        if len(self._resources | hello.capacity.keys()) > MAX_RESOURCE_NAMES:
            raise DeniedError(f"nodes offer {MAX_RESOURCE_NAMES} different resources already; this one has more")
        self._resources.update(hello.capacity)

    def _no_hello(self, connection: Connection) -> None:
        """Handle a connection that closed or sent something else than a frame; a certificate shows which node lied."""
        certified = connection.certified
        if connection.fault and certified is not None:
            self._node_admission.check(connection, certified.name)
            if certified.name in self._plane.nodes:
                self._link(certified.name)
                self.lied(certified.name, connection.fault)

    def lied(self, node: str, reason: str) -> None:
        """Close a node to new work that reported what cannot be true, and ignore it for a while."""
        link = self._links.get(node)
        if link is None:
            return  # it was removed meanwhile
        link.log.warning("a node sent what cannot be true", reason=reason)
        if not link.lies and not self._plane.is_quarantined(node):
            self.on_lie(node, one_line(reason, MAX_NOTE))
        barred_ms = min(BARRED_FIRST_MS << min(link.lies, 16), BARRED_LONGEST_MS)
        link.lies += 1
        link.barred_ms = self._runtime.monotonic_ms() + barred_ms
        self._inbox().report_nowait(node, "a lie", partial(self._plane.quarantine_node, node, reason))
        if link.connection is not None and not link.connection.closed:
            why = f"this node is in quarantine: {one_line(reason, MAX_NOTE)}"
            self._send(link, Goodbye(code=QUARANTINED, reason=why, hint=f"hal node resume {node}"))
            link.connection.close()

    def faulted(self, node: str, what: str) -> bool:
        """Note that HAL met a fault of its own in what a node reported. Returns whether its connection ends for it.

        It does where that happens often, and where it is the hello, without which nothing starts there. The node dials
        again by itself, is heard a little later each time, and reports again all that was not acknowledged.
        """
        link = self._links.get(node)
        if link is None:
            return True  # it was removed meanwhile
        now_ms = self._runtime.monotonic_ms()
        if link.faults and link.faults[-1] < now_ms - FAULTS_MS:
            link.faults.clear()
            link.fault_ends = 0
        link.faults.append(now_ms)
        often = len(link.faults) == FAULTS_IN_A_MINUTE and link.faults[0] >= now_ms - FAULTS_MS
        if what != HELLO and not often:
            return False
        longest_ms = max(self.leases.times.node_ms // FAULTS_OF_LEASE, BARRED_FIRST_MS)
        link.muted_ms = now_ms + min(BARRED_FIRST_MS << min(link.fault_ends, 16), longest_ms)
        link.fault_ends += 1
        if link.connection is not None and not link.connection.closed:
            self._send(link, Goodbye(reason=MUTED, hint="see the log of the controller"))
            link.connection.close()
        return True

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _renew_lease(self, link: Link, stamp_boot_ms: int) -> None:
        """Acknowledge the stamp: the keeper's lease counts from it, and T from now."""
        if not self.leases.may_renew(link.name):
            return
        ack = HeartbeatAck(
            stamp_boot_ms=stamp_boot_ms,
            epoch=self._committer.epoch,
            lease_ms=self.leases.times.node_ms,
            now_ms=self._runtime.now_ms(),
        )
        self._send(link, ack)
        self.leases.count_from_now(link.name)
        link.stamp_boot_ms = stamp_boot_ms
        self._send_starts(link)

    def _lease_over(self, node: str) -> None:
        """What is guarded there has ended: its tasks may go elsewhere."""
        silent_ms = self.leases.lost_after_ms
        self._link(node).log.warning("a node's lease is over", after_ms=silent_ms)
        work = partial(self._plane.end_node_lease, node, silent_ms)
        self._inbox().report_nowait(node, "the end of its lease", work)

    # ── coming and going ──────────────────────────────────────────────────────────────────────────────────────────

    def _link(self, name: str) -> Link:
        link = self._links.get(name)
        if link is None:
            link = self._links[name] = Link(name, self._runtime)
        return link

    def _attach(self, name: str, connection: Connection) -> Link:
        link = self._link(name)
        if link.connection is not None:
            link.connection.close()
            self.forgetting.detach(name)  # its successor need not know `Forget`
        if link.silence is not None:
            link.silence.cancel()
            link.silence = None
        link.connection, link.stamp_boot_ms, link.silent = connection, 0, False
        link.last_heard_ms = self._clock.now_ms()
        return link

    def _detach(self, link: Link, connection: Connection) -> None:
        if link.connection is not connection:
            return
        link.connection, link.stamp_boot_ms = None, 0
        self.forgetting.detach(link.name)
        lost = UnreachableError(f"the connection to node '{link.name}' was lost")
        link.logs.end(lost)
        link.streams.end(lost)
        link.log.info("a node's connection ended", reason=connection.close_reason)
        if link.name not in self._plane.nodes and not link.unsent and not link.lies:
            del self._links[link.name]
            return
        link.silence = self._runtime.call_later(self._silence_ms, partial(self._still_away, link))

    def _still_away(self, link: Link) -> None:
        link.silence = None
        if link.connection is None:
            self._report_silence(link, f"its agent has not been heard for {format_duration(self._silence_ms)}")

    def _fell_silent(self, link: Link) -> None:
        if not link.silent:
            self._report_silence(link, f"no heartbeat for {format_duration(self._silence_ms)}")

    def _report_silence(self, link: Link, reason: str, *, stopped: bool = False) -> None:
        link.silent = True
        work = partial(self._silent, link, reason, link.take_refusals(), stopped)
        self._inbox().report_nowait(link.name, "its silence", work)

    def _silent(self, link: Link, reason: str, refusals: list[Refusal], stopped: bool, now_ms: int) -> None:
        """Nothing new starts there; what it runs is left alone."""
        if link.silent:
            self._plane.record_silence(link.name, reason, now_ms, link.last_heard_ms, stopped=stopped)
            self._plane.record_refusals(link.name, refusals, now_ms)

    # ── outputs ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def read_log(self, node: str, step: StepId, stream: Stream, offset: int, limit: int) -> LogChunk:
        """A part of a step's output, read at its node.

        Raises:
            UnreachableError: the node is not heard.
            TimedOutError: it did not answer.
            OverloadedError: too many reads are under way there.
            ConflictError: what is in the place of the output is none, as the node says.
        """
        link = self._connected(node, f"the output of {step} is")
        offset = max(-MAX_COUNT, min(offset, MAX_COUNT))
        asked = ReadLog(request=self._numbers.next(), step=step, stream=stream, offset=offset, limit=limit)
        return await link.logs.read(asked, partial(self._send, link))

    async def read_outputs(
        self, node: str, steps: Sequence[StepId], stream: Stream, offset: int, limit: int
    ) -> Sequence[OutputPart]:
        """The first `limit` bytes from `offset` on of the outputs of several steps of one node, at most `MAX_READS`: of
        the first of them, at least of one; each may have an error. One frame, where the node knows it.

        Raises:
            UnreachableError, TimedOutError, OverloadedError: as `read_log`.
        """
        link = self._connected(node, "outputs are")
        offset = max(-MAX_COUNT, min(offset, MAX_COUNT))
        if link.outputs:
            asked = ReadOutputs(
                request=self._numbers.next(), steps=tuple(steps), stream=stream, offset=offset, limit=limit
            )
            return await link.logs.read_many(asked, partial(self._send, link))
        try:
            one = await self.read_log(node, steps[0], stream, offset, limit)
        except ConflictError as error:
            return (OutputPart(0, b"", 0, error.message),)
        return (OutputPart(one.offset, one.data, one.size, "", one.deleted_ms, one.deleted_by),)

    def _connected(self, node: str, what: str) -> Link:
        """
        Raises:
            UnreachableError: the node is not heard.
        """
        link = self._links.get(node)
        if link is None or link.connection is None:
            raise UnreachableError(
                f"{what} on node '{node}', which is not connected",
                hint="it can be read when the node has returned; `hal nodes` shows its state",
            )
        return link

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────

    def is_local(self, node: str, *, here: bool) -> bool:
        """Whether a node and who asks for a stream are both on this host, and meet at a Unix socket.

        Args:
            here: who asks is.
        """
        link = self._links.get(node)
        if link is None or link.connection is None:
            return False
        return here and link.connection.certified is None and not link.elsewhere

    async def open_stream(self, node: str, asked: OpenStream, *, here: bool) -> StreamOpened:
        """Let a node open a stream to one of its steps.

        Args:
            asked: without the number of a request.
            here: whoever asked is on this host. A node that has joined is reached over the network in any case.
        Raises:
            UnreachableError: the node is not heard, or cannot be reached from there.
            ConflictError: it does not know how.
            HALError: as `StreamRequests.open`.
        """
        link = self._links.get(node)
        if link is None or link.connection is None:
            raise UnreachableError(f"{asked.step} is on node '{node}', which is not connected", hint="hal nodes")
        if not link.opens_streams:
            raise ConflictError(f"the agent of node '{node}' is too old for streams", hint="upgrade it")
        if asked.ranks and not link.opens_ranks:
            raise ConflictError(f"the agent of node '{node}' is too old for hal launch", hint="upgrade it")
        joined = link.connection.certified is not None
        if asked.relay and not link.meets:
            raise ConflictError(f"the agent of node '{node}' is too old for a relay", hint="upgrade it")
        by_network = not self.is_local(node, here=here)
        if by_network and not joined and (link.elsewhere or not link.meets):
            raise UnreachableError(
                f"node '{node}' is reached from the controller's machine only, as it has no certificate",
                hint="run the command there",
            )
        asked = replace(asked, request=self._numbers.next(), listen=by_network and not asked.relay)
        return await link.streams.open(asked, partial(self._send, link))


def _weight(items: int, texts: Iterable[str]) -> int:
    """What a report weighs: its items and what they say."""
    return max(items + sum(map(len, texts)) // CHARS_A_WEIGHT, 1)
