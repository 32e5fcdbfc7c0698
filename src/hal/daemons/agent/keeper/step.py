"""One step as the keeper holds it: its progress, how it is being ended, and its exit report.

Pure. A step is queued → launched → running → ending → ended; the keeper forgets it when its exit is acknowledged.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import StepId, format_size
from hal.daemons.agent.keeper.ports import Ended, Instant
from hal.wire.frames.agent_keeper import Counted, ExitCause, StepExit, StepStart, StepTemplate, StopReason, Usage

MAX_MESSAGE_CHARS: Final = 2_000
"""Longer texts in exit reports are cut."""
SIGTERM: Final = 15
SIGKILL: Final = 9


class Phase(IntEnum):
    """The progress of a held step."""

    QUEUED = 0
    """Accepted; waits for a helper."""
    LAUNCHED = 1
    """Passed to the spawner (or, after a restart of the keeper, being looked for)."""
    RUNNING = 2
    ENDING = 3
    """The first process has ended; others of the step may be alive."""
    ENDED = 4
    """The exit waits for its acknowledgement."""


class HeldStep(Struct, kw_only=True):
    """What the keeper knows about one step."""

    start: StepStart
    template: StepTemplate
    """Without command, script and env."""
    recipe: StepTemplate | None = None
    """The whole template, until a process runs."""
    phase: Phase = Phase.QUEUED
    on_credit: bool = False
    """It waits for the slot of another step of its job (see `credit`), here or sent ahead."""
    credit_until_boot_ms: int = 0
    back: str = ""
    """The code with which it is refused if it is returned without having begun; '': it waits here again."""
    heir: StepId | None = None
    """The step that got its slot where both ran."""
    adopted: bool = False
    """Taken over from an earlier keeper."""
    pid: int = 0
    started_ms: int = 0
    started_boot_ms: int = 0
    walltime_ms: int = 0
    limit_signal_sent: bool = False
    stop: StopReason | None = None
    stop_grace_ms: int = 0
    kill_boot_ms: int = 0
    """When SIGKILL is due; 0: it is not."""
    killed: bool = False
    """SIGKILL was requested while the first process ran."""
    term_boot_ms: int = 0
    """It saves its state before it is ended: when SIGTERM is due; 0: it is not."""
    suspended_boot_ms: int = 0
    """Suspended since; 0: it is not."""
    paused_ms: int = 0
    """How long it was suspended before; its walltime did not count meanwhile."""
    ended: Ended | None = None
    sampled_rss_bytes: int = 0
    notes: tuple[str, ...] = ()
    exit: StepExit | None = None

    @property
    def step(self) -> StepId:
        return self.start.step

    @property
    def serves(self) -> bool:
        """Whether others use what it serves: it is of a service, and of a gang the first."""
        return self.template.service is not None and self.step.rank == 0

    @property
    def limit_boot_ms(self) -> int:
        """When its walltime is over, unless it is suspended."""
        return self.started_boot_ms + self.walltime_ms + self.paused_ms

    @property
    def may_save(self) -> bool:
        """Whether a checkpoint means anything to it: it runs and was not told to end, or it saves its state already."""
        return self.phase is Phase.RUNNING if self.stop is None else self.term_boot_ms > 0 and self.phase < Phase.ENDING

    @property
    def active(self) -> bool:
        """Whether a process of it may exist, or come to exist."""
        return self.phase is not Phase.ENDED


_STOP_CAUSE: Final = {
    StopReason.CANCELLED: ExitCause.CANCELLED,
    StopReason.TIMED_OUT: ExitCause.TIMED_OUT,
    StopReason.PREEMPTED: ExitCause.PREEMPTED,
    StopReason.UNKNOWN: ExitCause.CANCELLED,
    StopReason.SIBLING: ExitCause.CANCELLED,
    StopReason.FENCED: ExitCause.LOST,
}
_STOP_TEXT: Final = {
    StopReason.CANCELLED: "cancelled",
    StopReason.PREEMPTED: "preempted",
    StopReason.UNKNOWN: "ended because the controller does not know this attempt",
    StopReason.SIBLING: "ended because another step of the same attempt ended badly",
    StopReason.FENCED: "ended by its keeper",
}


def exit_of_ended(held: HeldStep, ended: Ended, *, remarks: tuple[str, ...] = ()) -> StepExit:
    """Create the exit of a step whose first process was seen to end and of which nothing is left."""
    number = -ended.status if ended.status < 0 else 0
    code = 128 + number if number else ended.status
    texts: list[str] = []
    if ended.out_of_memory and held.stop is None and ended.status:
        cause = ExitCause.OUT_OF_MEMORY
        limit = held.template.memory_bytes
        texts.append(f"out of memory: used more than its limit of {format_size(limit)}" if limit else "out of memory")
    elif held.stop is not None:
        cause = _STOP_CAUSE[held.stop]
        texts.append(_stop_text(held))
    elif number:
        cause = ExitCause.SIGNALLED
    else:
        cause = ExitCause.EXITED
        if ended.out_of_memory:
            texts.append("one of its processes was ended because the memory limit was reached")
    texts.extend(text for text in (ended.message, *held.notes, *remarks) if text)
    usage = ended.usage
    if held.sampled_rss_bytes > usage.max_rss_bytes and not usage.cgroup & Counted.MEMORY:
        usage = replace(usage, max_rss_bytes=held.sampled_rss_bytes)
    return _exit(held, cause, code, number, held.started_ms, ended.wall_ms, usage, "; ".join(texts))


def exit_unspawned(held: HeldStep, now: Instant) -> StepExit:
    """Create the exit of a step that was stopped before it had a process."""
    reason = held.stop or StopReason.CANCELLED
    text = f"{_stop_text(held)} before its process was started"
    return _exit(held, _STOP_CAUSE[reason], 128 + SIGTERM, SIGTERM, now.wall_ms, now.wall_ms, Usage(), text)


def exit_spawn_failed(held: HeldStep, code: int, message: str, wall_ms: int) -> StepExit:
    """Create the exit of a step for which no process could be created."""
    return _exit(held, ExitCause.SPAWN_FAILED, code, 0, wall_ms, wall_ms, Usage(), message)


def exit_lost(held: HeldStep, message: str, wall_ms: int) -> StepExit:
    """Create the exit of a step whose end nobody saw."""
    return _exit(held, ExitCause.LOST, 128 + SIGKILL, SIGKILL, held.started_ms or wall_ms, wall_ms, Usage(), message)


def exit_unseen(held: HeldStep, message: str, wall_ms: int) -> StepExit:
    """Create the exit of a step that was being stopped and whose end nobody saw: it ended for that reason."""
    cause = _STOP_CAUSE[held.stop or StopReason.CANCELLED]
    text = f"{_stop_text(held)}; {message}"
    return _exit(held, cause, 128 + SIGKILL, SIGKILL, held.started_ms or wall_ms, wall_ms, Usage(), text)


def _stop_text(held: HeldStep) -> str:
    if held.stop is StopReason.TIMED_OUT:
        text = f"time limit of {_seconds(held.walltime_ms)} reached" if held.walltime_ms else "time limit reached"
    else:
        text = _STOP_TEXT[held.stop or StopReason.CANCELLED]
    if not held.killed:
        return text
    return f"{text}; killed {_seconds(held.stop_grace_ms)} after SIGTERM" if held.stop_grace_ms else f"{text}; killed"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"


def _exit(
    held: HeldStep,
    cause: ExitCause,
    code: int,
    number: int,
    started_ms: int,
    ended_ms: int,
    usage: Usage,
    message: str,
) -> StepExit:
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[: MAX_MESSAGE_CHARS - 1] + "…"
    return StepExit(held.step, cause, code, number, started_ms, max(started_ms, ended_ms), usage, message)
