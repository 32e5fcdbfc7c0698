"""Files of steps: where their directories are, and the node's file service, which fills, empties and removes them.

The service (`keeper.file_service`) is a process of its own: no byte of a file comes here. It is started when the first
step needs it and ends when it is idle. Steps wait for it at a gate of their job, `FILES_GATE`; what follows from its
answers, and from its absence, is decided as of any gate.

Where a copy is ready, nobody is waited for: it is renamed here, and the service is told some time later. So is the
directory of a step that has ended, if nothing of it is collected: it is gone when the end is reported, and the service
removes it.
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
from hal.core.model.bundle import FILES_GATE, FilesOrder
from hal.core.model.errors import HALError, SpecError
from hal.core.model.gate import GatePhase
from hal.core.model.gate_protocol import GateAnswer, GateAsk, GateVerdictWord, decode_answer
from hal.daemons.agent.file_orders import MAX_DROPPED, FilesAsk, FilesRequest, encode_request
from hal.daemons.agent.keeper.file_service.places import GONE, gone_name, private_directory, ready_name
from hal.runtime.interface import Runtime, Timer
from hal.runtime.started_service import StartedService
from hal.wire.frames.agent_keeper import Exits, Refused, TemplateGate
from hal.wire.frames.conversation import Frame

START_TRIES: Final = 500
"""A service that was started is asked again so often, with pauses of 10 ms: it opens its cache before it answers."""
ANSWERED_BEFORE_MS: Final = 1_000
"""It answers so much before the time at which it would count as slow."""
DROP_MS: Final = 5_000
TELL_MS: Final = 100
"""After a directory was renamed, the service is told: the step begins, or its end is reported, first."""
MAX_SERVED: Final = 1_000
"""Users and bundles for which the service is known to make copies ready."""
READY: Final = GateAnswer(state=GateVerdictWord.READY)


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
        self._served: dict[tuple[str, str], None] = {}
        """Users and bundles that the service has served since this agent began: what is ready for them is of this boot,
        and whole."""
        self._at_service: set[StepId] = set()
        """Steps for which it may be making a directory."""
        self._uncollected: set[StepId] = set()
        """Steps that have a directory of which nothing is collected."""
        self._gone: list[str] = []
        self._taken: dict[tuple[str, str], FilesRequest] = {}
        self._telling: Timer | None = None

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
            self._at_service.discard(step)
            self._uncollected.discard(step)
            await self._send(FilesRequest(ask=FilesAsk.DROP, names=(str(step),)), timeout_ms)
            return READY
        try:
            order = msgspec.json.decode(argument, type=FilesOrder)
        except msgspec.DecodeError as error:
            raise SpecError(f"the files of {step} are not described: {error}") from error
        if phase is GatePhase.PREPARING and not order.collect:
            self._uncollected.add(step)
        if phase is GatePhase.PREPARING and self._take_ready(step, user, order):
            return READY
        request = FilesRequest(
            ask=FilesAsk.STAGE if phase is GatePhase.PREPARING else FilesAsk.COLLECT,
            step=step,
            user=user,
            order=order,
            succeeded=succeeded,
            patience_ms=max(timeout_ms - ANSWERED_BEFORE_MS, timeout_ms // 2),
        )
        if request.ask is FilesAsk.COLLECT:
            return await self._send(request, timeout_ms)
        self._at_service.add(step)
        answer = await self._send(request, timeout_ms)
        if answer.state is not GateVerdictWord.WAITING:
            self._at_service.discard(step)
        if answer.state is GateVerdictWord.READY and order.ship:
            while len(self._served) >= MAX_SERVED:
                del self._served[next(iter(self._served))]
            self._served[user, order.ship] = None
        return answer

    def record_ends(self, frame: Frame) -> None:
        """Take away the directories of steps that have ended, or will not begin, if nothing of them is collected."""
        if not self._uncollected and not self._at_service:
            return
        match frame:
            case Exits():
                ended = [one.step for one in frame.exits]
            case Refused():
                ended = [one.step for one in frame.steps]
            case _:
                return
        self._at_service.difference_update(ended)
        for step in self._uncollected.intersection(ended):
            self._take_away(step)

    def drop(self, step: StepId) -> None:
        """Remove a step's directory, some time later."""
        self._runtime.spawn_task(self._drop([str(step)]), f"drop the files of {step}")

    def sweep(self, keep: Collection[StepId], collected: Collection[StepId]) -> None:
        """Remove, some time later, the directories of all but these steps, also what an earlier agent has left.

        Args:
            collected: those of the steps of which something is collected, or may be.
        """
        self._at_service.intersection_update(keep)
        self._uncollected.intersection_update(keep)
        if not self._places.kept.exists():
            return
        kept = {str(step): step for step in keep}
        names = []
        with contextlib.suppress(OSError, HALError), os.scandir(self._directories()) as entries:
            for entry in entries:
                step = kept.get(entry.name)
                if step is None:
                    names.append(entry.name)
                elif step not in collected:
                    self._uncollected.add(step)
        with contextlib.suppress(OSError, HALError), os.scandir(private_directory(self._directories())) as entries:
            names += [entry.name.removeprefix(GONE) for entry in entries if entry.name.startswith(GONE)]
        if names:
            self._runtime.spawn_task(self._drop(names), "drop files of steps that are over")

    # ── what is ready, and what is over ───────────────────────────────────────────────────────────────────────────

    def _take_ready(self, step: StepId, user: str, order: FilesOrder) -> bool:
        """Give a step the copy that is ready; False: there is none, or it may have been given another one."""
        key = (user, order.ship)
        if not order.ship or key not in self._served or step in self._at_service:
            return False
        base = self._directories()
        if os.path.lexists(base / str(step)):
            return False
        try:
            os.rename(private_directory(base) / ready_name(*key), base / str(step))
        except OSError:  # the service says what is wrong, if anything is
            return False
        self._taken[key] = FilesRequest(ask=FilesAsk.TAKEN, step=step, user=user, order=order)
        self._tell_later()
        return True

    def _take_away(self, step: StepId) -> None:
        """Take away the directory of a step that is over."""
        self._uncollected.discard(step)
        with contextlib.suppress(OSError, HALError):  # then it is removed from where it is
            base = self._directories()
            os.rename(base / str(step), private_directory(base) / gone_name(step))
        self._gone.append(str(step))
        self._tell_later()

    def _tell_later(self) -> None:
        if self._telling is None:
            self._telling = self._runtime.call_later(TELL_MS, self._tell)

    def _tell(self) -> None:
        self._telling = None
        gone, self._gone = self._gone, []
        taken, self._taken = self._taken, {}
        self._runtime.spawn_task(self._told(gone, list(taken.values())), "tell the file service what was renamed")

    async def _told(self, gone: Sequence[str], taken: Sequence[FilesRequest]) -> None:
        if gone:
            await self._drop(gone)
        try:
            for request in taken:
                await self._send(request, DROP_MS)
        except HALError as error:
            self._runtime.log.info("no copy is made ready for the next step", reason=str(error))

    # ── the service ───────────────────────────────────────────────────────────────────────────────────────────────

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


def without_idle_gates(gates: Sequence[TemplateGate]) -> tuple[TemplateGate, ...]:
    """The gates of a step that have something to do: where nothing is collected, its directory goes without one."""
    return tuple(gate for gate in gates if not _is_idle(gate))


def _is_idle(gate: TemplateGate) -> bool:
    if gate.name != FILES_GATE or gate.phase is not GatePhase.FINALISING:
        return False
    try:
        return not msgspec.json.decode(gate.argument, type=FilesOrder).collect
    except msgspec.DecodeError:
        return False  # it is refused when it is asked
