"""The keeper's decisions: which starts are accepted, when a step is signalled, stopped and killed, what is reported.

Synchronous, without I/O or clocks of its own: frames and spawner events in, frames and spawner calls out, an `Instant`
with every call. The same class runs in the real loop (`loop`) and, with fake processes, under virtual time. A turn is:
feed what is there, `wake`, `take_frames`. Rules: CLUSTER.md 'Keepers', docs/keeper.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle.outcome import FOREIGN_USER
from hal.core.model import StepId
from hal.daemons.agent.device_env import device_env
from hal.daemons.agent.keeper.commands import Commands
from hal.daemons.agent.keeper.credit import CREDIT_OVER, RECALLED, Credit
from hal.daemons.agent.keeper.endings import Endings, signal_number
from hal.daemons.agent.keeper.environment import (
    dialect_env,
    port_env,
    rank_env,
    step_env,
    stream_env,
    streams_of,
    trace_env,
)
from hal.daemons.agent.keeper.guarded_steps import GuardedSteps
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ledger import MAX_BATCH, MAX_HELD, Ledger
from hal.daemons.agent.keeper.ports import (
    Adoption,
    Ended,
    Gone,
    Instant,
    Journal,
    JournalFullError,
    KeeperConfig,
    Launch,
    NeverStarted,
    Noted,
    Outputs,
    Spawned,
    Spawner,
    SpawnerEvent,
    SpawnFailed,
    Unspawned,
    Vanished,
)
from hal.daemons.agent.keeper.reports import Reports
from hal.daemons.agent.keeper.service_ports import ServicePorts
from hal.daemons.agent.keeper.step import HeldStep, Phase
from hal.daemons.agent.keeper.timers import Due
from hal.runtime import step_users
from hal.wire import agree
from hal.wire.errors import VersionError
from hal.wire.frames.agent_keeper import (
    AgentKeeperFrame,
    Checkpoint,
    ExitsAck,
    Forgotten,
    Heartbeat,
    HeartbeatAck,
    Recall,
    Samples,
    Start,
    StepExit,
    StepStart,
    StepTemplate,
    Stop,
    StopReason,
)
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.frames.hello import HeldStep as HeldReport
from hal.wire.roles import Role

WAKE_MS: Final = 1_000
"""The clock is read at least this often, so that limits and leases hold after the host was suspended."""
SAMPLE_AGE_MS: Final = 1_000
SAMPLE_EVERY_MS: Final = 2_000
MAX_SAMPLED: Final = 2_000
"""Steps sampled at a time."""
MAX_NOTES: Final = 8
"""Remarks in one exit report."""
STOP_ALL_GRACE_MS: Final = 5_000
ALREADY_ENDED: Final = "already-ended"
"""Code of the refusal of a step whose exit was acknowledged."""


class KeeperCore:
    """All decisions of one keeper."""

    def __init__(
        self,
        *,
        config: KeeperConfig,
        journal: Journal,
        spawner: Spawner,
        outputs: Outputs,
        boot_id: str,
        notes: Sequence[str] = (),
        pid: int = 0,
        is_port_free: Callable[[int], bool] = lambda port: True,
    ) -> None:
        self.config = config
        self.stopping = False
        """`stop_all` was called: nothing is started any more."""
        self._spawner = spawner
        self._outputs = outputs
        self._boot_id = boot_id
        self._pid = pid
        self._notes = list(notes)
        self._ledger = Ledger(journal, boot_id)
        self._reports = Reports()
        self._credit = Credit()
        self._endings = Endings(self._ledger, spawner, outputs, self._reports, self._credit)
        self._is_port_free = is_port_free
        self._ports = ServicePorts(config.node, is_port_free)
        self._queues: dict[str, deque[StepId]] = {}
        """Steps that wait for a helper, by the user whose helper it must be."""
        self._next_sample_ms = 0
        self._next_maintenance_ms = 0
        self._commands = Commands(self._ledger, spawner, outputs, self._reports, self._endings, config)
        self._lease = Lease(config.lease_ms, boot_id)
        self._guarded_steps = GuardedSteps(self._ledger, self._endings, self._lease)

    # ── what the shell asks ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> int:
        """The highest leader epoch seen."""
        return self._ledger.epoch

    @property
    def idle(self) -> bool:
        """No step is queued, starting, running or ending."""
        return not any(held.active for held in self._ledger.steps.values())

    @property
    def active_steps(self) -> int:
        """Steps that are queued, starting, running or ending."""
        return sum(held.active for held in self._ledger.steps.values())

    @property
    def unacknowledged(self) -> int:
        """Exits that the controller has not acknowledged."""
        return self._reports.unacknowledged

    @property
    def durable(self) -> bool:
        """Whether every end passed to `handle_events` is in the journal, so that its helper need not keep it."""
        return self._ledger.durable

    def output_bounds(self) -> list[tuple[StepId, int]]:
        """The running steps, each with how many bytes of each of its outputs are kept."""
        return [(step, held.template.output_bytes) for step, held in self._endings.running.items()]

    def recover(self, now: Instant) -> None:
        """Take over what the journal names. Called once, first."""
        missing = self._ledger.load(now)
        self._guarded_steps.recover(missing, now)
        for held in self._ledger.steps.values():
            if held.exit is not None:
                self._reports.exited(held)
        for held in missing:
            if held.kill_boot_ms:
                self._endings.timers.add(held.kill_boot_ms, Due.KILL, held.step)
            if held.term_boot_ms:
                self._endings.timers.add(held.term_boot_ms, Due.TERM, held.step)
        self._spawner.adopt(
            [
                Adoption(
                    held.step,
                    held.start.token,
                    held.template.memory_bytes,
                    held.template.cpu_milli,
                    held.template.output_bytes,
                    held.template.guard,
                )
                for held in missing
            ]
        )

    def detached(self, now: Instant) -> None:
        """Handle the end of the agent's connection."""
        self._reports.detach()

    def received(self, frame: Frame, now: Instant) -> None:
        """Handle a frame from the agent."""
        self._guarded_steps.look(now)
        epoch = getattr(frame, "epoch", 0)
        if epoch > self._ledger.epoch and (text := self._ledger.explain_implausible_epoch(epoch)):
            if isinstance(frame, Hello):
                self._reports.attach()
            self._reports.frame(Goodbye(code="malformed-frame", reason=text))
            return
        match frame:
            case Hello():
                self._attach(frame, now)
            case Start():
                self._start(frame, now)
            case Stop():
                self._stop_frame(frame, now)
            case Checkpoint():
                self._checkpoint_frame(frame, now)
            case Recall():
                self._recall(frame)
            case ExitsAck():
                self._acknowledge(frame.steps)
            case Heartbeat():
                stamp, running = self._lease.stamp(now), len(self._endings.running)
                self._reports.frame(Heartbeat(stamp_boot_ms=stamp, epoch=self._ledger.epoch, running=running))
            case HeartbeatAck():
                self._acknowledged(frame, now)
            case Goodbye():
                self._reports.detach()
            case _:
                self._commands.received(frame, now)

    def handle_events(self, events: Sequence[SpawnerEvent], now: Instant) -> None:
        """Handle the spawner's events, in the order in which they happened."""
        self._guarded_steps.look(now)  # first: what ended under a lapsed lease has not ended by itself
        exits: list[tuple[HeldStep, StepExit]] = []
        returned: list[HeldStep] = []
        for event in events:
            held = self._ledger.steps.get(event.step)
            if held is None or not held.active:
                continue
            match event:
                case Spawned():
                    self._spawned(held, event, now)
                case Ended() | Gone() | SpawnFailed() | Vanished():
                    if isinstance(event, Ended | SpawnFailed) and event.heir is not None:
                        self._record_heir(held, event.heir)
                    exit_ = self._endings.record_end_event(held, event, now)
                    if exit_ is not None:
                        exits.append((held, exit_))
                case Noted():
                    held.notes = (*held.notes, event.message)[:MAX_NOTES]
                case NeverStarted():
                    self._never_started(held, event, exits, now)
                case Unspawned():
                    if held.stop is not None:
                        exits.append((held, self._endings.unspawned(held, now)))
                    elif held.on_credit:
                        returned.append(held)
                    else:
                        held.phase = Phase.QUEUED
                        self._queue_of(held).appendleft(held.step)
        self._handle_unstarted(returned, now)
        self._endings.finish(exits)
        self._endings.stop_heirs([held for held, _ in exits], now)

    def stop_all(self, now: Instant) -> None:
        """End every step and start none any more: `hal down --kill`."""
        self.stopping = True
        steps = [held.step for held in self._ledger.steps.values() if held.active]
        self._endings.stop(steps, StopReason.CANCELLED, STOP_ALL_GRACE_MS, now, note="HAL was shut down with --kill")

    def wake(self, now: Instant) -> None:
        """Do what is due, and launch what there is room for."""
        self._guarded_steps.look(now)
        self._endings.apply_limits(now)
        self._return_waiting(self._credit.over(now), CREDIT_OVER)
        self._launch()
        self._launch_ahead()
        if now.boot_ms >= self._next_sample_ms:
            self._next_sample_ms = now.boot_ms + SAMPLE_EVERY_MS
            self._sample(now)
        if now.boot_ms >= self._next_maintenance_ms:
            self._next_maintenance_ms = now.boot_ms + WAKE_MS
            self._ledger.maintain()
            if len(self._endings.timers) > 4 * len(self._ledger.steps) + MAX_BATCH:
                self._endings.timers.keep(self._ledger.steps)

    def next_wake(self, now: Instant) -> int:
        """When `wake` is needed next, by the boot clock; at most `WAKE_MS` from now."""
        times = [
            now.boot_ms + WAKE_MS,
            self._endings.timers.next_ms(),
            self._reports.next_ms(now),
            self._credit.next_ms(),
            self._guarded_steps.next_ms(),
        ]
        return max(now.boot_ms, min(time for time in times if time is not None))

    def report_forgotten(self) -> None:
        """Report what the outputs have finished deleting."""
        for request in self._outputs.forgotten():
            self._reports.frame(Forgotten(request=request))

    def is_running(self, job: int) -> bool:
        """Whether a step of that job is queued, starting, running or ending. O(held steps)."""
        return any(held.active and held.step.job == job for held in self._ledger.steps.values())

    def take_frames(self, now: Instant) -> list[AgentKeeperFrame]:
        """Return the frames to send to the agent now."""
        return self._reports.take(now)

    # ── the agent ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, hello: Hello, now: Instant) -> None:
        self._reports.attach()
        try:
            version, features = agree.agree(hello)
        except VersionError as error:
            self._reports.frame(Goodbye(code=error.code, reason=str(error)))
            return
        self._ledger.record_epoch(hello.epoch)
        held = tuple(
            HeldReport(held.step, held.active, held.pid, held.started_ms, held.start.started_at_ms, held.serves)
            for held in self._ledger.steps.values()
        )
        self._reports.frame(
            Welcome(
                role=Role.KEEPER,
                version=version,
                features=features,
                epoch=self._ledger.epoch,
                lease_ms=self.config.lease_ms,
                name=self.config.node,
                boot_id=self._boot_id,
                pid=self._pid,
                capacity=dict(self.config.capacity),
                labels=dict(self.config.labels),
                notes=(*self._notes, *self._ledger.notes),
                held=held,
            )
        )

    def _acknowledged(self, ack: HeartbeatAck, now: Instant) -> None:
        """The controller has seen a stamp: the lease runs from it. A former leader renews nothing."""
        if ack.epoch >= self._ledger.epoch:
            self._ledger.record_epoch(ack.epoch)
            self._renew(ack.stamp_boot_ms, ack.lease_ms, now)

    def _renew(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> None:
        self._lease.renew(stamp_boot_ms, lease_ms, now)
        self._spawner.extend_lease(self._lease.until_boot_ms)

    def _acknowledge(self, steps: Sequence[StepId]) -> None:
        over = []
        for step in steps:
            held = self._ledger.steps.get(step)
            if held is not None and not held.active:
                self._reports.acknowledged(step)
                over.append(step)
        self._ledger.drop(over, ALREADY_ENDED)

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, frame: Start, now: Instant) -> None:
        refusal = self._refusal(frame, now)
        if refusal is None:
            self._ledger.record_epoch(frame.epoch)
            self._renew(frame.stamp_boot_ms, frame.lease_ms, now)
        fresh: dict[int, dict[StepId, StepStart]] = {}
        room = MAX_HELD - len(self._ledger.steps)
        for start in frame.steps:
            held = self._ledger.steps.get(start.step)
            if held is not None:
                self._repeat(held)
            elif code := self._ledger.refusal_of(start.step):
                self._reports.refuse(start.step, code, _text_of(code))
            elif refusal is not None:
                self._refuse_for_good([start.step], *refusal)
            elif not 0 <= start.template < len(frame.templates):
                self._refuse_for_good([start.step], "malformed", f"the frame has no template {start.template}")
            elif room <= 0:
                text = f"this keeper already holds {MAX_HELD} steps; send it again when some have ended"
                self._refuse_for_good([start.step], "overloaded", text)
            else:
                steps = fresh.setdefault(start.template, {})
                room -= start.step not in steps
                steps[start.step] = start
        for position, starts in fresh.items():
            if text := step_users.refusal(self.config.serving, self.config.user, frame.templates[position].user):
                self._refuse_for_good(list(starts), FOREIGN_USER, f"{text}; {step_users.HINT}")
                continue
            given = self._with_ports(starts.values(), frame.templates[position])
            try:
                taken = self._ledger.accept(given, frame.templates[position])
            except JournalFullError as error:
                self._refuse_for_good(list(starts), "journal-full", f"the keeper's journal cannot be written: {error}")
                continue
            self._guarded_steps.taken(taken)
            for held in taken:
                if held.start.credit_ms > 0:
                    self._credit.wait(held, now)
                else:
                    self._queue_of(held).append(held.step)

    def _lacks_its_port(self, start: StepStart) -> bool:
        """Whether the ranks of its attempt would meet here, and cannot; it is refused then."""
        port = start.master_port
        if start.step.rank or not port or self._is_port_free(port):
            return False
        self._refuse_for_good([start.step], "overloaded", f"another program uses port {port}, where its ranks meet")
        return True

    def _with_ports(self, starts: Collection[StepStart], template: StepTemplate) -> list[StepStart]:
        """The steps that begin, those of a service with their ports; without any is refused, as is a step at whose port
        the ranks of its attempt cannot meet."""
        if any(start.master_port for start in starts):
            starts = [start for start in starts if not self._lacks_its_port(start)]
        service = template.service
        if service is None or not service.ports:
            return list(starts)
        taken = {port for held in self._ledger.steps.values() if held.active for port in held.start.ports}
        given: list[StepStart] = []
        for start in starts:
            ports = self._ports.choose(service, taken.__contains__) if start.step.rank == 0 else ()
            if ports is None:
                self._refuse_for_good([start.step], "overloaded", "this node has no free port left for it")
                continue
            taken.update(ports)
            given.append(replace(start, ports=ports))
        return given

    def _refuse_for_good(self, steps: Sequence[StepId], code: str, message: str) -> None:
        """Refuse steps for good: the controller will start another attempt when it receives this, and this frame may
        be repeated."""
        self._ledger.drop(steps, code)
        for step in steps:
            self._reports.refuse(step, code, message)

    def _refusal(self, frame: Start, now: Instant) -> tuple[str, str] | None:
        if frame.epoch < self._ledger.epoch:
            return (
                "old-epoch",
                f"this keeper has seen a leader of epoch {self._ledger.epoch}; this start is of epoch {frame.epoch}",
            )
        if text := self._lease.refusal(frame.stamp_boot_ms, frame.lease_ms, now):
            return "no-lease", text
        if self.stopping:
            return "stopping", "the keeper is shutting down (hal down --kill)"
        return None

    def _repeat(self, held: HeldStep) -> None:
        """Answer a repeated start with what is known."""
        if held.phase is Phase.RUNNING or (held.phase is Phase.ENDING and held.pid):
            self._reports.started(held, asked=True)
        elif held.phase is Phase.ENDED:
            self._reports.exited(held)

    def _queue_of(self, held: HeldStep) -> deque[StepId]:
        return self._queues.setdefault(self.config.steps_user(held.template), deque())

    def _launch(self) -> None:
        """Launch what there is room for: of each user separately, so that nobody waits for another's helpers."""
        for step in self._credit.take_steps_with_slot():
            if (placed := self._ledger.steps.get(step)) is not None:
                self._queue_of(placed).append(step)
        launches: list[Launch] = []
        for user, queue in list(self._queues.items()):
            room = self._spawner.room(user)
            while queue and room > 0:
                held = self._ledger.steps.get(queue.popleft())
                if held is None or held.phase is not Phase.QUEUED or held.recipe is None:
                    continue
                launches.append(self._launch_of(held))
                room -= 1
            if not queue:
                del self._queues[user]
        if launches:
            self._spawner.launch(launches)

    def _launch_ahead(self) -> None:
        """Send steps that wait for a slot ahead to where steps of their job run."""
        for job in self._credit.jobs():
            room = self._spawner.room_ahead(job)
            handed = self._credit.take_for_spawner(job, room) if room > 0 else []
            if handed:
                launches = [self._launch_of(held) for held in handed]
                self._spawner.launch_ahead(launches, [held.credit_until_boot_ms for held in handed])

    def _launch_of(self, held: HeldStep) -> Launch:
        recipe = held.recipe
        assert recipe is not None  # until it runs
        held.phase = Phase.LAUNCHED
        env = step_env(
            held.start, self._outputs.directory(held.step), recipe.key, recipe.secrets_dir, recipe.hostfile_dir
        )
        streams = streams_of(held.start, recipe, self.config.node)
        if streams is not None:
            env.update(stream_env(streams, recipe.workdir))
        env.update(port_env(held.start, recipe))
        if held.start.devices:
            own_dev = "own-dev" in recipe.sandbox
            hidden = (self.config.hides_devices or own_dev) and all(device.files for device in held.start.devices)
            env.update(device_env(held.start.devices, hidden=hidden))
        env.update(rank_env(held.start, recipe))
        if "TRACEPARENT" in recipe.env:
            env.update(trace_env(held.start, recipe))
        if recipe.dialect:
            env.update(dialect_env(held.start, recipe, self.config.node))
        return Launch(held.start, recipe, env, streams)

    def _spawned(self, held: HeldStep, event: Spawned, now: Instant) -> None:
        if held.phase is not Phase.LAUNCHED:
            return
        self._credit.forget(held)
        held.phase, held.recipe = Phase.RUNNING, None
        held.pid, held.started_ms, held.started_boot_ms = event.pid, event.wall_ms, event.boot_ms
        self._reports.started(held)
        self._endings.record_start(held, now)

    def _never_started(
        self, held: HeldStep, event: NeverStarted, exits: list[tuple[HeldStep, StepExit]], now: Instant
    ) -> None:
        if held.stop is not None:
            exits.append((held, self._endings.unspawned(held, now)))
            return
        if not self._reports.attached:
            # Not reported: whoever asks again has not received a refusal.
            self._ledger.drop([held.step], "")
            return
        message = event.message or "the keeper was restarted before it spawned this step"
        self._refuse_for_good([held.step], event.code, message)

    # ── credit ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _recall(self, frame: Recall) -> None:
        if frame.epoch < self._ledger.epoch:
            return
        self._ledger.record_epoch(frame.epoch)
        waiting = [held for step in frame.steps if (held := self._ledger.steps.get(step)) and held.on_credit]
        self._return_waiting(waiting, RECALLED)

    def _return_waiting(self, waiting: Sequence[HeldStep], code: str) -> None:
        """Refuse steps that wait for a slot, which never begin; of those that were sent ahead, the ones that have
        not begun yet."""
        ahead = [held for held in waiting if self._credit.is_ahead(held)]
        for held in ahead:
            held.back = held.back or code
        if ahead:
            self._spawner.recall([held.step for held in ahead])
        here = [held for held in waiting if not self._credit.is_ahead(held)]
        for held in here:
            self._credit.forget(held)
        self._refuse_for_good([held.step for held in here], code, _text_of(code))

    def _record_heir(self, ended: HeldStep, heir: StepId) -> None:
        """Record that a slot was passed on by a helper."""
        ended.heir = heir
        held = self._ledger.steps.get(heir)
        if held is not None:
            self._credit.forget(held)

    def _handle_unstarted(self, returned: Sequence[HeldStep], now: Instant) -> None:
        """A step that was sent ahead has not begun: it is refused for good, or waits here again."""
        again = []
        for held in returned:
            code = held.back or (CREDIT_OVER if now.boot_ms > held.credit_until_boot_ms else "")
            if code:
                self._credit.forget(held)
                self._refuse_for_good([held.step], code, _text_of(code))
            else:
                again.append(held)
        self._credit.return_unstarted(again)

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop_frame(self, frame: Stop, now: Instant) -> None:
        if frame.epoch < self._ledger.epoch:
            text = f"this keeper has seen a leader of epoch {self._ledger.epoch}; this stop is of epoch {frame.epoch}"
            self._reports.done("stop", [], [(step, text) for step in frame.steps])
            return
        self._ledger.record_epoch(frame.epoch)
        unknown = []
        for step in frame.steps:
            held = self._ledger.steps.get(step)
            code = self._ledger.refusal_of(step)
            if held is None and not code:
                unknown.append(step)
            elif held is None:
                # The former refusal may have been lost with its receiver.
                self._reports.refuse(step, code, _text_of(code))
            elif held is not None and held.exit is not None:
                self._reports.exited(held)
        self._refuse_for_good(unknown, "not-held", "this keeper has no process of it, and will start none")
        self._endings.stop(frame.steps, frame.reason, frame.grace_ms, now)

    def _checkpoint_frame(self, frame: Checkpoint, now: Instant) -> None:
        """What runs is asked to save its state; all else of it (what has not begun, what is not held, what is being
        ended and saves nothing) is ended as by a stop, for nobody repeats this for it."""
        number, saving, rest = signal_number(frame.name), list[HeldStep](), list[StepId]()
        for step in frame.steps:
            held = self._ledger.steps.get(step)
            if held is not None and number and held.may_save and frame.epoch >= self._ledger.epoch:
                saving.append(held)
            else:
                rest.append(step)
        if rest:
            whole_ms = frame.grace_ms + frame.last_grace_ms
            stop = Stop(epoch=frame.epoch, steps=tuple(rest), reason=StopReason.PREEMPTED, grace_ms=whole_ms)
            self._stop_frame(stop, now)
        if saving:
            self._ledger.record_epoch(frame.epoch)
            self._endings.checkpoint(saving, number, frame.grace_ms, frame.last_grace_ms, now)
            self._reports.done("checkpoint", [held.step for held in saving], [])

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sample(self, now: Instant) -> None:
        old: list[StepId] = []
        for step, held in self._endings.running.items():
            if now.boot_ms - held.started_boot_ms < SAMPLE_AGE_MS or len(old) >= MAX_SAMPLED:
                break
            old.append(step)
        samples = self._spawner.sample(old) if old else []
        for sample in samples:
            held = self._ledger.steps[sample.step]
            held.sampled_rss_bytes = max(held.sampled_rss_bytes, sample.rss_bytes)
        if samples:
            self._reports.frame(Samples(samples=tuple(samples)))


def _text_of(code: str) -> str:
    """The message of a repeated refusal."""
    return _REFUSAL_TEXTS.get(code, "an earlier start of this step was refused")


_REFUSAL_TEXTS: Final = {
    ALREADY_ENDED: "this step has ended and its exit was acknowledged",
    "not-held": "this step was stopped before its start arrived",
    CREDIT_OVER: "no step of its job that runs on this node has ended in time",
    RECALLED: "it was recalled before it began",
}
