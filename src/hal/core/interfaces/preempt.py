"""Whose running work is taken back first: a Preempt says what each attempt costs. Interface version preempt/1."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import PolicyInfo, RunView

INTERFACE: Final = "preempt/1"


class Preempt(Protocol):
    """Called once for each search for work to take back. Who may be taken from is said by QOS and queue.

    Where any limit has `reclaim = "preempt"`, all running work is shown: what borrowed may be taken back whatever its
    QOS says, `preempt_mode = "off"` is no protection from that.
    """

    info: PolicyInfo

    def price(self, runs: RunView, now_ms: int) -> NDArray[np.float64]:
        """Shape (A,), 0 or more: what it costs to take each attempt back now; inf: it is never taken.

        Prices of the victims of one search are added up, and the cheapest way that the search finds is taken; `wasted`
        is what HAL itself would say. Rounded to 1e-6 and cut at 10**9; of equals the one that frees more goes first.
        """
        ...
