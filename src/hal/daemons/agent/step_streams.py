"""Opening streams to running steps of this node: asks the keeper where the step is, and the node's stream service to
serve whoever comes with the ticket.

The bytes of a stream never come here. The service is started when it is first needed, and ends when it is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from hal.core.model.errors import HALError, OverloadedError, TimedOutError
from hal.daemons.agent.step_service import StepService, order_line
from hal.runtime.interface import Lane, Runtime
from hal.wire.frames.agent_keeper import StepFound
from hal.wire.frames.controller_agent import OpenStream, StreamOpened
from hal.wire.frames.conversation import Frame

MAX_OPENING: Final = 64
"""Streams that are being opened at once."""
BEGIN_MS: Final = 1_000
"""How long a step that has not begun here is waited for: the first of a gang comes before the last has begun."""
BEGIN_PAUSE_MS: Final = 100


class _Answer(Struct, frozen=True):
    """What the service says."""

    path: str = ""
    port: int = 0
    fingerprint: str = ""
    code: str = ""
    error: str = ""


class StepStreams:
    """Opens them on request of the controller."""

    def __init__(
        self,
        runtime: Runtime,
        service: StepService,
        report: Callable[[Frame], None],
        controller_host: Callable[[], str],
    ) -> None:
        """Args:
        report: sends to the controller.
        controller_host: where that is, as seen from here.
        """
        self._controller_host = controller_host
        self._runtime = runtime
        self._service = service
        self._places = service.places
        self._report = report
        self._opening = 0

    def open(self, frame: OpenStream, send_to_keeper: Callable[[Frame], None]) -> None:
        """Open a stream and report, some time later."""
        if self._opening >= MAX_OPENING:
            text = f"{MAX_OPENING} streams are being opened on this node"
            self._report(StreamOpened(request=frame.request, code=OverloadedError.code, error=text))
            return
        self._opening += 1
        self._runtime.spawn_task(self._open(frame, send_to_keeper), "open-stream")

    async def _open(self, frame: OpenStream, send_to_keeper: Callable[[Frame], None]) -> None:
        try:
            found = await self._find_begun(frame, send_to_keeper)
            if found.error and found.later:
                raise TimedOutError(f"{found.error}; a gate or a prolog may still hold it")
            if found.error:
                self._report(StreamOpened(request=frame.request, code="conflict", error=found.error))
                return
            certificate = self._places.certificate
            if not certificate and (frame.listen or frame.relay):
                certificate = await self._runtime.run_blocking(self._places.own_certificate, Lane.READER)
            order = order_line(
                frame,
                found,
                certificate=certificate,
                relay_host=self._controller_host() if frame.relay else "",
                directory=self._places.directory(),
                shared=self._places.shared,
            )
            answer = await self._service.ask(order, _Answer)
            self._report(StreamOpened(request=frame.request, **asdict(answer)))
        except HALError as error:
            self._report(StreamOpened(request=frame.request, code=error.code, error=error.message))
        finally:
            self._opening -= 1

    async def _find_begun(self, frame: OpenStream, send_to_keeper: Callable[[Frame], None]) -> StepFound:
        for _ in range(BEGIN_MS // BEGIN_PAUSE_MS):
            found = await self._service.find(frame.step, send_to_keeper)
            if not found.later:
                return found
            await self._runtime.sleep(BEGIN_PAUSE_MS)
        return found
