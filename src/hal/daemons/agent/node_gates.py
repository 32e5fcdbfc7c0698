"""A node's gates: no step reaches the keeper before its prolog has succeeded and the gates that its job names are
satisfied, and no end is reported before its finalising gates are and its epilog has ended.

The gates are in the agent, which stands between controller and keeper; the keeper knows nothing of them. The keeper
alone still decides whether a step may begin: a delayed start is forwarded with the newest lease stamp of the same
connection, and dropped if the lease lapsed meanwhile; a step that must not begin any more is first stopped at the
keeper, so that no repeated start can begin it. An exit is in the keeper's journal, which repeats it until the
controller has acknowledged it, so an agent that dies here loses nothing. Its successor finds notes of the steps that
never reached the keeper, and runs their epilog.

Each start belongs to the connection over which it arrived. When that ends, the prolog continues, but the step begins
only when the next connection's controller has requested it again. A step that has no gate, on a node without scripts,
goes through without a trace. Rules for people: docs/nodes.md, 'Prolog and epilog', and docs/gates.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.core.lifecycle.gates import GateDecision, GateState, GateVerdict, GateWatch
from hal.core.lifecycle.outcome import GATE_ELSEWHERE, GATE_FAILED, PROLOG_FAILED
from hal.core.model.bundle import FILES_GATE
from hal.core.model.errors import HALError
from hal.core.model.gate import EPILOG, PROLOG, GatePhase
from hal.core.model.ids import StepId
from hal.core.model.node_config import NodeSection
from hal.daemons.agent.gate_notes import GateNote, GateNotes
from hal.daemons.agent.gate_services import GateServices, Subject
from hal.daemons.agent.gated_step import Asked, Burial, GatedStep, Phase, bare_env, step_env
from hal.daemons.agent.keeper.credit import CREDIT_OVER, RECALLED
from hal.daemons.agent.renewed_lease import RenewedLease
from hal.daemons.agent.site_scripts import SiteScripts
from hal.daemons.agent.step_files import StepFiles, without_idle_gates
from hal.daemons.agent.step_notes import StepNotes
from hal.runtime.interface import Connection, Runtime, Timer
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.agent_keeper import (
    Checkpoint,
    ExitCause,
    Exits,
    ExitsAck,
    HeartbeatAck,
    LogChunk,
    ReadLog,
    Recall,
    Refusal,
    Refused,
    Start,
    Started,
    StepExit,
    StepStarted,
    StepTemplate,
    Stop,
    StopReason,
)
from hal.wire.frames.controller_agent import Gates, StepGate
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import HeldStep

CONFIRM_MS: Final = 30_000
"""A new controller requests again within this time what it still wants to begin."""
NOT_HELD: Final = "not-held"
"""Code of the refusal of a step that was stopped before it reached the keeper."""
STOPPED: Final = "it was ended while it was at a gate of the node, before it began"
RECALLED_MESSAGE: Final = "it was recalled while it was at a gate of the node"
CREDIT_OVER_MESSAGE: Final = "a gate of the node did not let it begin while its credit lasted"
LAPSED: Final = Burial(StopReason.FENCED, "no-lease", "the node's lease lapsed before it could begin")
REFUSAL_CODES: Final = {GateDecision.FAIL: GATE_FAILED, GateDecision.ELSEWHERE: GATE_ELSEWHERE}
"""Codes of the refusal of a step that a gate of its job did not let begin."""


class _Left(NamedTuple):
    """A step whose exit was reported and is not acknowledged."""

    epilog: str
    """Why its epilog failed; '' if it did not."""
    exit: StepExit
    """As it was reported."""
    noted: bool
    """Its note is kept until the acknowledgement."""


class NodeGates:
    """All steps of one node that are at a gate, or between the two."""

    def __init__(
        self,
        runtime: Runtime,
        node: str,
        section: NodeSection,
        notes: GateNotes,
        report: Callable[[Frame], None],
        files: StepFiles | None = None,
    ) -> None:
        """Nothing runs before `attach_keeper`.

        Args:
            report: accepts frames for the controller; they are dropped if none is connected.
            files: fills the directories of steps that ask for files; None: this node has no such service.
        """
        self._runtime = runtime
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        """The log of what steps cause, one line or more each."""
        self._node = node
        self._home = str(runtime.paths.root)
        self._scripts = SiteScripts(runtime, section)
        self._services = GateServices(runtime, self._tell_gate, files)
        self._files = files
        self._notes = StepNotes(runtime, notes, self._log)
        self._report = report
        self._steps: dict[StepId, GatedStep] = {}
        self._left: dict[StepId, _Left] = {}
        """Steps whose exit was reported and is not acknowledged."""
        self._burials: dict[StepId, Burial] = {}
        """Steps whose refusal is expected from the keeper."""
        self._keeper: Connection | None = None
        self._recovered = False
        self._default_ms = 0
        """Duration of the keeper's lease if the controller does not set it."""
        self._lease = RenewedLease(runtime)
        self._confirm: Timer | None = None

    @property
    def scripted(self) -> bool:
        """Whether every step of the node has gates: its prolog or its epilog."""
        return bool(self._scripts)

    @property
    def steps(self) -> Collection[StepId]:
        """The steps that are at a gate, or between the two."""
        return self._steps.keys()

    @property
    def finalised_steps(self) -> Collection[StepId]:
        """Those of them whose files are collected at a gate that comes after them."""
        return [
            one.step
            for one in self._steps.values()
            if any(gate.name == FILES_GATE for gate in one.gates_of(GatePhase.FINALISING))
        ]

    # ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────

    async def attach_keeper(self, keeper: Connection, held: Iterable[HeldStep], lease_ms: int) -> None:
        """Handle a connected keeper, which holds these steps. The first time: take over what an earlier agent has
        left."""
        self._keeper, self._default_ms = keeper, lease_ms
        if not self._recovered:
            for note in await self._notes.load():
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
        for step in there - self._steps.keys() - self._left.keys() if self._scripts else ():
            # Accepted before this node had scripts.
            self._steps[step] = GatedStep(step, partial(bare_env, step, self._node, self._home), Phase.HELD)
        for gated in list(self._steps.values()):
            if gated.phase is Phase.HELD and gated.step not in there:
                self._leave(gated, None)

    def attach_controller(self, epoch: int) -> None:
        """Handle the welcome of a controller of that epoch. It requests again what is to begin here."""
        self._lease.begin(epoch, self._default_ms)
        self._confirm = self._runtime.call_later(CONFIRM_MS, self._give_up_unconfirmed)
        for gated in self._steps.values():
            if gated.script:
                self._tell(_at_script(gated.step, gated.script))
            for report in gated.waits.values():
                self._tell(report)

    def detach_controller(self) -> None:
        """Handle the loss of the controller: what it requested begins only when the next one requests it too."""
        self._lease.end()
        self._burials.clear()
        if self._confirm is not None:
            self._confirm.cancel()
        for gated in self._steps.values():
            gated.asked = None
            if isinstance(gated.ends, Burial):
                gated.ends = None

    def _take_over(self, note: GateNote) -> None:
        if note.script is not None:
            self._runtime.end_script(note.script)
        # Either the keeper holds it, or it never reached the keeper: `holds` decides.
        gated = GatedStep(note.step, lambda: note.env, Phase.HELD, gates=note.gates, user=note.user)
        gated.noted, gated.told = True, bool(gated.gates_of(GatePhase.PREPARING))
        self._steps[note.step] = gated

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
            case Recall():
                left = self._recalled(frame.epoch, frame.steps)
                return replace(frame, steps=left) if left else None
            case HeartbeatAck():
                self._renewed(frame)
            case ExitsAck():
                for step in frame.steps if self._left else ():
                    known = self._left.pop(step, None)
                    if known is not None and known.noted:
                        self._notes.drop_later(step)
            case ReadLog():
                return self._unwritten(frame)
            case _:
                pass
        return frame

    def _started(self, frame: Start) -> Start | None:
        late = self._lease.refuses(frame)
        if not late:
            self._lease.renew(frame)
        if not (self._scripts or self._steps or self._left or any(one.gates for one in frame.templates)):
            return frame
        passed = []
        for start in frame.steps:
            gated = self._steps.get(start.step)
            known = start.step in self._left or not 0 <= start.template < len(frame.templates)
            if known or (gated is None and not self._is_gated(frame.templates[start.template])):
                passed.append(start)
            elif gated is None:
                self._arrive(Asked(frame.templates[start.template], start), late=late)
            elif gated.phase is Phase.HELD or isinstance(gated.ends, StepExit):
                passed.append(start)  # the keeper reports what became of it
            elif isinstance(gated.ends, Refusal):
                pass  # it is reported when the step has left; the keeper might begin it now
            elif gated.asked is None and not isinstance(gated.ends, Burial):
                if late and gated.phase is Phase.LEAVING:
                    gated.ends = LAPSED
                elif late:
                    self._leave(gated, LAPSED)
                else:
                    gated.asked = Asked(frame.templates[start.template], start)
                    gated.arrived_ms = self._runtime.monotonic_ms()
                if gated.phase is Phase.PASSED:
                    self._pass(gated)
        if not passed:
            return None
        return replace(frame, templates=tuple(map(_without_gates, frame.templates)), steps=tuple(passed))

    def _is_gated(self, template: StepTemplate) -> bool:
        return bool(self._scripts or template.gates)

    def _stopped(self, epoch: int, steps: Iterable[StepId], reason: StopReason) -> tuple[StepId, ...]:
        """Prevent the start of those that have not begun; returns the others."""
        if epoch < self._lease.epoch:
            return tuple(steps)  # of a former leader: the keeper refuses it
        others = []
        for step in steps:
            gated = self._steps.get(step)
            if gated is None or gated.phase is Phase.HELD or isinstance(gated.ends, StepExit | Refusal):
                others.append(step)
                if gated is not None and gated.passage is not None and reason is StopReason.CANCELLED:
                    gated.abandoned = True
                    gated.passage.cancel()
            elif gated.phase is not Phase.LEAVING:
                self._leave(gated, Burial(reason, NOT_HELD, STOPPED))
            elif gated.ends is None:
                gated.asked, gated.ends = None, Burial(reason, NOT_HELD, STOPPED)
        return tuple(others)

    def _recalled(self, epoch: int, steps: Iterable[StepId]) -> tuple[StepId, ...]:
        """Return those on credit that are at a gate; returns the others."""
        if epoch < self._lease.epoch:
            return tuple(steps)
        others = []
        for step in steps:
            gated = self._steps.get(step)
            if gated is not None and gated.phase in (Phase.ENTERING, Phase.PASSED) and gated.on_credit:
                self._leave(gated, self._burial(gated, RECALLED, RECALLED_MESSAGE))
            else:
                others.append(step)
        return tuple(others)

    def _renewed(self, ack: HeartbeatAck) -> None:
        """Handle a renewal of the lease; if it had lapsed, the controller may have reassigned what was to begin."""
        if self._lease.refuses(ack):
            return
        if self._lease.has_lapsed:
            for gated in list(self._steps.values()):
                if gated.asked is None or gated.phase is Phase.HELD:
                    continue
                if gated.phase is not Phase.LEAVING:
                    self._leave(gated, LAPSED)
                elif gated.ends is None:
                    gated.asked, gated.ends = None, LAPSED
        self._lease.renew(ack)

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
                if not (self._scripts or self._steps or self._left):
                    return frame
                exits = tuple(told for one in frame.exits if (told := self._exit_goes_on(one)) is not None)
                return Exits(exits=exits) if exits else None
            case Refused():
                refusals = tuple(one for each in frame.steps if (one := self._refusal_goes_on(each)) is not None)
                return Refused(steps=refusals) if refusals else None
            case _:
                return frame

    def _exit_goes_on(self, exit_: StepExit) -> StepExit | None:
        """Return the exit as the controller gets it now; None: not yet."""
        gated = self._steps.get(exit_.step)
        left = self._left.get(exit_.step)
        if left is not None:
            self._tell_failed(exit_.step, EPILOG, left.epilog)
            return left.exit
        if exit_.next is not None or (gated is not None and not self._has_to_leave(gated, exit_)):
            # Nothing follows. With scripts: accepted before this node had them, and its slot was passed on.
            gone = self._steps.pop(exit_.step, None)
            if gone is not None and gone.noted:
                self._notes.drop_later(exit_.step)
            return exit_
        if gated is None and not self._scripts:
            return exit_
        if gated is None:
            env = partial(bare_env, exit_.step, self._node, self._home)
            gated = self._steps[exit_.step] = GatedStep(exit_.step, env, Phase.HELD)
        if gated.phase is Phase.LEAVING:
            gated.ends = exit_
        else:
            self._leave(gated, exit_)
        return None

    def _has_to_leave(self, gated: GatedStep, exit_: StepExit) -> bool:
        """Whether anything is to be done before its exit may be reported."""
        if self._scripts or gated.phase is not Phase.HELD:
            return True
        return bool(gated.gates_of(GatePhase.FINALISING)) if exit_.started_ms else gated.told

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
        env = partial(step_env, asked, self._node, self._home)
        template, now_ms = asked.template, self._runtime.monotonic_ms()
        gates = template.gates if self._files is None else without_idle_gates(template.gates)
        gated = GatedStep(step, env, Phase.ENTERING, gates=gates, user=template.user, arrived_ms=now_ms)
        self._steps[step] = gated
        gated.asked = asked
        self._burials.pop(step, None)
        gated.work = self._runtime.spawn_task(self._enter(gated), f"gates of {step}")

    async def _enter(self, gated: GatedStep) -> None:
        """Run its prolog, ask the gates that its job names, then forward it to the keeper."""
        if self._scripts or gated.gates_of(GatePhase.FINALISING):
            try:
                await self._notes.save(gated)
            except OSError as error:
                text = f"the node cannot record that it is at a gate: {error.strerror}"
                self._leave(gated, self._burial(gated, "journal-full", text))
                return
        if self._scripts.has(PROLOG):
            watch = await self._run(gated, PROLOG, GatePhase.PREPARING)
            if watch.verdict().decision is not GateDecision.GO:
                reason = watch.verdict().reason
                self._tell_failed(gated.step, PROLOG, reason, watch.states[0])
                self._leave(gated, self._burial(gated, PROLOG_FAILED, reason))
                return
        if gated.gates_of(GatePhase.PREPARING):
            burial = await self._ask_preparing(gated)
            if burial is not None:
                self._leave(gated, self._burial(gated, *burial))
                return
        gated.phase = Phase.PASSED
        if gated.asked is not None:
            self._pass(gated)

    async def _ask_preparing(self, gated: GatedStep) -> tuple[str, str] | None:
        """Ask the gates of its job; returns why it must not begin: code and message. None: it may."""
        gated.told = True
        asking = self._services.enter(
            self._subject(gated), GatePhase.PREPARING, gated.gates, partial(self._notes.save_for_services, gated)
        )
        if gated.asked is None or not gated.asked.start.credit_ms:
            verdict = await asking
        else:
            try:
                async with asyncio.timeout(gated.asked.start.credit_ms / 1000):
                    verdict = await asking
            except TimeoutError:
                return CREDIT_OVER, CREDIT_OVER_MESSAGE
        if verdict.decision is GateDecision.GO:
            return None
        return REFUSAL_CODES[verdict.decision], f"gate '{verdict.gate}': {verdict.reason}"

    def _pass(self, gated: GatedStep) -> None:
        """Forward it to the keeper, which decides by the lease that has been current since the start arrived."""
        assert gated.asked is not None
        template, start = gated.asked
        if start.credit_ms:
            spent_ms = self._runtime.monotonic_ms() - gated.arrived_ms
            start = replace(start, credit_ms=max(start.credit_ms - spent_ms, 1))
        if self._files is not None and _asks_for_files(gated):
            template = replace(template, workdir=self._files.directory_of(start.step))
        gated.phase = Phase.HELD
        self._to_keeper(
            Start(
                epoch=self._lease.epoch,
                stamp_boot_ms=self._lease.stamp_boot_ms,
                lease_ms=self._lease.lease_ms,
                templates=(_without_gates(template),),
                steps=(replace(start, template=0),),
            )
        )

    def _leave(self, gated: GatedStep, ends: StepExit | Refusal | Burial | None) -> None:
        """It has ended, or must not begin: ask its finalising gates, run its epilog, then report."""
        if gated.work is not None and gated.work is not asyncio.current_task():
            gated.work.cancel()
        gated.phase, gated.asked, gated.ends = Phase.LEAVING, None, ends
        gated.waits.clear()
        gated.work = self._runtime.spawn_task(self._left_behind(gated), f"the end of {gated.step}")

    async def _left_behind(self, gated: GatedStep) -> None:
        reason, verdict = "", None
        finalising = gated.gates_of(GatePhase.FINALISING)
        if isinstance(gated.ends, StepExit) and gated.ends.started_ms:
            if finalising or self._scripts.has(EPILOG):
                # Its exit, which contains this too, is held back meanwhile.
                self._report(Started(steps=(StepStarted(gated.step, 0, gated.ends.started_ms),)))
            if finalising:
                verdict = await self._ask_finalising(gated)
                if verdict.decision is not GateDecision.GO and self._files is not None and _asks_for_files(gated):
                    self._files.drop(gated.step)  # else the service has done so
        elif gated.told:
            await self._services.cancel(self._subject(gated), gated.gates_of(GatePhase.PREPARING))
        if self._scripts.has(EPILOG):
            watch = await self._run(gated, EPILOG, GatePhase.FINALISING)
            reason = watch.reasons[0]
            self._tell_failed(gated.step, EPILOG, reason, watch.states[0])
        keep_note = verdict is not None and gated.noted
        if (gated.noted or self._scripts) and not keep_note:
            await self._notes.drop(gated.step)
        del self._steps[gated.step]
        match gated.ends:
            case StepExit():
                told = gated.ends if verdict is None else _finalised(gated.ends, verdict)
                self._left[gated.step] = _Left(reason, told, keep_note)
                self._report(Exits(exits=(told,)))
            case Refusal():
                self._report(Refused(steps=(gated.ends,)))
            case Burial():
                self._bury(gated.step, gated.ends)
            case None if gated.asked is not None:
                self._arrive(gated.asked)
            case None:
                pass

    async def _ask_finalising(self, gated: GatedStep) -> GateVerdict:
        """Ask the finalising gates of its job; `wait` if they were abandoned because a person cancelled it."""
        asking = self._services.enter(
            self._subject(gated), GatePhase.FINALISING, gated.gates, partial(self._notes.save_for_services, gated)
        )
        gated.passage = self._runtime.spawn_task(asking, f"finalising gates of {gated.step}")
        try:
            return await gated.passage
        except asyncio.CancelledError:
            if not gated.abandoned:
                raise
            names = ", ".join(f"'{gate.name}'" for gate in gated.gates_of(GatePhase.FINALISING))
            return GateVerdict(GateDecision.WAIT, names)
        finally:
            gated.passage = None
            gated.waits.clear()

    async def _run(self, gated: GatedStep, gate: str, phase: GatePhase) -> GateWatch:
        """Run the script of a gate; returns the gate's state afterwards."""
        gated.script = gate
        self._tell(_at_script(gated.step, gate))
        try:
            watch = await self._scripts.run(gate, phase, gated.env, partial(self._notes.save_script, gated))
        finally:
            gated.script = ""
        if watch.reasons[0]:
            self._log.warning("a script of the site failed", script=gate, step=str(gated.step), reason=watch.reasons[0])
        return watch

    def _subject(self, gated: GatedStep) -> Subject:
        ends = gated.ends
        succeeded = isinstance(ends, StepExit) and ends.cause is ExitCause.EXITED and not ends.code
        return Subject(gated.step, gated.user, self._node, succeeded)

    def _bury(self, step: StepId, burial: Burial) -> None:
        """Make the keeper, which does not hold the step, refuse it from now on."""
        self._burials[step] = burial
        self._to_keeper(Stop(epoch=self._lease.epoch, steps=(step,), reason=burial.reason, grace_ms=0))

    def _burial(self, gated: GatedStep, code: str, message: str) -> Burial | None:
        """Report nothing about a step that the connected controller has not requested: it will request it again, or
        not."""
        return None if gated.asked is None else Burial(StopReason.CANCELLED, code, message)

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell_failed(self, step: StepId, gate: str, reason: str, state: GateState = GateState.FAILED) -> None:
        if reason:
            phase = GatePhase.PREPARING if gate == PROLOG else GatePhase.FINALISING
            self._tell(StepGate(step, gate, state, reason, phase))

    def _tell_gate(self, report: StepGate) -> None:
        """Report how a gate that a job names stands."""
        gated, at = self._steps.get(report.step), (report.phase or GatePhase.PREPARING, report.gate)
        if gated is not None and report.state is GateState.WAITING:
            gated.waits[at] = report
        elif gated is not None:
            gated.waits.pop(at, None)
        self._tell(report)

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


def _asks_for_files(gated: GatedStep) -> bool:
    return any(gate.name == FILES_GATE for gate in gated.gates)


def _at_script(step: StepId, gate: str) -> StepGate:
    phase = GatePhase.PREPARING if gate == PROLOG else GatePhase.FINALISING
    return StepGate(step, gate, GateState.WAITING, "", phase)


def _without_gates(template: StepTemplate) -> StepTemplate:
    """The template as the keeper gets it."""
    return replace(template, gates=()) if template.gates else template


def _finalised(exit_: StepExit, verdict: GateVerdict) -> StepExit:
    """The exit of a step whose finalising gates decided that: what failed by itself stays as it was."""
    if verdict.decision is GateDecision.GO or exit_.cause is not ExitCause.EXITED or exit_.code:
        return exit_
    if verdict.decision is GateDecision.WAIT:
        return replace(
            exit_, cause=ExitCause.CANCELLED, message=f"cancelled while gate {verdict.gate} was not satisfied"
        )
    return replace(exit_, cause=ExitCause.GATE_FAILED, message=f"gate '{verdict.gate}': {verdict.reason}")
