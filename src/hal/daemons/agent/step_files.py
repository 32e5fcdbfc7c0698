"""Files of steps: where their directories are, and the node's file service, which fills, empties and removes them.

The service (`keeper.file_service`) is a process of its own: no byte of a file comes here. It is started when the first
step needs it and ends when it is idle. Steps wait for it at a gate of their job, `FILES_GATE`; what follows from its
answers, and from its absence, is decided as of any gate.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import StepId
from hal.core.model.bundle import FilesOrder
from hal.core.model.errors import HALError, SpecError
from hal.core.model.gate import GatePhase
from hal.core.model.gate_protocol import GateAnswer, GateAsk, decode_answer
from hal.daemons.agent.file_orders import MAX_DROPPED, FilesAsk, FilesRequest, encode_request
from hal.runtime.interface import Runtime
from hal.runtime.started_service import StartedService

START_TRIES: Final = 500
"""A service that was started is asked again so often, with pauses of 10 ms: it opens its cache before it answers."""
ANSWERED_BEFORE_MS: Final = 1_000
"""It answers so much before the time at which it would count as slow."""
DROP_MS: Final = 5_000


class FilePlaces(Struct, frozen=True, kw_only=True):
    """Where the files of steps are on this node, and who serves them."""

    service: StartedService
    kept: Path
    """What it keeps; it is not there before it was needed."""
    directories: Callable[[], Path]
    """The directory of the steps' own directories; may raise HALError."""


class StepFiles:
    """Of one node."""

    def __init__(self, runtime: Runtime, places: FilePlaces) -> None:
        self._runtime = runtime
        self._places = places
        self._base: Path | None = None

    def directory_of(self, step: StepId) -> str:
        """Where a step begins whose files are ready."""
        return str(self._directories() / str(step))

    async def ask(
        self,
        step: StepId,
        user: str,
        argument: str,
        phase: GatePhase,
        ask: GateAsk,
        *,
        succeeded: bool,
        timeout_ms: int,
    ) -> GateAnswer:
        """Ask the service about a step, as a gate is asked; it is started if it does not run.

        Raises:
            HALError: it does not answer.
        """
        if ask is GateAsk.CANCEL:
            await self._send(FilesRequest(ask=FilesAsk.DROP, names=(str(step),)), timeout_ms)
            return decode_answer(b'{"state":"ready"}')
        try:
            order = msgspec.json.decode(argument, type=FilesOrder)
        except msgspec.DecodeError as error:
            raise SpecError(f"the files of {step} are not described: {error}") from error
        request = FilesRequest(
            ask=FilesAsk.STAGE if phase is GatePhase.PREPARING else FilesAsk.COLLECT,
            step=step,
            user=user,
            order=order,
            succeeded=succeeded,
            patience_ms=max(timeout_ms - ANSWERED_BEFORE_MS, timeout_ms // 2),
        )
        return await self._send(request, timeout_ms)

    def drop(self, step: StepId) -> None:
        """Remove a step's directory, some time later."""
        self._runtime.spawn_task(self._drop([str(step)]), f"drop the files of {step}")

    def sweep(self, keep: Collection[StepId]) -> None:
        """Remove, some time later, the directories of all but these steps, also what an earlier agent has left."""
        if not self._places.kept.exists():
            return
        kept = {str(step) for step in keep}
        with contextlib.suppress(OSError, HALError), os.scandir(self._directories()) as entries:
            if names := [entry.name for entry in entries if entry.name not in kept]:
                self._runtime.spawn_task(self._drop(names), "drop files of steps that are over")

    async def _drop(self, names: Sequence[str]) -> None:
        try:
            for at in range(0, len(names), MAX_DROPPED):
                await self._send(FilesRequest(ask=FilesAsk.DROP, names=tuple(names[at : at + MAX_DROPPED])), DROP_MS)
        except HALError as error:
            # The next agent, or the next controller's welcome, sweeps again.
            self._runtime.log.warning("directories of steps that are over are still there", reason=str(error))

    def _directories(self) -> Path:
        if self._base is None:
            self._base = self._places.directories()
        return self._base

    async def _send(self, request: FilesRequest, timeout_ms: int) -> GateAnswer:
        """
        Raises:
            HALError: the service does not answer.
        """
        return decode_answer(
            await self._places.service.ask(self._runtime, encode_request(request), timeout_ms=timeout_ms)
        )
