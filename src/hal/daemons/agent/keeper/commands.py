"""Commands that neither start nor end a step: signal, suspend, resume, resize, checkpoint, prepare, logs, forget.

Each but the last two is answered by one `Done` that names the steps it was done for and those it was not, and why.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Final

from hal.core.model import StepId
from hal.daemons.agent.keeper.ledger import Ledger
from hal.daemons.agent.keeper.ports import Instant, Outputs, Spawner
from hal.daemons.agent.keeper.reports import Reports
from hal.daemons.agent.keeper.step import HeldStep, Phase
from hal.wire.frames import (
    AnyFrame,
    Checkpoint,
    Forget,
    LogChunk,
    Prepare,
    ReadLog,
    Resize,
    Resume,
    Signal,
    Suspend,
)

MAX_LOG_CHUNK_BYTES: Final = 1 << 20
"""Most bytes of output in one frame."""

Split = tuple[list[HeldStep], list[tuple[StepId, str]]]


def signal_number(name: str) -> int:
    """Of `USR1` or `SIGUSR1`; 0 when there is no such signal."""
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    number = getattr(signal, full, 0) if not full.startswith("SIG_") else 0
    return int(number) if isinstance(number, signal.Signals) else 0


class Commands:
    """Carries them out over the ledger's steps."""

    def __init__(
        self,
        ledger: Ledger,
        spawner: Spawner,
        outputs: Outputs,
        reports: Reports,
        retime: Callable[[HeldStep], None],
    ) -> None:
        self._ledger = ledger
        self._spawner = spawner
        self._outputs = outputs
        self._reports = reports
        self._retime = retime

    def received(self, frame: AnyFrame, now: Instant) -> None:
        """Carry it out; a frame that is no command for a keeper is passed over."""
        match frame:
            case Signal() | Suspend() | Resume() | Resize() | Checkpoint() | Prepare():
                command = type(frame).__name__.lower()
                if frame.epoch < self._ledger.epoch:
                    text = f"a leader of epoch {self._ledger.epoch} was heard; this command is of epoch {frame.epoch}"
                    self._reports.done(command, [], [(step, text) for step in frame.steps])
                    return
                self._ledger.saw_epoch(frame.epoch)
                self._reports.done(command, *self._carry_out(frame))
            case ReadLog():
                self._read_log(frame)
            case Forget():
                busy = {held.step.attempt_id for held in self._ledger.steps.values() if held.active}
                self._outputs.forget([attempt for attempt in frame.attempts if attempt not in busy])
            case _:
                pass

    def _carry_out(
        self, frame: Signal | Suspend | Resume | Resize | Checkpoint | Prepare
    ) -> tuple[list[StepId], list[tuple[StepId, str]]]:
        if isinstance(frame, Prepare):
            results = [(step, self._outputs.prepare(step)) for step in frame.steps]
            return [step for step, error in results if not error], [(step, error) for step, error in results if error]
        running, failed = self._running(frame.steps)
        if isinstance(frame, Resize):
            return self._resize(frame, running, failed)
        if isinstance(frame, Signal | Checkpoint):
            number = signal_number(frame.name)
            if not number:
                return [], [(step, f"there is no signal '{frame.name}'") for step in frame.steps]
        else:
            number = signal.SIGSTOP if isinstance(frame, Suspend) else signal.SIGCONT
            for held in running:
                held.suspended = isinstance(frame, Suspend)
        steps = [held.step for held in running]
        if steps:
            self._spawner.signal(steps, number)
        return steps, failed

    def _resize(
        self, frame: Resize, running: list[HeldStep], failed: list[tuple[StepId, str]]
    ) -> tuple[list[StepId], list[tuple[StepId, str]]]:
        done = []
        for held in running:
            error = ""
            if frame.cpu_milli or frame.memory_bytes:
                error = self._spawner.resize(held.step, cpu_milli=frame.cpu_milli, memory_bytes=frame.memory_bytes)
            if frame.walltime_ms:
                held.walltime_ms = frame.walltime_ms
                held.limit_signal_sent = False
                self._ledger.resized(held.step, frame.walltime_ms)
                self._retime(held)
            if error:
                failed.append((held.step, error))
            else:
                done.append(held.step)
        return done, failed

    def _running(self, steps: Sequence[StepId]) -> Split:
        running: list[HeldStep] = []
        failed: list[tuple[StepId, str]] = []
        for step in steps:
            held = self._ledger.steps.get(step)
            if held is None:
                failed.append((step, "this keeper does not hold it"))
            elif held.phase is not Phase.RUNNING:
                failed.append((step, "it has ended" if held.phase > Phase.RUNNING else "it has not started yet"))
            else:
                running.append(held)
        return running, failed

    def _read_log(self, frame: ReadLog) -> None:
        held = self._ledger.steps.get(frame.step)
        active = held is not None and held.active
        limit = min(max(0, frame.limit), MAX_LOG_CHUNK_BYTES)
        part = self._outputs.read(frame.step, frame.stream, frame.offset, limit)
        self._reports.frame(
            LogChunk(
                request=frame.request,
                step=frame.step,
                stream=frame.stream,
                offset=part.offset,
                data=part.data,
                size=part.size,
                ended=not active,
                error="" if active else part.error,
            )
        )
