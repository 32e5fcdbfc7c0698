"""A node's gates: no step reaches the keeper before its prolog has succeeded, and no end is reported before its
epilog has ended.

The gates are in the agent, which stands between controller and keeper; the keeper knows nothing of them. The keeper
alone still decides whether a step may begin: a delayed start is forwarded with the newest lease stamp of the same
connection, and dropped if the lease lapsed meanwhile; a step that must not begin any more is first stopped at the
keeper, so that no repeated start can begin it. An exit is in the keeper's journal, which repeats it until the
controller has acknowledged it, so an agent that dies here loses nothing. Its successor finds notes of the steps that
never reached the keeper, and runs their epilog.

Each start belongs to the connection over which it arrived. When that ends, the prolog continues, but the step begins
only when the next connection's controller has requested it again. Rules for people: docs/nodes.md, 'Prolog and epilog'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle.gates import Gate, GateDecision, GatePhase, GatePolicy, GateRegister, GateState, GateWatch
from hal.core.model.errors import HALError
from hal.core.model.ids import StepId
from hal.core.model.node_config import NodeSection
from hal.daemons.agent.gate_notes import GateNote, GateNotes
from hal.daemons.agent.gated_step import Asked, Burial, GatedStep, Phase, bare_env, step_env
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.script_outcome import printable, run_site_program
from hal.runtime.identity import ProcessIdentity
from hal.runtime.interface import Connection, Runtime, Timer
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.agent_keeper import (
    Checkpoint,
    Exits,
    ExitsAck,
    HeartbeatAck,
    LogChunk,
    ReadLog,
    Refusal,
    Refused,
    Start,
    Started,
    StepExit,
    StepStarted,
    Stop,
    StopReason,
)
from hal.wire.frames.controller_agent import Gates, StepGate
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import HeldStep

MAX_SCRIPTS: Final = 32
"""Prologs and epilogs of one node that run at once; more wait for one of them to end."""
CONFIRM_MS: Final = 30_000
"""A new controller requests again within this time what it still wants to begin."""
PROLOG: Final = "prolog"
EPILOG: Final = "epilog"
PROLOG_FAILED: Final = "prolog-failed"
"""Code of the refusal of a step whose prolog failed."""
NOT_HELD: Final = "not-held"
"""Code of the refusal of a step that was stopped before it reached the keeper."""
STOPPED: Final = "it was ended while the node's prolog ran for it, before it began"
LAPSED: Final = Burial(StopReason.FENCED, "no-lease", "the node's lease lapsed before it could begin")


def gates_of(section: NodeSection) -> GateRegister:
    """Create the built-in gates of a node's section: after a failed prolog the task runs elsewhere; a failed epilog
    does not affect it."""
    register = GateRegister()
    if section.prolog:
        deadline_ms = int(section.prolog_timeout)
        register = register.add(
            Gate(name=PROLOG, phase=GatePhase.PREPARING, deadline_ms=deadline_ms, on_failure=GatePolicy.REQUEUE)
        )
    if section.epilog:
        deadline_ms = int(section.epilog_timeout)
        register = register.add(
            Gate(name=EPILOG, phase=GatePhase.FINALISING, deadline_ms=deadline_ms, on_failure=GatePolicy.IGNORE)
        )
    return register


class NodeGates:
    """All steps of one node that are at a gate, or between the two."""

    def __init__(
        self,
        runtime: Runtime,
        node: str,
        section: NodeSection,
        notes: GateNotes,
        report: Callable[[Frame], None],
    ) -> None:
        """Nothing runs before `attach_keeper`.

        Args:
            report: accepts frames for the controller; they are dropped if none is connected.
        """
        self._runtime = runtime
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        """The log of what steps cause, one line or more each."""
        self._node = node
        self._home = str(runtime.paths.root)
        self._section = section
        self._register = gates_of(section)
        self._notes = notes
        self._report = report
        self._room = asyncio.Semaphore(MAX_SCRIPTS)
        self._steps: dict[StepId, GatedStep] = {}
        self._left: dict[StepId, str] = {}
        """Steps whose exit was reported and is not acknowledged, with the reason why their epilog failed."""
        self._burials: dict[StepId, Burial] = {}
        """Steps whose refusal is expected from the keeper."""
        self._keeper: Connection | None = None
        self._recovered = False
        self._default_ms = 0
        """Duration of the keeper's lease if the controller does not set it."""
        self._epoch = 0
        self._lease = Lease(0, runtime.boot_id)
        """The keeper's lease, as far as this connection has renewed it: its stamp and its duration."""
        self._stamp_boot_ms = self._lease_ms = 0
        self._confirm: Timer | None = None

    # ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────

    async def attach_keeper(self, keeper: Connection, held: Iterable[HeldStep], lease_ms: int) -> None:
        """Handle a connected keeper, which holds these steps. The first time: take over what an earlier agent has
        left."""
        self._keeper, self._default_ms = keeper, lease_ms
        if not self._recovered:
            for note in await self._runtime.run_blocking(self._notes.load):
                self._take_over(note)
            self._recovered = True
        self.holds(held)

    def detach_keeper(self) -> None:
        """Handle the end of the keeper's connection."""
        self._keeper = None

    def holds(self, held: Iterable[HeldStep]) -> None:
        """Compare with all that the keeper holds. A step that it was sent and no longer holds will not begin there:
        its epilog is due."""
        there = {one.step for one in held}
        for step in there - self._steps.keys() - self._left.keys():
            # Accepted before this node had scripts.
            self._steps[step] = GatedStep(step, bare_env(step, self._node, self._home), Phase.HELD)
        for gated in list(self._steps.values()):
            if gated.phase is Phase.HELD and gated.step not in there:
                self._leave(gated, None)

    def attach_controller(self, epoch: int) -> None:
        """Handle the welcome of a controller of that epoch. It requests again what is to begin here."""
        self._epoch = epoch
        self._lease = Lease(self._default_ms, self._runtime.boot_id)
        self._confirm = self._runtime.call_later(CONFIRM_MS, self._give_up_unconfirmed)
        for gated in self._steps.values():
            if gated.script:
                self._tell(StepGate(gated.step, gated.script, GateState.WAITING))

    def detach_controller(self) -> None:
        """Handle the loss of the controller: what it requested begins only when the next one requests it too."""
        self._epoch = self._stamp_boot_ms = self._lease_ms = 0
        self._burials.clear()
        if self._confirm is not None:
            self._confirm.cancel()
        for gated in self._steps.values():
            gated.asked = None
            if isinstance(gated.ends, Burial):
                gated.ends = None

    def _take_over(self, note: GateNote) -> None:
        if note.boot_id != self._runtime.boot_id:
            self._notes.drop(note.step)
            return
        if note.script is not None:
            self._runtime.end_script(note.script)
        # Either the keeper holds it, or it never reached the keeper: `holds` decides.
        self._steps[note.step] = GatedStep(note.step, note.env, Phase.HELD)

    def _give_up_unconfirmed(self) -> None:
        for gated in list(self._steps.values()):
            if gated.phase in (Phase.ENTERING, Phase.PASSED) and gated.asked is None:
                self._leave(gated, None)

    # ── from the controller ───────────────────────────────────────────────────────────────────────────────────────

    def down(self, frame: Frame) -> Frame | None:
        """Return the part of a controller's frame that the keeper should get now; None: nothing."""
        match frame:
            case Start():
                return self._started(frame)
            case Stop():
                left = self._stopped(frame.epoch, frame.steps, frame.reason)
                return replace(frame, steps=left) if left else None
            case Checkpoint():
                left = self._stopped(frame.epoch, frame.steps, StopReason.PREEMPTED)
                return replace(frame, steps=left) if left else None
            case HeartbeatAck():
                self._renewed(frame)
            case ExitsAck():
                for step in frame.steps:
                    self._left.pop(step, None)
            case ReadLog():
                return self._unwritten(frame)
            case _:
                pass
        return frame

    def _started(self, frame: Start) -> Start | None:
        # It may be of an earlier connection, or of an earlier boot.
        late = frame.epoch < self._epoch or self._lease.refusal(frame.stamp_boot_ms, frame.lease_ms, self._now()) != ""
        if not late:
            self._lengthen(frame.epoch, frame.stamp_boot_ms, frame.lease_ms)
        passed = []
        for start in frame.steps:
            gated = self._steps.get(start.step)
            if start.step in self._left or not 0 <= start.template < len(frame.templates):
                passed.append(start)
            elif gated is None:
                self._arrive(Asked(frame.templates[start.template], start), late=late)
            elif gated.phase is Phase.HELD or isinstance(gated.ends, StepExit | Refusal):
                passed.append(start)  # the keeper reports what became of it
            elif gated.asked is None and not isinstance(gated.ends, Burial):
                if late and gated.phase is Phase.LEAVING:
                    gated.ends = LAPSED
                elif late:
                    self._leave(gated, LAPSED)
                else:
                    gated.asked = Asked(frame.templates[start.template], start)
                if gated.phase is Phase.PASSED:
                    self._pass(gated)
        return replace(frame, steps=tuple(passed)) if passed else None

    def _stopped(self, epoch: int, steps: Iterable[StepId], reason: StopReason) -> tuple[StepId, ...]:
        """Prevent the start of those that have not begun; returns the others."""
        if epoch < self._epoch:
            return tuple(steps)  # of a former leader: the keeper refuses it
        others = []
        for step in steps:
            gated = self._steps.get(step)
            if gated is None or gated.phase is Phase.HELD or isinstance(gated.ends, StepExit | Refusal):
                others.append(step)
            elif gated.phase is not Phase.LEAVING:
                self._leave(gated, Burial(reason, NOT_HELD, STOPPED))
            elif gated.ends is None:
                gated.asked, gated.ends = None, Burial(reason, NOT_HELD, STOPPED)
        return tuple(others)

    def _renewed(self, ack: HeartbeatAck) -> None:
        """Handle a renewal of the lease; if it had lapsed, the controller may have reassigned what was to begin."""
        if ack.epoch < self._epoch or self._lease.refusal(ack.stamp_boot_ms, ack.lease_ms, self._now()):
            return
        if self._lease.until_boot_ms and self._lease.lapsed(self._now()):
            for gated in list(self._steps.values()):
                if gated.asked is None or gated.phase is Phase.HELD:
                    continue
                if gated.phase is not Phase.LEAVING:
                    self._leave(gated, LAPSED)
                elif gated.ends is None:
                    gated.asked, gated.ends = None, LAPSED
        self._lengthen(ack.epoch, ack.stamp_boot_ms, ack.lease_ms)

    def _lengthen(self, epoch: int, stamp_boot_ms: int, lease_ms: int) -> None:
        self._epoch = epoch
        self._lease.renew(stamp_boot_ms, lease_ms, self._now())
        if stamp_boot_ms >= self._stamp_boot_ms:
            self._stamp_boot_ms, self._lease_ms = stamp_boot_ms, lease_ms

    def _now(self) -> Instant:
        return Instant(self._runtime.now_ms(), self._runtime.boot_ms())

    def _unwritten(self, frame: ReadLog) -> ReadLog | None:
        gated = self._steps.get(frame.step)
        if gated is None or gated.phase is Phase.HELD or isinstance(gated.ends, StepExit):
            return frame
        chunk = LogChunk(
            request=frame.request, step=frame.step, stream=frame.stream, offset=0, data=b"", size=0, ended=False
        )
        self._report(chunk)
        return None

    # ── from the keeper ───────────────────────────────────────────────────────────────────────────────────────────

    def up(self, frame: Frame) -> Frame | None:
        """Return the part of a keeper's frame that the controller should get now; None: nothing."""
        match frame:
            case Exits():
                exits = tuple(one for one in frame.exits if self._exit_goes_on(one))
                return Exits(exits=exits) if exits else None
            case Refused():
                refusals = tuple(one for each in frame.steps if (one := self._refusal_goes_on(each)) is not None)
                return Refused(steps=refusals) if refusals else None
            case _:
                return frame

    def _exit_goes_on(self, exit_: StepExit) -> bool:
        gated = self._steps.get(exit_.step)
        if exit_.step in self._left:
            self._tell_failed(exit_.step, EPILOG, self._left[exit_.step])
            return True
        if exit_.next is not None:
            # Accepted before this node had scripts: its slot has already been passed on.
            self._steps.pop(exit_.step, None)
            return True
        if gated is None:
            env = bare_env(exit_.step, self._node, self._home)
            gated = self._steps[exit_.step] = GatedStep(exit_.step, env, Phase.HELD)
        if gated.phase is Phase.LEAVING:
            gated.ends = exit_
        else:
            self._leave(gated, exit_)
        return False

    def _refusal_goes_on(self, refusal: Refusal) -> Refusal | None:
        burial = self._burials.pop(refusal.step, None)
        if burial is not None:
            return Refusal(refusal.step, burial.code, burial.message)
        gated = self._steps.get(refusal.step)
        if gated is None:
            return refusal
        if gated.phase is not Phase.LEAVING:
            self._leave(gated, refusal)
        elif not isinstance(gated.ends, StepExit):
            gated.ends = refusal
        return None

    # ── the way of a step ─────────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, asked: Asked, *, late: bool = False) -> None:
        step = asked.start.step
        if late:
            self._bury(step, LAPSED)
            return
        env = step_env(asked, self._node, self._home)
        gated = self._steps[step] = GatedStep(step, env, Phase.ENTERING)
        gated.asked = asked
        self._burials.pop(step, None)
        gated.work = self._runtime.spawn_task(self._enter(gated), f"{PROLOG} of {step}")

    async def _enter(self, gated: GatedStep) -> None:
        """Run its prolog, then forward it to the keeper."""
        try:
            await self._runtime.run_blocking(partial(self._notes.save, self._note(gated)))
        except OSError as error:
            text = f"the node cannot record that its prolog begins: {error.strerror}"
            self._leave(gated, self._burial(gated, "journal-full", text))
            return
        if self._section.prolog:
            watch = await self._run(gated, PROLOG, GatePhase.PREPARING)
            if watch.verdict().decision is not GateDecision.GO:
                reason = watch.verdict().reason
                self._tell_failed(gated.step, PROLOG, reason, watch.states[0])
                self._leave(gated, self._burial(gated, PROLOG_FAILED, reason))
                return
        gated.phase = Phase.PASSED
        if gated.asked is not None:
            self._pass(gated)

    def _pass(self, gated: GatedStep) -> None:
        """Forward it to the keeper, which decides by the lease that has been current since the start arrived."""
        assert gated.asked is not None
        template, start = gated.asked
        gated.phase = Phase.HELD
        self._to_keeper(
            Start(
                epoch=self._epoch,
                stamp_boot_ms=self._stamp_boot_ms,
                lease_ms=self._lease_ms,
                templates=(template,),
                steps=(replace(start, template=0),),
            )
        )

    def _leave(self, gated: GatedStep, ends: StepExit | Refusal | Burial | None) -> None:
        """It has ended, or must not begin: run its epilog, then report."""
        if gated.work is not None and gated.work is not asyncio.current_task():
            gated.work.cancel()
        gated.phase, gated.asked, gated.ends = Phase.LEAVING, None, ends
        gated.work = self._runtime.spawn_task(self._left_behind(gated), f"{EPILOG} of {gated.step}")

    async def _left_behind(self, gated: GatedStep) -> None:
        reason = ""
        if self._section.epilog:
            ends = gated.ends
            if isinstance(ends, StepExit) and ends.started_ms:
                # Its exit, which contains this too, is held back for the duration of the epilog.
                self._report(Started(steps=(StepStarted(gated.step, 0, ends.started_ms),)))
            watch = await self._run(gated, EPILOG, GatePhase.FINALISING)
            reason = watch.reasons[0]
            self._tell_failed(gated.step, EPILOG, reason, watch.states[0])
        try:
            await self._runtime.run_blocking(partial(self._notes.drop, gated.step))
        except OSError as error:
            self._log.warning("a gate's note stays", step=str(gated.step), reason=str(error))
        del self._steps[gated.step]
        match gated.ends:
            case StepExit():
                self._left[gated.step] = reason
                self._report(Exits(exits=(gated.ends,)))
            case Refusal():
                self._report(Refused(steps=(gated.ends,)))
            case Burial():
                self._bury(gated.step, gated.ends)
            case None if gated.asked is not None:
                self._arrive(gated.asked)
            case None:
                pass

    async def _run(self, gated: GatedStep, gate: str, phase: GatePhase) -> GateWatch:
        """Run the script of a gate; returns the gate's state afterwards."""
        section = self._section
        command, timeout = (
            (section.prolog, section.prolog_timeout) if gate == PROLOG else (section.epilog, section.epilog_timeout)
        )
        gated.script = gate
        self._tell(StepGate(gated.step, gate, GateState.WAITING))
        try:
            async with self._room:
                watch = self._register.enter(phase, self._runtime.now_ms())
                began = partial(self._began, gated)
                env = {**gated.env, "HAL_SCRIPT": gate}
                ended = await run_site_program(self._runtime, command, env, timeout, began)
        finally:
            gated.script = ""
        if not ended.reason:
            return watch.passed(gate)
        reason = printable(f"{command[0]}: {ended.reason}" if command[0] not in ended.reason else ended.reason)
        self._log.warning("a script of the site failed", script=gate, step=str(gated.step), reason=reason)
        return watch.failed(gate, reason)

    def _began(self, gated: GatedStep, script: ProcessIdentity) -> None:
        try:
            self._notes.save(self._note(gated, script))
        except OSError as error:
            self._log.warning("a script is not noted", step=str(gated.step), reason=str(error))

    def _note(self, gated: GatedStep, script: ProcessIdentity | None = None) -> GateNote:
        return GateNote(step=gated.step, boot_id=self._runtime.boot_id, env=gated.env, script=script)

    def _bury(self, step: StepId, burial: Burial) -> None:
        """Make the keeper, which does not hold the step, refuse it from now on."""
        self._burials[step] = burial
        self._to_keeper(Stop(epoch=self._epoch, steps=(step,), reason=burial.reason, grace_ms=0))

    def _burial(self, gated: GatedStep, code: str, message: str) -> Burial | None:
        """Report nothing about a step that the connected controller has not requested: it will request it again, or
        not."""
        return None if gated.asked is None else Burial(StopReason.CANCELLED, code, message)

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell_failed(self, step: StepId, gate: str, reason: str, state: GateState = GateState.FAILED) -> None:
        if reason:
            self._tell(StepGate(step, gate, state, reason))

    def _tell(self, gate: StepGate) -> None:
        self._report(Gates(gates=(gate,)))

    def _to_keeper(self, frame: Frame) -> None:
        keeper = self._keeper
        if keeper is None:
            return
        try:
            keeper.send_nowait(frame)
        except HALError as error:
            # The connection is retried, and reports what it holds then.
            self._log.warning("the keeper could not be told", error=str(error))
            keeper.abort()
