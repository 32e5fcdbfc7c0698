"""What happens at a due time: by how late it is, and by which of the earlier jobs live.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hal.core.model.periodic import CatchUp, Overlap, RunOutcome
from hal.planes.periodic.schedule import DueTimes
from hal.store import PeriodicRow, PeriodicRun

ON_TIME_MS: Final = 60_000
"""A due time so long ago is still on time: another controller takes over within seconds, and no due time is lost."""
MAX_LIVE: Final = 100
"""Live jobs of one periodic job; further due times are skipped."""
MAX_QUEUED: Final = 10
"""The same under `overlap: queue`: those that wait for one another."""


_MISSED: Final = "HAL was down, or too busy, at that time"


class Decision(NamedTuple):
    """What is done."""

    runs: tuple[PeriodicRun, ...]
    """What is added to the history, whatever becomes of the submission."""
    due_ms: int | None
    """The due time for which a job is submitted; None: none is."""
    after: tuple[int, ...] = ()
    """Jobs whose ends it waits for."""
    cancel: tuple[int, ...] = ()
    """Jobs that are cancelled for it."""


def decide(row: PeriodicRow, due: DueTimes, live: Sequence[int], now_ms: int) -> Decision:
    """Decide what happens, now that `due` has come.

    Args:
        live: jobs of `row.live` that have not ended, ascending.
    """
    runs: list[PeriodicRun] = []

    def note(due_ms: int, outcome: RunOutcome, reason: str, times: int = 1) -> None:
        runs.append(
            PeriodicRun(
                periodic=row.id,
                number=row.runs + len(runs) + 1,
                due_ms=due_ms,
                at_ms=now_ms,
                outcome=outcome,
                times=times,
                reason=reason,
            )
        )

    if now_ms - due.last_ms > ON_TIME_MS and row.spec.catch_up is CatchUp.NONE:
        note(due.last_ms, RunOutcome.MISSED, _MISSED, due.earlier + 1)
        return Decision(tuple(runs), None)
    if due.earlier:
        note(due.before_ms, RunOutcome.MISSED, _MISSED, due.earlier)
    overlap = row.spec.overlap
    if live and overlap is Overlap.SKIP:
        note(due.last_ms, RunOutcome.SKIPPED, f"job {live[-1]} has not ended")
        return Decision(tuple(runs), None)
    most = MAX_QUEUED if overlap is Overlap.QUEUE else MAX_LIVE
    if len(live) >= most:
        note(due.last_ms, RunOutcome.SKIPPED, f"{len(live)} of its jobs have not ended")
        return Decision(tuple(runs), None)
    if overlap is Overlap.ALLOW:
        return Decision(tuple(runs), due.last_ms)
    return Decision(tuple(runs), due.last_ms, tuple(live), tuple(live) if overlap is Overlap.REPLACE else ())
