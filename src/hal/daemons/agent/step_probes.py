"""Whether the steps of services on this node are ready: asks each at its interval, and reports what changes.

What an answer means is decided by `hal.core.lifecycle.readiness`. The asking is done by a process of the node's stream
service, one for each probe, so the agent's loop has only timers and short messages. Nothing is stored: a new agent
hears from the keeper which steps there are, and asks them again; a new controller is told everything that is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from hal.core.lifecycle.readiness import ReadinessWatch
from hal.core.model import StepId
from hal.core.model.errors import HALError, one_line
from hal.daemons.agent.step_service import StepService, order_line
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.agent_keeper import Exits, Refused, Started, StepFound, TemplateProbe
from hal.wire.frames.controller_agent import OpenStream, Readiness, StepReadiness, StreamKind
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import HeldStep

MAX_PROBES: Final = 16
"""Probes of one node that are under way at once; others wait for their turn."""
ANSWER_MS: Final = 2_000
"""How long the service may take beyond the time that the probe itself has."""
FIND_AGAIN_MS: Final = 1_000
"""After this the keeper is asked again where a step is that it could not find."""
MAX_REASON: Final = 300
"""Characters of a reason."""
REPORTED_A_FRAME: Final = 1_000
REPEATED_MS: Final = 20_000
"""What has not changed is reported again after this time: an earlier report that arrives late, or twice, is then
corrected."""
LOCALHOST: Final = "localhost"
PROBE: Final = "probe"
"""Kind of its orders."""


class _Answer(Struct, frozen=True):
    """What the service says."""

    ready: bool | None = None
    reason: str = ""
    code: str = ""
    error: str = ""


class StepProbes:
    """All steps of services that run on one node."""

    def __init__(self, runtime: Runtime, service: StepService, report: Callable[[Frame], None]) -> None:
        """Args:
        report: sends to the controller.
        """
        self._runtime = runtime
        self._service = service
        self._report = report
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        self._turns = asyncio.Semaphore(MAX_PROBES)
        self._asking: dict[StepId, asyncio.Task[None]] = {}
        self._known: dict[StepId, StepReadiness] = {}
        """As they were last reported."""
        self._told_ms: dict[StepId, int] = {}
        """When that was, by the monotonic clock."""
        self._send_to_keeper: Callable[[Frame], None] | None = None

    def attach_keeper(self, held: Iterable[HeldStep], send: Callable[[Frame], None]) -> None:
        """Handle a connected keeper, which holds these steps."""
        self._send_to_keeper = send
        there = {one.step for one in held if one.serves and one.running and one.pid}
        for step in self._asking.keys() - there:
            self._forget(step)
        for step in sorted(there - self._asking.keys()):
            self._begin(step)

    def detach_keeper(self) -> None:
        """Handle the end of the keeper's connection; its steps run on, and are asked."""
        self._send_to_keeper = None

    def attach_controller(self) -> None:
        """Report everything that is known."""
        known = list(self._known.values())
        for at in range(0, len(known), REPORTED_A_FRAME):
            self._report(Readiness(steps=tuple(known[at : at + REPORTED_A_FRAME])))

    def hear(self, frame: Frame) -> None:
        """Take note of what the keeper reports: steps that have begun, or are over."""
        match frame:
            case Started():
                for begun in frame.steps:
                    if begun.serves and begun.step not in self._asking:
                        self._begin(begun.step)
            case Exits():
                for ended in frame.exits:
                    self._forget(ended.step)
            case Refused():
                for refused in frame.steps:
                    self._forget(refused.step)
            case _:
                pass

    def _begin(self, step: StepId) -> None:
        self._asking[step] = self._runtime.spawn_task(self._ask_on(step), "probe")

    def _forget(self, step: StepId) -> None:
        task = self._asking.pop(step, None)
        if task is not None:
            task.cancel()
            self._known.pop(step, None)
            self._told_ms.pop(step, None)

    async def _ask_on(self, step: StepId) -> None:
        """Ask it until it ends."""
        found = await self._find(step)
        probe = None if found.service is None else found.service.probe
        if probe is None:
            self._tell(found, step, ReadinessWatch(successes=1, failures=1).passed())
            return
        watch = ReadinessWatch(successes=probe.successes, failures=probe.failures)
        was_ready = False
        while True:
            await self._runtime.sleep(watch.delay_ms(probe.interval_ms, was_ready=was_ready))
            async with self._turns:
                watch = await self._asked(step, found, probe, watch)
            was_ready = was_ready or watch.ready is True
            if watch.ready is not None:
                self._tell(found, step, watch)

    async def _find(self, step: StepId) -> StepFound:
        """Where it is. It ends when the step does: whoever reports that cancels this."""
        while True:
            if self._send_to_keeper is not None:
                try:
                    found = await self._service.find(step, self._send_to_keeper)
                except HALError as error:
                    self._log.warning("a step of a service was not found", step=str(step), error=str(error))
                else:
                    if not found.error:
                        return found
            await self._runtime.sleep(FIND_AGAIN_MS)

    async def _asked(
        self, step: StepId, found: StepFound, probe: TemplateProbe, watch: ReadinessWatch
    ) -> ReadinessWatch:
        try:
            order = _order(step, found, probe)
            answer = await self._service.ask(order, _Answer, probe.timeout_ms + ANSWER_MS)
        except HALError as error:
            answer = _Answer(error=error.message)
        if answer.ready is None:
            self._log.warning("a step of a service could not be probed", step=str(step), error=answer.error)
            return watch.unasked(f"it could not be asked: {one_line(answer.error, MAX_REASON)}")
        return watch.passed() if answer.ready else watch.failed(one_line(answer.reason, MAX_REASON))

    def _tell(self, found: StepFound, step: StepId, watch: ReadinessWatch) -> None:
        known = self._known.get(step)
        ready, now_ms = bool(watch.ready), self._runtime.monotonic_ms()
        changed = known is None or (known.ready, known.reason) != (ready, watch.reason)
        if not changed and now_ms - self._told_ms[step] < REPEATED_MS:
            return
        same = known is not None and known.ready is ready
        since_ms = known.since_ms if known is not None and same else self._runtime.now_ms()
        self._told_ms[step] = now_ms
        self._known[step] = told = StepReadiness(step, ready, since_ms, watch.reason, found.ports)
        self._report(Readiness(steps=(told,)))


def _order(step: StepId, found: StepFound, probe: TemplateProbe) -> bytes:
    """A line for the stream service."""
    port = found.ports[probe.port] if probe.port < len(found.ports) else 0
    asked = OpenStream(request=0, step=step, kind=StreamKind.EXEC, ticket="", argv=probe.command, port=port)
    return order_line(
        asked, found, kind=PROBE, probe=probe.kind, path=probe.path, host=LOCALHOST, timeout_ms=probe.timeout_ms
    )
