"""Periodic jobs: who has which, when each is due, and what happens at a due time.

Decisions only: no clock, no submission. Import names from here.
"""

from hal.planes.periodic.decision import MAX_LIVE, MAX_QUEUED, ON_TIME_MS, Decision, decide
from hal.planes.periodic.plane import MAX_OF_USER, MAX_PERIODIC, PeriodicPlane
from hal.planes.periodic.schedule import DueTimes, check_schedule, due_times, next_due_ms

__all__ = [
    "MAX_LIVE",
    "MAX_OF_USER",
    "MAX_PERIODIC",
    "MAX_QUEUED",
    "ON_TIME_MS",
    "Decision",
    "DueTimes",
    "PeriodicPlane",
    "check_schedule",
    "decide",
    "due_times",
    "next_due_ms",
]
