"""How processes of steps are scheduled: as others are, whatever policy HAL was started with."""

from __future__ import annotations

import os

REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)


def leave_real_time() -> None:
    """Have this thread, and what it begins, scheduled as others are, if HAL was started with a real-time policy.

    That was meant for HAL, not for its steps; and many kernels let no process with such a policy into a step's cgroup.
    """
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK in REAL_TIME:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
