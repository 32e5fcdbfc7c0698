"""How steps end: by themselves, at their limit, or on request; their remnants are killed; then follows one exit
report.

Pure, as `core`, of which it is a part: the exit is journalled before it is reported, and it is reported only when no
process of the step is left.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from hal.core.model import StepId
from hal.daemons.agent.keeper.credit import Credit
from hal.daemons.agent.keeper.ledger import Ledger
from hal.daemons.agent.keeper.meters import with_counted
from hal.daemons.agent.keeper.ports import Ended, Gone, Instant, Outputs, Spawner, SpawnFailed, Vanished
from hal.daemons.agent.keeper.reports import Reports
from hal.daemons.agent.keeper.step import (
    SIGTERM,
    HeldStep,
    Phase,
    exit_lost,
    exit_of_ended,
    exit_spawn_failed,
    exit_unseen,
    exit_unspawned,
)
from hal.daemons.agent.keeper.timers import Due, Timers
from hal.wire.frames.agent_keeper import StepExit, StopReason

LEFTOVER_GRACE_MS: Final = 500
"""How long processes that a step left behind may run (a `tee` that still writes) before they are killed."""

EndEvent = Ended | Gone | SpawnFailed | Vanished


def signal_number(name: str) -> int:
    """Return the number of `USR1` or `SIGUSR1`; 0 if there is no such signal."""
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    number = getattr(signal, full, 0) if not full.startswith("SIG_") else 0
    return int(number) if isinstance(number, signal.Signals) else 0


class Endings:
    """Ends of the ledger's steps."""

    def __init__(self, ledger: Ledger, spawner: Spawner, outputs: Outputs, reports: Reports, credit: Credit) -> None:
        self.running: dict[StepId, HeldStep] = {}
        """Steps with a first process, ordered by their start."""
        self.timers = Timers()
        self._ledger = ledger
        self._spawner = spawner
        self._outputs = outputs
        self._reports = reports
        self._credit = credit

    # ── ends that the spawner tells ───────────────────────────────────────────────────────────────────────────────

    def record_end_event(self, held: HeldStep, event: EndEvent, now: Instant) -> StepExit | None:
        """Handle an event of a step's end; returns the exit if it was the last one expected, for `finish`."""
        match event:
            case Ended():
                return self._first_ended(held, event, now)
            case Gone():
                if held.ended is None:
                    return None
                ended = replace(held.ended, usage=with_counted(held.ended.usage, event.usage))
                return self._report(held, ended, _left_text(held, event), event.message)
            case SpawnFailed():
                if held.stop is StopReason.FENCED:
                    return exit_unseen(held, event.message, event.wall_ms)
                return exit_spawn_failed(held, event.code, event.message, event.wall_ms)
            case Vanished():
                unseen = exit_unseen if held.stop is not None else exit_lost
                return unseen(held, event.message, event.wall_ms)

    def _first_ended(self, held: HeldStep, event: Ended, now: Instant) -> StepExit | None:
        self.running.pop(held.step, None)
        held.phase, held.ended = Phase.ENDING, event
        held.started_ms = held.started_ms or event.wall_ms
        if not event.leftover:
            return self._report(held, event)
        self._spawner.watch([held.step])
        if held.killed:
            self._kill_at(held, now.boot_ms)
        elif held.stop is None:
            self._kill_at(held, now.boot_ms + LEFTOVER_GRACE_MS)
        return None

    def record_start(self, held: HeldStep, now: Instant) -> None:
        """Handle the start of its first process: its limit runs; a stop that arrived before is executed."""
        self.running[held.step] = held
        if held.stop is not None:
            if held.term_boot_ms:
                self.timers.add(held.term_boot_ms, Due.TERM, held.step)
            else:
                self._spawner.signal([held.step], SIGTERM)
            self._kill_at(held, max(held.kill_boot_ms, now.boot_ms))
        self.retime(held)

    def finish(self, exits: Sequence[tuple[HeldStep, StepExit]]) -> None:
        """Journal and report the ends of these steps. The slot of each is passed on to a step on credit, if one
        waits."""
        if not exits:
            return
        final: list[StepExit] = []
        # First those that end without ever having had a slot: none of them may inherit one now.
        placeless = {held.step for held, _ in exits if held.on_credit}
        for held, _ in exits:
            self._credit.forget(held)
            self._credit.allow(held.step)
        for held, exit_ in exits:
            heir = None if held.step in placeless else self._credit.pass_slot_on(held)
            held.exit = exit_ if heir is None else replace(exit_, next=heir)
            held.phase, held.recipe, held.ended = Phase.ENDED, None, None
            self.running.pop(held.step, None)
            final.append(held.exit)
        self._ledger.exited(final)
        for held, _ in exits:
            self._reports.exited(held)

    # ── ends that are brought about ───────────────────────────────────────────────────────────────────────────────

    def stop(self, steps: Sequence[StepId], reason: StopReason, grace_ms: int, now: Instant, *, note: str = "") -> None:
        """Begin to end these steps, for that reason; those already being ended can only be ended sooner."""
        unspawned: list[tuple[HeldStep, StepExit]] = []
        begun: list[HeldStep] = []
        sooner: list[HeldStep] = []
        grace_ms = max(0, grace_ms)
        for step in steps:
            held = self._ledger.steps.get(step)
            if held is None or not held.active:
                continue
            if held.phase is Phase.ENDING and held.stop is None:
                # It has ended by itself, which its exit will report; only its remnants are killed sooner.
                self._kill_at(held, min(held.kill_boot_ms, now.boot_ms + grace_ms))
            elif held.stop is None:
                held.stop, held.stop_grace_ms = reason, grace_ms
                if note:
                    held.notes = (*held.notes, note)
                begun.append(held)
                if held.phase is Phase.QUEUED:
                    unspawned.append((held, self.unspawned(held, now)))
            elif held.phase is not Phase.QUEUED and now.boot_ms + grace_ms < held.kill_boot_ms:
                sooner.append(held)
        self._stop_sooner(sooner, now.boot_ms + grace_ms, now)
        if begun:
            self._ledger.stopping([held.step for held in begun], reason, now.boot_ms + grace_ms)
            self._recall_heirs(begun, reason)
        for held in begun:
            self._kill_at(held, now.boot_ms + grace_ms)
        running = [held for held in begun if held.phase is Phase.RUNNING]
        if running:
            self._spawner.signal([held.step for held in running], SIGTERM)
        self.resume([held for held in running if held.suspended_boot_ms], now)
        self.finish(unspawned)

    def _stop_sooner(self, steps: Sequence[HeldStep], kill_boot_ms: int, now: Instant) -> None:
        """Kill steps that are being ended already sooner than was said; those that save their state get SIGTERM now."""
        by_reason: dict[StopReason, list[StepId]] = {}
        for held in steps:
            if held.stop is not None:
                by_reason.setdefault(held.stop, []).append(held.step)
        for reason, ids in by_reason.items():
            self._ledger.stopping(ids, reason, kill_boot_ms)
        for held in steps:
            term_boot_ms = now.boot_ms if held.term_boot_ms else held.kill_boot_ms - held.stop_grace_ms
            held.stop_grace_ms = max(kill_boot_ms - term_boot_ms, 0)
            self._terminate(held)
            self._kill_at(held, kill_boot_ms)

    def _recall_heirs(self, begun: Sequence[HeldStep], reason: StopReason) -> None:
        """Before these steps are signalled: recall what was sent ahead and must not begin any more."""
        back = [held.step for held in begun if self._credit.is_ahead(held)]
        if reason is StopReason.PREEMPTED:
            back += self._credit.bar(held.step for held in begun if held.phase is not Phase.QUEUED)
        if back:
            self._spawner.recall(back)

    def stop_heirs(self, ended: Sequence[HeldStep], now: Instant) -> None:
        """A preempted slot had just been passed on: whoever has it now is stopped too."""
        for held in ended:
            if held.stop is not StopReason.PREEMPTED or held.heir is None:
                continue
            heir = self._ledger.steps.get(held.heir)
            while heir is not None and heir.heir is not None:
                heir = self._ledger.steps.get(heir.heir)
            if heir is not None and heir.active:
                self.stop([heir.step], StopReason.PREEMPTED, max(held.kill_boot_ms - now.boot_ms, 0), now)

    def checkpoint(
        self, steps: Sequence[HeldStep], number: int, grace_ms: int, last_grace_ms: int, now: Instant
    ) -> None:
        """Ask these running steps by that signal to save their state; after the grace they are ended (`preempted`),
        and after the last grace killed. Those that were asked to before can only be ended sooner.

        Args:
            steps: each one `may_save`.
        """
        term_boot_ms = now.boot_ms + max(0, grace_ms)
        kill_boot_ms = term_boot_ms + max(0, last_grace_ms)
        fresh = [held for held in steps if held.stop is None]
        timed = fresh + [held for held in steps if held.stop is not None and kill_boot_ms < held.kill_boot_ms]
        self.resume([held for held in fresh if held.suspended_boot_ms], now)
        if timed:
            self._ledger.checkpointing([held.step for held in timed], term_boot_ms, kill_boot_ms)
        for held in timed:
            held.stop, held.stop_grace_ms = StopReason.PREEMPTED, kill_boot_ms - term_boot_ms
            held.term_boot_ms = term_boot_ms
            self.timers.add(term_boot_ms, Due.TERM, held.step)
            self._kill_at(held, kill_boot_ms)
        if fresh:
            self._recall_heirs(fresh, StopReason.PREEMPTED)
            self._spawner.signal([held.step for held in fresh], number)

    def suspend(self, steps: Sequence[HeldStep], now: Instant) -> None:
        """Suspend these running steps; their walltime does not count meanwhile."""
        ids = [held.step for held in steps]
        fresh = [held for held in steps if not held.suspended_boot_ms]
        if fresh:
            self._ledger.suspended([held.step for held in fresh], now.boot_ms)
        for held in fresh:
            held.suspended_boot_ms = now.boot_ms
        if ids:
            self._spawner.signal(ids, signal.SIGSTOP)

    def resume(self, steps: Sequence[HeldStep], now: Instant) -> None:
        """Resume them with the rest of their walltime."""
        stood = [held for held in steps if held.suspended_boot_ms]
        for held in stood:
            held.paused_ms += max(0, now.boot_ms - held.suspended_boot_ms)
            held.suspended_boot_ms = 0
        if stood:
            self._ledger.resumed(stood)
        for held in stood:
            self.retime(held)
        if steps:
            self._spawner.signal([held.step for held in steps], signal.SIGCONT)

    def _terminate(self, held: HeldStep) -> None:
        """End it: the time to save its state is over."""
        if held.term_boot_ms:
            held.term_boot_ms = 0
            self._spawner.signal([held.step], SIGTERM)

    def unspawned(self, held: HeldStep, now: Instant) -> StepExit:
        """Create the exit of a step that is stopped before it had a process."""
        return exit_unspawned(held, now)

    def apply_limits(self, now: Instant) -> None:
        """Send due signals before limits, stops at limits, and kills."""
        signals: dict[int, list[StepId]] = {}
        over: dict[int, list[StepId]] = {}
        kills: list[StepId] = []
        for due, step in self.timers.pop(now.boot_ms):
            held = self._ledger.steps.get(step)
            if held is None or held.phase not in (Phase.RUNNING, Phase.ENDING):
                continue
            if due is Due.KILL and held.kill_boot_ms and held.kill_boot_ms <= now.boot_ms:
                held.kill_boot_ms = 0
                held.killed = held.killed or held.phase is Phase.RUNNING
                kills.append(step)
            elif due is Due.TERM and held.phase is Phase.RUNNING and 0 < held.term_boot_ms <= now.boot_ms:
                self._terminate(held)
            elif held.phase is not Phase.RUNNING or not held.walltime_ms:
                continue
            elif held.suspended_boot_ms:
                continue  # its timer is set when it resumes
            elif due is Due.LIMIT and held.limit_boot_ms <= now.boot_ms:
                # What is being ended for another reason ends for that one, and no later than its limit allows.
                over.setdefault(held.template.grace_ms, []).append(step)
            elif due is Due.LIMIT_SIGNAL and not held.limit_signal_sent and held.stop is None:
                before = held.limit_boot_ms - held.template.signal_before_ms
                number = signal_number(held.template.signal)
                if before <= now.boot_ms and number:
                    held.limit_signal_sent = True
                    signals.setdefault(number, []).append(step)
        for number, steps in signals.items():
            self._spawner.signal(steps, number)
        for grace_ms, steps in over.items():
            self.stop(steps, StopReason.TIMED_OUT, grace_ms, now)
        if kills:
            self._spawner.kill(kills)

    def retime(self, held: HeldStep) -> None:
        """Set the timer again, because the step's limit has become known or has changed."""
        if not held.walltime_ms or held.phase is not Phase.RUNNING:
            return
        limit = held.limit_boot_ms
        self.timers.add(limit, Due.LIMIT, held.step)
        if held.template.signal and not held.limit_signal_sent:
            self.timers.add(limit - held.template.signal_before_ms, Due.LIMIT_SIGNAL, held.step)

    def _kill_at(self, held: HeldStep, boot_ms: int) -> None:
        held.kill_boot_ms = max(1, boot_ms)
        self.timers.add(held.kill_boot_ms, Due.KILL, held.step)

    def _report(self, held: HeldStep, ended: Ended, *remarks: str) -> StepExit:
        return exit_of_ended(
            held, ended, remarks=(*remarks, self._outputs.settle(held.step, held.template.output_bytes))
        )


def _left_text(held: HeldStep, gone: Gone) -> str:
    """Describe what a step that ended by itself left behind."""
    if not gone.killed or held.stop is not None:
        return ""
    what = "1 process it left behind was" if gone.killed == 1 else f"{gone.killed} processes it left behind were"
    return f"{what} killed"
