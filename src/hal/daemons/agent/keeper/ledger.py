"""What the keeper remembers and its journal contains, kept consistent: its steps, their ends, the epoch.

Every change is appended to the journal before any action. Memory is bounded by `MAX_HELD` steps and `MAX_TOMBSTONES`
ids of steps that have ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import (
    Accepted,
    Booted,
    Checkpointing,
    Dropped,
    EpochSeen,
    Exited,
    Instant,
    Journal,
    JournalFullError,
    Record,
    Resized,
    Resumed,
    Stopping,
    Suspended,
)
from hal.daemons.agent.keeper.step import HeldStep, Phase, exit_lost
from hal.wire.bounds import MAX_EPOCH_AHEAD, MAX_FIRST_EPOCH
from hal.wire.frames.agent_keeper import StepExit, StepStart, StepTemplate, StopReason

MAX_HELD: Final = 50_000
"""Steps that one keeper holds, including those whose exits are not acknowledged; one more is refused."""
MAX_TOMBSTONES: Final = 16_384
"""Ids of ended steps, so that a repeated start is refused."""
COMPACT_BYTES: Final = 4 << 20
"""A smaller journal is never rewritten; a larger one is rewritten once it has doubled."""
MAX_BATCH: Final = 1_000
"""Steps in one record and in one frame."""
MAX_UNWRITTEN: Final = 100_000
"""Records that wait for the disk; beyond that, the oldest are dropped (their helpers' journals still contain the
ends)."""


class Ledger:
    """The held steps by id, with their journal."""

    def __init__(self, journal: Journal, boot_id: str) -> None:
        self.steps: dict[StepId, HeldStep] = {}
        self.epoch = 0
        self.notes: list[str] = []
        self._journal = journal
        self._boot_id = boot_id
        self._tombstones: OrderedDict[StepId, str] = OrderedDict()
        self._unwritten: list[Record] = []
        self._compact_at = COMPACT_BYTES

    # ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────

    def load(self, now: Instant) -> list[HeldStep]:
        """Read the journal; returns the steps of this boot whose end it does not contain, to be looked for.

        Steps of an earlier boot whose end it does not contain are lost: their exits are created here. One `match` over
        the kinds of records, each with a line or two: splitting it would hide that all of them are handled.
        """
        same_boot = False
        for record in self._journal.load():
            match record:
                case Booted():
                    same_boot = record.boot_id == self._boot_id
                case EpochSeen():
                    self.epoch = max(self.epoch, record.epoch)
                case Accepted():
                    for start in record.steps:
                        self._tombstones.pop(start.step, None)
                        self.steps[start.step] = _adopted(start, record.template)
                case Stopping():
                    for step in record.steps:
                        if held := self.steps.get(step):
                            held.stop, held.kill_boot_ms = record.reason, record.kill_boot_ms
                            held.term_boot_ms = 0
                case Checkpointing():
                    for step in record.steps:
                        if held := self.steps.get(step):
                            held.stop, held.kill_boot_ms = StopReason.PREEMPTED, record.kill_boot_ms
                            held.term_boot_ms = record.term_boot_ms
                case Suspended():
                    for step in record.steps:
                        if held := self.steps.get(step):
                            held.suspended_boot_ms = record.boot_ms
                case Resumed():
                    if held := self.steps.get(record.step):
                        held.suspended_boot_ms, held.paused_ms = 0, record.paused_ms
                case Resized():
                    if held := self.steps.get(record.step):
                        held.walltime_ms = record.walltime_ms
                case Exited():
                    for exit_ in record.exits:
                        if held := self.steps.get(exit_.step):
                            held.exit, held.phase = exit_, Phase.ENDED
                case Dropped():
                    for step in record.steps:
                        self.steps.pop(step, None)
                        self._bury(step, record.code)
        if not same_boot:
            for held in self.steps.values():
                if held.active:
                    held.exit = exit_lost(held, "the host was rebooted while the step ran", now.wall_ms)
                    held.phase = Phase.ENDED
        try:
            self.compact()
        except JournalFullError as error:
            self._unwritten = [Booted(self._boot_id), EpochSeen(self.epoch)]
            self._full(error)
        return [held for held in self.steps.values() if held.active]

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def accept(self, starts: Sequence[StepStart], template: StepTemplate) -> list[HeldStep]:
        """Accept these steps.

        Raises:
            JournalFullError: none was accepted.
        """
        bare = msgspec.structs.replace(
            template, command=(), script="", env={}, workdir="", stdin="", stdout="", stderr=""
        )
        self._flush()
        self._journal.append([Accepted(bare, tuple(starts))])
        taken = [
            HeldStep(start=start, template=bare, recipe=template, walltime_ms=template.walltime_ms) for start in starts
        ]
        self.steps.update((held.step, held) for held in taken)
        return taken

    def explain_implausible_epoch(self, epoch: int) -> str:
        """Return why no leader can have that epoch; '' if one may. Accepting it would lock out every true leader for
        good."""
        most = self.epoch + MAX_EPOCH_AHEAD if self.epoch else MAX_FIRST_EPOCH
        if epoch <= most:
            return ""
        return f"epoch {epoch} is implausible: this keeper has seen {self.epoch}, and accepts at most {most}"

    def record_epoch(self, epoch: int) -> None:
        """Record a leader's epoch; older ones are refused from now on."""
        if epoch > self.epoch:
            self.epoch = epoch
            self._write([EpochSeen(epoch)])

    def stopping(self, steps: Sequence[StepId], reason: StopReason, kill_boot_ms: int) -> None:
        self._write([Stopping(tuple(steps), reason, kill_boot_ms)])

    def checkpointing(self, steps: Sequence[StepId], term_boot_ms: int, kill_boot_ms: int) -> None:
        self._write([Checkpointing(tuple(steps), term_boot_ms, kill_boot_ms)])

    def suspended(self, steps: Sequence[StepId], boot_ms: int) -> None:
        self._write([Suspended(tuple(steps), boot_ms)])

    def resumed(self, steps: Sequence[HeldStep]) -> None:
        """Each step's total suspended time is already recorded in it."""
        self._write([Resumed(held.step, held.paused_ms) for held in steps])

    def resized(self, step: StepId, walltime_ms: int) -> None:
        self._write([Resized(step, walltime_ms)])

    def exited(self, exits: Sequence[StepExit]) -> None:
        """Record the ends of these steps; their exits are kept until `drop`."""
        self._write([Exited(tuple(exits[at : at + MAX_BATCH])) for at in range(0, len(exits), MAX_BATCH)])

    def drop(self, steps: Iterable[StepId], code: str) -> None:
        """Forget these steps; a start that names one again is refused with `code`, unless that is ''."""
        dropped = tuple(steps)
        if not dropped:
            return
        for step in dropped:
            self.steps.pop(step, None)
            self._bury(step, code)
        self._write([Dropped(dropped, code)])

    def refusal_of(self, step: StepId) -> str:
        """Return the code with which a start of this step is refused, or ''."""
        return self._tombstones.get(step, "")

    # ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def durable(self) -> bool:
        """Whether everything is in the journal; False while its disk is full."""
        return not self._unwritten

    def maintain(self) -> None:
        """Write what waits for the disk; rewrite a journal that has grown. Called about once a second."""
        try:
            self._flush()
            if self._journal.size_bytes() >= self._compact_at:
                self.compact()
        except JournalFullError as error:
            self._full(error)

    def compact(self) -> None:
        """Rewrite the journal with only its live content.

        Raises:
            JournalFullError: it is unchanged.
        """
        self._journal.replace(list(self._live_records()))
        self._unwritten.clear()
        self._compact_at = max(COMPACT_BYTES, 2 * self._journal.size_bytes())

    def _live_records(self) -> Iterable[Record]:
        yield Booted(self._boot_id)
        yield EpochSeen(self.epoch)
        by_code: dict[str, list[StepId]] = {}
        for step, code in self._tombstones.items():
            by_code.setdefault(code, []).append(step)
        for code, steps in by_code.items():
            yield from (Dropped(tuple(steps[at : at + MAX_BATCH]), code) for at in range(0, len(steps), MAX_BATCH))
        by_template: dict[int, tuple[StepTemplate, list[StepStart]]] = {}
        for held in self.steps.values():
            by_template.setdefault(id(held.template), (held.template, []))[1].append(held.start)
        for template, starts in by_template.values():
            yield from (
                Accepted(template, tuple(starts[at : at + MAX_BATCH])) for at in range(0, len(starts), MAX_BATCH)
            )
        for held in self.steps.values():
            if held.exit is not None:
                yield Exited((held.exit,))
                continue
            if held.term_boot_ms:
                yield Checkpointing((held.step,), held.term_boot_ms, held.kill_boot_ms)
            elif held.stop is not None:
                yield Stopping((held.step,), held.stop, held.kill_boot_ms)
            if held.paused_ms:
                yield Resumed(held.step, held.paused_ms)
            if held.suspended_boot_ms:
                yield Suspended((held.step,), held.suspended_boot_ms)
            if held.walltime_ms != held.template.walltime_ms:
                yield Resized(held.step, held.walltime_ms)

    def _write(self, records: Sequence[Record]) -> None:
        try:
            self._flush()
            self._journal.append(records)
        except JournalFullError as error:
            self._unwritten.extend(records)
            del self._unwritten[:-MAX_UNWRITTEN]
            self._full(error)

    def _flush(self) -> None:
        if self._unwritten:
            self._journal.append(self._unwritten)
            self._unwritten.clear()

    def _full(self, error: JournalFullError) -> None:
        note = f"journal: {error}"
        if note not in self.notes:
            self.notes.append(note)

    def _bury(self, step: StepId, code: str) -> None:
        if not code:
            self._tombstones.pop(step, None)
            return
        self._tombstones[step] = code
        self._tombstones.move_to_end(step)
        while len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)


def _adopted(start: StepStart, template: StepTemplate) -> HeldStep:
    return HeldStep(
        start=start, template=template, walltime_ms=template.walltime_ms, phase=Phase.LAUNCHED, adopted=True
    )
