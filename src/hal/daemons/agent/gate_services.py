"""The gates that jobs name: asks the services of this machine whether a step may begin, or be over.

All gates of a phase are asked at the same time, each by its own connection. A service that answers `waiting` is asked
again; so is one that is absent, slow or dead, if the gate's policy is `wait`. What an answer means is decided by
`hal.core.lifecycle.gates`; what then happens to the step, by `node_gates`. For authors of services: docs/gates.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from hal.core.lifecycle.gates import Gate, GateDecision, GateRegister, GateState, GateVerdict, GateWatch
from hal.core.model import StepId
from hal.core.model.bundle import FILES_GATE
from hal.core.model.errors import HALError, SpecError, TimedOutError, UnreachableError
from hal.core.model.gate import GatePhase
from hal.core.model.gate_protocol import (
    ANSWER_MS,
    LONGEST_AGAIN_MS,
    MAX_ANSWER_BYTES,
    SHORTEST_AGAIN_MS,
    GateAnswer,
    GateAsk,
    GateRequest,
    GateVerdictWord,
    decode_answer,
    encode_request,
)
from hal.daemons.agent.step_files import StepFiles
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.agent_keeper import TemplateGate
from hal.wire.frames.controller_agent import StepGate

MAX_REQUESTS: Final = 64
"""Requests to one service at the same time; more wait for one of them to be answered."""
MAX_SERVICES: Final = 1_024
"""Services of which the requests are counted; of further ones only one request at a time is made, for all together."""
CANCEL_MS: Final = 2_000
"""How long the answer to a cancel is waited for: the attempt's resources are still held meanwhile."""
REPORT_AFTER_MS: Final = 100
"""A gate that has not answered for so long is reported as waiting; one that is satisfied earlier, never."""
REPORT_EVERY_MS: Final = 10_000
"""A new reason to wait is reported this often."""
AGAIN_MS: Final = (100, 5_000)
"""First and longest pause before a service is asked again, if it does not say; it doubles."""

Report = Callable[[StepGate], None]


class Subject(NamedTuple):
    """For whom services are asked."""

    step: StepId
    user: str
    node: str
    succeeded: bool = False
    """Its processes have ended by themselves, with exit code 0."""


class _Passage:
    """One phase of one step: its gates, and how they stand."""

    def __init__(self, subject: Subject, phase: GatePhase, watch: GateWatch) -> None:
        self.subject = subject
        self.phase = phase
        self.watch = watch
        self.reported: dict[str, tuple[str, int]] = {}
        """Gates that were reported as waiting: with what reason, and when."""

    def waits(self, name: str) -> bool:
        return any(
            gate.name == name and state is GateState.WAITING
            for gate, state in zip(self.watch.gates, self.watch.states, strict=True)
        )

    def reason(self, name: str) -> str:
        return next(
            reason for gate, reason in zip(self.watch.gates, self.watch.reasons, strict=True) if gate.name == name
        )


class GateServices:
    """The services of one node's machine."""

    def __init__(self, runtime: Runtime, report: Report, files: StepFiles | None = None) -> None:
        """Args:
        report: accepts how a gate stands: one that is not satisfied at once, and one that failed.
        files: is asked about HAL's own gate for files; None: this node has none.
        """
        self._runtime = runtime
        self._files = files
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        self._report = report
        self._directory = runtime.paths.gates
        self._rooms: dict[str, tuple[asyncio.Semaphore, int]] = {}
        """By service, while it is asked: its room, and how many use it."""

    async def enter(
        self,
        subject: Subject,
        phase: GatePhase,
        gates: Sequence[TemplateGate],
        unsatisfied: Callable[[], Awaitable[None]],
    ) -> GateVerdict:
        """Ask the gates of that phase until they are satisfied, or one of them decides otherwise.

        Args:
            unsatisfied: awaited once, when a gate is not satisfied at once.
        Returns: `go`, `fail` or `elsewhere`; the latter with the gate and the reason.
        """
        asked = [gate for gate in gates if gate.phase is phase]
        register = GateRegister()
        for gate in asked:
            register = register.add(
                Gate(name=gate.name, phase=phase, deadline_ms=max(gate.deadline_ms, 1), policy=gate.policy)
            )
        passage = _Passage(subject, phase, register.enter(phase, self._runtime.monotonic_ms()))
        once = _Once(unsatisfied)
        if len(asked) == 1:
            await self._ask_until_decided(passage, asked[0], once)
            return passage.watch.verdict()
        asking = [asyncio.ensure_future(self._ask_until_decided(passage, gate, once)) for gate in asked]
        try:
            while passage.watch.verdict().decision is GateDecision.WAIT:
                done, _ = await asyncio.wait(
                    [task for task in asking if not task.done()], return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
        finally:
            for task in asking:
                task.cancel()
        return passage.watch.verdict()

    async def cancel(self, subject: Subject, gates: Iterable[TemplateGate]) -> None:
        """Tell these services that the attempt went away before it began; those that cannot be told now are not."""
        await asyncio.gather(*(self._cancel(subject, gate) for gate in gates))

    # ── one gate ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask_until_decided(self, passage: _Passage, gate: TemplateGate, once: _Once) -> None:
        late = self._runtime.call_later(REPORT_AFTER_MS, lambda: self._report_waiting(passage, gate))
        pause_ms = AGAIN_MS[0]
        try:
            while True:
                again_ms = await self._ask_once(passage, gate)
                if not passage.waits(gate.name):
                    break
                await once()
                late.cancel()
                self._report_waiting(passage, gate)
                left_ms = self._left_ms(passage, gate)
                again_ms = min(max(again_ms or pause_ms, SHORTEST_AGAIN_MS), LONGEST_AGAIN_MS)
                pause_ms = min(2 * pause_ms, AGAIN_MS[1])
                await self._runtime.sleep(max(min(again_ms, left_ms), 1))
        finally:
            late.cancel()
        self._report_decided(passage, gate)

    async def _ask_once(self, passage: _Passage, gate: TemplateGate) -> int:
        """Ask, and record the answer in the watch; returns when the service wants to be asked again, or 0."""
        passage.watch = passage.watch.expired(self._runtime.monotonic_ms())
        if not passage.waits(gate.name):
            return 0
        left_ms = self._left_ms(passage, gate)
        try:
            async with _Room(self._rooms, gate.name, left_ms):
                answer = await self._exchange(passage.subject, gate, GateAsk.ENTER, left_ms, min(ANSWER_MS, left_ms))
        except HALError as error:
            passage.watch = passage.watch.unavailable(gate.name, error.message)
            return 0
        if answer.state is GateVerdictWord.READY:
            passage.watch = passage.watch.passed(gate.name)
        elif answer.state is GateVerdictWord.REFUSED:
            passage.watch = passage.watch.failed(gate.name, answer.reason or "refused, without a reason")
        else:
            passage.watch = passage.watch.noted(gate.name, answer.reason)
        return answer.again_ms

    async def _exchange(
        self, subject: Subject, gate: TemplateGate, ask: GateAsk, deadline_ms: int, timeout_ms: int
    ) -> GateAnswer:
        step = subject.step
        if gate.name == FILES_GATE:
            if self._files is None:
                raise UnreachableError("this node has no file service")
            return await self._files.ask(
                step,
                subject.user,
                gate.argument,
                gate.phase,
                ask,
                succeeded=subject.succeeded,
                timeout_ms=timeout_ms,
            )
        request = GateRequest(
            ask=ask,
            gate=gate.name,
            phase=gate.phase,
            job=step.job,
            task=step.task,
            attempt=step.attempt,
            rank=step.rank,
            node=subject.node,
            user=subject.user,
            deadline_ms=deadline_ms,
            argument=gate.argument,
        )
        path = self._directory / f"{gate.name}.sock"
        line = await self._runtime.ask_service(
            path, encode_request(request), timeout_ms=timeout_ms, most=MAX_ANSWER_BYTES
        )
        try:
            return decode_answer(line)
        except SpecError as error:
            raise SpecError(f"{path}: {error.message}") from error

    async def _cancel(self, subject: Subject, gate: TemplateGate) -> None:
        try:
            async with _Room(self._rooms, gate.name, CANCEL_MS):
                await self._exchange(subject, gate, GateAsk.CANCEL, 0, CANCEL_MS)
        except HALError as error:
            self._log.info("a gate was not told of a cancel", gate=gate.name, step=str(subject.step), reason=str(error))

    def _left_ms(self, passage: _Passage, gate: TemplateGate) -> int:
        return max(passage.watch.since_ms + gate.deadline_ms - self._runtime.monotonic_ms(), 1)

    # ── reporting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _report_waiting(self, passage: _Passage, gate: TemplateGate) -> None:
        if not passage.waits(gate.name):
            return
        reason, now_ms = passage.reason(gate.name), self._runtime.monotonic_ms()
        known = passage.reported.get(gate.name)
        if known is not None and (known[0] == reason or now_ms - known[1] < REPORT_EVERY_MS):
            return
        passage.reported[gate.name] = (reason, now_ms)
        self._report(StepGate(passage.subject.step, gate.name, GateState.WAITING, reason, passage.phase))

    def _report_decided(self, passage: _Passage, gate: TemplateGate) -> None:
        position = next(at for at, one in enumerate(passage.watch.gates) if one.name == gate.name)
        state, reason = passage.watch.states[position], passage.watch.reasons[position]
        if state is GateState.PASSED:
            if gate.name in passage.reported:
                self._report(StepGate(passage.subject.step, gate.name, state, "", passage.phase))
            return
        self._log.warning(
            "a gate is not satisfied", gate=gate.name, step=str(passage.subject.step), state=str(state), reason=reason
        )
        self._report(StepGate(passage.subject.step, gate.name, GateState.FAILED, reason, passage.phase))


class _Once:
    """Calls a function at most once; all who call wait for it."""

    def __init__(self, call: Callable[[], Awaitable[None]]) -> None:
        self._call = call
        self._called: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        if self._called is None:
            self._called = asyncio.ensure_future(self._call())
        await asyncio.shield(self._called)


class _Room:
    """A place among the requests to one service."""

    def __init__(self, rooms: dict[str, tuple[asyncio.Semaphore, int]], name: str, timeout_ms: int) -> None:
        self._rooms = rooms
        self._name = name if name in rooms or len(rooms) < MAX_SERVICES else ""
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> None:
        room, users = self._rooms.get(self._name) or (asyncio.Semaphore(MAX_REQUESTS if self._name else 1), 0)
        self._rooms[self._name] = (room, users + 1)
        try:
            if room.locked():
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await room.acquire()
            else:
                await room.acquire()
        except TimeoutError:
            self._leave()
            raise TimedOutError(f"the service has not answered {MAX_REQUESTS} other requests") from None
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._rooms[self._name][0].release()
        self._leave()

    def _leave(self) -> None:
        room, users = self._rooms.pop(self._name)
        if users > 1:
            self._rooms[self._name] = (room, users - 1)
