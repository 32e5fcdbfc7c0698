"""What runs in a booking ends with it: at its end, when it is made shorter, and when it is removed.

Pure. O(jobs that run), and called only when some booking begins, ends or changes.
"""

from __future__ import annotations

from hal.core.model.occurrences import current_occurrence
from hal.core.model.policy import Policy
from hal.planes.tasks.live.attempt import BOOKING_OVER, Attempt
from hal.planes.tasks.table.propagation import settle
from hal.planes.tasks.table.stops import stop_attempt
from hal.planes.tasks.table.table import JobTable

CAUSE = "booking"


def end_with_bookings(table: JobTable, now_ms: int) -> int:
    """Stop the attempts whose booking no longer holds; returns how many."""
    stopped = 0
    for job_id in sorted(job for job in table.busy if table.jobs[job].spec.booking):
        booking = table.jobs[job_id].spec.booking
        over = [a for a in table.jobs[job_id].active.values() if _is_over(table.policy, booking, a, now_ms)]
        if over:
            job = table.touch(job_id)
            for attempt in over:
                stop_attempt(table, job, attempt, BOOKING_OVER, now_ms)
            settle(table, job, now_ms, CAUSE)
        stopped += len(over)
    return stopped


def _is_over(policy: Policy, name: str, attempt: Attempt, now_ms: int) -> bool:
    """Whether the occurrence in which it was started holds no more; a start before the first one waits for it."""
    booking = policy.bookings.get(name)
    mine = None if booking is None else current_occurrence(booking, attempt.allocated_ms)
    if attempt.stopping:
        return False
    if booking is None or mine is None or mine.end_ms <= now_ms:
        return True
    return mine.start_ms > now_ms and not booking.early
