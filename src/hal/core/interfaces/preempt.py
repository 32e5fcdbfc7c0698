"""Preemption: a Preempt returns the cost of preempting each running attempt. Interface version preempt/1."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import PolicyInfo, RunView

INTERFACE: Final = "preempt/1"
VERSIONS: Final = (INTERFACE,)


class Preempt(Protocol):
    """Called once for each search for victims. QOS and queues determine who may be preempted.

    If any limit has `reclaim = "preempt"`, all running work is shown: work on borrowed quota may be preempted whatever
    its QOS says; `preempt_mode = "off"` does not protect it.
    """

    info: PolicyInfo

    def price(self, runs: RunView, now_ms: int) -> NDArray[np.float64]:
        """Return shape (A,), 0 or more: the cost of preempting each attempt now; inf: it is never preempted.

        Prices of the victims of one search are added up, and the cheapest set that the search finds is preempted; HAL's
        own price is `wasted`. Rounded to 1e-6 and capped at 10**9; of equals, the one that frees more is preempted
        first.
        """
        ...
