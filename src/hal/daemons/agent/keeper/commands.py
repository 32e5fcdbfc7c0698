"""Commands that neither start nor end a step: signal, suspend, resume, resize, prepare, logs, forget, find.

Each but the last three is answered by one `Done` that lists the steps for which it succeeded, and those for which it
failed, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from hal.core.model import StepId
from hal.daemons.agent.keeper.endings import Endings, signal_number
from hal.daemons.agent.keeper.ledger import Ledger
from hal.daemons.agent.keeper.ports import Instant, KeeperConfig, LogPart, Outputs, Spawner
from hal.daemons.agent.keeper.reports import Reports
from hal.daemons.agent.keeper.step import HeldStep, Phase
from hal.wire.frames.agent_keeper import (
    FindStep,
    Forget,
    ForgetPiece,
    LogChunk,
    OutputPart,
    OutputParts,
    Prepare,
    ReadLog,
    ReadOutputs,
    Resize,
    Resume,
    Signal,
    StepFound,
    Suspend,
)
from hal.wire.frames.conversation import Frame

MAX_LOG_CHUNK_BYTES: Final = 1 << 20
"""Most bytes of output in one frame."""

Split = tuple[list[HeldStep], list[tuple[StepId, str]]]


class Commands:
    """Executes commands on the ledger's steps."""

    def __init__(
        self,
        ledger: Ledger,
        spawner: Spawner,
        outputs: Outputs,
        reports: Reports,
        endings: Endings,
        config: KeeperConfig,
    ) -> None:
        self._ledger = ledger
        self._spawner = spawner
        self._outputs = outputs
        self._reports = reports
        self._endings = endings
        self._config = config

    def received(self, frame: Frame, now: Instant) -> None:
        """Execute a command; a frame that is not a command for a keeper is ignored."""
        match frame:
            case Signal() | Suspend() | Resume() | Resize() | Prepare():
                command = type(frame).__name__.lower()
                if frame.epoch < self._ledger.epoch:
                    seen = self._ledger.epoch
                    text = f"this keeper has seen a leader of epoch {seen}; this command is of epoch {frame.epoch}"
                    self._reports.done(command, [], [(step, text) for step in frame.steps])
                    return
                self._ledger.record_epoch(frame.epoch)
                self._reports.done(command, *self._carry_out(frame, now))
            case ReadLog():
                self._read_log(frame)
            case ReadOutputs():
                self._read_outputs(frame)
            case FindStep():
                self._reports.frame(self._find(frame))
            case Forget():
                self._outputs.forget(self._not_running(frame.pieces), frame.request)
            case _:
                pass

    def _not_running(self, pieces: Sequence[ForgetPiece]) -> list[ForgetPiece]:
        """Those that name no step that runs: whoever names one is mistaken, and its files stay."""
        running: dict[int, list[StepId]] = defaultdict(list)
        for held in self._ledger.steps.values():
            if held.active:
                running[held.step.job].append(held.step)
        return [piece for piece in pieces if not any(_names(piece, step) for step in running.get(piece.job, ()))]

    def _carry_out(
        self, frame: Signal | Suspend | Resume | Resize | Prepare, now: Instant
    ) -> tuple[list[StepId], list[tuple[StepId, str]]]:
        if isinstance(frame, Prepare):
            results = [(step, self._outputs.prepare(step)) for step in frame.steps]
            return [step for step, error in results if not error], [(step, error) for step, error in results if error]
        running, failed = self._running(frame.steps)
        if isinstance(frame, Resize):
            return self._resize(frame, running, failed)
        if isinstance(frame, Signal):
            number = signal_number(frame.name)
            if not number:
                return [], [(step, f"there is no signal '{frame.name}'") for step in frame.steps]
            if running:
                self._spawner.signal([held.step for held in running], number)
            return [held.step for held in running], failed
        failed += [(held.step, "it is being ended") for held in running if held.stop is not None]
        going_on = [held for held in running if held.stop is None]
        if isinstance(frame, Suspend):
            self._endings.suspend(going_on, now)
        else:
            self._endings.resume(going_on, now)
        return [held.step for held in going_on], failed

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
                self._endings.retime(held)
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

    def _find(self, frame: FindStep) -> StepFound:
        running, failed = self._running([frame.step])
        held = self._ledger.steps.get(frame.step)
        if failed:
            later = held is None or held.phase < Phase.RUNNING
            return StepFound(request=frame.request, error=f"{frame.step}: {failed[0][1]}", later=later)
        (held,) = running
        found = self._spawner.locate(held.step)
        if found is None or held.stop is not None:
            why = "it is being ended" if held.stop is not None else "its first process is not known"
            return StepFound(request=frame.request, error=f"{frame.step}: {why}")
        return StepFound(
            request=frame.request,
            pid=found.pid,
            started_boot_ms=found.boot_ms,
            mark=found.mark,
            user=self._config.steps_user(held.template),
            least_uid=self._config.least_uid,
            no_new_privileges=self._config.no_new_privileges,
            sandboxed=bool(held.template.sandbox),
            interactive=bool(held.template.interactive),
            cgroups=found.cgroups,
            cpus=found.cpus,
            service=held.template.service if held.serves else None,
            ports=held.start.ports,
        )

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
                deleted_ms=0 if active else part.deleted_ms,
                deleted_by="" if active else part.deleted_by,
            )
        )

    def _read_outputs(self, frame: ReadOutputs) -> None:
        limit = min(frame.limit, MAX_LOG_CHUNK_BYTES)
        found = self._outputs.read_many(frame.steps, frame.stream, frame.offset, limit, MAX_LOG_CHUNK_BYTES)
        parts = []
        for step, part in zip(frame.steps, found, strict=False):
            held = self._ledger.steps.get(step)
            bare = held is not None and held.active and not part.data
            kept = LogPart(part.offset, part.data, part.size) if bare else part
            parts.append(OutputPart(kept.offset, kept.data, kept.size, kept.error, kept.deleted_ms, kept.deleted_by))
        self._reports.frame(OutputParts(request=frame.request, parts=tuple(parts)))


def _names(piece: ForgetPiece, step: StepId) -> bool:
    """Whether files of that step of the same job are among these."""
    if not piece.attempt:
        return True
    return step.attempt == piece.attempt and piece.first <= step.task < piece.first + piece.count
